"""What a persona says beside its commands: plain sentences of the kind an engineer writes, drawn by dice.

The text carries no decision. Its length is what matters: it is paid for as output, and read again on each later turn.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import Literal

from agents.simulated.dice import Dice

Step = Literal["explore", "write", "run", "look", "clean", "check"]

_OPENING: dict[Step, tuple[str, ...]] = {
    "explore": (
        "Before changing anything I want to see what is here.",
        "I will look at this part of the tree next.",
        "This should tell me how the pieces belong together.",
        "Reading on, because the details of the format decide what the right change is.",
        "I have not seen this one yet, and the instruction leans on it.",
    ),
    "write": (
        "I write the next part of the script now.",
        "With that understood, the following lines do this step.",
        "I keep the change in one script, so that it can be run and read as a whole.",
        "The next piece builds on what the previous one prepared.",
    ),
    "run": (
        "The script is complete, so I run it and watch for errors.",
        "Time to run it; the exit code and the last lines will tell whether every step went through.",
    ),
    "look": (
        "Now I compare the result with what was asked.",
        "The run alone proves little, so I look at what it left behind.",
        "I check this from the outside, the way somebody would who has only the instruction.",
        "One more look at a place where a mistake would hide.",
    ),
    "clean": (
        "The script has done its work and does not belong to the result, so I remove it.",
        "I tidy up what I left in the temporary directory.",
    ),
    "check": (
        "I do not take the report's word for it and look myself.",
        "The report names this as done, so it should be visible here.",
        "I check the part that is easiest to get wrong.",
        "This is read-only; if it differs from the brief I will say exactly where.",
    ),
}

_MUSING = (
    "The names suggest one reading, but the instruction is what counts, and it is more exact than the names.",
    "If an input is empty or a line is malformed, the result still has to have the asked shape.",
    "I keep an eye on ordering, since a stable order is easy to promise and easy to lose.",
    "White space and the final newline matter here, because something else will read the file byte by byte.",
    "There may be more than one place that needs the same change, and a search is cheaper than a wrong guess.",
    "What must stay as it is matters as much as what must change, so I note both.",
    "I would rather take one more look now than explain a surprise later.",
    "The simplest explanation fits what I have seen so far, but I have not excluded the second one.",
    "A hidden check would most likely try the boundary cases, so I go through them one at a time.",
    "Nothing here needs the network, and nothing needs more than the tools that are already present.",
    "I assume nothing about the current directory beyond what the first listing showed.",
    "The error path deserves the same care as the good one, because that is where half measures show.",
    "Two of the files look alike, and it would be easy to edit the wrong one.",
    "It helps to say what the finished state looks like before deciding how to get there.",
    "If this turns out differently from what I expect, the plan changes and not the evidence.",
    "The change should be small enough to be read in one sitting and leave no trace besides the result.",
    "Duplicates are a likely trap, and so is anything that appears only once.",
    "I note the exact spelling, since upper and lower case are different things to a computer.",
    "The numbers have to add up across the files, which gives me a check that costs nothing.",
    "Reading the data first and the code second avoids seeing only what the code wants to see.",
    "It is worth knowing which parts are generated, because editing those would not last.",
    "So far this agrees with the instruction; I go on until I could explain every step to somebody else.",
    "The permissions and the file names are part of the result, not decoration.",
    "When in doubt I follow the wording of the task over my own taste.",
)

_THOUGHT = (
    "Let me think about where this stands before I do the next thing.",
    "What do I know by now, and what would change my mind?",
    "There are two ways to go on from here; let me weigh them.",
    "First the facts, then the plan, then the command.",
)

_ADVICE = (
    "Read the instruction to its end before the first change, and treat every sentence in it as a requirement.",
    "Work in a script of its own, so that each step can be repeated, and remove the script when the result stands.",
    "Keep file names, their spelling and their places exactly as the instruction gives them.",
    "Handle the boundary cases: empty input, a missing value, a duplicate, the first and the last line.",
    "Do not touch anything that the task does not name; a clean tree is part of the result.",
    "After the run, compare the result with the instruction point by point, and say in the report what you compared.",
    "If a step fails, find out why before you try something else, and report what you found.",
    "Where the instruction leaves a choice open, take the plainest reading and name it in the report.",
    "Check the exit code of every step and do not hide errors behind a pipe.",
    "Look once at the finished files from the outside, as somebody would who knows nothing of your script.",
    "Prefer the tools that are already there; nothing can be installed.",
    "Pay attention to ordering and to the final newline, because the result is read by another program.",
)

_SUMMARY = (
    "I read the files that the task is about before changing anything.",
    "The change was made by one script, which ran to its end and has been removed.",
    "Afterwards I looked at the result and compared it with the instruction.",
    "Names, places and formats are as the instruction gives them.",
    "I left everything alone that the task does not mention.",
    "The boundary cases that I could think of were gone through one at a time.",
    "I found nothing else that would need to change.",
    "No temporary file is left behind.",
    "Where the wording allowed two readings I took the plainer one.",
    "The steps can be repeated and lead to the same state.",
)


def beside(dice: Dice, step: Step, turn: int, words: int) -> str:
    """What is said beside the command of one turn: about `words` words, at least a sentence."""
    sentences = [dice.pick(f"opening {turn}", _OPENING[step])]
    return _grow(dice, f"musing {turn}", sentences, _MUSING, dice.about(f"words {turn}", words))


def thinking(dice: Dice, turn: int, words: int) -> str:
    """What is thought before one turn's answer: about `words` words."""
    start = [dice.pick(f"thought {turn}", _THOUGHT)]
    return _grow(dice, f"thinking {turn}", start, _MUSING, dice.about(f"thinking words {turn}", words))


def brief(dice: Dice, subject: str, words: int) -> str:
    """What a planner tells its worker at first. `subject` is the beginning of the instruction."""
    head = f"Please carry out the task as its text says ({subject} ...). What I found while looking:"
    return _grow(dice, "brief", [head], _ADVICE, dice.about("brief words", words))


def rework(dice: Dice, words: int) -> str:
    """What a planner tells its worker after a check that it is not content with."""
    head = "The result does not convince me yet. Go through the task's text again, point by point, and redo the work."
    return _grow(dice, "rework", [head], _ADVICE, dice.about("rework words", words // 2))


def report(dice: Dice, words: int) -> str:
    """What a role says when it submits or approves."""
    return _grow(
        dice, "report", ["The task is done as far as I can tell."], _SUMMARY, dice.about("report words", words)
    )


def _grow(dice: Dice, what: str, sentences: list[str], stock: Sequence[str], words: int) -> str:
    """Adds sentences of the stock in a drawn order, round and round, until there are enough words."""
    said = sum(sentence.count(" ") + 1 for sentence in sentences)
    start = dice.number(f"{what} start") % len(stock)
    step = dice.pick(f"{what} step", _steps(len(stock)))
    k = 0
    while said < words:
        sentence = stock[(start + k * step) % len(stock)]
        sentences.append(sentence)
        said += sentence.count(" ") + 1
        k += 1
    return " ".join(sentences)


@lru_cache
def _steps(size: int) -> tuple[int, ...]:
    """Steps without a factor in common with `size`: going round by one visits everything before anything twice."""
    return tuple(step for step in range(1, size) if gcd(step, size) == 1)
