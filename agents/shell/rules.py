"""What a policy says of a command: every simple command of the parsed text is looked at, however it is wrapped.

What is refused is told to the model in one line, and never runs. A guard rail against mistakes, and no security
boundary: that is the sandbox. A program that a role writes itself, or a script file, is not looked into.
"""

import re
from collections.abc import Iterator, Sequence

from agents.command_policy import CommandPattern, CommandPolicy, refused
from agents.shell import looking
from agents.shell.git_looks import without_globals
from agents.shell.script import Simple, simple_commands
from agents.shell.words import COMPUTED, Unreadable, Word, names
from agents.shell.wrappers import inside

_DEEPEST = 12
_MOST = 5_000
_SHOWN = 120
_RESERVED = names("{ } if then elif else fi for while until do done case esac in select function !")
_EVALUATES = names("let declare typeset local export readonly unset read printf test [ [[ wait getopts")
_SUBSTITUTES = re.compile(r"\$\(|`")
_NO_FILE = ("/dev/null", "/dev/stdout", "/dev/stderr")


def refusal(policy: CommandPolicy, command: str) -> str | None:
    """Why it is refused, in one line; None where it may run.

    Parses in this process, which some texts can end: called in that of `agents.shell.judge` alone.
    """
    try:
        return next(_refusals(policy, command, 0, [_MOST]), None)
    except Unreadable as problem:
        return refused(None, f"the command cannot be judged: {problem}")
    except RecursionError:
        return refused(None, "the command cannot be judged: it is nested too deep")


def _refusals(policy: CommandPolicy, script: str, depth: int, left: list[int]) -> Iterator[str]:
    if depth > _DEEPEST:
        raise Unreadable("it runs shells within shells too deep")
    for simple in simple_commands(script):
        if policy.read_only:
            yield from _writes(simple)
        if simple.words:
            yield from _judged(policy, simple.words, simple, depth, left)


def _judged(policy: CommandPolicy, words: Sequence[Word], simple: Simple, depth: int, left: list[int]) -> Iterator[str]:
    left[0] -= 1
    if depth > _DEEPEST or left[0] < 0:
        raise Unreadable("it runs too much, or commands within commands too deep")
    name, shown = words[0], _shown(words)
    if not name.known or (name.pattern and name.text not in ("[", "[[")) or not name.text:
        yield refused(shown, "cannot be judged: the command's name is computed; write it out")
        return
    if name.text in _RESERVED:
        yield refused(shown, f"cannot be judged: {name.text!r} stands where a command is expected")
        return
    if name.text in _EVALUATES and any(_SUBSTITUTES.search(word.text) for word in words):
        yield refused(shown, f"cannot be judged: {name.text} would run what stands in its words")
    for pattern in policy.deny:
        if _may_fit(pattern, words):
            sure = pattern.surely_fits(without_globals(words)) or all(word.known for word in words)
            yield refused(shown, f"{'matches' if sure else 'could match'} the denied pattern {pattern.text!r}")
    found = inside(words, simple)
    if policy.read_only:
        yield from _assigns(found.assigns, shown)
    if found.why is not None:
        yield refused(shown, f"cannot be judged: {found.why}")
    for inner in found.exact:
        yield from _judged(policy, inner, simple, depth + 1, left)
    for inner in found.loose:
        for pattern in policy.deny:
            if _may_fit(pattern, inner):
                yield refused(shown, f"may run what the denied pattern {pattern.text!r} matches")
    for script in found.scripts:
        yield from _refusals(policy, script, depth + 1, left)
    for script in found.perhaps:
        try:
            yield from _refusals(policy, script, depth + 1, left)
        except Unreadable:
            continue
    if found.plain:
        yield from _plain(policy, words, shown)


def _may_fit(pattern: CommandPattern, words: Sequence[Word]) -> bool:
    return pattern.may_fit(words) or pattern.may_fit(without_globals(words))


def _plain(policy: CommandPolicy, words: Sequence[Word], shown: str) -> Iterator[str]:
    if (
        policy.allow is not None
        and words[0].text not in looking.SHELL
        and not any(pattern.surely_fits(words) for pattern in policy.allow)
    ):
        allowed = ", ".join(repr(pattern.text) for pattern in policy.allow[:8])
        yield refused(shown, f"matches no allowed pattern ({allowed}{', ...' if len(policy.allow) > 8 else ''})")
    if policy.read_only and (why := looking.why_it_writes(words)) is not None:
        yield refused(shown, f"{why}, and this role may only look (read_only)")


def _writes(simple: Simple) -> Iterator[str]:
    for target in simple.writes:
        if target.text not in _NO_FILE:
            name = target.text.replace(COMPUTED, "...")
            yield refused(
                _cut(simple.text.partition("\n")[0]),
                f"writes to {_cut(name)!r}, and this role may only look (read_only)",
            )
    shown = _cut(simple.text.partition("\n")[0])
    if simple.evaluates:
        yield refused(
            shown,
            "evaluates a variable or a subscript, which may run something; only numbers may stand there "
            '([ "$n" -gt 3 ] compares), and this role may only look (read_only)',
        )
    yield from _assigns(simple.assigns, shown)


def _assigns(assigned: Sequence[str], shown: str) -> Iterator[str]:
    for name in assigned:
        if not looking.VARIABLES.fullmatch(name.partition("[")[0]):
            yield refused(shown, f"sets {_cut(name)}, and this role may only look (read_only)")


def _shown(words: Sequence[Word]) -> str:
    return _cut(" ".join(word.text.replace(COMPUTED, "...") for word in words[:40]))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
