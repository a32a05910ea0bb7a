"""An experiment with everything found that its spec names: tasks, topologies, models, prices; and its plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.crew import RoleModel
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.prices import PriceBook
from experiments.identity import arm_parts
from experiments.plan import Plan, PlannedArm, PlannedTask, plan
from experiments.spec import Spec
from harbor_tasks.format import Task

if TYPE_CHECKING:
    from agents.registry import ModelEntry
    from topologies import Topology


@dataclass(frozen=True, slots=True)
class Arm:
    """`parameters` are the topology's own, validated."""

    name: str
    topology: "Topology"
    roles: Mapping[str, RoleModel]
    parameters: Any


@dataclass(frozen=True, slots=True)
class Experiment:
    """`name` is the spec's, or the one given by --as. `simulated`: all its models are; `models` are those it uses.
    `budget_usd` None sets no limit to what may be spent."""

    name: str
    spec: Spec
    path: Path
    arms: Mapping[str, Arm]
    tasks: Mapping[str, Task]
    models: Mapping[str, "ModelEntry"]
    prices: PriceBook
    simulated: bool
    budget_usd: Decimal | None

    @property
    def costs_money(self) -> bool:
        """Whether a call of it can be billed by anybody."""
        return not self.simulated and not all(entry.self_hosted for entry in self.models.values())

    def card(self, model: str, requested_at: datetime) -> PriceCard:
        """The prices of a model of this experiment for a call at that moment. Raises PriceMissing."""
        entry = self.models[model]
        return (
            SELF_HOSTED if entry.price is None else self.prices.card(entry.price, self.spec.prices_at or requested_at)
        )

    def plan(self) -> Plan:
        return plan(
            self.spec,
            experiment=self.name,
            simulated=self.simulated,
            arms=[self._planned(arm) for arm in self.arms.values()],
            tasks=[
                PlannedTask(task.name, task.digest, task.category, {"digest": task.digest})
                for task in self.tasks.values()
            ],
        )

    def _planned(self, arm: Arm) -> PlannedArm:
        parts = arm_parts(self.spec, arm.topology, arm.roles, arm.parameters, simulated=self.simulated)
        models = {role: model.entry.name for role, model in arm.roles.items()}
        return PlannedArm(arm.name, arm.topology.name, models, parts)


def host_refusal(*, simulated: bool, served: bool, tasks: Mapping[str, Task]) -> str | None:
    """Why the sandbox without isolation may not be used, None when it may: it takes bundled tasks and the in-process
    simulator alone."""
    if not simulated:
        return "to real models"
    if served:
        return "to a served simulator"
    foreign = next((task.name for task in tasks.values() if not task.bundled), None)
    return f"to tasks that are not bundled ({foreign})" if foreign else None
