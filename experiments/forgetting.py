"""What a role forgets on purpose: what a spec says of it, checked against its model."""

from typing import TYPE_CHECKING

from agents.context import ContextPolicy
from experiments.spec import ContextSpec, SpecFile
from experiments.spec_mistakes import Place

if TYPE_CHECKING:
    from agents.registry import ModelEntry


def context_policy(file: SpecFile, at: Place, wanted: ContextSpec | None, entry: "ModelEntry") -> ContextPolicy | None:
    """None: it forgets nothing. Raises SpecError."""
    if wanted is None:
        return None
    given = wanted.model_dump(exclude_none=True)
    policy = given.pop("policy")
    if policy == "none":
        if given:
            name = next(iter(given))
            raise file.error(
                (*at, name),
                "policy none forgets nothing, so there is nothing to say of it; leave it out, or choose "
                "truncate, clear or compact",
            )
        return None
    if wanted.above_tokens is None:
        raise file.error(
            at, f"above_tokens is missing: the tokens above which {policy} acts, such as above_tokens: 50000"
        )
    if wanted.above_tokens >= entry.limits.context_tokens:
        raise file.error(
            (*at, "above_tokens"),
            f"model {entry.name!r} takes {entry.limits.context_tokens} tokens in all, so {policy} would never act; "
            "expected fewer",
        )
    if wanted.keep_bytes is not None and policy != "truncate":
        raise file.error(
            (*at, "keep_bytes"),
            f"only policy truncate keeps so many bytes of a result, {policy} does not; leave it out",
        )
    if wanted.at_least_bytes is not None and policy == "compact":
        raise file.error((*at, "at_least_bytes"), "compact takes out all that is old, whatever its size; leave it out")
    if policy == "compact" and entry.actions == "json_schema":
        raise file.error(
            (*at, "policy"),
            f"model {entry.name!r} answers with one action every time, and so cannot write the summary that "
            "compact asks for; choose truncate or clear",
        )
    return ContextPolicy(policy, **given)
