"""The owner of the database file: registers plans, merges what journals hold, recovers what dead runs left.

Every operation opens the file for a moment and closes it again; while another process holds it, it is retried, then
StoreLocked is raised and nothing has changed. All methods block: call them in a thread from async code.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.errors import JournalDamaged, SettlementRefused, StoreError
from experiments.plan import Plan
from experiments.store import migrations
from experiments.store.attempts import DIED, attempt_rows
from experiments.store.database import PATIENCE_S, Columns, bulk_insert, one_line, opened, table_columns, unfit
from experiments.store.facts import experiments_of, load_facts, unmerged
from experiments.store.journal import Event
from experiments.store.ledger import Facts, ModelFacts
from experiments.store.rebuild import rebuild
from experiments.store.registration import (
    arm_rows,
    experiment_row,
    refresh_experiment,
    refuse_changed,
    task_rows,
    trial_rows,
)
from experiments.store.rows import Row, Rows
from experiments.store.segment import Segment, by_attempt, claimed, segments
from experiments.store.settle import settle_trials
from experiments.store.settlements import Settlement, new_ones, settlement_rows, stored_settlements

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cost_model.prices import PriceBook

BATCH = 200
"""Attempts a transaction: bounds the memory of a recovery."""


class KnownTrial(NamedTuple):
    """`attempts` is the highest attempt number that is stored, 0 for none: the next one is one more."""

    semantic_hash: str
    finished: bool
    attempts: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What dead runs had left: `attempts` merged, of which `died` had no end; `lost_calls` were sent and never recorded
    as answered. `left` names segments that could not be merged, each with the reason: they stay where they are."""

    attempts: int = 0
    died: int = 0
    lost_calls: int = 0
    left: tuple[str, ...] = ()


class _Merged(NamedTuple):
    """What was new, and what could not be booked."""

    attempts: list[Row]
    calls: list[Row]
    problems: list[str]


