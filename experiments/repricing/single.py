"""The plain way: a call by itself, and an attempt whose causes have to be found afresh.

By itself goes whatever is no sum of tokens alone: an answer that broke off, usage that never came or cannot be read,
searches and other models beside it, several requests in one call, a class without a price. Its causes are the stored
ones, as stretches of its prompt. Where raw usage no longer gives the stored tokens (a modifier has a price now, or has
none any more), nothing stored holds: the whole attempt is explained anew, as if it were booked today.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from cost_model.call_fact import CallFact
from cost_model.causes import BESIDE, GROWTH, OUTPUT, UNKNOWN
from cost_model.ledger import Stretch
from cost_model.scope import ExplainedCall, explain, price_known, price_unknown
from cost_model.tokens import PROMPT_CLASSES
from cost_model.what_if.replay import bill_in_proportion
from experiments.errors import JournalDamaged
from experiments.repricing.quick import Attempt
from experiments.store.ledger import TOKEN_COLUMNS, Facts, call_facts
from experiments.store.prompts import Prompts
from experiments.store.rows import Row
from experiments.store.settlements import SETTLED, SETTLEMENT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_STORED = (
    "key", "trial_id", "attempt", "role", "lane", "version", "blocks", "model", "flavour", "lifetime", "requested_at",
    "first_token_at", "outcome", "prompt_bytes", "max_output_tokens", "usage", "prompt_tokens", *TOKEN_COLUMNS,
)  # fmt: skip

_CALLS = f"SELECT {', '.join(_STORED)}, {SETTLEMENT} FROM calls {SETTLED}"  # noqa: S608

_OF_ATTEMPTS = "(trial_id, attempt) IN (SELECT unnest($trials), unnest($attempts)) AND outcome IS NOT NULL"


class Single:
    """Prices calls of an open database one by one. `causes`: whether anybody asks for them."""

    def __init__(self, connection: "DuckDBPyConnection", own: Facts, new: Facts, *, causes: bool) -> None:
        self._connection = connection
        self._own, self._new = own, new
        self._causes = causes

    def price(self, keys: Sequence[str]) -> tuple[list[tuple[Row, ExplainedCall]], set[Attempt]]:
        """The calls as they cost now, and the attempts of those whose stored tokens do not hold: they come out of
        `explain_anew`. Raises PriceMissing, JournalDamaged."""
        rows = self._rows(f"{_CALLS} WHERE key IN (SELECT unnest($keys))", {"keys": keys})
        priced: list[tuple[Row, ExplainedCall]] = []
        broken: set[Attempt] = set()
        stretches = self._stretches(keys) if self._causes else {}
        densities = self._densities({_attempt(row) for row in rows if row["prompt_tokens"] is None})
        for row in rows:
            fact = self._facts([row], ())[0]
            if not _as_stored(fact, row):
                broken.add(_attempt(row))
            elif fact.tokens is None:
                priced.append((row, price_unknown(fact, densities.get(fact.key))))
            else:
                causes = _whole(stretches.get(fact.key, []), fact.tokens.prompt)
                priced.append((row, price_known(fact, fact.tokens, causes)))
        return priced, broken

    def explain_anew(self, attempts: Iterable[Attempt]) -> list[tuple[Row, ExplainedCall]]:
        """All calls of these attempts, explained as a fresh booking would; from their counts alone where the blocks of
        their prompts are gone. Raises PriceMissing, JournalDamaged."""
        chosen = sorted(attempts)
        if not chosen:
            return []
        parameters = {"trials": [trial for trial, _ in chosen], "attempts": [number for _, number in chosen]}
        calls = _grouped(self._rows(f"{_CALLS} WHERE {_OF_ATTEMPTS}", parameters))
        blocks = _grouped(
            self._rows(
                "SELECT trial_id, attempt, lane, version, idx, hash, size FROM messages "
                "WHERE (trial_id, attempt) IN (SELECT unnest($trials), unnest($attempts))",
                parameters,
            )
        )
        found: list[tuple[Row, ExplainedCall]] = []
        for attempt, rows in calls.items():
            by_key = {str(row["key"]): row for row in rows}
            facts = self._facts(rows, blocks.get(attempt, ()))
            found += [(by_key[explained.key], explained) for explained in explain(facts)]
        return found

    def _facts(self, rows: Sequence[Row], blocks: Sequence[Row]) -> list[CallFact]:
        """The facts of calls at the new prices, a provider's bill in proportion to the list price."""
        if not _all_there(rows, blocks):
            rows, blocks = [{**row, "blocks": 0} for row in rows], ()
        facts = call_facts([dict(row) for row in rows], blocks, self._new)
        if all(fact.billed_usd is None or fact.tokens is None for fact in facts):
            return facts
        own = {fact.key: fact for fact in call_facts([dict(row) for row in rows], blocks, self._own)}
        return [_billed(fact, own[fact.key]) for fact in facts]

    def _stretches(self, keys: Sequence[str]) -> dict[str, list[Stretch]]:
        """The causes of prompts by position, out of the charges that the batch has laid into `of_batch`."""
        lines = self._connection.execute(
            "SELECT call, cause, units, token_class FROM of_batch WHERE call IN (SELECT unnest($keys)) "
            "ORDER BY call, line",
            {"keys": keys},
        ).fetchall()
        found: dict[str, list[Stretch]] = {}
        for call, cause, units, token_class in lines:
            if token_class in PROMPT_CLASSES and cause not in (BESIDE, OUTPUT, UNKNOWN):
                stretches = found.setdefault(call, [])
                end = (stretches[-1].end if stretches else 0) + units
                if stretches and stretches[-1].cause == cause:
                    stretches.pop()
                stretches.append(Stretch(cause, end))
        return found

    def _densities(self, attempts: set[Attempt]) -> dict[str, Decimal]:
        """By key, the tokens a byte of the latest call before it in its lane whose usage is known."""
        if not attempts:
            return {}
        lines = self._connection.execute(
            "SELECT trial_id, attempt, model, lane, key, prompt_tokens, prompt_bytes, "  # noqa: S608
            "settlements.arrived IS NOT DISTINCT FROM false "
            f"FROM calls {SETTLED} WHERE {_OF_ATTEMPTS} ORDER BY requested_at, key",
            {"trials": [trial for trial, _ in attempts], "attempts": [number for _, number in attempts]},
        ).fetchall()
        latest: dict[tuple[object, ...], Decimal] = {}
        found: dict[str, Decimal] = {}
        for *lane, key, prompt_tokens, prompt_bytes, never_arrived in lines:
            if prompt_tokens is not None and prompt_bytes and not never_arrived:
                latest[tuple(lane)] = Decimal(prompt_tokens) / prompt_bytes
            elif tuple(lane) in latest:
                found[key] = latest[tuple(lane)]
        return found

    def _rows(self, sql: str, parameters: Mapping[str, object]) -> list[Row]:
        relation = self._connection.execute(sql, parameters)
        names = [column[0] for column in relation.description or ()]
        return [dict(zip(names, line, strict=True)) for line in relation.fetchall()]


