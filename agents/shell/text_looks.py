"""sed and awk as readers use them: scripts of a narrow grammar, and programs in which nothing writes or runs."""

import re
from collections.abc import Sequence

from agents.shell.words import Word

_ESCAPED = r"\\[]\[.*^$/+?|(){}<>bBsSwWntr0-9,#:!@%\"'& _=-]"


def _regex(delimiter: str) -> str:
    """sed ends it at the delimiter even within brackets, so brackets must not hold it."""
    return rf"(?:{_ESCAPED}|\[\^?(?:[^]\[\\\n{delimiter}]|\[:[a-z]+:\])+\]|[^\\\n\[{delimiter}])+"


_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/{_regex('/')}/I?)"
_SUBSTITUTE = "|".join(
    rf"s{mark}{_regex(mark)}{mark}(?:\\[^\n]|[^\\\n{mark}])*{mark}[gpiI0-9]*" for mark in ("/", r"\|", *",#:!@%")
)
_COMMAND = re.compile(
    rf"[\s;]*(?:{_ADDRESS}(?:\s*,\s*(?:[+~]\d+|{_ADDRESS}))?\s*!?\s*)?"
    rf"(?:[pd=]|[qQ]\d*|{_SUBSTITUTE})[ \t]*(?:[;\n]\s*|$)"
)
_SED_OPTION = re.compile(r"-[nErsuz]+|--(quiet|silent|regexp-extended|debug|posix|separate|null-data)")
_AWK_WRITES = re.compile(r"system|getline|@|>|(?<!\|)\|(?!\|)|\|{3}|\bclose\b|\\\n")


def why_sed_writes(words: Sequence[Word]) -> str | None:
    """Of its words without its name, all static."""
    scripts: list[Word] = []
    operands: list[Word] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if re.fullmatch(r"-[nErsuz]*e|--expression", text) and at + 1 < len(words):
            scripts.append(words[at + 1])
            at += 1
        elif _SED_OPTION.fullmatch(text):
            pass
        elif text.startswith("-") and text != "-":
            return f"its option {text} may write a file"
        else:
            operands.append(words[at])
        at += 1
    for script in scripts or operands[:1]:
        if not script.known or script.pattern or not _only_reads(script.text):
            return "its script is none of the plain reading ones (addresses with p, d, q, = or s///; no braces)"
    return None


def _only_reads(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True


def why_awk_writes(words: Sequence[Word]) -> str | None:
    """Of its words without its name, all static."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if not re.match(r"-[Fv]", text):
            return f"its option {text} may read a program that writes"
        at += 2 if text in ("-F", "-v") else 1
    if at >= len(words) or not words[at].known or words[at].pattern or _AWK_WRITES.search(words[at].text):
        return "its program may write or run something (>, |, system, getline)"
    odd = next((word.text for word in words[at + 1 :] if word.text.startswith("-") and word.text != "-"), None)
    return None if odd is None else f"its option {odd} stands behind its program"
