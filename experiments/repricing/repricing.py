"""A whole experiment priced anew, beside what was measured; many calls on all cores."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from cost_model.prices import PriceBook
from experiments.errors import StoreError, UnknownExperiment
from experiments.heap import settled_heap
from experiments.repricing.batch import Batches, Trials
from experiments.repricing.prices import NewPrices
from experiments.repricing.sums import Part, Place, Sums
from experiments.store.facts import load_facts
from experiments.store.reader import Reader, attached

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH_CALLS = 100_000
"""So many calls are held in memory at once, in each process (more where one trial has more)."""

SPREAD_CALLS = 60_000
"""From so many on other processes help: below they start up for longer than they would save."""

LONGEST_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Repriced:
    """`arms` in the spec's order, with whether each was simulated."""

    arms: Mapping[str, bool]
    measured: Sums
    repriced: Sums


def reprice(
    reader: Reader,
    experiment: str,
    prices: NewPrices | None,
    *,
    arms: Sequence[str] = (),
    classes: bool = True,
    causes: bool = False,
    processes: int | None = None,
) -> Repriced:
    """Every call of all attempts of an experiment from its raw usage at other prices; None: those it was booked with.

    `classes` and `causes`: how list prices are split, beside the cost of arm, task, role and model. `processes`: so
    many at most, None for one a core. Raises UnknownExperiment, PriceMissing for a model without any price,
    JournalDamaged, PriceFileError, StoreError.
    """
    known = _arms(reader, experiment, arms)
    connection = reader.connection
    trials = _trials(connection, experiment, known)
    measured = _measured(connection, trials, classes=classes or causes, causes=causes)
    own = load_facts(connection, experiment, PriceBook)
    repriced = Sums()
    here = Batches(connection, own, own if prices is None else prices.facts(own), causes=causes)
    local, stored = _apart(connection, {trial: calls for trial, (_, _, calls) in trials.items()})
    places: Trials = {trial: (arm, task) for trial, (arm, task, _) in trials.items()}
    workers = min(processes or _cores(), len(stored))
    if workers < 2 or sum(trials[trial][2] for batch in stored for trial in batch) < SPREAD_CALLS:
        local, stored = [*local, *stored], []
    with settled_heap():
        for batch in local:
            repriced.add(here.price({trial: places[trial] for trial in batch}))
    if stored:
        job = _Job(reader.path, experiment, prices, causes)
        for sums in _spread(job, [{trial: places[trial] for trial in batch} for batch in stored], workers):
            repriced.add(sums)
    for place, counts in measured.counts.items():
        repriced.counts_of(place).in_flight = counts.in_flight
    return Repriced(known, measured, repriced)


def _arms(reader: Reader, experiment: str, arms: Sequence[str]) -> dict[str, bool]:
    lines = reader.query(
        "SELECT name, (SELECT bool_or(simulated) FROM trials WHERE trials.experiment = arms.experiment AND arm = name) "
        "FROM arms WHERE experiment = ? ORDER BY position",
        [experiment],
    ).rows
    known = {name: bool(simulated) for name, simulated in lines}
    if not known:
        load_facts(reader.connection, experiment, PriceBook)
    for arm in arms:
        if arm not in known:
            raise UnknownExperiment(f"experiment {experiment!r} has no arm {arm!r}; its arms: {', '.join(known)}")
    return {name: simulated for name, simulated in known.items() if not arms or name in arms}


def _trials(
    connection: "DuckDBPyConnection", experiment: str, arms: Mapping[str, bool]
) -> dict[str, tuple[str, str, int]]:
    """Trial id -> (arm, task, number of calls), of those that made any, in the plan's order."""
    lines = connection.execute(
        "SELECT id, arm, task, made.calls FROM trials "
        "JOIN (SELECT trial_id, count(*) AS calls FROM calls GROUP BY trial_id) AS made ON made.trial_id = id "
        "WHERE experiment = $experiment AND arm IN (SELECT unnest($arms)) ORDER BY position",
        {"experiment": experiment, "arms": list(arms)},
    ).fetchall()
    return {trial: (arm, task, calls) for trial, arm, task, calls in lines}


