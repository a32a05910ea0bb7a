"""The true price ratio of two roles' models, where a topology's parameters ask for it."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

from experiments.experiment import Arm, Experiment
from experiments.spec import SpecFile


def settled(file: SpecFile, found: Experiment) -> Experiment:
    """The experiment with each arm's parameters as they are played: what they leave to prices is filled in.

    Raises SpecError. Every model that has a price must have been found to cover its output tokens.
    """
    from topologies import PriceRatioUnknown

    arms = dict(found.arms)
    for index, (name, arm) in enumerate(found.arms.items()):
        if arm.topology.settle is not None:
            with file.blaming(("arms", index, "parameters"), PriceRatioUnknown):
                played = arm.topology.settle(arm.parameters, partial(_output_ratio, found, arm))
            arms[name] = replace(arm, parameters=played)
    return replace(found, arms=arms)


def _output_ratio(found: Experiment, arm: Arm, of: str, to: str) -> Decimal:
    """The output price of the model of role `of` over that of role `to`, both at the experiment's prices_at."""
    from topologies import PriceRatioUnknown

    moment = found.spec.prices_at
    if moment is None:
        raise PriceRatioUnknown(
            "a true price ratio is that of one moment, since prices can change by the hour; add `prices_at` to the "
            "experiment, or give the ratio as a number"
        )
    prices = []
    for role in (of, to):
        model = arm.roles[role].entry.name
        price = found.card(model, moment).price("output", 0)
        if not price:
            raise PriceRatioUnknown(
                f"no true price ratio: the output of model {model!r} (role {role!r}) costs nothing; "
                "give the ratio as a number"
            )
        prices.append(price)
    return prices[0] / prices[1]
