"""Runs what the agent wrote, or what reads its repository, in a process that can write no file and start no other."""

import os
import resource
import selectors
import signal
import subprocess
import tempfile
import time

SECONDS = 40
OUTPUT_LIMIT = 4_000_000
_deadline = time.monotonic() + SECONDS


def confined(command, *, text="", cwd="/"):
    """(exit code, stdout, stderr), the two as text. All commands of one check together have SECONDS; then, and when one
    prints more than OUTPUT_LIMIT bytes, AssertionError is raised: the work is wrong, not unscored."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(text.encode())
        stdin.seek(0)
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_limit,
        )
    try:
        stdout, stderr = _printed(process)
        process.wait(_left())
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not done after {SECONDS} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return process.returncode, stdout, stderr


def _limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _left():
    return max(_deadline - time.monotonic(), 0.01)


def _printed(process):
    printed = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for stream in printed:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(_left())
            if not ready or time.monotonic() > _deadline:
                raise AssertionError(f"not done after {SECONDS} s")
            for key, _ in ready:
                block = os.read(key.fd, 65536)
                printed[key.fileobj] += block
                if len(printed[key.fileobj]) > OUTPUT_LIMIT:
                    raise AssertionError(f"more than {OUTPUT_LIMIT} bytes printed")
                if not block:
                    waiting.unregister(key.fileobj)
    return [bytes(text).decode("utf-8", errors="replace") for text in printed.values()]
