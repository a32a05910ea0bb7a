"""A trial of a spec whose models say what a script says: topology, roles, sandbox and verifier are the run's own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.transport import open_http
from experiments.store.attempts import raw_rows
from experiments.store.rows import Rows
from experiments.store.segment import decode
from experiments.trial import Bench, Ended, run_trial
from tests.experiment_files import small
from tests.sandbox_tasks import bubblewrap
from tests.wire_answers import anthropic_pieces
from tests.wire_provider import Provider, Script

MODEL = "sim-claude-opus-5-5"
SOLO = f"  - {{name: alone, topology: solo, roles: {{solo: {MODEL}}}}}\n"
PAIR = f"  - {{name: pair, topology: planner_worker, roles: {{planner: {MODEL}, worker: {MODEL}}}}}\n"

COST = "0.004148"
"""Dollars of each answer: 12 tokens of input at $4, 300 written at $5, 5,000 read at $0.20, 80 of output at $20, each a
million."""

TOKENS = 5392
"""Of each answer, its prompt included."""

Call = tuple[str, Mapping[str, object]]


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def note(self, line: bytes) -> None:
        self.lines.append(line)

    async def durable(self, line: bytes) -> None:
        self.lines.append(line)


def bash(command: str) -> Call:
    return "bash", {"command": command}


async def scripted(
    folder: Path, arms: str, *answers: Call | Script | None, seconds: float = 3, **spec: Any
) -> tuple[Ended, Rows, Provider]:
    """How the spec's first trial ends, its rows before anything is priced, and what its provider was asked. Each answer
    takes so many `seconds` and calls one tool; None says nothing at all."""
    scripts = [one if isinstance(one, Script) else answer(number, one, seconds) for number, one in enumerate(answers)]
    experiment, provider, kept = small(folder, arms, **spec), Provider(*scripts), Kept()
    async with open_http(simulator=provider.app) as http:
        bench = Bench(experiment, await bubblewrap(), kept, http)
        ended = await run_trial(bench, experiment.plan().trials[0], 1)
    events = [decode(line, "a test") for line in kept.lines]
    return ended, raw_rows(events, alive=False), provider


def answer(number: int, call: Call | None, seconds: float) -> Script:
    calls: Sequence[tuple[str, str, str]] = () if call is None else [(f"c{number}", call[0], json.dumps(call[1]))]
    return Script(anthropic_pieces("", calls), headers={"x-fullchain-time": f"first=1;end={seconds};tool=0"})
