"""How many tokens a hand-over handed on: its text's share of what the receiver's prompt grew by.

The provider tells the prompt's total alone. The receiver's next request has grown by so many tokens since an earlier
one of its lane (by all of them where there is none), and by so many bytes of messages, of which the text is a part: the
bytes apportion the tokens, as everywhere in the ledger. An estimate, therefore. What a topology tells the receiver
beside the text is not counted.
"""

from collections.abc import Mapping, Sequence

import orjson

from experiments.store.rows import Row, moment, whole


def fill_handed_tokens(handovers: Sequence[Row], calls: Sequence[Row], messages: Sequence[Row]) -> None:
    """Fills `tokens` of the rows of one attempt's hand-overs. None where nobody was asked with the text, or where its
    provider told no total of that prompt.

    Calls and messages may be those of several lanes and in any order. Times are ISO-8601 text or aware date-times.
    """
    sizes: dict[tuple[object, object], dict[int, int]] = {}
    for message in messages:
        of_lane = sizes.setdefault((message["lane"], message["version"]), {})
        of_lane[whole(message["idx"])] = whole(message["size"])
    turns = sorted(
        (call for call in calls if not str(call["turn"]).startswith("k")),
        key=lambda call: moment(call["requested_at"]),
    )
    for handover in handovers:
        handover["tokens"] = None if handover["to_role"] is None else _tokens(handover, turns, sizes)


def _tokens(
    handover: Row, turns: Sequence[Row], sizes: Mapping[tuple[object, object], Mapping[int, int]]
) -> int | None:
    handed_at = moment(handover["handed_at"])
    heard = next(
        (
            at
            for at, c in enumerate(turns)
            if c["role"] == handover["to_role"] and moment(c["requested_at"]) >= handed_at
        ),
        None,
    )
    if heard is None:
        return None
    lane, turn = (turns[heard]["lane"], turns[heard]["version"]), turns[heard]["turn"]
    # Its first try may have brought no answer.
    tries = [c for c in turns[heard:] if (c["lane"], c["version"], c["turn"]) == (*lane, turn)]
    asked = next((c for c in tries if c["prompt_tokens"] is not None), None)
    if asked is None:
        return None
    earlier = [c for c in turns[:heard] if (c["lane"], c["version"]) == lane and c["prompt_tokens"] is not None]
    tokens, first = whole(asked["prompt_tokens"]), 0
    if earlier:
        tokens, first = tokens - whole(earlier[-1]["prompt_tokens"]), whole(earlier[-1]["blocks"])
    of_lane = sizes.get(lane, {})
    grown = sum(of_lane.get(idx, 0) for idx in range(first, whole(asked["blocks"])))
    if tokens < 0 or grown <= 0:
        return None
    # As it stands in a message: between quotes, with escapes.
    told = min(len(orjson.dumps(str(handover["payload"]))) - 2, grown)
    return (2 * tokens * told + grown) // (2 * grown)
