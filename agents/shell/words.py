"""One word of a command, as bash would read it: quotes taken away, what is known only when it runs marked."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

COMPUTED = "\0"
"""Stands in a word's text for what is known only when the command runs: a variable, a substitution."""

_PLAIN = re.compile(r"[^\\'\"$`{<>*?\[\0]+")
_BRACES = re.compile(r"\{[^}]*(,|\.\.)")
_NUMBER = re.compile(r"\$[#?]|\$\{#\w+(\[[@*]\])?\}")
"""It becomes a number: one word."""
_GLOB = re.compile(r"[*?\[]")
_EXPANDS = re.compile(r"\$[\w({@*#?$!\-\[]")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_ANSI_CODE = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)", re.DOTALL)


class Unreadable(Exception):
    """What a command says cannot be told; the message says where."""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Word:
    """`text` holds COMPUTED where it is not known. `several`: it may become no word or more than one. `pattern`: bash
    replaces it by the names of files that fit."""

    text: str
    several: bool = False
    pattern: bool = False

    @property
    def known(self) -> bool:
        return not self.several and COMPUTED not in self.text

    def may_be(self, pattern: str) -> bool:
        """Whether it could fit a glob `pattern`, whatever is computed in it."""
        if self.several:
            return True
        if self.known:
            return fnmatchcase(self.text, pattern)
        parts = self.text.split(COMPUTED)
        if not _GLOB.search(pattern):
            own = "*".join(re.sub(r"([*?\[])", r"[\1]", part) for part in parts)
            return fnmatchcase(pattern, own)
        head = _GLOB.split(pattern, maxsplit=1)[0]
        return head.startswith(parts[0]) or parts[0].startswith(head)


def base_name(word: Word) -> str:
    """Without the folders before it."""
    return word.text.rsplit("/", 1)[-1]


def read_word(raw: str) -> Word:
    """From a word as it is written. Raises Unreadable where a quote is not closed."""
    reader = _Reader(raw)
    reader.read()
    return Word("".join(reader.text), reader.several, reader.pattern)


class _Reader:
    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.at = 0
        self.text: list[str] = []
        self.several = self.pattern = False

    def read(self) -> None:
        raw = self.raw
        while self.at < len(raw):
            if plain := _PLAIN.match(raw, self.at):
                self.text.append(plain[0])
                self.at = plain.end()
                continue
            char = raw[self.at]
            if char == "\\":
                self._escaped()
            elif char == "'":
                self._until_quote(raw.find("'", self.at + 1))
            elif raw.startswith("$'", self.at):
                self.at += 2
                self._ansi()
            elif char == '"' or raw.startswith('$"', self.at):
                self.at += 1 + (char == "$")
                self._double()
            elif char == "`" or _EXPANDS.match(raw, self.at) or (char == "{" and self._in_braces()):
                self._computed(several=_NUMBER.match(raw, self.at) is None)
            elif char in "<>" and raw.startswith("(", self.at + 1):
                self._computed(several=False)
            else:
                self.pattern |= char in "*?["
                self.text.append("\ufffd" if char == COMPUTED else char)
                self.at += 1

    def _in_braces(self) -> bool:
        """Whether they may stand for several words. A closing one that is quoted closes nothing."""
        if _BRACES.match(self.raw, self.at):
            return True
        behind = [self.raw.rfind(each, self.at) >= 0 for each in ("'", '"', "\\", "$", ",", "..")]
        return any(behind[:4]) and any(behind[4:])

    def _escaped(self) -> None:
        """Outside quotes: the next character is itself, a line's end is nothing."""
        following = self.raw[self.at + 1 : self.at + 2]
        self.text.append("" if following == "\n" else following or "\\")
        self.at += 2

    def _until_quote(self, end: int) -> None:
        if end < 0:
            raise Unreadable(f"a quote in {self.raw[:40]!r} is not closed")
        self.text.append(self.raw[self.at + 1 : end])
        self.at = end + 1

    def _double(self) -> None:
        raw = self.raw
        while self.at < len(raw) and raw[self.at] != '"':
            char, following = raw[self.at], raw[self.at + 1 : self.at + 2]
            if char == "\\" and following and following in '$`"\\\n':
                self._escaped()
            elif char == "`" or _EXPANDS.match(raw, self.at):
                # "$@" becomes as many words as there are.
                self._computed(several=raw.startswith(("$@", "${"), self.at) and "@" in raw[self.at :])
            else:
                self.text.append(char)
                self.at += 1
        self._close('"')

    def _ansi(self) -> None:
        raw = self.raw
        while self.at < len(raw) and raw[self.at] != "'":
            if raw[self.at] != "\\":
                self.text.append(raw[self.at])
                self.at += 1
                continue
            if code := _ANSI_CODE.match(raw, self.at + 1):
                number = int(code[1] or code[2] or code[3] or "0", 16) or int(code[4] or "0", 8)
                number = ord(code[5]) & 0x1F if code[5] else number
                self.text.append(chr(number) if 0 < number <= 0x10FFFF else COMPUTED)
                self.at = code.end()
                continue
            following = raw[self.at + 1 : self.at + 2]
            self.text.append(_ANSI.get(following, following))
            self.at += 2
        self._close("'")

    def _close(self, quote: str) -> None:
        if not self.raw.startswith(quote, self.at):
            raise Unreadable(f"a quote in {self.raw[:40]!r} is not closed")
        self.at += 1

    def _computed(self, *, several: bool) -> None:
        """Everything up to its end, however it is nested, is one thing that is not known."""
        self.text.append(COMPUTED)
        self.several |= several
        raw = self.raw
        if raw[self.at] == "`":
            self.at += 1
            while self.at < len(raw) and raw[self.at] != "`":
                self.at += 2 if raw[self.at] == "\\" else 1
            self.at += 1
        elif raw.startswith(("$(", "${", "$[", "{", "<(", ">("), self.at):
            self.at = _closing(raw, self.at)
        else:
            named = re.compile(r"\$(\w+|.)", re.DOTALL).match(raw, self.at)
            self.at = named.end() if named else self.at + 2


_PAIRS = {"(": ")", "{": "}", "[": "]"}


def _closing(raw: str, start: int) -> int:
    """Behind the bracket that closes the first one from `start` on; the end where that cannot be told."""
    opening = raw[start + 1] if raw[start] in "$<>" else raw[start]
    depth, at, quote = 0, start, ""
    while at < len(raw):
        char = raw[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == opening:
            depth += 1
        elif char == _PAIRS[opening]:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(raw)
