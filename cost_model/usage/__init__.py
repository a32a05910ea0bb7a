"""Usage objects of the providers' APIs, brought to one disjoint split of tokens. One file an API.

What counts as input, what is inside what and what adds up differs from API to API; it is decided by identities between
the numbers (a total that fits one reading only), never by a provider's name.
"""

from collections.abc import Callable, Mapping

from cost_model.errors import UsageError
from cost_model.tokens import Tokens
from cost_model.usage import anthropic_messages, openai_chat, openai_responses
from cost_model.usage.fields import UsageFields
from cost_model.usage.modifiers import refuse_modified

FLAVOURS: Mapping[str, Callable[[Mapping[str, object]], Tokens]] = {
    "anthropic_messages": anthropic_messages.normalise,
    "openai_chat": openai_chat.normalise,
    "openai_responses": openai_responses.normalise,
}


def normalise(flavour: str, raw: Mapping[str, object]) -> Tokens:
    """The tokens of one call, from the usage object as the API `flavour` gave it.

    For a stream, `raw` holds every field's last non-null value: the events are cumulative and must not be added.
    Raises UsageError (with the raw object) when the numbers contradict each other, a needed one is missing, one is not
    a whole number of tokens, the call was not billed at standard prices, or the flavour is unknown; OutputUntold when
    all but the output is told.
    """
    try:
        reader = FLAVOURS[flavour]
    except KeyError:
        known = ", ".join(sorted(FLAVOURS))
        raise UsageError(f"usage of API flavour {flavour!r} cannot be read; known flavours: {known}", raw) from None
    refuse_modified(UsageFields(raw))
    return reader(raw)
