"""Which parts of a RUN line only install packages: no network is there to do it, so they must stand inside already."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?(-minimal)?")
_MODULE = re.compile(r"(?:python3?|py3)-(.+)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_COMPLEX = re.compile(r"\s*(if|for|while|until|case|select|function|\{|\(|!)(\s|$|\()")
_WORD = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""", re.DOTALL)
_REDIRECTION = re.compile(r"[0-9]*(?:[<>]&|>>|>\||<>|<|>)|&>>?")
_AMPERSAND = re.compile(r"[<>]&|&>|>\|")
_LISTS = ("/var/lib/apt/", "/var/cache/apt", "/var/cache/apk", "/var/cache/dnf", "/var/cache/yum", "/root/.cache")
_WITH_VALUE = {
    *("-o", "-t", "-c", "--option", "--target-release", "--repository", "--virtual", "-X"),
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--constraint", "--trusted-host", "--timeout"),
    *("--retries", "--python", "--progress-bar"),
}
_HARMLESS = {"update", "upgrade", "dist-upgrade", "clean", "autoclean", "autoremove", "makecache"}
_SAME = {"gawk": "awk", "mawk": "awk", "original-awk": "awk", "python-is-python3": "python"}


@dataclass(frozen=True, slots=True)
class Installs:
    """What is left of a RUN line to be run ("" for nothing), and what the rest of it installs.

    `packages` are words as written; `files` are requirement files of pip.
    """

    rest: str
    packages: tuple[str, ...]
    files: tuple[str, ...]


def installs(command: str) -> Installs:
    """Takes the package commands out of a chain of `&&`, `;` and new lines; anything more involved stays whole."""
    segments = _segments(command)
    if segments is None:
        return Installs(command, (), ())
    rest, packages, files = [], list[str](), list[str]()
    anything = False
    for operator, text in segments:
        found = _package_command(text)
        if found is None:
            anything = anything or not _only_settings(text)
            rest.append(operator + text)
        else:
            packages += found.packages
            files += found.files
            rest.append(f"{operator} : ")
    return Installs("".join(rest) if anything else "", tuple(packages), tuple(files))


def requirement_of(package: str) -> str:
    """The name that `[metadata] requires` would use for an operating system's package."""
    name = re.split(r"[=:/~<>]", package.lower())[0]
    if _PYTHON.fullmatch(name):
        return "python"
    if match := _MODULE.fullmatch(name):
        return match[1]
    return _SAME.get(name, name)


def requirement_lines(text: str) -> Iterator[str]:
    """The requirements of a pip requirements file; options stay as they are, for the caller to refuse."""
    for line in text.replace("\\\n", " ").splitlines():
        if requirement := re.sub(r"(^|\s)#.*", "", line).strip():
            yield re.sub(r"\s+--hash=\S+", "", requirement)


def _package_command(text: str) -> Installs | None:
    """None when the command is something else than package work."""
    try:
        words = shlex.split(" ".join(_plain_words(text)))
    except ValueError:
        return None
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in ("sudo", "env")):
        words.pop(0)
    if not words:
        return None
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "rm":
        paths = [word for word in rest if not word.startswith("-")]
        return Installs("", (), ()) if paths and all(path.startswith(_LISTS) for path in paths) else None
    if re.fullmatch(r"python[0-9.]*", program) and rest[:2] == ["-m", "pip"]:
        program, rest = "pip", rest[2:]
    elif program == "uv" and rest[:1] == ["pip"]:
        program, rest = "pip", rest[1:]
    elif re.fullmatch(r"pip[0-9.]*", program):
        program = "pip"
    if program not in ("apt-get", "apt", "apk", "dnf", "microdnf", "yum", "pip"):
        return None
    operands, files = _operands(rest, pip=program == "pip")
    verb = operands[0] if operands else ""
    if verb in ("install", "add"):
        return Installs("", tuple(operands[1:]), tuple(files))
    if verb in _HARMLESS or (program == "pip" and verb == "cache"):
        return Installs("", (), ())
    return None


def _plain_words(text: str) -> Iterator[str]:
    """The words of a simple command as written, without its redirections (a `>` inside a word may be a version)."""
    raw = iter(_WORD.findall(text))
    for word in raw:
        redirection = _REDIRECTION.match(word)
        if redirection is None:
            yield word
        elif redirection.end() == len(word):
            next(raw, None)


def _operands(words: list[str], *, pip: bool) -> tuple[list[str], list[str]]:
    operands, files = list[str](), list[str]()
    rest = iter(words)
    for word in rest:
        if pip and word in ("-r", "--requirement"):
            files.append(next(rest, ""))
        elif pip and word.startswith("--requirement="):
            files.append(word.partition("=")[2])
        elif pip and word in ("-e", "--editable"):
            operands.append(f"--editable {next(rest, '')}")
        elif word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            operands.append(word)
    return operands, files


def _only_settings(text: str) -> bool:
    """Shell settings that matter to other commands of the line alone."""
    words = text.split()
    return not words or words[0] in ("set", "export", ":", "true")


def _segments(command: str) -> list[tuple[str, str]] | None:
    """(operator before it, text) of each simple command; None when the line is no plain chain of them."""
    segments, start, position, operator, quote = list[tuple[str, str]](), 0, 0, "", ""
    while position < len(command):
        char = command[position]
        width = 0
        if char == "\\" and quote != "'":
            position += 2
            continue
        if quote:
            quote = "" if char == quote else quote
            if char == "`" or (char == "$" and command[position + 1 : position + 2] == "(" and quote != "'"):
                return None
        elif char in "\"'":
            quote = char
        elif redirection := _AMPERSAND.match(command, position):
            position = redirection.end()
            continue
        elif command.startswith("&&", position):
            width = 2
        elif char in ";\n":
            width = 1
        elif char in "|&`(){}" or command.startswith("<<", position):
            return None
        if width:
            segments.append((operator, command[start:position]))
            operator = command[position : position + width]
            position += width
            start = position
            continue
        position += 1
    segments.append((operator, command[start:]))
    if quote or any(_COMPLEX.match(text) for _, text in segments):
        return None
    return [(operator, text) for operator, text in segments if text.strip() or operator == "&&"]