def _apart(connection: "DuckDBPyConnection", trials: Mapping[str, int]) -> tuple[list[list[str]], list[list[str]]]:
    """Batches of trials of which a part is in a journal only, and of those that the file holds whole."""
    stored = dict(connection.execute("SELECT trial_id, count(*) FROM store.calls GROUP BY trial_id").fetchall())
    whole = {trial: calls for trial, calls in trials.items() if stored.get(trial) == calls}
    rest = {trial: calls for trial, calls in trials.items() if trial not in whole}
    return _batches(rest), _batches(whole)


def _batches(trials: Mapping[str, int]) -> list[list[str]]:
    batches: list[list[str]] = []
    room = 0
    for trial, calls in trials.items():
        if not batches or calls > room:
            batches.append([])
            room = BATCH_CALLS
        batches[-1].append(trial)
        room -= calls
    return batches


_COST = """
SELECT trials.arm, trials.task, calls.role, calls.model, count(calls.outcome),
    count(*) FILTER (WHERE calls.outcome IS NOT NULL AND cost_usd IS NULL), count(billed_usd),
    count(*) FILTER (WHERE calls.outcome IS NULL),
    coalesce(sum(cost_low_usd), 0), coalesce(sum(cost_high_usd), 0)
FROM calls JOIN trials ON trials.id = calls.trial_id
WHERE trials.id IN (SELECT unnest($trials))
GROUP BY 1, 2, 3, 4
"""

_LISTED = """
SELECT trials.arm, trials.task, calls.role, calls.model, charges.token_class,
    CASE WHEN $causes THEN charges.cause ELSE '' END,
    sum(charges.usd_low), sum(charges.usd_high),
    CASE WHEN $causes THEN sum(charges.excess_usd) ELSE 0 END
FROM charges JOIN calls ON calls.key = charges.call JOIN trials ON trials.id = calls.trial_id
WHERE trials.id IN (SELECT unnest($trials))
GROUP BY 1, 2, 3, 4, 5, 6
"""


def _measured(connection: "DuckDBPyConnection", trials: Mapping[str, object], *, classes: bool, causes: bool) -> Sums:
    """What is stored, as it is."""
    sums = Sums()
    for *names, calls, inexact, billed, in_flight, low, high in connection.execute(
        _COST, {"trials": list(trials)}
    ).fetchall():
        place = Place(*names)
        sums.cost_of(place).add(low, high)
        counts = sums.counts_of(place)
        counts.calls, counts.inexact, counts.billed, counts.in_flight = calls, inexact, billed, in_flight
    if classes:
        lines = connection.execute(_LISTED, {"trials": list(trials), "causes": causes}).fetchall()
        for arm, task, role, model, token_class, cause, low, high, excess in lines:
            sums.listed_of(Part(Place(arm, task, role, model), token_class, cause)).add(low, high, excess)
    return sums


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Job:
    database: Path
    experiment: str
    prices: NewPrices | None
    causes: bool


def _spread(job: _Job, batches: Sequence[Trials], workers: int) -> Iterator[Sums]:
    """Processes that read the file by themselves: what they read cannot change while a Reader is open."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _open, (job,))
    try:
        futures: list[Future[Sums]] = [pool.submit(_price, batch) for batch in batches]
        for done in as_completed(futures, LONGEST_S):
            yield done.result()
    except BrokenProcessPool:
        raise StoreError(
            f"{job.database}: a process that priced a part of it was ended from outside, perhaps for want of memory; "
            "run this again with more, or with one arm at a time (--arms)"
        ) from None
    except TimeoutError:
        raise StoreError(
            f"{job.database}: pricing took over {LONGEST_S / 3600:g} hours; try one arm (--arms)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_opened: list[Batches] = []
"""In a helping process: its own view of the database, closed when the process ends."""


def _open(job: _Job) -> None:
    connection = attached(job.database)
    connection.execute("USE store; SET threads = 1; SET memory_limit = '1GB'")
    own = load_facts(connection, job.experiment, PriceBook)
    new = own if job.prices is None else job.prices.facts(own)
    _opened.append(Batches(connection, own, new, causes=job.causes))


def _price(trials: Trials) -> Sums:
    with settled_heap():
        return _opened[0].price(trials)
