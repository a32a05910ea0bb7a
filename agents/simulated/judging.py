"""A simulated reviewer's verdict: what it makes of the diff in its prompt, and how it errs.

It recognises by the diff's text which of the task's scripts was played. Wrong work it rejects with the persona's
`recall`, right work with its `false_reject`. What it does not recognise it takes for wrong, and so it does where it
does not know the task.
"""

import re
from collections.abc import Sequence

import orjson

from agents.simulated.catalogue import KnownTask
from agents.simulated.conversation import Said
from agents.simulated.dice import Dice
from agents.simulated.persona import Reviewing
from agents.simulated.recognition import changed_files, recognised

DIFF_HEADING = "What has changed in the working directory since before the work, as a diff:"

_TIME_LEFT = re.compile(r"\n\[time: \d+ s of \d+ s left\]\Z")
"""Told at the end of a message, and no part of the diff before it."""

_PROBLEMS = (
    "This does not do what the task's text asks for in the boundary cases.",
    "The order of these lines is not the one that the task asks for.",
    "One of the cases that the text names is not handled here.",
    "The result is right for the example, but not for other input of the same kind.",
    "This changes more than the task asks for, and hides the mistake instead of mending its cause.",
    "This value cannot be right: it contradicts another one in the same result.",
)


def diff_in(said: Sequence[Said]) -> str:
    """The latest diff that the reviewer was told; an empty text when there is none."""
    for line in reversed(said):
        if line.speaker in ("user", "tool"):
            # Every line of a diff begins with a mark, so that the last heading at a line's beginning is the real one.
            _, found, diff = f"\n{line.text}".rpartition(f"\n{DIFF_HEADING}\n")
            if found:
                return _TIME_LEFT.sub("", diff).strip("\n")
    return ""


def is_right(task: KnownTask | None, diff: str) -> bool:
    """Whether the diff shows the task's own solution."""
    return task is not None and task.solution is not None and recognised(task, diff) == task.solution


def judge(dice: Dice, reviewing: Reviewing, task: KnownTask | None, diff: str) -> str:
    """The verdict's arguments as JSON. Who is right is surer on average, and never sure."""
    right = is_right(task, diff)
    rejects = dice.unit("reject") < (reviewing.false_reject if right else reviewing.recall)
    low, high = (0.7, 0.95) if rejects != right else (0.5, 0.8)
    confidence = round(low + (high - low) * dice.unit("confidence"), 2)
    findings = _findings(dice, changed_files(diff)) if rejects else []
    verdict = "reject" if rejects else "approve"
    return orjson.dumps({"verdict": verdict, "confidence": confidence, "findings": findings}).decode()


def _findings(dice: Dice, files: list[str]) -> list[dict[str, object]]:
    """One to three, in files of the diff; one about the whole work where it names none."""
    if not files:
        return [{"file": ".", "line": None, "problem": "Nothing of what the task asks for has been done."}]
    count = min(len(files), 1 + dice.number("findings") % 3)
    start = dice.number("finding") % len(files)
    return [
        {
            "file": files[(start + n) % len(files)],
            "line": 1 + dice.number(f"line {n}") % 40,
            "problem": dice.pick(f"problem {n}", _PROBLEMS),
        }
        for n in range(count)
    ]
