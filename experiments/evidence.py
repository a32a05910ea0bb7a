"""Stored trials that tell what an arm will cost: those of any experiment in the database that were the same arm.

The same: topology and its code, models and how each is asked, prompts, parameters, limits, personas and the moment of
the prices. Another arrangement of the same models is no evidence: who waits for whom decides what is cached.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from experiments.plan import Parts, Plan
from experiments.store.reader import Reader

DECIDES_NO_DOLLARS = ("seed", "pass_threshold")
"""Parts of an arm in which a stored one may differ."""

_ARMS = "SELECT experiment, name, parts FROM arms"

_TRIALS = """
SELECT costs.experiment, costs.arm, tasks.digest, costs.all_usd_high
FROM trial_costs AS costs JOIN tasks ON tasks.experiment = costs.experiment AND tasks.name = costs.task
WHERE costs.final ORDER BY costs.experiment, costs.trial_id
"""

Seen = Mapping[str, Mapping[str, list[float]]]
"""Arm -> digest of a task -> dollars of each trial."""


def stored_costs(reader: Reader, plan: Plan) -> Seen:
    """What finished trials have cost over all their attempts; a call of unknown price counts with its upper end."""
    wanted = {arm.name: _deciding(arm.parts) for arm in plan.arms}
    arms: dict[tuple[str, str], list[str]] = {}
    for experiment, name, text in reader.query(_ARMS).rows:
        stored = _deciding(json.loads(text))
        arms[experiment, name] = [arm for arm, parts in wanted.items() if parts == stored]
    found: dict[str, dict[str, list[float]]] = {arm: {} for arm in wanted}
    for experiment, name, digest, usd in reader.query(_TRIALS).rows:
        for arm in arms.get((experiment, name), ()):
            found[arm].setdefault(digest, []).append(float(Decimal(usd)))
    return found


def _deciding(parts: Parts) -> Any:
    """As JSON holds it: what was stored and what is planned compare alike."""
    without = {name: value for name, value in parts.items() if name not in DECIDES_NO_DOLLARS}
    if without.get("prices_at"):
        # Prices stand still: when the virtual clock begins makes no difference.
        without.pop("virtual_epoch", None)
    return json.loads(json.dumps(without))
