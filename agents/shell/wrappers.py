"""Commands that run others: what they run, peeled out, however deep."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.shell.script import Simple
from agents.shell.words import COMPUTED, Word, base_name, names

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"))

_VALUES: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    # name: (options that take a value, options that take none)
    "env": (frozenset(("-u", "--unset", "-C", "--chdir")), frozenset(("-i", "-", "-0", "-v", "--ignore-environment"))),
    "nohup": (frozenset(), frozenset()),
    "nice": (frozenset(("-n", "--adjustment")), frozenset()),
    "timeout": (
        frozenset(("-k", "--kill-after", "-s", "--signal")),
        frozenset(("-v", "--verbose", "--preserve-status", "--foreground")),
    ),
    "time": (frozenset(("-f", "--format")), frozenset(("-p", "-v", "--portability", "--verbose"))),
    "command": (frozenset(), frozenset(("-p",))),
    "builtin": (frozenset(), frozenset()),
    "exec": (frozenset(("-a",)), frozenset(("-c", "-l"))),
    "setsid": (frozenset(), frozenset(("-c", "-f", "-w", "--ctty", "--fork", "--wait"))),
    "stdbuf": (frozenset(("-i", "-o", "-e", "--input", "--output", "--error")), frozenset()),
    "xargs": (
        frozenset(("-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s", "--arg-file", "--delimiter", "--max-args",
                   "--max-procs", "--max-lines", "--replace")),
        frozenset(("-0", "-r", "-t", "-x", "-p", "--null", "--no-run-if-empty", "--verbose")),
    ),
}  # fmt: skip
"""Wrappers whose options are all known: what they run is found exactly."""

_LOOSE = names(
    "sudo doas su runuser setpriv chroot unshare nsenter flock watch script strace ltrace ionice chrt taskset busybox "
    "toybox unbuffer chronic entr parallel rlwrap coproc systemd-run prlimit numactl perf valgrind firejail bwrap "
    "fakeroot proot xvfb-run dbus-run-session"
)
"""Wrappers whose options are not: whatever stands in their words may be what they run."""

_EXEC = ("-exec", "-execdir", "-ok", "-okdir")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", re.ASCII)
_SPLITS = re.compile(r"-[i0v]*S|--s")
_INPUT = re.compile(r"/dev/(stdin|fd/.*)|/proc/.*/fd/.*|-")
_SCRIPT_LIKE = re.compile(r"[\s;|&]")


@dataclass(slots=True)
class Inside:
    """`exact` are commands that it surely runs, `loose` such as it may run, `scripts` texts that it runs as a shell,
    `perhaps` such as it may so run; `assigns` are variables that it sets for them.
    `plain`: it does something itself. `why` says why what it runs cannot be told."""

    exact: list[list[Word]] = field(default_factory=list)
    loose: list[list[Word]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    assigns: list[str] = field(default_factory=list)
    plain: bool = True
    why: str | None = None


def inside(words: Sequence[Word], simple: Simple) -> Inside:
    """What a command with a known name runs besides itself."""
    name = base_name(words[0])
    if name in SHELLS:
        return _shell(words, simple)
    if name == "eval":
        if not all(word.known for word in words):
            return Inside(plain=False, why="what eval runs is computed")
        return Inside(scripts=[" ".join(word.text for word in words[1:])], plain=False)
    if name == "trap":
        return _trap(words)
    if name in ("source", "."):
        odd = len(words) > 1 and (COMPUTED in words[1].text or _INPUT.fullmatch(words[1].text))
        return Inside(why=f"what {name} reads is computed") if odd else Inside()
    if name == "alias" and len(words) > 1:
        return Inside(why="an alias would hide what runs")
    if (name == "hash" and any(word.may_be("-*p*") for word in words[1:])) or (
        name == "enable" and any(word.may_be("-*f*") for word in words[1:])
    ):
        return Inside(why=f"{name} would hide what runs")
    if name == "jobs" and any(word.may_be("-*x*") for word in words[1:]):
        return Inside(why="what jobs -x runs cannot be told")
    if name in ("mapfile", "readarray", "complete", "compgen", "bind") and any(
        word.may_be("-[!-]*") for word in words[1:]
    ):
        callback = any(word.may_be("-*[CFx]*") for word in words[1:])
        return Inside(why=f"what {name} calls cannot be told") if callback else Inside()
    if name == "find":
        return _find(words)
    if name in _VALUES:
        return _wrapper(name, words)
    if name in _LOOSE:
        return _loose(words)
    return Inside()


def _shell(words: Sequence[Word], simple: Simple) -> Inside:
    at, takes_script = 1, False
    while at < len(words):
        word = words[at]
        if not word.known:
            return Inside(plain=False, why="what the shell runs is computed")
        if word.text in ("--version", "--help"):
            return Inside()
        if not re.match(r"[-+].", word.text):
            break
        at += 1
        if word.text == "--":
            break
        if word.text in ("--rcfile", "--init-file"):
            at += 1
        elif not word.text.startswith("--"):
            takes_script |= word.text[0] == "-" and "c" in word.text
            at += len(re.findall("[oO]", word.text))
            if "s" in word.text and not takes_script:
                return _from_input(simple)
    if takes_script:
        if at >= len(words):
            return Inside()
        if not words[at].known:
            return Inside(plain=False, why="what the shell runs is computed")
        return Inside(scripts=[words[at].text], plain=False)
    if at >= len(words) or _INPUT.fullmatch(words[at].text):
        return _from_input(simple)
    return Inside() if words[at].known else Inside(plain=False, why="what the shell runs is computed")


def _from_input(simple: Simple) -> Inside:
    if simple.fed and simple.given is not None:
        return Inside(scripts=[simple.given], plain=False)
    return Inside(plain=False, why="a shell that reads its commands from its input runs what cannot be told")


def _trap(words: Sequence[Word]) -> Inside:
    rest = [word for word in words[1:] if word.text not in ("--",)]
    if len(rest) < 2 or rest[0].text in ("-", "", "-l", "-p"):
        return Inside()
    if not rest[0].known:
        return Inside(why="what the trap runs is computed")
    return Inside(scripts=[rest[0].text])


def _find(words: Sequence[Word]) -> Inside:
    if any(word.several for word in words) and any(word.text in (";", "+") for word in words):
        return _loose(words)
    found = Inside()
    at = 1
    while at < len(words):
        if words[at].text in _EXEC:
            end = next((k for k in range(at + 1, len(words)) if _ends(words, k)), len(words))
            # What find puts there is a path, and never an option.
            found.exact.append(_filled(words[at + 1 : end], "{}", f"/{COMPUTED}"))
            at = end
        at += 1
    found.exact = [each for each in found.exact if each]
    return found


def _ends(words: Sequence[Word], at: int) -> bool:
    """A plus ends it only behind the braces."""
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _filled(words: Sequence[Word], mark: str, alone: str) -> list[Word]:
    """With what comes only later in the place of `mark`, and `alone` where it is the whole word."""
    return [
        Word(alone if word.text == mark else word.text.replace(mark, COMPUTED)) if mark and mark in word.text else word
        for word in words
    ]


def _wrapper(name: str, words: Sequence[Word]) -> Inside:
    values, flags = _VALUES[name]
    at, mark, assigns = 1, "{}", list[str]()
    while at < len(words):
        word = words[at]
        if not word.known:
            return Inside(plain=False, why=f"what {name} runs is computed")
        text = word.text
        if name == "command" and re.fullmatch(r"-p?[vV]+p?", text):
            return Inside()
        if name == "env" and _SPLITS.match(text):
            return Inside(plain=False, why="env -S runs what it splits; write the command out")
        if text == "--":
            at += 1
            break
        if not text.startswith("-"):
            if (name == "env" and "=" in text) or (name == "time" and _ASSIGNS.match(text)):
                assigns.append(text.partition("=")[0])
                at += 1
                continue
            break
        option, _, value = text.partition("=")
        short = text[:2]
        if text in flags or (option.startswith("--") and value and option in values):
            at += 1
        elif text in values:
            mark = words[at + 1].text if text in ("-I", "--replace") and at + 1 < len(words) else mark
            at += 2
        elif not text.startswith("--") and short in values:
            mark = text[2:] if short == "-I" else mark
            at += 1
        elif (name == "nice" and re.fullmatch(r"--?\d+", text)) or (
            not text.startswith("--") and all(f"-{letter}" in flags for letter in text[1:])
        ):
            at += 1
        else:
            return _loose(words)
    at += name == "timeout"
    inner = list(words[at:])
    if not inner:
        return Inside(assigns=assigns, plain=name in ("env", "xargs", "exec", "command"))
    if name == "xargs":
        inner = [*_filled(inner, mark, COMPUTED), Word(COMPUTED, several=True)]
    return Inside(exact=[inner], assigns=assigns, plain=False)


def _loose(words: Sequence[Word]) -> Inside:
    found = Inside()
    env = next((at for at, word in enumerate(words) if base_name(word) == "env"), len(words))
    if any(_SPLITS.match(word.text) for word in words[env:]):
        return Inside(plain=False, why="env -S runs what it splits; write the command out")
    for at, word in enumerate(words[1:], start=1):
        if word.several or word.text == COMPUTED:
            found.why = f"what {base_name(words[0])} runs is computed"
            return found
        found.loose.append(list(words[at:]))
        for text in {word.text, word.text.partition("=")[2], word.text[2:] if word.text.startswith("-c") else ""}:
            if _SCRIPT_LIKE.search(text) and COMPUTED not in text:
                surely = words[at - 1].text in ("-c", "--command") or text != word.text
                (found.scripts if surely else found.perhaps).append(text)
    return found
