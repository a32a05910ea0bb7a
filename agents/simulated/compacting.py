"""How a simulated model is asked to compact its conversation, what it answers, and how it goes on from that.

Its summary says in one line how far it has come. That line, and how many of its answers were kept whole, are all that
it goes on from: what it had printed before is gone, as it would be for any model that wrote no more down.
"""

import re
from typing import NamedTuple

from agents.simulated import prose
from agents.simulated.conversation import Transcript
from agents.simulated.dice import Dice

_ASKED = "Your conversation is about to be compacted."
_KEPT = re.compile(
    r"^\[Your conversation up to here was compacted\. You wrote the summary below of it; the newest (\d{1,5}) of your "
    r"answers and what came of them follow whole\.\]$",
    re.MULTILINE,
)
_TOLD = re.compile(r"^Finished visits: (\d{1,6})\. Turns of this visit so far: (\d{1,6})\.$", re.MULTILINE)


class Remembered(NamedTuple):
    """How far it had come when it was asked: finished visits, turns since, and how many of its turns still stand."""

    visits: int
    turns: int
    kept: int


def asked(transcript: Transcript) -> bool:
    """Whether the last thing that the user said asks for a summary."""
    last = transcript.said[-1] if transcript.said else None
    return last is not None and last.speaker == "user" and last.text.startswith(_ASKED)


def summary(dice: Dice, visits: int, turns: int, words: int) -> str:
    return f"Finished visits: {visits}. Turns of this visit so far: {turns}.\n\n{prose.report(dice, words)}"


def remembered(opening: str) -> Remembered | None:
    """What the first message says of a conversation that was compacted; None when it was not, or tells nothing."""
    kept = _KEPT.search(opening)
    told = _TOLD.search(opening, kept.end()) if kept else None
    return Remembered(int(told[1]), int(told[2]), int(kept[1])) if kept and told else None
