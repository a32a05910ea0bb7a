"""A client of the simulated provider for its tests: plain HTTP on both protocols, and roles that play to their end."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import yaml

import agents.simulated

ANTHROPIC = "sim-claude-opus-5-5"
DEEPSEEK = "sim-deepseek-v4-flash"
GPT = "sim-gpt-6.1-sol"
SONNET = "sim-claude-sonnet-5-5"
ENCRYPTED = "reasoning.encrypted_content"
EPOCH = datetime(2026, 1, 5, 12, tzinfo=UTC)
NONCE = "0123456789abcdef"

HANDOVERS = {
    "solo": [("submit", "report")],
    "planner": [("delegate", "brief"), ("approve", "summary")],
    "worker": [("submit", "report")],
}


def timing(header: str) -> dict[str, float]:
    return {name: float(value) for name, value in (part.split("=") for part in header.split(";"))}


def tools(role: str, nonce: str = NONCE) -> list[tuple[str, str, str]]:
    """(name, description, parameter)."""
    bash = ("bash", f"[run {nonce}] Runs one command in a shell. " + "Output is cut when it is long. " * 8, "command")
    return [bash, *((name, f"Hands over by {name}.", parameter) for name, parameter in HANDOVERS[role])]


def schema(parameter: str) -> dict[str, object]:
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


def system_text(role: str, nonce: str = NONCE) -> str:
    rules = "Work carefully, look before you change anything, and check what you did against the task's text. " * 45
    return f"[run {nonce}]\nYour role: {role}.\n\n{rules}"


def anthropic_head(role: str, nonce: str = NONCE, **more: object) -> dict[str, Any]:
    return {
        "model": ANTHROPIC,
        "max_tokens": 8000,
        "tools": [
            {"name": name, "description": text, "input_schema": schema(parameter)}
            for name, text, parameter in tools(role, nonce)
        ],
        "system": [{"type": "text", "text": system_text(role, nonce), "cache_control": {"type": "ephemeral"}}],
        **more,
    }


def openai_head(role: str, nonce: str = NONCE, **more: object) -> dict[str, Any]:
    return {
        "model": DEEPSEEK,
        "tools": [
            {"type": "function", "function": {"name": name, "description": text, "parameters": schema(parameter)}}
            for name, text, parameter in tools(role, nonce)
        ],
        **more,
    }


def responses_head(role: str, nonce: str = NONCE, **more: object) -> dict[str, Any]:
    return {
        "model": GPT,
        "store": False,
        "include": [ENCRYPTED],
        "tools": [
            {"type": "function", "name": name, "description": text, "parameters": schema(parameter), "strict": False}
            for name, text, parameter in tools(role, nonce)
        ],
        **more,
    }


def said(role: str, text: str, **more: object) -> dict[str, Any]:
    """An input message of the Responses protocol; `more` stands at its one part."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text, **more}]}


