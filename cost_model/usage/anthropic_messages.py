"""Usage of the Anthropic Messages API: uncached input, cache writes and cache reads are three numbers that add up.

The first event of a stream tells the prompt, and of the output only that it began. Where no later event told more, that
count stands (here as a field of the usage) under the event's name, `message_start`.
"""

from collections.abc import Mapping

from cost_model.errors import OutputUntold
from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields


def normalise(raw: Mapping[str, object]) -> Tokens:
    """Tokens of one message, its compaction included.

    With `iterations` the bill is their sum: the totals at the top leave compaction out. An iteration that is billed at
    another model's price (an advisor) does not fit one set of Tokens and raises UsageError. Raises OutputUntold when
    only the output is missing. Writes whose lifetime the usage does not tell are `cache_write_unknown`.
    """
    usage = UsageFields(raw)
    iterations = raw.get("iterations")
    if iterations is None or iterations == []:
        if usage.count("output_tokens") is None:
            raise _output_untold(usage)
        return _step(usage)
    total = _step(usage)
    if not isinstance(iterations, list):
        raise usage.error(f"iterations must be a list, not {type(iterations).__name__}")
    messages = compactions = Tokens()
    for number, iteration in enumerate(iterations):
        if not isinstance(iteration, Mapping):
            raise usage.error(f"iterations[{number}] must be an object, not {type(iteration).__name__}")
        step = _step(UsageFields(iteration, raw, f"iterations[{number}]."))
        match iteration.get("type"):
            case "message":
                messages += step
            case "compaction":
                compactions += step
            case other:
                raise usage.error(
                    f"iterations[{number}] is of type {str(other)[:40]!r}, billed apart from the model of this call: "
                    "only message and compaction are understood"
                )
    if (messages.prompt, messages.output) != (total.prompt, total.output):
        raise usage.error(
            f"message iterations have {messages.prompt} prompt and {messages.output} output tokens, "
            f"the totals say {total.prompt} and {total.output}"
        )
    # The totals may tell for how long was written where the iterations do not.
    return (total if messages.cache_write_unknown else messages) + compactions


def _output_untold(usage: UsageFields) -> OutputUntold:
    begun = usage.inside("message_start").count("output_tokens") or 0
    return OutputUntold(
        "usage: output_tokens is missing: the answer ended without telling how long it was",
        usage.raw,
        _prompt_and(usage, output=begun, thinking=0),
    )


def _step(usage: UsageFields) -> Tokens:
    output = usage.needed("output_tokens")
    thinking = usage.inside("output_tokens_details").count("thinking_tokens") or 0
    if thinking > output:
        raise usage.error(f"thinking_tokens ({thinking}) are part of output_tokens ({output}) and cannot exceed them")
    return _prompt_and(usage, output=output, thinking=thinking)


def _prompt_and(usage: UsageFields, *, output: int, thinking: int) -> Tokens:
    write_5m, write_1h, write_unknown = _writes(usage)
    return Tokens(
        input=usage.needed("input_tokens"),
        cache_read=usage.count("cache_read_input_tokens") or 0,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        cache_write_unknown=write_unknown,
        output=output,
        reasoning=thinking,
    )


def _writes(usage: UsageFields) -> tuple[int, int, int]:
    """Tokens written for 5 minutes, for an hour, and for a time that only the request knows."""
    written = usage.count("cache_creation_input_tokens")
    split = usage.inside("cache_creation")
    five_minutes, one_hour = split.count("ephemeral_5m_input_tokens"), split.count("ephemeral_1h_input_tokens")
    if five_minutes is None and one_hour is None:
        return 0, 0, written or 0
    sum_of_split = (five_minutes or 0) + (one_hour or 0)
    if written is not None and written != sum_of_split:
        raise usage.error(f"cache_creation adds up to {sum_of_split}, cache_creation_input_tokens says {written}")
    return five_minutes or 0, one_hour or 0, 0
