"""The calls in whatever a person has of them: a usage object, a response, the events of a stream, a transcript.

Cumulative events are laid over each other, responses stand side by side, and what has the same message id is one call.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cost_model.errors import DocumentError
from cost_model.usage import recognise
from cost_model.usage.fields import shown
from cost_model.usage.json_objects import load_json
from cost_model.usage.stream import BESIDE_USAGE, Stream, kind_of

MOST_CALLS = 1_000_000

_USAGES = ("usage", "usageMetadata", "usage_metadata", "token_usage")
_WRAPPERS = ("message", "response", "body", "result", "data", "kwargs", "metadata", "response_metadata", "llm_output")
_NESTING = 5
_LINE_END = re.compile(r"\r\n|\n|\r")
"""Not what `splitlines` takes for one: JSON allows the others within its texts."""
_OUTPUTS = ("output_tokens", "completion_tokens", "candidatesTokenCount", "outputTokens")
_UNDERSTOOD = (
    "what is understood: one usage object, one response, a list of stream events, of responses or of transcript lines"
)


@dataclass(frozen=True, slots=True)
class FoundCall:
    """`usage` None: none came, so that what it cost is not known. `batch`: it stands in a batch's results.
    `heard_bytes`: the size of the text that its stream brought. `outgrown`: how many cache writes its stream told
    beyond those that it split by lifetime."""

    usage: Mapping[str, object] | None
    model: str | None = None
    id: str | None = None
    at: datetime | None = None
    batch: bool = False
    output_untold: bool = False
    heard_bytes: int = 0
    outgrown: int = 0

    @property
    def doubts(self) -> tuple[str, ...]:
        """What had to be inferred from how the usage came, for a person."""
        if not self.outgrown:
            return ()
        return (
            f"the stream told {self.outgrown} more cache writes in the end than its start split by lifetime: their "
            "lifetime is inferred",
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """`repeated` lines told of a call once more, `skipped` ones of none."""

    calls: tuple[FoundCall, ...]
    repeated: int = 0
    skipped: int = 0


def parse(text: str) -> object:
    """JSON, JSON lines, or a stream as it came (`data: ` lines). Fractions become Decimal. Raises DocumentError."""
    stripped = text.strip()
    if not stripped:
        raise DocumentError(f"nothing was given; {_UNDERSTOOD}, as JSON, JSON lines or server-sent events")
    if stripped.startswith(("data:", "event:", ":")):
        fields = (line.partition(":") for line in _LINE_END.split(stripped))
        lines = [value.strip() for name, _, value in fields if name.strip() == "data"]
        return [_json(line, f"event {number}") for number, line in enumerate(lines, 1) if line and line != "[DONE]"]
    try:
        return _json(stripped, "the text")
    except DocumentError as whole:
        lines = _LINE_END.split(stripped)
        if len(lines) == 1 or not lines[0].rstrip().endswith(("}", "]", "null")):
            raise
        try:
            first = _json(lines[0], "line 1")
        except DocumentError:
            raise whole from None
        rest = [_json(line, f"line {number}") for number, line in enumerate(lines[1:], 2) if line.strip()]
        return [first, *rest]


def _json(text: str, where: str) -> object:
    try:
        return load_json(text)
    except DocumentError as error:
        raise DocumentError(f"{where}: {error}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number or a nesting without end"
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) and error.lineno > 1 else ""
        raise DocumentError(f"{where}{place} is not valid JSON ({reason}); {_UNDERSTOOD}") from None


def calls_in(document: object) -> Calls:
    """The calls in the order in which they came, at least one. Raises DocumentError."""
    items = document if isinstance(document, list) else [document]
    if len(items) > MOST_CALLS:
        raise DocumentError(f"more than {MOST_CALLS:,} entries; give fewer at a time")
    found, skipped = _all(items)
    calls, repeated = _once_each(found)
    if not calls:
        names = ", ".join(shown(name) for name in list(items[0])[:6]) if items and isinstance(items[0], Mapping) else ""
        raise DocumentError(f"no usage in it{f' (fields: {names})' if names else ''}; {_UNDERSTOOD}")
    return Calls(tuple(calls), repeated, skipped)


def _all(items: Iterable[object]) -> tuple[list[FoundCall], int]:
    found: list[FoundCall] = []
    skipped = 0
    stream: Stream | None = None
    for number, item in enumerate(items, start=1):
        if not isinstance(item, Mapping):
            raise DocumentError(f"entry {number} is {type(item).__name__}, not an object; {_UNDERSTOOD}")
        inner = item.get("data")
        if isinstance(inner, Mapping) and kind_of(inner) is not None:
            # An event as some clients log it: its name and its data.
            item = inner
        kind = kind_of(item)
        if kind is not None:
            if stream is None or not stream.follows(kind, item):
                if stream is not None:
                    found.append(_streamed(stream))
                stream = Stream(kind)
            stream.add(item)
            continue
        call = _single(item)
        if call is None:
            # What stands between the events of a stream (an error, a log line) does not end it.
            skipped += 1
            continue
        if stream is not None:
            found.append(_streamed(stream))
            stream = None
        found.append(call)
    if stream is not None:
        found.append(_streamed(stream))
    return found, skipped


def _streamed(stream: Stream) -> FoundCall:
    usage = stream.whole_usage()
    return FoundCall(
        usage,
        stream.model,
        at=_moment(stream.created),
        output_untold=stream.output_untold,
        heard_bytes=stream.heard_bytes,
        outgrown=stream.outgrown,
    )


def _single(item: Mapping[str, object]) -> FoundCall | None:
    """The one call of an object; what stands on the way in to its usage names and dates it."""
    way = _way_to_usage(item, 0)
    if way is None:
        return None
    *around, (place, name) = way
    holders = [*(holder for holder, _ in around), place]
    usage = place if name is None else place.get(name)
    if isinstance(usage, Mapping) and name is not None:
        beside = {key: place[key] for key in BESIDE_USAGE if place.get(key) is not None}
        usage = {**usage, **{key: value for key, value in beside.items() if usage.get(key) is None}}
    return FoundCall(
        usage=usage if isinstance(usage, Mapping) else None,
        model=_first([_mapping(item.get("response_metadata")), *holders], "model", "modelVersion", "model_name"),
        id=_first(holders, "message_id", "messageId", "id", "responseId"),
        at=_moment(next((h[key] for h in holders for key in ("timestamp", "created", "created_at") if key in h), None)),
        batch="custom_id" in item,
    )


Way = list[tuple[Mapping[str, object], str | None]]


def _way_to_usage(item: Mapping[str, object], depth: int) -> Way | None:
    """The objects from the outermost to the one that holds the usage, with its name there; None: it is one itself."""
    for name in _USAGES:
        if isinstance(item.get(name), Mapping):
            return [(item, name)]
    if recognise(item):
        return [(item, None)]
    if depth < _NESTING:
        for name in _WRAPPERS:
            inner = item.get(name)
            way = _way_to_usage(inner, depth + 1) if isinstance(inner, Mapping) else None
            if way is not None:
                return [(item, None), *way]
    choices = item.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) and "usage" in choices[0]:
        return [(item, None), (choices[0], "usage")]
    return [(item, "usage")] if "usage" in item and item["usage"] is None else None


def _once_each(found: Iterable[FoundCall]) -> tuple[list[FoundCall], int]:
    """Of the calls with one id the last, with the largest output that any of them told."""
    calls: dict[object, FoundCall] = {}
    repeated = 0
    for number, call in enumerate(found):
        key = number if call.id is None else call.id
        earlier = calls.get(key)
        if earlier is None:
            calls[key] = call
            continue
        repeated += 1
        calls[key] = merged(earlier, call)
    return list(calls.values()), repeated


def merged(earlier: FoundCall, later: FoundCall) -> FoundCall:
    """What two entries tell of one call: the later one, with the larger output."""
    if earlier.usage is None or later.usage is None:
        return earlier if later.usage is None else later
    usage = dict(later.usage)
    for name in _OUTPUTS:
        before, after = earlier.usage.get(name), usage.get(name)
        if isinstance(before, int) and (after is None or (isinstance(after, int) and before > after)):
            usage[name] = before
            details = f"{name}_details"
            if details in earlier.usage:
                usage[details] = earlier.usage[details]
    return replace(later, usage=usage, model=later.model or earlier.model, at=earlier.at or later.at)


def _first(holders: Iterable[Mapping[str, object]], *names: str) -> str | None:
    """The innermost text under one of the names."""
    texts = (h.get(name) for h in reversed(list(holders)) for name in names)
    return next((text for text in texts if isinstance(text, str) and 0 < len(text) <= 200), None)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _moment(told: object) -> datetime | None:
    """A Unix time or an ISO date-time, when it is one of this century."""
    moment = None
    if isinstance(told, int) and not isinstance(told, bool) and 946_684_800 <= told < 4_102_444_800:
        moment = datetime.fromtimestamp(told, UTC)
    elif isinstance(told, str) and len(told) <= 40:
        try:
            moment = datetime.fromisoformat(told)
        except ValueError:
            return None
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment if moment is None or 2000 <= moment.year < 2100 else None