class Store:
    """`prices` is asked for what the database has no price card for yet; None takes the shipped ones.

    Raises StoreLocked, StoreNewer or StoreError from every method.
    """

    def __init__(self, path: Path, prices: "PriceBook | None" = None, *, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self.patience_s = patience_s
        self._prices = prices
        self._one_at_a_time = threading.Lock()
        self._facts: dict[str, Facts] = {}
        self._experiments: dict[str, str] = {}
        self._columns: Mapping[str, Columns] | None = None

    def upgrade(self) -> None:
        """Creates the file when it is missing, and brings an older one to the newest schema."""
        with self._open():
            pass

    def register(
        self, plan: Plan, models: Mapping[str, ModelFacts], *, spec: Mapping[str, object] | None = None
    ) -> None:
        """Makes the plan's experiment, arms, tasks and trials known; what is known already stays as it is.

        `models` by registry name, for every model of the plan; `spec` the validated spec as JSON-able data.
        Raises PlanChanged when a stored trial has another semantic hash, PriceMissing when a model has no price.
        """
        now = datetime.now(UTC)
        with self._transaction() as (connection, insert):
            insert("experiments", [experiment_row(plan, models, spec, now)])
            refresh_experiment(connection, plan, models, spec)
            insert("arms", arm_rows(plan))
            insert("tasks", task_rows(plan))
            insert("trials", trial_rows(plan))
            refuse_changed(connection, plan)
            facts = self._load_facts(connection, plan.experiment)
            for name in models:
                facts.card(name, plan.virtual_epoch or now)
            insert("prices", facts.cards.new_rows())
        self._experiments |= {trial.id: plan.experiment for trial in plan.trials}

    def known_trials(self, experiment: str) -> dict[str, KnownTrial]:
        """By trial id; empty for an unknown experiment. Merge what dead runs left first: see `recover`."""
        if not self.path.exists():
            return {}
        with self._open() as connection:
            rows = connection.execute(
                "SELECT id, semantic_hash, final_attempt IS NOT NULL, "
                "coalesce((SELECT max(attempt) FROM attempts WHERE trial_id = trials.id), 0) "
                "FROM trials WHERE experiment = ?",
                [experiment],
            ).fetchall()
        return {trial: KnownTrial(digest, finished, attempts) for trial, digest, finished, attempts in rows}

    def known_parts(self, experiment: str) -> dict[str, dict[str, dict[str, object]]]:
        """What the stored trials' hashes cover: {"arms": {name: parts}, "tasks": {name: parts}}; both empty when
        nothing is stored."""
        found: dict[str, dict[str, dict[str, object]]] = {"arms": {}, "tasks": {}}
        if self.path.exists():
            with self._open() as connection:
                for table, parts in found.items():
                    for name, text in connection.execute(
                        f"SELECT name, parts FROM {table} WHERE experiment = ?",  # noqa: S608
                        [experiment],
                    ).fetchall():
                        parts[name] = json.loads(text)
        return found

    def merge(self, attempts: Sequence[Sequence[Event]]) -> list[str]:
        """Stores ended attempts, each given by all of its events, in one transaction; known ones are left alone.

        Returns what could not be booked, a line an attempt; the others are stored all the same.
        """
        where = "a finished attempt"
        events = (event for events in attempts for event in events)
        return self._merge(by_attempt(events, where), where).problems if attempts else []

    def recover(self) -> Recovered:
        """Merges the segments of dead owners and removes them. Harmless to repeat, and to be killed in.

        An attempt without an end is stored as ended by infra_error. Raises StoreLocked while another process holds the
        file: the segments stay.
        """
        total = Recovered()
        for segment in segments(self.path):
            with claimed(segment) as ours:
                if ours:
                    total = self._recover(segment, total)
        return total

    def rebuild_charges(self, experiment: str) -> None:
        """Books all calls of an experiment anew, from their stored raw usage and price cards alone.

        Raises UnknownExperiment.
        """
        with self._transaction() as (connection, _):
            facts = self._load_facts(connection, experiment)
            attempts = connection.execute(
                "SELECT DISTINCT trial_id, attempt FROM calls WHERE trial_id IN "
                "(SELECT id FROM trials WHERE experiment = ?) ORDER BY ALL",
                [experiment],
            ).fetchall()
            for start in range(0, len(attempts), BATCH):
                rebuild(connection, attempts[start : start + BATCH], facts)
            bulk_insert(connection, "prices", facts.cards.new_rows(), table_columns(connection)["prices"])

    def settle(self, experiment: str, told: Sequence[Settlement]) -> list[str]:
        """Stores what bills tell of calls of the experiment, and books their attempts anew: later calls read what a
        settled one wrote. Returns the keys that are newly settled; what is settled so already stays as it is.

        Raises UnknownExperiment, SettlementRefused for a bill that contradicts an earlier one or names a call that is
        not the experiment's: then nothing has changed.
        """
        with self._transaction() as (connection, insert):
            facts = self._load_facts(connection, experiment)
            keys = sorted({each.call for each in told})
            owners = {
                key: (trial, attempt)
                for key, trial, attempt in connection.execute(
                    "SELECT key, trial_id, attempt FROM calls JOIN trials ON trials.id = trial_id "
                    "WHERE experiment = $experiment AND calls.outcome IS NOT NULL AND key IN (SELECT unnest($keys))",
                    {"experiment": experiment, "keys": keys},
                ).fetchall()
            }
            stranger = next((key for key in keys if key not in owners), None)
            if stranger is not None:
                raise SettlementRefused(f"the call {stranger} is no ended call of experiment {experiment!r}")
            new = new_ones(told, stored_settlements(connection, keys))
            insert("settlements", settlement_rows(new, datetime.now(UTC).isoformat()))
            attempts = sorted({owners[each.call] for each in new})
            for start in range(0, len(attempts), BATCH):
                rebuild(connection, attempts[start : start + BATCH], facts)
            insert("prices", facts.cards.new_rows())
        return [each.call for each in new]

    def _recover(self, segment: Segment, total: Recovered) -> Recovered:
        try:
            attempts = segment.attempts()
        except JournalDamaged as damage:
            return replace(total, left=(*total.left, str(damage)))
        names, whole = list(attempts), True
        for start in range(0, len(names), BATCH):
            merged = self._merge({name: attempts[name] for name in names[start : start + BATCH]}, str(segment.path))
            total = Recovered(
                attempts=total.attempts + len(merged.attempts),
                died=total.died + sum(1 for row in merged.attempts if row["error"] == DIED),
                lost_calls=total.lost_calls + sum(1 for row in merged.calls if row["outcome"] == "lost"),
                left=(*total.left, *merged.problems),
            )
            whole = whole and not merged.problems
        if whole:
            segment.path.unlink(missing_ok=True)
        return total

    def _merge(self, attempts: Mapping[tuple[str, int], Sequence[Event]], where: str) -> _Merged:
        if any(trial not in self._experiments for trial, _ in attempts):
            with self._open() as connection:
                self._load_experiments(connection, {trial for trial, _ in attempts})
        booked: dict[tuple[str, int], Rows] = {}
        merged = _Merged([], [], [])
        for name, events in attempts.items():
            try:
                booked[name] = attempt_rows(events, self._facts[self._experiments[name[0]]], alive=False)
            except KeyError:
                merged.problems.append(
                    f"{where}: speaks of the trial {name[0]}, which is not stored here; move it away"
                )
            except JournalDamaged as damage:
                merged.problems.append(f"{where}: {damage}")
        if booked:
            self._insert_what_fits(booked, merged, where)
        return merged

    def _insert_what_fits(self, booked: Mapping[tuple[str, int], Rows], merged: _Merged, where: str) -> None:
        """One attempt with a value that its column cannot hold must not keep the others out."""
        import duckdb

        try:
            self._insert(booked, merged)
        except (duckdb.Error, TypeError) as error:
            if not unfit(error):
                raise
            if len(booked) == 1:
                (trial, attempt) = next(iter(booked))
                said = one_line(error)[:200]
                merged.problems.append(f"{where}: attempt {attempt} of trial {trial} does not fit its columns: {said}")
                return
            for name, rows in booked.items():
                self._insert_what_fits({name: rows}, merged, where)

    def _insert(self, booked: Mapping[tuple[str, int], Rows], merged: _Merged) -> None:
        rows: Rows = {}
        with self._transaction() as (connection, insert):
            new = unmerged(connection, booked)
            for name in new:
                for table, lines in booked[name].items():
                    rows.setdefault(table, []).extend(lines)
            for table, lines in rows.items():
                insert(table, lines)
            for experiment in {self._experiments[trial] for trial, _ in new}:
                insert("prices", self._facts[experiment].cards.new_rows())
            settle_trials(connection, [trial for trial, _ in new])
        merged.attempts.extend(rows.get("attempts", ()))
        merged.calls.extend(rows.get("calls", ()))

    def _load_experiments(self, connection: "DuckDBPyConnection", trials: Iterable[str]) -> None:
        self._experiments |= experiments_of(connection, trials)
        for experiment in set(self._experiments.values()) - self._facts.keys():
            self._load_facts(connection, experiment)

    def _load_facts(self, connection: "DuckDBPyConnection", experiment: str) -> Facts:
        self._facts[experiment] = load_facts(connection, experiment, self._book)
        return self._facts[experiment]

    def _book(self) -> "PriceBook":
        if self._prices is None:
            from cost_model.prices import PriceBook

            self._prices = PriceBook()
        return self._prices

    @contextmanager
    def _open(self) -> Iterator["DuckDBPyConnection"]:
        import duckdb

        try:
            with self._one_at_a_time, opened(self.path, patience_s=self.patience_s) as connection:
                migrations.upgrade(connection, self.path)
                yield connection
        except (OSError, duckdb.IOException, duckdb.FatalException, duckdb.TransactionException) as error:
            raise StoreError(
                f"{self.path}: cannot be written ({one_line(error)}); free some space or make it writable, then rerun"
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[tuple["DuckDBPyConnection", "Callable[[str, Sequence[Row]], None]"]]:
        import duckdb

        with self._open() as connection:
            columns = self._columns = self._columns or table_columns(connection)
            connection.execute("BEGIN")
            try:
                yield connection, lambda table, rows: bulk_insert(connection, table, rows, columns[table])
                connection.execute("COMMIT")
            except BaseException:
                # A full disk ends the transaction by itself, and only the error that tells of it is of use.
                with suppress(duckdb.TransactionException, duckdb.FatalException):
                    connection.execute("ROLLBACK")
                raise