def _billed(fact: CallFact, own: CallFact) -> CallFact:
    if fact.billed_usd is None or fact.tokens is None or own.tokens is None:
        return fact
    return replace(fact, billed_usd=bill_in_proportion(own.tokens, own, fact.tokens, fact))


def _as_stored(fact: CallFact, row: Row) -> bool:
    """Whether the causes that are stored hold: they follow from the length of the prompt and what was read of it."""
    if fact.settled and fact.outcome == "refused" and fact.tokens is None:
        return row["prompt_tokens"] in (None, 0)
    if fact.tokens is None or row["prompt_tokens"] is None:
        return fact.tokens is None and row["prompt_tokens"] is None
    read = None if fact.read_untold else fact.tokens.cache_read
    return (row["prompt_tokens"], row["cache_read_tokens"]) == (fact.tokens.prompt, read)


def _whole(stretches: Sequence[Stretch], prompt: int) -> list[Stretch]:
    """The stretches up to the end of the prompt; what has none (of untold reads, or nobody asks) is growth."""
    end = stretches[-1].end if stretches else 0
    if end > prompt:
        raise JournalDamaged(f"a call of {prompt} prompt tokens has charges for {end}; rebuild or move the database")
    return [*stretches, Stretch(GROWTH, prompt)] if end < prompt else list(stretches)


def _all_there(calls: Sequence[Row], blocks: Sequence[Row]) -> bool:
    """Whether every block that the calls were sent with is recorded."""
    prompts = Prompts(blocks)
    counts = ((row["blocks"], prompts.of(row["lane"], row["version"])) for row in calls)
    return all(count <= len(known) for count, known in counts if isinstance(count, int))


def _grouped(rows: Iterable[Row]) -> dict[Attempt, list[Row]]:
    found: dict[Attempt, list[Row]] = {}
    for row in rows:
        found.setdefault(_attempt(row), []).append(row)
    return found


def _attempt(row: Row) -> Attempt:
    return str(row["trial_id"]), int(str(row["attempt"]))
