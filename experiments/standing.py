"""Where an experiment stands: what its plan has left to do, and what it has spent so far over all its runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from experiments.errors import PlanChanged
from experiments.experiment import Experiment
from experiments.plan import Plan, PlannedTrial, differences
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
    _refuse_changes(plan, known, store)
    pending = tuple(trial for trial in plan.trials if trial.id not in known or not known[trial.id].finished)
    return Standing(plan, known, pending, left_out)


def pilot_block(plan: Plan, skipped: Collection[str] = ()) -> list[PlannedTrial]:
    """One task, one repeat, every arm: the first block of the plan whose task is not skipped; none when all are."""
    for trial in plan.trials:
        if trial.task not in skipped:
            return [other for other in plan.trials if (other.task, other.repeat) == (trial.task, trial.repeat)]
    return []


def _refuse_changes(plan: Plan, known: Mapping[str, KnownTrial], store: Store) -> None:
    changed = [trial for trial in plan.trials if trial.id in known and known[trial.id].semantic_hash != trial.hash]
    if changed:
        found = differences(plan, store.known_parts(plan.experiment), changed)
        raise PlanChanged(
            f"experiment {plan.experiment!r} is stored in {store.path} with another plan: {found}; "
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
