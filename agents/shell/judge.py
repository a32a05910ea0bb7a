"""Judges commands in a process of its own: the parser is C code, and what it reads is written by models.

    Judge ── policy, command ──▶ agents.shell.judge_process ── refused, or not ──▶ Judge

A process that dies over a command, takes too long or answers rubbish costs that command alone: it is refused, and the
next one is judged by a new process.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import agents
from agents.command_policy import CommandPolicy, refused
from agents.errors import JudgeMissing
from agents.shell.script import MOST_BYTES
from harbor_tasks.sandbox.machine import to_its_end

UNREADABLE: Final = refused(None, "the command cannot be read as a shell command; write it in a simpler way")

_ANSWER_S = 10.0
"""Beyond it a command counts as one that cannot be read. Its processor time has an end before that."""
_START_S = 60.0
_MOST_ANSWER = 1 << 16
_LONGEST = 8_192
_ROOT = str(Path(agents.__file__).parent.parent)
_START = "import sys; sys.path.insert(0, sys.argv[1]); from agents.shell.judge_process import serve; serve()"
_PROGRAM = (sys.executable, "-I", "-c", _START, _ROOT)
_GONE = (TimeoutError, OSError, EOFError, ValueError, RecursionError)
"""It is too slow, dead, or speaks rubbish (the last two)."""
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that it learns of our environment, where keys may stand: what some interpreters need to start."""


class Judge:
    """One attempt's. The process is started when the first command is to be judged, and ends with `close`.

    `program` is what is started: it speaks as `agents.shell.judge_process` does."""

    def __init__(self, program: Sequence[str] = _PROGRAM, *, answer_s: float = _ANSWER_S) -> None:
        self._program = program
        self._answer_s = answer_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Judge"]:
        judge = cls()
        try:
            yield judge
        finally:
            await to_its_end(judge.close())

    async def refusal(self, policy: CommandPolicy, command: str) -> str | None:
        """Why it is refused, in one line; None where it may run. Raises JudgeMissing when no process can be started."""
        if len(command.encode(errors="replace")) > MOST_BYTES:
            return refused(None, f"the command cannot be judged: it has more than {MOST_BYTES} bytes; make it shorter")
        request = _framed({"policy": policy.parts(), "command": command})
        async with self._turn:
            answered = False
            try:
                process = self._process
                if process is None or process.returncode is not None:
                    process = await self._start()
                try:
                    async with asyncio.timeout(self._answer_s):
                        answer = _refusal(await _asked(process, request))
                except _GONE:
                    return UNREADABLE
                answered = True
                return answer
            finally:
                # A cancelled one too: its answer would come out as that to the next command.
                if not answered:
                    await to_its_end(self.close())

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._program,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                # Whoever interrupts us in a terminal leaves its end to us.
                start_new_session=True,
            )  # fmt: skip
            async with asyncio.timeout(_START_S):
                ready = await _asked(process, b"")
        except _GONE as error:
            raise JudgeMissing(_missing(str(error) or type(error).__name__)) from error
        if ready != {"ready": True}:
            raise JudgeMissing(_missing("it says something else than that it is ready"))
        return process


def _missing(why: str) -> str:
    return (
        f"the process that judges commands for a command_policy does not start ({why}); see what "
        f'`cd {_ROOT} && {sys.executable} -c "import tree_sitter, tree_sitter_bash"` says'
    )


def _framed(message: dict[str, object]) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(4) + data


async def _asked(process: asyncio.subprocess.Process, request: bytes) -> object:
    """Raises OSError or EOFError where the process has gone, ValueError where it answers no message."""
    writer, reader = process.stdin, process.stdout
    if writer is None or reader is None:
        raise EOFError("it has no pipes")
    writer.write(request)
    await writer.drain()
    length = int.from_bytes(await reader.readexactly(4))
    if length > _MOST_ANSWER:
        raise ValueError(length)
    answer: object = json.loads(await reader.readexactly(length))
    return answer


def _refusal(answer: object) -> str | None:
    """Raises ValueError where it is none."""
    match answer:
        case {"refused": None, **rest} if not rest:
            return None
        case {"refused": str(text), **rest} if not rest and text and "\n" not in text and len(text) <= _LONGEST:
            return text
    raise ValueError(answer)
