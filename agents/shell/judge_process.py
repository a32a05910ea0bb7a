"""The process in which commands are parsed and judged, one after the other, until its input ends.

On both its pipes a message is four bytes that tell its length, the highest first, and so much JSON:

    {"ready": true}                                        out, once
    {"policy": CommandPolicy.parts(), "command": TEXT}     in
    {"refused": TEXT | null}                               out, one for each

What dies here takes nothing with it. It can open no file to write to, and one command has bounded time and memory.
"""

import json
import math
import resource
import sys
from functools import lru_cache
from typing import BinaryIO

from agents.command_policy import CommandPolicy
from agents.shell.rules import refusal
from agents.shell.script import simple_commands

CPU_S = 2
"""Of the processor, for one command."""
_MEMORY = 512 << 20
"""Bytes of address space."""


def serve() -> None:
    simple_commands("true")  # Loads the parser, so that no command waits for it.
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _send(sink, {"ready": True})
    while (length := source.read(4)) != b"":
        request = json.loads(source.read(int.from_bytes(length)))
        used = resource.getrusage(resource.RUSAGE_SELF)
        # The limit counts from the process's start. What is over it ends the process.
        most = math.ceil(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        _send(sink, {"refused": refusal(_policy(json.dumps(request["policy"])), request["command"])})


@lru_cache(maxsize=16)
def _policy(parts: str) -> CommandPolicy:
    return CommandPolicy.from_parts(json.loads(parts))


def _send(sink: BinaryIO, message: dict[str, object]) -> None:
    data = json.dumps(message).encode()
    sink.write(len(data).to_bytes(4) + data)
    sink.flush()
