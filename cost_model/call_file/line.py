"""One line of a calls file: one call, its fields checked. Whoever wrote it may have written anything."""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NoReturn, get_args

from cost_model.calls import Outcome
from cost_model.errors import DocumentError
from cost_model.policies import POLICIES
from cost_model.prompt import PromptBlock
from cost_model.usage import SHAPES
from cost_model.usage.document import FoundCall, calls_in
from cost_model.usage.fields import MOST_TOKENS, shown
from cost_model.usage.json_objects import load_json

FIELDS: Mapping[str, str] = {
    "role": "who called; text",
    "requested_at": "when the request was sent: ISO 8601 (UTC unless it tells its offset) or Unix seconds",
    "usage": "the provider's usage object, or its whole response, as it came; null: none came",
    "events": "instead of `usage`: the list of the stream's events, cumulative",
    "lane": "which of the role's conversations: one that only appends; left out: the role is its only lane",
    "model": "whose price holds; left out: what the response names, else `--model`",
    "first_token_at": "when the answer began; left out: taken to have begun in time to be read by the next call",
    "ended_at": "when the answer ended; left out: when it began",
    "api": "whose usage it is; left out: `--api`, else recognised",
    "lifetime": "the cache lifetime asked for (5m, 1h, ...); left out: what the usage tells, `--ttl`, the default",
    "cache": "the name of the cache's policy; left out: the model's, else `--cache`",
    "blocks": 'the prompt that was sent, its head first: {"hash": text, "tokens": n} or [hash, n] each',
    "outcome": "complete, cut, refused, cancelled or lost; left out: complete, without a usage lost",
    "key": "what names the call in the answer; left out: the `call_id`, else the response's id, else a hash",
    "call_id": "the provider's id of the message or response",
    "prompt_bytes": "size of the request; bounds the cost of a call whose usage never came",
    "max_output_tokens": "the longest answer asked for; bounds the cost of an answer that broke off",
}
"""Every field of a line and what it holds: `role`, `requested_at` and one of `usage` and `events` are needed."""

MOST_BLOCKS = 100_000
"""In one prompt."""

BYTES_PER_TOKEN = 4
"""What a block of n tokens is taken to weigh: roughly so for text and code."""

_TEXT = 200


@dataclass(frozen=True, slots=True)
class CallLine:
    """What a line tells, nothing worked out. Times are aware UTC; `line` counts from 1. `lane` and `blocks` as given:
    None or empty when they were left out."""

    line: int
    key: str
    role: str
    lane: str
    model: str | None
    requested_at: datetime
    first_token_at: datetime | None
    ended_at: datetime | None
    found: FoundCall
    api: str | None
    lifetime: str | None
    cache: str | None
    blocks: Sequence[PromptBlock]
    outcome: Outcome | None
    prompt_bytes: int
    max_output_tokens: int | None


