"""From the events of ONE attempt to its rows: a pure function, whoever read the events and however often.

A call that was sent and never ended is `lost` when its owner is dead or its attempt is over, and in flight (outcome
null) while the owner lives. An attempt whose owner died ended by infra_error: its calls and their money stay.
"""

from collections.abc import Sequence

from cost_model.errors import CostError
from experiments.errors import JournalDamaged
from experiments.store.expiries import expiry_rows
from experiments.store.handed import fill_handed_tokens
from experiments.store.journal import Event
from experiments.store.ledger import Facts, explain_calls
from experiments.store.lifetimes import fill_lifetimes
from experiments.store.reviews import Copies, review_row
from experiments.store.rows import Row, Rows

DIED = "the process died before the attempt ended"


def attempt_rows(events: Sequence[Event], facts: Facts, *, alive: bool) -> Rows:
    """`alive`: the owner of the journal still runs. Raises JournalDamaged."""
    name = f"{events[0].get('trial_id')}/{events[0].get('attempt')}"
    try:
        rows = raw_rows(events, alive=alive)
        rows["charges"] = explain_calls(rows["calls"], rows["messages"], facts)
        fill_handed_tokens(rows["handovers"], rows["calls"], rows["messages"])
        fill_lifetimes(rows["trial_roles"], rows["calls"], facts)
        rows |= expiry_rows(rows["calls"], rows["charges"], rows["spans"])
    except CostError as error:
        raise JournalDamaged(f"attempt {name}: cannot be booked ({error})") from error
    except (LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(f"attempt {name}: its events do not fit together ({error!r})") from error
    return rows


def raw_rows(events: Sequence[Event], *, alive: bool) -> Rows:
    """As `attempt_rows`, before anything is priced: without charges, and without the columns that the fold fills."""
    rows: Rows = {table: [] for table in ("commands", "spans", "handovers", "reviews", "rewards", "rewrites")}
    calls: dict[object, Row] = {}
    messages: dict[object, Row] = {}
    roles: dict[object, Row] = {}
    attempt: Row = {}
    copies = Copies()
    over = not alive
    for event in events:
        match event["kind"]:
            case "attempt_started":
                attempt = {**_own(event), **_pick(event, _STARTED), **attempt}
            case "role":
                roles.setdefault(event["lane"], {**_own(event), **_pick(event, _ROLE)})
            case "message":
                place = (event["lane"], event["version"], event["idx"])
                messages.setdefault(place, {**_own(event), **_pick(event, _MESSAGE)})
            case "rewrite":
                rows["rewrites"].append({**_own(event), "rewritten_at": event["at"], **_pick(event, _REWRITE)})
            case "sent":
                calls[event["key"]] = _sent(event)
            case "ended":
                calls[event["key"]].update(_pick(event, _ENDED))
            case "judged":
                calls[event["key"]]["tool_calls_valid"] = event["tool_calls_valid"]
            case "command":
                _append(rows["commands"], event, {**_pick(event, _COMMAND), "refused": event.get("refused")})
            case "span":
                _append(rows["spans"], event, {"kind": event["span_kind"], **_pick(event, _SPAN)})
            case "handover":
                moved = {"kind": event["handover_kind"], "handed_at": event["at"], "tokens": None}
                # Journals of older versions tell neither.
                why = {name: event.get(name) for name in ("call", "reason")}
                _append(rows["handovers"], event, {**moved, **why, **_pick(event, _HANDOVER)})
                if "review" in event:
                    number = 1 + len(rows["reviews"])
                    rows["reviews"].append(review_row(event, number, rows["handovers"], calls))
                    copies.judged(rows["reviews"][-1])
            case "review_copied" | "review_truth" | "state_kept":
                copies.hear(event)
            case "reward":
                rows["rewards"] = [{**_own(event), **reward} for reward in _rewards(event["rewards"])]
                attempt |= {"verifier_output": event["output"], "verifier_seconds": event["seconds"]}
            case "attempt_ended":
                attempt |= {**_own(event), **_pick(event, _ATTEMPT_ENDED)}
                over = True
            case kind:
                raise ValueError(f"unknown journal event {kind!r}")
    if over and not attempt.get("ended_by"):
        attempt |= {**_own(events[0]), **_died(events)}
    if over:
        _end_the_chain(rows["handovers"], attempt)
    rows["states"] = copies.settle(over=over)
    for call in calls.values():
        if over and call["outcome"] is None:
            call["outcome"] = "lost"
    return {
        "attempts": [attempt] if attempt else [],
        "trial_roles": list(roles.values()),
        "messages": list(messages.values()),
        "calls": list(calls.values()),
        **rows,
    }


_STARTED = ("started_at", "wall_started_at", "backend", "notes")
_ROLE = ("role", "lane", "model", "prompt", "tools")
_MESSAGE = ("lane", "version", "idx", "role", "content", "hash", "size")
_REWRITE = (
    "role", "lane", "version", "policy", "outcome", "turn", "call", "first", "results", "blocks_before", "blocks_after",
    "bytes_before", "bytes_after",
)  # fmt: skip
_SENT = (
    "key", "role", "lane", "version", "turn", "blocks", "model", "wire_model", "provider", "flavour", "lifetime",
    "prompt_bytes", "max_output_tokens", "requested_at", "simulated",
)  # fmt: skip
_ENDED = (
    "outcome", "status", "first_token_at", "ended_at", "usage", "response_id", "response_model", "request_id",
    "finish_reason", "error",
)  # fmt: skip
_COMMAND = ("lane", "turn", "command", "exit_code", "output", "size", "timed_out", "started_at", "ended_at")
_SPAN = ("lane", "name", "started_at", "ended_at")
_HANDOVER = ("from_role", "to_role", "payload")
_ATTEMPT_ENDED = (
    "ended_by", "outcome", "unscored_reason", "reward", "passed", "changed", "started_at", "ended_at",
    "wall_started_at", "wall_ended_at", "error",
)  # fmt: skip


def _end_the_chain(handovers: Sequence[Row], attempt: Row) -> None:
    """A tool names who gets its text; where the topology ends there instead (its rounds are used up), nobody does."""
    if handovers and handovers[-1]["kind"] is not None and attempt.get("ended_by") in ("submitted", "no_handover"):
        handovers[-1]["to_role"] = None


def _own(event: Event) -> Row:
    return {"trial_id": event["trial_id"], "attempt": event["attempt"]}


def _pick(event: Event, names: Sequence[str]) -> Row:
    return {name: event[name] for name in names}


def _append(rows: list[Row], event: Event, values: Row) -> None:
    rows.append({**_own(event), "seq": len(rows), **values})


def _sent(event: Event) -> Row:
    return {
        **_own(event),
        **_pick(event, _SENT),
        "try": event["try_number"],
        **dict.fromkeys(_ENDED),
        "upstream": None,
        "tool_calls_valid": None,
        "replayed": False,
    }


def _rewards(rewards: object) -> list[Row]:
    """What is no number stays, as a name without a value."""
    return (
        [{"name": name, "value": value if type(value) in (int, float) else None} for name, value in rewards.items()]
        if isinstance(rewards, dict)
        else []
    )


def _died(events: Sequence[Event]) -> Row:
    """What is known of an attempt without an end: it lasted at least to the last time that was recorded."""
    seen = [
        str(value)
        for event in events
        for name, value in event.items()
        if value is not None and name in ("started_at", "requested_at", "first_token_at", "ended_at", "at")
    ]
    return {
        "ended_by": "infra_error",
        "outcome": "unscored",
        "unscored_reason": DIED,
        "ended_at": max(seen, default=None),
        "error": DIED,
    }
