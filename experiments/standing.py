"""Where an experiment stands: what its plan has left to do, and what it has spent so far over all its runs."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from experiments.errors import PlanChanged
from experiments.experiment import Experiment
from experiments.plan import Parts, Plan, PlannedTrial, differences
from experiments.store.reader import Reader
from experiments.store.store import KnownTrial, Store
from experiments.worst_case import sent_bound


@dataclass(frozen=True, slots=True)
class Standing:
    """`pending` are the plan's trials without a final attempt, in its order. `left_out` names journals of dead runs
    that could not be read, a line each: what they hold is missing here."""

    plan: Plan
    known: Mapping[str, KnownTrial]
    pending: tuple[PlannedTrial, ...]
    left_out: tuple[str, ...]

    @property
    def finished(self) -> int:
        return len(self.plan.trials) - len(self.pending)

    def attempts(self, trial: PlannedTrial) -> int:
        """The highest attempt number of a trial that is stored, 0 for none."""
        return self.known[trial.id].attempts if trial.id in self.known else 0


def standing(experiment: Experiment, store: Store) -> Standing:
    """Merges what dead runs left, then looks. Blocks.

    Raises PlanChanged when stored trials of this name were planned differently, StoreError.
    """
    plan = experiment.plan()
    left_out = store.recover().left
    known = store.known_trials(plan.experiment)
    _refuse_changes(plan, known, lambda: store.known_parts(plan.experiment), store.path)
    return Standing(plan, known, _pending(plan, known), left_out)


def standing_untouched(experiment: Experiment, database: Path) -> Standing:
    """The same without a merge, of a database that need not be there: what only journals hold counts too. Blocks.

    Raises PlanChanged, StoreError.
    """
    plan = experiment.plan()
    if not database.exists():
        return Standing(plan, {}, plan.trials, ())
    with Reader(database) as reader:
        rows = reader.query(
            "SELECT id, semantic_hash, final_attempt IS NOT NULL, "
            "coalesce((SELECT max(attempt) FROM attempts WHERE trial_id = trials.id), 0) "
            "FROM trials WHERE experiment = ?",
            [plan.experiment],
        ).rows
        known = {trial: KnownTrial(*values) for trial, *values in rows}
        _refuse_changes(plan, known, lambda: _parts(reader, plan.experiment), database)
        return Standing(plan, known, _pending(plan, known), reader.warnings)


def _pending(plan: Plan, known: Mapping[str, KnownTrial]) -> tuple[PlannedTrial, ...]:
    return tuple(trial for trial in plan.trials if trial.id not in known or not known[trial.id].finished)


def _parts(reader: Reader, experiment: str) -> dict[str, dict[str, Parts]]:
    return {
        table: {
            name: json.loads(text)
            for name, text in reader.query(
                f"SELECT name, parts FROM {table} WHERE experiment = ?",  # noqa: S608
                [experiment],
            ).rows
        }
        for table in ("arms", "tasks")
    }


def pilot_block(plan: Plan, skipped: Collection[str] = ()) -> list[PlannedTrial]:
    """One task, one repeat, every arm: the first block of the plan whose task is not skipped; none when all are."""
    for trial in plan.trials:
        if trial.task not in skipped:
            return [other for other in plan.trials if (other.task, other.repeat) == (trial.task, trial.repeat)]
    return []


def _refuse_changes(
    plan: Plan,
    known: Mapping[str, KnownTrial],
    parts: Callable[[], Mapping[str, Mapping[str, Parts]]],
    database: Path,
) -> None:
    changed = [trial for trial in plan.trials if trial.id in known and known[trial.id].semantic_hash != trial.hash]
    if changed:
        found = differences(plan, parts(), changed)
        raise PlanChanged(
            f"experiment {plan.experiment!r} is stored in {database} with another plan: {found}; "
            "run it as a new experiment with --as NAME, or undo the change"
        )


def spent_so_far(experiment: Experiment, database: Path) -> Decimal:
    """What all stored calls of the experiment cost; one of unknown price counts with its worst case. Blocks.

    Raises StoreError.
    """
    if not database.exists():
        return Decimal(0)
    of_it = "FROM calls JOIN trials ON trials.id = calls.trial_id WHERE trials.experiment = ?"
    with Reader(database) as reader:
        ((known,),) = reader.query(f"SELECT coalesce(sum(cost_usd), 0) {of_it}", [experiment.name]).rows
        unknown = reader.query(
            f"SELECT model, requested_at, prompt_bytes, max_output_tokens, cost_high_usd {of_it} AND cost_usd IS NULL",
            [experiment.name],
        ).rows
    spent = Decimal(known)
    for model, requested_at, prompt_bytes, most, high in unknown:
        bound = Decimal(high or 0)
        if model in experiment.models:
            bound = max(bound, sent_bound(experiment.card(model, requested_at), prompt_bytes, most))
        spent += bound
    return spent
