"""Thinking blocks that come back in a request of the Anthropic Messages protocol, and what is wrong with them.

A signature is checked wherever a block stands. What is missing, changed in order or taken from elsewhere counts in the
latest assistant message with tool calls, and only while the model thinks.
"""

from collections.abc import Mapping, Sequence

from agents.simulated.errors import Refused
from agents.simulated.prompt import Prompt
from agents.simulated.thought import Thought, issued, signature, unseal


def read_thought(block: Mapping[str, object], path: str, prompt: Prompt) -> Thought:
    """The thought of a `thinking` or `redacted_thinking` block. Raises Refused when it is not this model's own."""
    model = prompt.persona.model
    if block["type"] == "redacted_thinking":
        data = block.get("data")
        if not isinstance(data, str):
            raise Refused(f"{path}.redacted_thinking.data: Field required")
        text = unseal(model, data)
        if text is None:
            raise Refused(f"{path}: Invalid `data` in `redacted_thinking` block")
        return Thought(text, redacted=True)
    for name in ("thinking", "signature"):
        if not isinstance(block.get(name), str):
            raise Refused(f"{path}.thinking.{name}: Field required")
    if block["signature"] != signature(model, str(block["thinking"])):
        raise Refused(f"{path}: Invalid `signature` in `thinking` block")
    return Thought(str(block["thinking"]))


def fault_of(prompt: Prompt, path: str, kinds: Sequence[str], thoughts: Sequence[Thought], calls: Sequence[str]) -> str:
    """What is wrong with the thinking of an assistant message, in the provider's words; empty when nothing is.

    `kinds` are the types of its blocks in order, `calls` the ids of its tool calls.
    """
    model = prompt.persona.model
    origin = next((found for call in calls if (found := issued(call)) is not None), None)
    if not prompt.persona.thinking.tokens or origin is None:
        return ""
    first_other = next((place for place, kind in enumerate(kinds) if not kind.endswith("thinking")), len(kinds))
    leads = all(not kind.endswith("thinking") for kind in kinds[first_other:])
    if leads and origin.follows(model, thoughts):
        return ""
    if not thoughts:
        return (
            f"{path}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`."
        )
    place = next(place for place, kind in enumerate(kinds) if kind.endswith("thinking"))
    return (
        f"{path}.content.{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified. These blocks must remain as they were in the original response."
    )
