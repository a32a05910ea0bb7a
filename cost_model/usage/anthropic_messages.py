"""Usage of the Anthropic Messages API: uncached input, cache writes and cache reads are three numbers that add up.

The first event of a stream tells the prompt, and of the output only that it began. Where no later event told more, that
count stands (here as a field of the usage) under the event's name, `message_start`, and so does its split of cache
writes by lifetime where a later event told a larger sum. Frameworks hand the same fields on
with a total, some with everything inside `input_tokens`: which one it is, the total tells.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from cost_model.errors import OutputUntold
from cost_model.tokens import CLASSES, Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted, Quantity, searches

NAME = "anthropic_messages"

_OWN = ("cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation", "server_tool_use", "iterations")
_FOREIGN = ("input_tokens_details", "input_token_details", "output_token_details", "prompt_tokens", "completion_tokens")

MOST_ITERATIONS = 10_000


def fits(raw: Mapping[str, object]) -> bool:
    """The input and output of a message, with or without Anthropic's own fields; no details of another API."""
    if any(name in raw for name in _FOREIGN) or not ("input_tokens" in raw or "output_tokens" in raw):
        return False
    return any(name in raw for name in _OWN) or "total_tokens" not in raw


def count(usage: UsageFields) -> Counted:
    """Tokens of one message, its compaction included, and what is billed beside it: an advisor, searches.

    With `iterations` the bill is their sum: the totals at the top leave compaction and advisors out. Raises
    OutputUntold when only the output is missing. Writes whose lifetime the usage does not tell are
    `cache_write_unknown`.
    """
    beside = searches(usage)
    iterations = usage.raw.get("iterations")
    if iterations is None or iterations == []:
        if usage.count("output_tokens") is None:
            raise _output_untold(usage)
        return Counted(_step(usage), beside)
    total = _step(usage)
    if not isinstance(iterations, list) or len(iterations) > MOST_ITERATIONS:
        raise usage.error(f"iterations must be a list of at most {MOST_ITERATIONS:,}, not {type(iterations).__name__}")
    messages = compactions = Tokens()
    steps = []
    for number, iteration in enumerate(iterations):
        if not isinstance(iteration, Mapping):
            raise usage.error(f"iterations[{number}] must be an object, not {type(iteration).__name__}")
        step = _step(UsageFields(iteration, usage.raw, f"iterations[{number}]."))
        match iteration.get("type"):
            case "message":
                messages += step
                steps.append(step)
            case "compaction":
                compactions += step
                steps.append(step)
            case "advisor_message":
                beside += _of_another_model(usage, f"iterations[{number}]", iteration.get("model"), step)
            case other:
                raise usage.error(
                    f"iterations[{number}] is of type {str(other)[:40]!r}, whose bill is not known: only message, "
                    "compaction and advisor_message are understood"
                )
    if (messages.prompt, messages.output) != (total.prompt, total.output):
        raise usage.error(
            f"message iterations have {messages.prompt} prompt and {messages.output} output tokens, "
            f"the totals say {total.prompt} and {total.output}"
        )
    # The totals may tell for how long was written where the iterations do not.
    if messages.cache_write_unknown and not total.cache_write_unknown:
        compacted = [step for step, of in zip(steps, iterations, strict=True) if of.get("type") == "compaction"]
        return Counted(total + compactions, beside, steps=(total, *compacted))
    return Counted(messages + compactions, beside, steps=tuple(steps))


def _of_another_model(usage: UsageFields, where: str, model: object, step: Tokens) -> tuple[Quantity, ...]:
    if not isinstance(model, str) or not 0 < len(model) <= 200:
        raise usage.error(f"{where}.model must name the model that it is billed as: it is billed apart from the call's")
    counts = ((name, step.of(name)) for name in CLASSES)
    return tuple(Quantity(name, Decimal(count), "token", model, step.prompt) for name, count in counts if count)


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
    apart = Tokens(
        input=usage.needed("input_tokens"),
        cache_read=usage.count("cache_read_input_tokens") or 0,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        cache_write_unknown=write_unknown,
        output=output,
        reasoning=thinking,
    )
    return _as_the_total_says(usage, apart)


def _as_the_total_says(usage: UsageFields, apart: Tokens) -> Tokens:
    """The API itself sends no total. Who adds one may have put the cached tokens into the input, or not."""
    total = usage.count("total_tokens")
    if total is None or total == apart.prompt + apart.output:
        return apart
    cached = apart.prompt - apart.input
    if total != apart.input + apart.output:
        raise usage.error(
            f"total_tokens ({total}) fits neither the sum of all classes ({apart.prompt} + {apart.output}) nor input + "
            f"output ({apart.input} + {apart.output})"
        )
    if cached > apart.input:
        raise usage.error(f"cached and written tokens ({cached}) exceed the input_tokens ({apart.input}) around them")
    return replace(apart, input=apart.input - cached)


def _writes(usage: UsageFields) -> tuple[int, int, int]:
    """Tokens written for 5 minutes, for an hour, and for a time that only the request knows."""
    written = usage.count("cache_creation_input_tokens")
    split = usage.inside("cache_creation")
    five_minutes, one_hour = split.count("ephemeral_5m_input_tokens"), split.count("ephemeral_1h_input_tokens")
    if five_minutes is None and one_hour is None:
        return _outgrown(usage, written or 0)
    sum_of_split = (five_minutes or 0) + (one_hour or 0)
    if written is not None and written != sum_of_split:
        raise usage.error(f"cache_creation adds up to {sum_of_split}, cache_creation_input_tokens says {written}")
    return five_minutes or 0, one_hour or 0, 0


def _outgrown(usage: UsageFields, written: int) -> tuple[int, int, int]:
    """Counts of a stream are cumulative, and its start alone splits them by lifetime. What was written beyond that is
    of the same lifetime where there was one, else of one that only the request knows."""
    start = usage.inside("message_start").inside("cache_creation")
    five_minutes = start.count("ephemeral_5m_input_tokens") or 0
    one_hour = start.count("ephemeral_1h_input_tokens") or 0
    beyond = written - five_minutes - one_hour
    if beyond < 0:
        raise usage.error(
            f"message_start.cache_creation adds up to {five_minutes + one_hour}, cache_creation_input_tokens says "
            f"{written}"
        )
    if five_minutes and one_hour:
        return five_minutes, one_hour, beyond
    if five_minutes:
        return written, 0, 0
    return (0, written, 0) if one_hour else (0, 0, written)
