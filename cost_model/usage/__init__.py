"""Usage objects of the providers' APIs, brought to one disjoint split of tokens. One file an API: a `Shape`.

What counts as input, what is inside what and what adds up differs from API to API. Which API an object comes from is
told by the names of its fields, and how to read it by identities between the numbers (a total that fits one reading
only): never by a provider's name.
"""

from collections.abc import Mapping

from cost_model.errors import OutputUntold, UsageError
from cost_model.tokens import Tokens
from cost_model.usage import (
    anthropic_messages,
    bedrock_converse,
    gemini,
    langchain,
    llama_cpp,
    openai_chat,
    openai_responses,
    openrouter_generation,
)
from cost_model.usage.billed import bill
from cost_model.usage.fields import MOST_TOKENS, UsageFields, shown
from cost_model.usage.modifiers import refuse_modified, told_modifiers, told_traits
from cost_model.usage.reading import Counted, Reading, Shape

_SHAPES: tuple[Shape, ...] = (
    anthropic_messages,
    openai_chat,
    openai_responses,
    gemini,
    bedrock_converse,
    langchain,
    openrouter_generation,
    llama_cpp,
)

SHAPES: Mapping[str, Shape] = {shape.NAME: shape for shape in _SHAPES}
"""By the name that a registry entry's flavour and `--api` use."""


def recognise(raw: Mapping[str, object]) -> list[Shape]:
    """The shapes whose fields the object has: one as a rule, none for what is no usage."""
    return [shape for shape in _SHAPES if shape.fits(raw)]


def read_usage(raw: Mapping[str, object], api: str | None = None) -> Reading:
    """Everything that the usage object of one call tells. `api` None: recognised by its fields.

    For a stream, `raw` holds every field's last non-null value: the events are cumulative and must not be added.
    Raises UsageError (with the raw object) when the numbers contradict each other, a needed one is missing, one is not
    a whole number of tokens, or the API is unknown; OutputUntold when all but the output is told.
    """
    usage = UsageFields(raw)
    shapes = recognise(raw) if api is None else [_named(api, raw)]
    if not shapes:
        known = ", ".join(SHAPES)
        raise usage.error(f"of no known API (fields: {_fields(raw)}); the known ones are {known}")
    modifiers, traits = told_modifiers(usage), told_traits(usage)
    counts = [_count(shape, usage) for shape in shapes]
    first = counts[0]
    for shape, other in zip(shapes[1:], counts[1:], strict=True):
        if (other.tokens.prompt, other.tokens.output) != (first.tokens.prompt, first.tokens.output):
            raise usage.error(
                f"has the fields of {shapes[0].NAME} and of {shape.NAME}, and they disagree: {first.tokens} against "
                f"{other.tokens}"
            )
    _refuse_two_counts(usage, first.tokens)
    if first.tokens.prompt + first.tokens.output > MOST_TOKENS:
        raise usage.error(f"more than {MOST_TOKENS:,} tokens in one call")
    return Reading(
        api=shapes[0].NAME,
        tokens=first.tokens,
        beside=first.beside,
        modifiers={**first.modifiers, **modifiers},
        traits=traits,
        bill=bill(raw),
        untold=first.untold,
        written_told=first.written_told,
        steps=first.steps or (first.tokens,),
    )


def read_told(raw: Mapping[str, object], api: str | None = None) -> tuple[Reading, OutputUntold | None]:
    """As `read_usage`; of a usage that tells all but its output, what it tells, and the complaint."""
    try:
        return read_usage(raw, api), None
    except OutputUntold as error:
        usage = UsageFields(raw)
        reading = Reading(
            api=api or recognise(raw)[0].NAME,
            tokens=error.told,
            modifiers={**error.modifiers, **told_modifiers(usage)},
            traits=told_traits(usage),
            bill=bill(raw),
            untold=frozenset({"output"}),
            steps=(error.told,),
        )
        return reading, error


def normalise(flavour: str, raw: Mapping[str, object]) -> Tokens:
    """The tokens of one call that was billed by its tokens alone, at standard prices.

    As `read_usage`, but what was billed at other prices (a tier, a speed, a region), at another model's, or by another
    unit, raises UsageError: one set of Tokens cannot hold it.
    """
    shape = _named(flavour, raw)
    usage = UsageFields(raw)
    refuse_modified(usage)
    counted = _count(shape, usage)
    for quantity in counted.beside:
        raise usage.error(
            f"{quantity.quantity} {quantity.token_class} of {quantity.model or 'the call'} are billed apart from the "
            "tokens of its model"
        )
    return counted.tokens


def _refuse_two_counts(usage: UsageFields, tokens: Tokens) -> None:
    """Gateways send a count under both of its names. Both must tell of the same tokens, with or without what was
    cached or thought; zeros for both of a pair of names are what some fill in for fields that they do not use."""
    if not ("input_tokens" in usage.raw or "output_tokens" in usage.raw):
        return
    if not ("prompt_tokens" in usage.raw or "completion_tokens" in usage.raw):
        return
    apis = [(usage.count(prompt), usage.count(output)) for prompt, output in _NAMES]
    if (0, 0) in apis:
        return
    prompts = (tokens.prompt, tokens.input, tokens.prompt - tokens.cache_read)
    outputs = (tokens.output, tokens.output - tokens.reasoning)
    by_name = zip(zip(*_NAMES, strict=True), zip(*apis, strict=True), (prompts, outputs), strict=True)
    for names, counts, readings in by_name:
        told = [count for count in counts if count is not None]
        if len(set(told)) > 1 and not set(told) <= set(readings):
            raise usage.error(f"{names[0]} ({counts[0]}) and {names[1]} ({counts[1]}) disagree")


_NAMES = (("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens"))


def _count(shape: Shape, usage: UsageFields) -> Counted:
    try:
        return shape.count(usage)
    except (OutputUntold, UsageError):
        raise
    except ValueError as error:
        # Tokens refuse what no shape has refused before.
        raise usage.error(str(error)) from error


def _named(api: str, raw: Mapping[str, object]) -> Shape:
    try:
        return SHAPES[api]
    except KeyError:
        known = ", ".join(sorted(SHAPES))
        raise UsageError(f"usage of API flavour {shown(api)} cannot be read; known flavours: {known}", raw) from None


def _fields(raw: Mapping[str, object]) -> str:
    names = [shown(name) for name in list(raw)[:6]]
    return ", ".join(names) + (", ..." if len(raw) > 6 else "") if names else "none"