def persona_file(path: Path, base: str, name: str, **changes: object) -> Path:
    """A copy of a shipped persona under another name, with fields changed."""
    folder = Path(agents.simulated.__file__).parent / "personas"
    (source,) = folder.rglob(f"{base}.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(source.read_text()), "model": name, **changes}))
    return path


@dataclass
class Reply:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]
    raw: bytes = b""

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.body["usage"]
        return usage

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Client:
    """`app` in this process, or `base_url` over the network. `at` is the virtual time of the next request."""

    def __init__(self, app: Any = None, base_url: str = "http://simulated", key: str = "key-1") -> None:
        transport = None if app is None else httpx2.ASGITransport(app=app)
        self._http = httpx2.AsyncClient(transport=transport, base_url=base_url, timeout=20, trust_env=False)
        self.key = key

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(
        self, path: str, body: object, *, at: datetime | None = EPOCH, headers: Mapping[str, str] | None = None
    ) -> Reply:
        sent = {"content-type": "application/json"}
        if path == "/v1/messages":
            sent |= {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        else:
            sent |= {"authorization": f"Bearer {self.key}"}
        if at is not None:
            sent["x-fullchain-time"] = at.isoformat(timespec="microseconds")
        sent |= headers or {}
        content = body if isinstance(body, bytes) else compact(body)
        response = await self._http.post(path, content=content, headers={k: v for k, v in sent.items() if v})
        raw = response.content
        stream = response.headers["content-type"].startswith("text/event-stream")
        parsed = {} if stream else json.loads(raw) if raw else {}
        return Reply(response.status_code, parsed, response.headers, raw)

    async def get(self, path: str, headers: Mapping[str, str]) -> Reply:
        response = await self._http.get(path, headers=dict(headers))
        return Reply(response.status_code, response.json(), response.headers, response.content)

    async def messages(self, body: object, **more: Any) -> Reply:
        return await self.post("/v1/messages", body, **more)

    async def chat(self, body: object, **more: Any) -> Reply:
        return await self.post("/v1/chat/completions", body, **more)

    async def responses(self, body: object, **more: Any) -> Reply:
        return await self.post("/v1/responses", body, **more)


def events(raw: bytes) -> list[dict[str, Any]]:
    """The data objects of an event stream, in order; [DONE] is left out."""
    lines = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


Execute = Callable[[str], str]


@dataclass
class Played:
    """One visit: (command, output) pairs, then the tool that ended it and its text."""

    commands: list[tuple[str, str]] = field(default_factory=list)
    handover: str = ""
    payload: str = ""
    tool_call: str = ""


class Role:
    """An append-only conversation of one role with marks as an agent loop places them, on a clock of its own."""

    def __init__(self, client: Client, role: str, *, cheap: bool = False, nonce: str = NONCE) -> None:
        self._client = client
        self._cheap = cheap
        self._names = {name for name, _, _ in tools(role)}
        self._head = openai_head(role, nonce) if cheap else anthropic_head(role, nonce)
        self._messages: list[dict[str, Any]] = (
            [{"role": "system", "content": system_text(role, nonce)}] if cheap else []
        )
        self._pending = ""
        self.replies: list[Reply] = []

    def hear(self, text: str) -> None:
        """What comes at the beginning of a visit: a message, or the result of the hand-over that ended the last."""
        if self._pending:
            self._result(self._pending, text)
        else:
            self._messages.append({"role": "user", "content": text if self._cheap else [_text(text)]})

    def _result(self, call: str, text: str) -> None:
        if self._cheap:
            self._messages.append({"role": "tool", "tool_call_id": call, "content": text})
        else:
            block = {"type": "tool_result", "tool_use_id": call, "content": text}
            self._messages.append({"role": "user", "content": [block]})

    def body(self) -> dict[str, Any]:
        messages = [dict(message) for message in self._messages]
        if not self._cheap:
            last = messages[-1]
            last["content"] = [*last["content"][:-1], last["content"][-1] | {"cache_control": {"type": "ephemeral"}}]
        return {**self._head, "messages": messages}

    async def visit(self, execute: Execute, now: datetime, limit: int = 120) -> tuple[Played, datetime]:
        played = Played()
        for _ in range(limit):
            path = "/v1/chat/completions" if self._cheap else "/v1/messages"
            reply = await self._client.post(path, self.body(), at=now)
            assert reply.status == 200, reply.body
            self.replies.append(reply)
            took = timing(reply.headers["x-fullchain-time"])
            now += timedelta(seconds=took["end"])
            call, name, text = self._hear_answer(reply.body)
            if name != "bash":
                played.handover, played.payload, self._pending = name, text, call
                return played, now
            output = execute(text)
            played.commands.append((text, output))
            now += timedelta(seconds=took["tool"])
            self._result(call, output)
        raise AssertionError("the visit did not end")

    def _hear_answer(self, body: dict[str, Any]) -> tuple[str, str, str]:
        if self._cheap:
            message = body["choices"][0]["message"]
            call = message["tool_calls"][0]
            self._messages.append({"role": "assistant", "content": message["content"], "tool_calls": [call]})
            arguments = json.loads(call["function"]["arguments"])
            return call["id"], call["function"]["name"], next(iter(arguments.values()))
        self._messages.append({"role": "assistant", "content": body["content"]})
        call = body["content"][-1]
        return call["id"], call["name"], next(iter(call["input"].values()))


class Lane(ABC):
    """An append-only conversation of a thinking model with tools, which sends back verbatim what it was answered."""

    path: str

    def __init__(self, model: str, nonce: str = NONCE, **more: object) -> None:
        self.model, self.more = model, more
        self.head: dict[str, Any] = {}
        self.messages: list[dict[str, Any]] = []

    @abstractmethod
    def hear(self, text: str) -> None:
        """A message of the user."""

    @abstractmethod
    def results(self, output: str) -> None:
        """The same output for each call of the last answer."""

    @abstractmethod
    def answered(self, body: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Keeps an answer; returns its calls as (id, tool, text)."""

    @abstractmethod
    def tokens(self, usage: dict[str, Any]) -> tuple[int, int, int, int, int]:
        """(read, written, all of the prompt, output, thinking)."""

    def body(self) -> dict[str, Any]:
        return {**self.head, "messages": self.messages, **self.more}

    async def turn(self, client: Client, at: datetime) -> tuple[Reply, list[tuple[str, str, str]]]:
        reply = await client.post(self.path, self.body(), at=at)
        assert reply.status == 200, reply.body
        return reply, self.answered(reply.body)


class AnthropicLane(Lane):
    path = "/v1/messages"

    def __init__(self, model: str = SONNET, nonce: str = NONCE, **more: object) -> None:
        super().__init__(model, nonce, **more)
        self.head = anthropic_head("solo", nonce, model=model)
        self._waiting: list[str] = []

    def hear(self, text: str) -> None:
        self.messages.append({"role": "user", "content": [_text(text)]})

    def results(self, output: str) -> None:
        content = [{"type": "tool_result", "tool_use_id": call, "content": output} for call in self._waiting]
        self.messages.append({"role": "user", "content": content})

    def answered(self, body: dict[str, Any]) -> list[tuple[str, str, str]]:
        self.messages.append({"role": "assistant", "content": body["content"]})
        calls = [block for block in body["content"] if block["type"] == "tool_use"]
        self._waiting = [call["id"] for call in calls]
        return [(call["id"], call["name"], next(iter(call["input"].values()))) for call in calls]

    def body(self) -> dict[str, Any]:
        messages = [dict(message) for message in self.messages]
        for message in [message for message in messages if message["role"] == "user"][-2:]:
            *before, last = message["content"]
            message["content"] = [*before, {**last, "cache_control": {"type": "ephemeral"}}]
        return {**self.head, "messages": messages, **self.more}

    def tokens(self, usage: dict[str, Any]) -> tuple[int, int, int, int, int]:
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        thinking = usage.get("output_tokens_details", {}).get("thinking_tokens", 0)
        return read, written, read + written + usage["input_tokens"], usage["output_tokens"], thinking


class ChatLane(Lane):
    path = "/v1/chat/completions"

    def __init__(self, model: str, nonce: str = NONCE, **more: object) -> None:
        super().__init__(model, nonce, **more)
        self.head = openai_head("solo", nonce, model=model)
        self.messages.append({"role": "system", "content": system_text("solo", nonce)})
        self._waiting: list[str] = []

    def hear(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def results(self, output: str) -> None:
        self.messages += [{"role": "tool", "tool_call_id": call, "content": output} for call in self._waiting]

    def answered(self, body: dict[str, Any]) -> list[tuple[str, str, str]]:
        message = body["choices"][0]["message"]
        self.messages.append({key: value for key, value in message.items() if value is not None})
        calls = message.get("tool_calls", [])
        self._waiting = [call["id"] for call in calls]
        return [(call["id"], call["function"]["name"], _first(call["function"]["arguments"])) for call in calls]

    def tokens(self, usage: dict[str, Any]) -> tuple[int, int, int, int, int]:
        prompt, details = usage["prompt_tokens"], usage["prompt_tokens_details"]
        thinking = usage["completion_tokens_details"]["reasoning_tokens"]
        written = details.get("cache_write_tokens", 0)
        return details["cached_tokens"], written, prompt, usage["completion_tokens"], thinking


class ResponsesLane(Lane):
    path = "/v1/responses"

    def __init__(self, model: str = GPT, nonce: str = NONCE, **more: object) -> None:
        super().__init__(model, nonce, **more)
        self.head = responses_head("solo", nonce, model=model)
        self.messages.append(said("developer", system_text("solo", nonce)))
        self._waiting: list[str] = []

    def hear(self, text: str) -> None:
        self.messages.append(said("user", text))

    def results(self, output: str) -> None:
        self.messages += [{"type": "function_call_output", "call_id": call, "output": output} for call in self._waiting]

    def answered(self, body: dict[str, Any]) -> list[tuple[str, str, str]]:
        self.messages += body["output"]
        calls = [item for item in body["output"] if item["type"] == "function_call"]
        self._waiting = [call["call_id"] for call in calls]
        return [(call["call_id"], call["name"], _first(call["arguments"])) for call in calls]

    def body(self) -> dict[str, Any]:
        return {**self.head, "input": self.messages, **self.more}

    def tokens(self, usage: dict[str, Any]) -> tuple[int, int, int, int, int]:
        details = usage["input_tokens_details"]
        thinking = usage["output_tokens_details"]["reasoning_tokens"]
        written = details["cache_write_tokens"]
        return details["cached_tokens"], written, usage["input_tokens"], usage["output_tokens"], thinking


def _first(arguments: str) -> str:
    return str(next(iter(json.loads(arguments).values())))


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
