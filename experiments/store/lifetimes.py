"""How long what a role leaves in the cache of its model lives, as its trial's row tells."""

from collections.abc import Sequence

from cost_model.policies import POLICIES
from experiments.store.ledger import Facts
from experiments.store.rows import Row


def fill_lifetimes(roles: Sequence[Row], calls: Sequence[Row], facts: Facts) -> None:
    """Fills `cache_lifetime_s` of the rows of trial_roles: seconds, None where nobody states them or no call tells
    which lifetime was asked for."""
    asked: dict[object, object] = {}
    for call in calls:
        asked.setdefault(call["role"], call["lifetime"])
    for role in roles:
        lifetime = None
        if role["role"] in asked:
            named = asked[role["role"]]
            lifetime = POLICIES[facts.of(str(role["model"])).cache].lifetime(None if named is None else str(named))
        role["cache_lifetime_s"] = None if lifetime is None else lifetime.total_seconds()
