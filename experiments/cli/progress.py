"""What a run shows while it runs: a bar on a terminal, plain lines in a pipe."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING

from experiments.cli.terminal import console, one_line, say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from experiments.budget import Budget
    from experiments.plan import PlannedTrial
    from experiments.trial import Ended

SHOW_CURSOR = "\x1b[?25h"
"""A progress bar hides it."""
STDERR = 2
"""The descriptor."""


class Lines:
    """Plain lines: one when a trial ends."""

    def __init__(self) -> None:
        self.total = self.done = 0
        self.spent, self.exact = Decimal(0), True
        self.budget: Budget | None = None

    def begins(self, pending: int, finished: int, sandbox: str, concurrency: int) -> None:
        self.total = pending
        already = f", {finished} already finished" if finished else ""
        self.tell(f"{pending} trials to run{already}; sandbox {one_line(sandbox)}, {concurrency} at a time")

    def ended(self, trial: "PlannedTrial", ended: "Ended") -> None:
        self._count(ended)
        against = f"; {self._spending()}" if self.budget else ""
        self.tell(f"[{self.done}/{self.total}] {_summary(trial, ended)}{against}")
        self._broken(trial, ended)

    def budgeted(self, budget: "Budget") -> None:
        self.budget = budget

    def out_of_money(self) -> None:
        self.tell(f"the budget is used up ({self._spending()}): trials that need a further call end without a score")

    def skipped(self, task: str, reason: str) -> None:
        self.tell(f"skipped task {one_line(task)}: {one_line(reason)}")

    def warns(self, warning: str) -> None:
        self.tell(f"warning: {one_line(warning)}")

    def interrupted(self, which: signal.Signals) -> None:
        """The next signal ends the process where it stands: the journal has every call, the sandboxes die with it."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, _end_at_once)
        self.tell(f"{which.name}: stopping the trials that run; once more ends at once")

    def tell(self, line: str) -> None:
        say(line, stderr=True)

    def _spending(self) -> str:
        """What is spent: of the budget, which counts all runs, else of the trials that have ended."""
        if self.budget is None:
            return _dollars(self.spent, exact=self.exact)
        return f"${self.budget.spent:.4f} of ${self.budget.usd:,.2f} spent"

    def _count(self, ended: "Ended") -> None:
        self.done += 1
        self.spent += ended.usd
        self.exact = self.exact and ended.usd_exact

    def _broken(self, trial: "PlannedTrial", ended: "Ended") -> None:
        if ended.error:
            self.tell(f"trial {trial.id} broke and has no score: {one_line(ended.error)} (`fullchain show {trial.id}`)")


class Bar(Lines):
    """A progress bar with counts and dollars; what needs attention stands above it."""

    def __init__(self, progress: "Progress", row: "TaskID") -> None:
        super().__init__()
        self._progress, self._row = progress, row
        self._passed = self._failed = self._unscored = 0

    def begins(self, pending: int, finished: int, sandbox: str, concurrency: int) -> None:
        super().begins(pending, finished, sandbox, concurrency)
        self._progress.update(self._row, total=pending, visible=True, said=self)

    def ended(self, trial: "PlannedTrial", ended: "Ended") -> None:
        self._count(ended)
        self._passed += ended.outcome == "passed"
        self._failed += ended.outcome == "failed"
        self._unscored += ended.outcome == "unscored"
        self._progress.update(self._row, advance=1)
        self._broken(trial, ended)

    def __str__(self) -> str:
        """What stands beside the bar, asked for each time that it is drawn: money is spent between two trials' ends."""
        return f"{self._passed} passed, {self._failed} failed, {self._unscored} unscored  {self._spending()}"

    def tell(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def watching() -> Iterator[Lines]:
    """A bar when stderr is a terminal, else plain lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as progress:
        yield Bar(progress, progress.add_task("trials", total=None, visible=False, said=""))


def _end_at_once(number: int, frame: object) -> None:
    # Past sys.stderr: the signal may have come while it was being written, and it cannot be entered twice.
    if os.isatty(STDERR):
        with suppress(OSError):
            os.write(STDERR, SHOW_CURSOR.encode())
    os._exit(128 + number)


def _summary(trial: "PlannedTrial", ended: "Ended") -> str:
    how = "" if ended.ended_by == "submitted" else f" ({ended.ended_by})"
    which = f"{trial.id}  {trial.arm}  {one_line(trial.task)}  repeat {trial.repeat + 1}"
    return f"{which}: {ended.outcome}{how}  {_dollars(ended.usd, exact=ended.usd_exact)}"


def _dollars(usd: Decimal, *, exact: bool) -> str:
    """The least that it can be, and marked so, where a call's cost is not known: never 0 for unknown."""
    return f"${usd:.4f}" if exact else f">= ${usd:.4f}"
