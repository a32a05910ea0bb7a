"""From the lines of a calls file to priced calls of one cache scope, ready to be explained. No I/O."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NoReturn

from cost_model.call_fact import CallFact
from cost_model.call_file.line import CallLine, LineReader
from cost_model.calls import Outcome
from cost_model.errors import DocumentError, PriceMissing, UsageError
from cost_model.model_caches import cache_of
from cost_model.policies import POLICIES
from cost_model.policy import CachePolicy
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.tokens import Tokens
from cost_model.usage import read_told
from cost_model.usage.document import MOST_CALLS, merged
from cost_model.usage.lines import book_usage
from cost_model.usage.report import SELF_HOSTED_MODEL, Question, with_tier
from cost_model.what_if.stored_call import StoredCall
from cost_model.writes import settle_writes


@dataclass(frozen=True, slots=True)
class FileCall:
    """A line, priced. `api`: as given or recognised, None where no usage came. `untold`: the token classes whose count
    is not known. `open_above`: nothing bounds what it may have cost."""

    line: CallLine
    stored: StoredCall
    api: str | None
    untold: frozenset[str]
    open_above: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallScope:
    """The calls of a file in order of (requested_at, key), each once; `repeated` lines told of one once more."""

    calls: tuple[FileCall, ...]
    repeated: int
    warnings: tuple[str, ...] = ()


def read_call_lines(text: str) -> tuple[list[CallLine], int]:
    """The calls that JSON lines tell of, each once, and how many lines told of one once more. Empty lines count for
    nothing. Raises DocumentError naming line and field."""
    reader = LineReader()
    calls: dict[str, CallLine] = {}
    read = 0
    # Not splitlines: JSON allows within its texts what that takes for the end of a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        read += 1
        if read > MOST_CALLS:
            raise DocumentError(f"line {number}: more than {MOST_CALLS:,} calls; give fewer at a time")
        call = reader.read(number, line)
        known = calls.get(call.key)
        calls[call.key] = call if known is None else _once(known, call)
    if not calls:
        raise DocumentError("holds no call; each line is one call, a JSON object")
    return list(calls.values()), read - len(calls)


def price_calls(lines: Sequence[CallLine], repeated: int, question: Question, cache: str | None = None) -> CallScope:
    """Each line under its model's prices and its cache's policy.

    What `question` says of model, API, tier and lifetime, and `cache` (a name of POLICIES), hold where a line does not
    tell. Raises DocumentError, UsageError and PriceMissing, each naming the line.
    """
    ordered = sorted(lines, key=lambda line: (line.requested_at, line.key))
    pricing = _Pricing(question, cache)
    calls, warnings = _by_counts_where_blocks_lack([pricing.call(line) for line in ordered])
    return CallScope(tuple(calls), repeated, tuple(warnings))


def _once(earlier: CallLine, later: CallLine) -> CallLine:
    """As lines of a transcript: the last one holds, with the largest output and the earliest times of any."""
    for name in ("role", "lane", "model"):
        before, now = getattr(earlier, name), getattr(later, name)
        if before is not None and now is not None and before != now:
            raise DocumentError(
                f"line {later.line}: {name}: is {now!r}, but line {earlier.line} tells of the same call "
                f"({later.key!r}) with {before!r}; give each call a key of its own"
            )
    firsts = [moment for moment in (earlier.first_token_at, later.first_token_at) if moment is not None]
    ends = [moment for moment in (earlier.ended_at, later.ended_at) if moment is not None]
    return replace(
        later,
        found=merged(earlier.found, later.found),
        model=later.model or earlier.model,
        requested_at=min(earlier.requested_at, later.requested_at),
        first_token_at=min(firsts, default=None),
        ended_at=max(ends, default=None),
        api=later.api or earlier.api,
        lifetime=later.lifetime or earlier.lifetime,
        cache=later.cache or earlier.cache,
        blocks=later.blocks or earlier.blocks,
        outcome=later.outcome or earlier.outcome,
        prompt_bytes=later.prompt_bytes or earlier.prompt_bytes,
        max_output_tokens=earlier.max_output_tokens if later.max_output_tokens is None else later.max_output_tokens,
    )


@dataclass(slots=True)
class _Pricing:
    question: Question
    cache: str | None
    _policies: dict[tuple[str, str | None], CachePolicy | None] = field(default_factory=dict)

    def call(self, line: CallLine) -> FileCall:
        try:
            return self._call(line)
        except UsageError as error:
            raise UsageError(f"line {line.line}: {error}", error.raw) from None
        except PriceMissing as error:
            raise PriceMissing(f"line {line.line}: model: {error}") from None

    def _call(self, line: CallLine) -> FileCall:
        model = line.model or self.question.model
        if model is None:
            _fail(line, "model", "is missing, and the response names none; add it, or give --model")
        at = self.question.at or line.requested_at
        card = self._card(model, at)
        api = line.api or self.question.api
        if line.found.usage is None:
            return self._unknown(line, model, card, api)
        warnings = list(line.found.doubts)
        usage = with_tier(line.found, self.question.tier, warnings)
        reading, complaint = read_told(usage, api)
        booked = book_usage(reading, model, card, lambda name: self._card(name, at))
        untold = reading.untold
        if complaint is not None or line.found.output_untold:
            untold |= {"output"}
            warnings.append("the answer broke off, or its output was not told: it has a range")
        if booked.read_untold:
            untold |= {"input", "cache_read"}
            warnings.append("the server does not tell what was read from a cache: it has a range")
        policy = self._policy(line, model, reading.api)
        lifetime = self._lifetime(line, policy, booked.tokens)
        if not policy.write_class and booked.tokens.prompt > booked.tokens.input + booked.tokens.cache_read:
            warnings.append(f"writes were billed, which {policy.name} has none of: give the `cache` of {model}")
        try:
            booked.card.cost(settle_writes(booked.tokens, policy=policy, lifetime=lifetime, card=booked.card))
        except PriceMissing as missing:
            warnings.append(f"has a range: {missing}")
        fact = _fact(line, model, policy, lifetime, booked.card, booked.tokens, line.outcome or "complete")
        fact = replace(
            fact,
            billed_usd=None if reading.bill is None else reading.bill.usd,
            output_untold="output" in untold,
            beside=booked.beside,
            read_untold=booked.read_untold,
        )
        return FileCall(line, _stored(line, fact), reading.api, untold, open_above=False, warnings=tuple(warnings))

    def _unknown(self, line: CallLine, model: str, card: PriceCard, api: str | None) -> FileCall:
        policy = self._policy(line, model, api)
        fact = _fact(line, model, policy, self._lifetime(line, policy, None), card, None, line.outcome or "lost")
        if fact.outcome == "refused":
            return FileCall(line, _stored(line, fact), api, frozenset(), open_above=False, warnings=())
        warnings = ["no usage came: what it cost is not known"]
        unbounded = not fact.prompt_bytes and not card.free
        if unbounded:
            warnings.append("nothing tells the size of its prompt, so no most that it may have cost: give prompt_bytes")
        return FileCall(line, _stored(line, fact), api, frozenset(), unbounded, tuple(warnings))

    def _card(self, model: str, at: datetime) -> PriceCard:
        return SELF_HOSTED if model == SELF_HOSTED_MODEL else self.question.prices.card(model, at)

    def _policy(self, line: CallLine, model: str, api: str | None) -> CachePolicy:
        if line.cache is not None:
            return POLICIES[line.cache]
        if (model, api) not in self._policies:
            name = cache_of(model, api) or self.cache
            self._policies[model, api] = None if name is None else POLICIES[name]
        policy = self._policies[model, api]
        if policy is None:
            _fail(
                line,
                "cache",
                f"is needed, here or as --cache: how prompts to {model!r} are cached is not known; one of "
                + ", ".join(POLICIES),
            )
        return policy

    def _lifetime(self, line: CallLine, policy: CachePolicy, tokens: Tokens | None) -> str | None:
        """The line's own; else the shortest that was billed, since the tail of a prompt has the shortest; else the one
        of the question, where this cache has it."""
        if line.lifetime is not None:
            if line.lifetime not in policy.lifetimes:
                known = ", ".join(policy.lifetimes) or "none is stated"
                _fail(line, "lifetime", f"{line.lifetime!r} is none of {policy.name} ({known})")
            return line.lifetime
        if tokens is not None:
            billed = (name for name, written in policy.write_class.items() if tokens.of(written))
            told = min(billed, key=lambda name: policy.lifetimes[name], default=None)
            if told is not None:
                return told
        asked = self.question.lifetime
        return asked if asked in policy.lifetimes else None


def _fail(line: CallLine, name: str, message: str) -> NoReturn:
    raise DocumentError(f"line {line.line}: {name}: {message}")


def _fact(
    line: CallLine,
    model: str,
    policy: CachePolicy,
    lifetime: str | None,
    card: PriceCard,
    tokens: Tokens | None,
    outcome: Outcome,
) -> CallFact:
    return CallFact(
        key=line.key,
        lane=line.lane,
        model=model,
        requested_at=line.requested_at,
        first_token_at=line.first_token_at,
        outcome=outcome,
        tokens=tokens,
        policy=policy,
        lifetime=lifetime,
        card=card,
        prompt=line.blocks,
        prompt_bytes=line.prompt_bytes or sum(block.size for block in line.blocks),
        max_output_tokens=line.max_output_tokens,
        marks_known=False,
    )


def _stored(line: CallLine, fact: CallFact) -> StoredCall:
    return StoredCall(fact, line.role, line.ended_at)


def _by_counts_where_blocks_lack(calls: Sequence[FileCall]) -> tuple[list[FileCall], list[str]]:
    """A lane is explained either by the blocks of all its calls or by none: what lies between would be guessed."""
    lacking = Counter(_lane(call) for call in calls if not call.stored.fact.prompt and not _refused(call))
    mixed = {_lane(call): lacking[_lane(call)] for call in calls if call.stored.fact.prompt and lacking[_lane(call)]}
    warnings = [
        f"{count} of the calls of lane {lane!r} have no blocks: all of it is explained by counts and times"
        for (_, lane), count in mixed.items()
    ]
    return [_without_blocks(call) if _lane(call) in mixed else call for call in calls], warnings


def _refused(call: FileCall) -> bool:
    """Nothing of it can have come into a cache."""
    return call.stored.fact.outcome == "refused" and call.stored.fact.tokens is None


def _lane(call: FileCall) -> tuple[str, str]:
    return call.stored.fact.model, call.stored.fact.lane


def _without_blocks(call: FileCall) -> FileCall:
    return replace(call, stored=replace(call.stored, fact=replace(call.stored.fact, prompt=())))
