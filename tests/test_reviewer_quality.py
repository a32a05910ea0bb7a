"""The measured errors of simulated reviewers, against truths from the shadow, hold the rates that their personas state.

FULLCHAIN_PROOFS=reduced makes it fit a gate.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.simulated.persona import load_personas
from experiments.runner import run_experiment
from experiments.store.reader import query
from tests.experiment_files import small
from tests.sandbox_tasks import needs_isolation

REDUCED = os.environ.get("FULLCHAIN_PROOFS") == "reduced"
REPEATS = 5 if REDUCED else 30
CONFIDENCE = 0.99
TASKS = ", ".join(f"bundled/{name}" for name in ("archive-intake", "checkout-incident", "tenant-billing"))
"""Not parcel-history: what an earlier round left in its repository stays in the diff, and hides from a simulated
reviewer which script was played last."""

ARMS = "".join(
    f"""\
  - name: {reviewer}
    topology: worker_reviewer
    roles: {{worker: sim-deepseek-v4-flash, reviewer: {reviewer}}}
    parameters: {{tools: false}}
"""
    for reviewer in ("sim-claude-opus-5-5", "sim-deepseek-v4-flash")
)


def at_most(k: int, n: int, rate: float) -> float:
    """The probability of `k` or fewer of `n`."""
    return sum(math.comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(k + 1))


def interval(k: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's, in which the rate lies with the confidence at least."""
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if k == 0 else root(lambda rate: 1 - at_most(k - 1, n, rate) < tail)
    return low, 1.0 if k == n else root(lambda rate: at_most(k, n, rate) > tail)


def root(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


@pytest.mark.parametrize(
    ("k", "n", "expected"), [(0, 10, (0.0, 0.4113)), (5, 10, (0.1283, 0.8717)), (9, 9, (0.5550, 1.0))]
)
def test_the_interval_is_the_one_of_the_tables(k: int, n: int, expected: tuple[float, float]) -> None:
    assert interval(k, n) == pytest.approx(expected, abs=2e-4)


@pytest.mark.slow
@needs_isolation
@pytest.mark.timeout(3600)
async def test_recall_and_false_rejects_come_back_within_their_intervals(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    report = await run_experiment(
        small(tmp_path, ARMS, tasks=TASKS, repeats=REPEATS, more="shadow_verify: true\nkeep_states: false\n"),
        database,
    )
    assert report.broken == 0
    ((unknown,),) = query(database, "SELECT count(*) FROM reviews WHERE truth IS NULL").rows
    assert unknown == 0, "every verdict has got its truth"
    personas = load_personas()
    found = query(database, 'SELECT model, wrong, caught, "right", false_rejects FROM reviewer_quality').rows
    assert len(found) == 2
    for model, wrong, caught, right, false_rejects in found:
        stated = personas[model].reviewing
        for rate, k, n in ((stated.recall, caught, wrong), (stated.false_reject, false_rejects, right)):
            low, high = interval(k, n)
            told = f"{k} of {n} = {k / n:.3f}, 99 % interval {low:.3f} to {high:.3f}, stated {rate}"
            print(f"\n{model}: {told}")  # noqa: T201 (a proof prints its figure)
            assert low <= rate <= high
            assert REDUCED or high - low < 0.45, "enough reviews to tell"
