"""A reverse proxy before the model's server: it notes by the server's own counters what each request did there."""

import http.client
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.local_llm.small_server import LOCAL, Counters, SmallServer

UPSTREAM_S = 300


_CONVERSATION = re.compile(rb"\[run ([0-9a-f]{16})\].{0,40}?Your role: (\w+)\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: the nonce and role that it names, what the server counted for it, and whether another conversation
    was held just before it."""

    path: str
    nonce: str
    role: str
    counted: Counters
    intruded: bool


@dataclass(slots=True)
class Recording:
    """`port` is the proxy's. The first `intrusions` requests that continue a conversation each find that another one,
    of a stranger, has been held with the server, which has one slot."""

    port: int
    intrusions: int = 1
    seen: list[Seen] = field(default_factory=list)

    def intrudes(self, nonce: str, role: str) -> bool:
        continues = any((each.nonce, each.role) == (nonce, role) for each in self.seen)
        return continues and sum(each.intruded for each in self.seen) < self.intrusions


@contextmanager
def recording_proxy(server: SmallServer) -> Iterator[Recording]:
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = _CONVERSATION.search(body)
            nonce, role = (found[1].decode(), found[2].decode()) if found else ("", "")
            # A client may go on before the last byte of an answer: its next request waits for the count of this one.
            with one_at_a_time:
                intruded = recording.intrudes(nonce, role)
                if intruded:
                    _intrude(server)
                before = server.counters()
                self._pass_on(body)
                counted = server.counters() - before
                recording.seen.append(Seen(self.path, nonce, role, counted, intruded))

        def _pass_on(self, body: bytes) -> None:
            upstream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=UPSTREAM_S)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                upstream.request("POST", self.path, body, headers)
                answer = upstream.getresponse()
                self.send_response(answer.status)
                self.send_header("content-type", answer.getheader("content-type") or "application/json")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                while chunk := answer.read1(1 << 16):
                    self._write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self._write(b"0\r\n\r\n")
            finally:
                upstream.close()

        def _write(self, piece: bytes) -> None:
            try:
                self.wfile.write(piece)
                self.wfile.flush()
            except OSError:
                # The client has read what it needs and gone.
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        proxy.daemon_threads = True
        recording = Recording(proxy.server_address[1])
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield recording
        finally:
            proxy.shutdown()
            thread.join(20)


def _intrude(server: SmallServer) -> None:
    """Another conversation, of a few tokens: it takes the one slot that there is."""
    body = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with LOCAL.open(request, timeout=UPSTREAM_S) as answer:
        answer.read()
