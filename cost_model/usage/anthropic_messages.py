"""Usage of the Anthropic Messages API: uncached input, cache writes and cache reads are three numbers that add up."""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields


def normalise(raw: Mapping[str, object]) -> Tokens:
    """Tokens of one message, its compaction included.

    With `iterations` the bill is their sum: the totals at the top leave compaction out. An iteration that is billed at
    another model's price (an advisor) does not fit one set of Tokens and raises UsageError.
    """
    usage = UsageFields(raw)
    total = _step(usage)
    iterations = raw.get("iterations")
    if iterations is None or iterations == []:
        return total
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
    return messages + compactions


def _step(usage: UsageFields) -> Tokens:
    output = usage.needed("output_tokens")
    thinking = usage.inside("output_tokens_details").count("thinking_tokens") or 0
    if thinking > output:
        raise usage.error(f"thinking_tokens ({thinking}) are part of output_tokens ({output}) and cannot exceed them")
    write_5m, write_1h = _writes(usage)
    return Tokens(
        input=usage.needed("input_tokens"),
        cache_read=usage.count("cache_read_input_tokens") or 0,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        output=output,
        reasoning=thinking,
    )


def _writes(usage: UsageFields) -> tuple[int, int]:
    written = usage.count("cache_creation_input_tokens")
    split = usage.inside("cache_creation")
    five_minutes, one_hour = split.count("ephemeral_5m_input_tokens"), split.count("ephemeral_1h_input_tokens")
    if five_minutes is None and one_hour is None:
        # Five minutes is the API's documented default, and the split is left out where nothing else was asked for.
        return written or 0, 0
    sum_of_split = (five_minutes or 0) + (one_hour or 0)
    if written is not None and written != sum_of_split:
        raise usage.error(f"cache_creation adds up to {sum_of_split}, cache_creation_input_tokens says {written}")
    return five_minutes or 0, one_hour or 0