class LineReader:
    """Reads lines; a block that came before is the very same object, so that prompts compare fast."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], PromptBlock] = {}

    def read(self, line: int, text: str) -> CallLine:
        """Raises DocumentError naming line and field."""
        record = _record(line, text)
        told = _Fields(line, record)
        found = _usage(told)
        requested_at = told.moment("requested_at")
        if requested_at is None:
            told.fail("requested_at", "is missing; give the time at which the request was sent")
        first_token_at = _not_before(told, "first_token_at", requested_at)
        role = told.text("role", needed=True)
        return CallLine(
            line=line,
            key=told.text("key") or told.text("call_id") or found.id or _hash(text),
            role=role,
            lane=told.text("lane") or role,
            model=told.text("model") or found.model,
            requested_at=requested_at,
            first_token_at=first_token_at,
            ended_at=_not_before(told, "ended_at", first_token_at or requested_at),
            found=found,
            api=told.one_of("api", SHAPES),
            lifetime=told.text("lifetime") or None,
            cache=told.one_of("cache", POLICIES),
            blocks=self._prompt(told),
            outcome=_outcome(told),
            prompt_bytes=told.count("prompt_bytes") or 0,
            max_output_tokens=told.count("max_output_tokens"),
        )

    def _prompt(self, told: "_Fields") -> list[PromptBlock]:
        entries = told.record.get("blocks")
        if entries is None:
            return []
        if not isinstance(entries, list):
            told.fail("blocks", f"must be a list, not {type(entries).__name__}")
        if len(entries) > MOST_BLOCKS:
            told.fail("blocks", f"more than {MOST_BLOCKS:,}")
        return [self._block(told, place, entry) for place, entry in enumerate(entries)]

    def _block(self, told: "_Fields", place: int, entry: object) -> PromptBlock:
        name: object = None
        tokens: object = None
        if type(entry) is list and len(entry) == 2:
            name, tokens = entry
        elif type(entry) is dict and len(entry) == 2:
            name, tokens = entry.get("hash"), entry.get("tokens")
        if type(name) is not str or not 0 < len(name) <= _TEXT or type(tokens) is not int:
            told.fail(f"blocks[{place}]", f'must be {{"hash": text, "tokens": n}} or [hash, n], not {shown(entry)}')
        known = self._blocks.get((name, tokens))
        if known is None:
            if not 0 <= tokens <= MOST_TOKENS:
                told.fail(f"blocks[{place}]", f"tokens must be from 0 to {MOST_TOKENS:,}, not {shown(tokens)}")
            known = self._blocks[name, tokens] = PromptBlock(name, tokens * BYTES_PER_TOKEN)
        return known


class _Fields:
    """The fields of one line, read one by one."""

    def __init__(self, line: int, record: Mapping[str, object]) -> None:
        self.line = line
        self.record = record
        for name in record:
            if name not in FIELDS:
                near = difflib.get_close_matches(name[:_TEXT], FIELDS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(FIELDS)}"
                self.fail(shown(name)[1:-1], f"unknown field; {hint}")

    def fail(self, field: str, message: str) -> NoReturn:
        raise DocumentError(f"line {self.line}: {field}: {message}")

    def text(self, name: str, *, needed: bool = False) -> str:
        """ "" where the field is left out."""
        value = self.record.get(name)
        if value is None:
            if needed:
                self.fail(name, f"is missing; {FIELDS[name]}")
            return ""
        if not isinstance(value, str) or not 0 < len(value) <= _TEXT:
            self.fail(name, f"must be text of 1 to {_TEXT} characters, not {shown(value)}")
        return value

    def one_of(self, name: str, known: Mapping[str, object]) -> str | None:
        value = self.text(name) or None
        if value is not None and value not in known:
            self.fail(name, f"{shown(value)} is none that is known; one of {', '.join(known)}")
        return value

    def count(self, name: str) -> int | None:
        value = self.record.get(name)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= MOST_TOKENS:
            self.fail(name, f"must be a whole number from 0 to {MOST_TOKENS:,}, not {shown(value)}")
        return value

    def moment(self, name: str) -> datetime | None:
        value = self.record.get(name)
        if value is None:
            return None
        told = _moment(value)
        if told is None:
            self.fail(
                name,
                f"must be a time such as 2026-11-24T12:00:00Z or Unix seconds, from 2000 to 2099, not {shown(value)}",
            )
        return told


def _record(line: int, text: str) -> Mapping[str, object]:
    try:
        record = load_json(text, constant=_no_number)
    except DocumentError as error:
        raise DocumentError(f"line {line}: {error}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number or a nesting without end"
        raise DocumentError(f"line {line}: is not valid JSON ({reason}); each line is one call") from None
    if not isinstance(record, dict):
        raise DocumentError(f"line {line}: is {type(record).__name__}, not an object; each line is one call")
    return record


def _no_number(constant: str) -> NoReturn:
    raise ValueError(constant)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = range(946_684_800, 4_102_444_800)
"""The years 2000 to 2099."""


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        if not _SECONDS.start <= value < _SECONDS.stop:
            return None
        return _EPOCH + timedelta(microseconds=int(value * 1_000_000))
    if not isinstance(value, str) or not 10 < len(value) <= 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if not 2000 <= moment.year < 2100:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _not_before(told: _Fields, name: str, earliest: datetime) -> datetime | None:
    moment = told.moment(name)
    if moment is not None and moment < earliest:
        told.fail(name, f"lies before {earliest.isoformat()}, when the request was sent or the answer began")
    return moment


def _usage(told: _Fields) -> FoundCall:
    """The one call that `usage` or `events` tells of."""
    names = [name for name in ("usage", "events") if name in told.record]
    if len(names) != 1:
        told.fail("usage", "give either `usage` (null: none came) or `events`")
    (name,) = names
    value = told.record[name]
    if value is None or value == []:
        return FoundCall(None)
    if not isinstance(value, Mapping if name == "usage" else list):
        told.fail(name, f"must be {'an object or null' if name == 'usage' else 'a list'}, not {type(value).__name__}")
    try:
        calls = calls_in(value).calls
    except DocumentError as error:
        told.fail(name, str(error))
    if len(calls) != 1:
        told.fail(name, f"tells of {len(calls)} calls; each line is one call")
    return calls[0]


def _outcome(told: _Fields) -> Outcome | None:
    value = told.text("outcome")
    outcomes: tuple[Outcome, ...] = get_args(Outcome)
    for outcome in outcomes:
        if value == outcome:
            return outcome
    if value:
        told.fail("outcome", f"{shown(value)} is none; one of {', '.join(outcomes)}")
    return None


def _hash(text: str) -> str:
    """Two lines that are the same to the letter tell of one call."""
    return f"line-{hashlib.sha256(text.strip().encode(errors='replace')).hexdigest()[:16]}"
