"""The rows of tables `reviews` and `states`: what the hand-overs of an attempt say that are a reviewer's verdict, and
what became of the copies of the work that was judged."""

from collections.abc import Mapping, Sequence

from experiments.store.journal import Event
from experiments.store.rows import Row


def review_row(event: Event, number: int, handovers: Sequence[Row], calls: Mapping[object, Row]) -> Row:
    """Of a hand-over's event with a verdict in it; `number` counts the attempt's verdicts from 1, `handovers` are all
    up to its own. Raises KeyError when its call is none of the attempt's."""
    given = event["review"]
    if not isinstance(given, dict):
        raise TypeError(f"a review must be an object, not {type(given).__name__}")
    call = calls[event["call"]]
    reviewed = [row["seq"] for row in handovers if row["to_role"] == event["from_role"]]
    return {
        "trial_id": event["trial_id"],
        "attempt": event["attempt"],
        "number": number,
        "role": event["from_role"],
        "lane": call["lane"],
        "turn": int(str(call["turn"])),
        "call": event["call"],
        "round": len(reviewed),
        "handover": handovers[-1]["seq"],
        "reviewed": reviewed[-1] if reviewed else None,
        "verdict": given["verdict"],
        "confidence": given["confidence"],
        "findings": given["findings"],
        "given_at": event["at"],
        **dict.fromkeys(_OF_COPIES),
    }


class Copies:
    """What an attempt's events tell of the copies of reviewed work, in their order."""

    def __init__(self) -> None:
        self._copied: dict[object, Event] = {}
        self._latest: dict[object, object] = {}
        self._reviews: dict[object, Row] = {}
        self._truths: dict[object, Event] = {}
        self._states: dict[object, Event] = {}

    def hear(self, event: Event) -> None:
        """Of a copy the first word counts."""
        number = event["number"]
        match event["kind"]:
            case "review_copied":
                self._copied[number] = event
                self._latest[event["role"]] = number
            case "review_truth":
                self._truths.setdefault(number, event)
            case "state_kept":
                self._states.setdefault(number, event)

    def judged(self, review: Row) -> None:
        """The verdict is about the latest copy that was taken for its role, unless that has had its verdict."""
        number = self._latest.pop(review["role"], None)
        if number is not None:
            self._reviews[number] = review

    def settle(self, *, over: bool) -> list[Row]:
        """Fills the reviews in. Returns the rows of `states`. `over`: nothing more will come."""
        for number, review in self._reviews.items():
            review.update(self._told(number, ENDED_BEFORE if over else None))
        found: dict[object, Row] = {}
        for number, event in self._states.items():
            if event["hash"] is not None:
                judged = self._reviews.get(number)
                found.setdefault(
                    event["hash"],
                    {
                        **{name: event[name] for name in ("hash", "size", "format", "stored_at")},
                        **{name: event[name] for name in ("trial_id", "attempt")},
                        "review": None if judged is None else judged["number"],
                    },
                )
        return list(found.values())

    def _told(self, number: object, otherwise: str | None) -> Row:
        copied, truth, state = self._copied[number], self._truths.get(number), self._states.get(number)
        row: Row = dict.fromkeys(_OF_COPIES) | {"copy_seconds": copied["seconds"]}
        if truth is not None:
            row |= {"truth": truth["passed"], "truth_reward": truth["reward"], "truth_seconds": truth["seconds"]}
            row["truth_reason"] = truth["unscored_reason"]
        elif copied["verify"]:
            row["truth_reason"] = copied["fault"] or otherwise
        if state is not None:
            row |= {"state": state["hash"], "state_reason": state["fault"]}
        elif copied["keep"]:
            row["state_reason"] = copied["fault"] or otherwise
        return row


ENDED_BEFORE = "the attempt ended before"
_OF_COPIES = ("truth", "truth_reward", "truth_seconds", "truth_reason", "copy_seconds", "state", "state_reason")
