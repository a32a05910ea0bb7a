"""What a run shows while it runs: a bar on a terminal, a line a trial in a pipe."""

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import pytest

from experiments.cli.progress import Bar, watching
from experiments.plan import PlannedTrial
from experiments.trial import Ended
from tests.store_trials import small_plan

PASSED = Ended("submitted", "passed", None, 1.0, None, Decimal("0.25"))
BROKEN = Ended("infra_error", "unscored", "SandboxBroken: gone", None, "SandboxBroken: gone", Decimal("0.5"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def two_trials() -> tuple[PlannedTrial, PlannedTrial]:
    first, second, *_ = small_plan().trials
    return first, second


def watch_two() -> None:
    first, second = two_trials()
    with watching() as watch:
        watch.begins(2, 1, "bubblewrap", 8)
        watch.ended(first, PASSED)
        watch.ended(second, BROKEN)


def test_a_terminal_gets_a_bar_with_counts_and_dollars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with watching() as watch:
        assert isinstance(watch, Bar)
    watch_two()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "2 trials to run, 1 already finished; sandbox bubblewrap, 8 at a time" in shown
    assert "2/2 1 passed, 0 failed, 1 unscored  $0.7500" in shown
    assert f"trial {two_trials()[1].id} broke and has no score: SandboxBroken: gone" in shown


def test_a_pipe_gets_a_line_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    watch_two()
    first, second = two_trials()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split("  ")[0] for line in shown.err.splitlines()[1:3]] == [f"[1/2] {first.id}", f"[2/2] {second.id}"]
    assert "\x1b" not in shown.err


def test_a_second_ctrl_c_while_the_first_is_being_told_ends_the_process_and_shows_the_cursor() -> None:
    code = (
        "import os, signal, sys\nfrom experiments.cli.progress import Lines\n"
        "class Told:\n"
        "    inside = False\n"
        "    def isatty(self):\n        return True\n"
        "    def write(self, text):\n"
        "        if self.inside:\n            raise RuntimeError('reentrant call')\n"
        "        self.inside = True\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "    def flush(self):\n        raise RuntimeError('reentrant call')\n"
        "sys.stderr = Told()\n"
        "Lines().interrupted(signal.SIGINT)\n"
    )
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", code], stderr=theirs, timeout=60)
        os.set_blocking(ours, False)
        assert (done.returncode, os.read(ours, 4096)) == (130, b"\x1b[?25h")
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_a_trial_cost_at_least_is_marked_so(capsys: pytest.CaptureFixture[str]) -> None:
    with watching() as watch:
        watch.begins(1, 0, "bubblewrap", 8)
        watch.ended(two_trials()[0], replace(PASSED, usd=Decimal(0), usd_exact=False))
    assert capsys.readouterr().err.endswith("passed  >= $0.0000\n")
