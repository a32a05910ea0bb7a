"""Stored calls as a replay takes them: read from the open database, one list for each cache scope."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cost_model.prices import PriceBook
from cost_model.what_if.rounds import with_rounds
from cost_model.what_if.stored_call import StoredCall
from experiments.errors import UnknownExperiment
from experiments.store.facts import load_facts
from experiments.store.ledger import Facts, call_facts
from experiments.store.reader import Reader
from experiments.store.rows import Row
from experiments.store.settlements import SETTLED, SETTLEMENT

_CALLS = f"""
SELECT trials.arm, calls.key, calls.trial_id, calls.attempt, calls.role, calls.lane, calls.turn, calls.version,
    calls.blocks, calls.model, calls.flavour, calls.lifetime, calls.requested_at, calls.first_token_at, calls.ended_at,
    calls.outcome, calls.prompt_bytes, calls.max_output_tokens, calls.usage, {SETTLEMENT}
FROM calls JOIN trials ON trials.id = calls.trial_id {SETTLED}
WHERE trials.experiment = $experiment AND trials.arm = $arm
ORDER BY calls.trial_id, calls.attempt, calls.requested_at, calls.key
"""  # noqa: S608

_BLOCKS = """
SELECT trial_id, attempt, lane, version, idx, hash, size FROM messages
WHERE trial_id IN (SELECT id FROM trials WHERE experiment = $experiment AND arm = $arm)
"""


@dataclass(frozen=True, slots=True)
class StoredArm:
    """An arm's calls, all attempts: every attempt of a trial is a cache scope of its own. `in_flight` calls have not
    ended and are left out."""

    name: str
    simulated: bool
    scopes: tuple[tuple[StoredCall, ...], ...]
    in_flight: int

    @property
    def roles(self) -> tuple[str, ...]:
        """In the order in which they first called."""
        return tuple(dict.fromkeys(call.role for scope in self.scopes for call in scope))


def stored_facts(reader: Reader, experiment: str, book: PriceBook) -> Facts:
    """Raises UnknownExperiment."""
    return load_facts(reader.connection, experiment, lambda: book)


def stored_arms(reader: Reader, experiment: str, arms: Sequence[str], facts: Facts) -> Iterator[StoredArm]:
    """The arms in the spec's order; `arms` keeps only these. Raises UnknownExperiment, JournalDamaged."""
    known = reader.query(
        "SELECT name, (SELECT bool_or(simulated) FROM trials WHERE trials.experiment = arms.experiment AND arm = name) "
        "FROM arms WHERE experiment = ? ORDER BY position",
        [experiment],
    ).rows
    names = [name for name, _ in known]
    for arm in arms:
        if arm not in names:
            raise UnknownExperiment(f"experiment {experiment!r} has no arm {arm!r}; its arms: {', '.join(names)}")
    for name, simulated in known:
        if not arms or name in arms:
            yield _arm(reader, experiment, name, bool(simulated), facts)


def _arm(reader: Reader, experiment: str, name: str, simulated: bool, facts: Facts) -> StoredArm:
    chosen = {"experiment": experiment, "arm": name}
    calls, blocks = _by_attempt(reader, _CALLS, chosen), _by_attempt(reader, _BLOCKS, chosen)
    scopes = tuple(tuple(_scope(rows, blocks.get(attempt, []), facts)) for attempt, rows in calls.items())
    rows = sum(len(rows) for rows in calls.values())
    return StoredArm(name, simulated, scopes, rows - sum(len(scope) for scope in scopes))


def _scope(calls: Sequence[Row], blocks: Sequence[Row], facts: Facts) -> list[StoredCall]:
    by_key = {row["key"]: row for row in calls}
    return with_rounds(
        [
            StoredCall(
                fact,
                str(by_key[fact.key]["role"]),
                _moment(by_key[fact.key]["ended_at"]),
                pinged=str(by_key[fact.key]["turn"]).startswith("k"),
            )
            for fact in call_facts(calls, blocks, facts)
        ]
    )


def _by_attempt(reader: Reader, sql: str, chosen: dict[str, str]) -> dict[tuple[object, object], list[Row]]:
    names, lines = reader.query(sql, chosen)
    found: dict[tuple[object, object], list[Row]] = {}
    for line in lines:
        row: Row = dict(zip(names, line, strict=True))
        found.setdefault((row["trial_id"], row["attempt"]), []).append(row)
    return found


def _moment(value: object) -> datetime | None:
    return value.astimezone(UTC) if isinstance(value, datetime) else None
