"""Tools that read and write files: composed of what bash and coreutils offer, and run in the role's own shell.

So they act as the agent's user, from its working directory, and follow links as its commands would. What a model writes
travels in base64, and never as shell text; a path is quoted. An answer of the composed commands is one line of ours,
`ok`, `no` or what was found, and then content in base64.
"""

import base64
import binascii
import hashlib
import shlex
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agents.arguments import Arguments
from agents.tools import Tool
from agents.tools.sandbox_tool import Bench, SandboxTool, Told
from agents.wire_text import wire_text
from harbor_tasks.sandbox import Output

MOST_WRITTEN = 1 << 20
"""Bytes that a file may have to be written or to be changed."""
MOST_LINES = 400
MOST_SHOWN = 30_000
"""Characters of a file's lines that one call shows."""
_PIECE = 45_000
"""Bytes that fit, in base64, into one output."""
_MOST_PATH = 4096
_LONGEST_LINE = 2_000

_Path = Annotated[str, Field(description="Path of the file, absolute or from the working directory.")]


class ReadFile(Arguments):
    path: _Path
    first_line: Annotated[int, Field(ge=1, description="Number of the first line to read; 1 unless given.")] = 1
    lines: Annotated[
        int, Field(ge=1, le=MOST_LINES, description=f"How many lines to read; {MOST_LINES} unless given, and at most.")
    ] = MOST_LINES


class WriteFile(Arguments):
    path: _Path
    content: Annotated[str, Field(description="The whole new content of the file.")]


class ReplaceInFile(Arguments):
    path: _Path
    old: Annotated[str, Field(description="The exact text to replace, line breaks and blanks included.")]
    new: Annotated[str, Field(description="What stands there instead.")]
    all: Annotated[bool, Field(description="true: every place; else there must be exactly one.")] = False


READ_FILE = Tool(
    "read_file",
    f"Reads lines of a text file, each with its number. At most {MOST_LINES} lines and {MOST_SHOWN} characters a call; "
    "what is left out is told.",
    ReadFile,
)
WRITE_FILE = Tool(
    "write_file",
    f"Writes a file as a whole, at most {MOST_WRITTEN >> 20} MiB, in place of what stood there; makes the folders that "
    "it needs.",
    WriteFile,
)
REPLACE_IN_FILE = Tool(
    "replace_in_file",
    "Replaces an exact text in a file. Where the text is not there, or in several places and `all` is not set, nothing "
    "is changed and you are told.",
    ReplaceInFile,
)


class _Failed(Exception):
    """The message is what the model is told."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of one of the tools. `asked` is what a reader of the stored commands sees."""

    bench: Bench
    tool: str
    path: str
    asked: str
    digest: str = ""
    writes: bool = False

    def __post_init__(self) -> None:
        if not self.path or "\0" in self.path or len(self.path.encode(errors="replace")) > _MOST_PATH:
            raise _Failed(f"the path must have 1 to {_MOST_PATH} bytes and no NUL")

    async def run(self, script: str, content: bytes | None = None) -> tuple[str, bytes]:
        """The line that it prints of itself, and what follows out of base64. `content` is its input.

        Raises _Failed with its complaint.
        """
        path = self.path.encode(errors="replace").decode()
        # None may begin with a dash.
        name = shlex.quote(path if path.startswith("/") else f"./{path}")
        # In a shell of its own, so that nothing of it lasts.
        command = f"env -u BASH_ENV LC_ALL=C bash --norc --noprofile -c {shlex.quote(f'f={name}{chr(10)}{script}')}"
        if content is not None:
            command += f" <<'FULLCHAIN_CONTENT'\n{base64.encodebytes(content).decode()}FULLCHAIN_CONTENT"
        output, timeout_s = await self.bench.run(command, Told(self.tool, self.asked, self.digest, self.writes))
        return _answer(output, timeout_s)

    async def content(self) -> bytes:
        """The whole file, piece by piece. Raises _Failed."""
        data = b""
        while True:
            said, piece = await self.run(f"{_FOUND}\n{_PIECE_FROM.format(start=len(data) + 1)}")
            size = int(said) if said.isdigit() else 0
            if size > MOST_WRITTEN:
                raise _Failed(f"it has {size} bytes, more than the {MOST_WRITTEN} that this tool takes; use bash")
            data += piece
            if len(data) >= size:
                return data[:size]
            if not piece:
                raise _Failed("it changed while it was read; nothing was done")


_FOUND = """[ ! -d "$f" ] || { echo "it is a directory; list it with bash"; exit 3; }
[ -e "$f" ] || { echo "there is no such file"; exit 3; }
[ -f "$f" ] || { echo "it is no regular file"; exit 3; }
[ -r "$f" ] || { echo "it may not be read"; exit 3; }"""
_PIECE_FROM = f"""stat -Lc %s -- "$f"
tail -c +{{start}} -- "$f" | head -c {_PIECE} | base64"""
_LINES = f"""echo "$(stat -Lc %s -- "$f") $(wc -l <"$f") $(tail -c 1 -- "$f" | wc -l) \\
$(head -c 8192 -- "$f" | tr -d '\\0' | wc -c)"
tail -n +{{first}} -- "$f" | head -n {{lines}} | head -c {_PIECE} | base64"""
"""Its bytes, its line breaks, whether it ends with one, how many of its first bytes are no NUL; then the lines."""
_WRITE = """set -e
p=$(readlink -f -- "$f" && echo x) && p=${p%$'\\n'x} || p=$f
[ ! -d "$p" ] || { echo "it is a directory"; exit 3; }
[ ! -e "$p" ] || [ -f "$p" ] || { echo "it is no regular file"; exit 3; }
[ ! -e "$p" ] || [ -w "$p" ] || { echo "it may not be written"; exit 3; }
d=${p%/*}/
mkdir -p -- "$d"
t=$(mktemp -- "${d}.fullchain-XXXXXXXX" && echo x)
t=${t%$'\\n'x}
trap 'rm -f -- "$t"' EXIT
base64 -d >"$t"
[ "$(sha256sum <"$t" | head -c 64)" = "$sum" ] ||
  { echo "the content did not arrive whole; nothing was changed"; exit 3; }
if [ -e "$p" ]; then
  [ -z "$was" ] || [ "$(sha256sum <"$p" | head -c 64)" = "$was" ] ||
    { echo "it changed meanwhile; nothing was done"; exit 3; }
  chown "$(stat -c %u:%g -- "$p")" "$t" 2>/dev/null || :
  chmod "$(stat -c %a -- "$p")" "$t"
else
  chmod "$(printf %o $((0666 & ~$(umask))))" "$t"
fi
mv -f -- "$t" "$p"
trap - EXIT
echo ok"""
"""Beside it and then in its place: no reader ever sees half of it. Mode stays, and the owner where that may be set."""


def _answer(output: Output, timeout_s: float) -> tuple[str, bytes]:
    if output.timed_out:
        raise _Failed(f"stopped after {timeout_s:g} s")
    said, _, encoded = output.text.partition("\n")
    if output.exit_code != 0:
        lines = wire_text(output.text).strip().splitlines()
        raise _Failed(lines[-1][:300] if lines else f"the shell failed with exit code {output.exit_code}")
    try:
        return said, base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _Failed("what the shell printed cannot be read") from None


async def _read(arguments: Arguments, bench: Bench) -> str:
    assert isinstance(arguments, ReadFile)  # noqa: S101 (its own form)
    path, first, wanted = arguments.path, arguments.first_line, arguments.lines
    last = first + wanted - 1
    try:
        call = _Call(bench, READ_FILE.name, path, f"read_file {_shown(path)} lines {first} to {last}")
        said, data = await call.run(f"{_FOUND}\n{_LINES.format(first=first, lines=wanted)}")
        size, breaks, ended, plain = (int(number) for number in said.split())
    except ValueError:
        return f"error: {_shown(path)}: what the shell printed cannot be read"
    except _Failed as failed:
        return f"error: {_shown(path)}: {failed}"
    if plain < min(size, 8192) or b"\0" in data:
        return f"error: {_shown(path)}: it is a binary file of {size} bytes; look at it with bash (file, xxd, strings)"
    return _numbered(path, data, first, breaks + (size > 0 and not ended))


def _numbered(path: str, data: bytes, first: int, total: int) -> str:
    if not total:
        return f"{_shown(path)} is empty"
    if not data:
        return f"error: {_shown(path)} has no line {first}: it has {total}"
    if len(data) >= _PIECE and b"\n" in data:
        # The last of them may be torn.
        data = data[: data.rindex(b"\n") + 1]
    shown: list[str] = []
    room = MOST_SHOWN
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), start=first):
        line = wire_text(raw.decode("utf-8", errors="replace"))
        cut = "" if len(line) <= _LONGEST_LINE else " [... the rest of this line is left out]"
        told = f"{number:>6}\t{line[:_LONGEST_LINE]}{cut}"
        if len(told) >= room and shown:
            break
        shown.append(told)
        room -= len(told) + 1
    last = first + len(shown) - 1
    rest = f"\n[{total - last} further lines: read on with first_line {last + 1}]" if last < total else ""
    return "\n".join([f"{_shown(path)}: lines {first} to {last} of {total}", *shown]) + rest


async def _write(arguments: Arguments, bench: Bench) -> str:
    assert isinstance(arguments, WriteFile)  # noqa: S101
    content = arguments.content.encode("utf-8", errors="replace")
    path = arguments.path
    try:
        digest = hashlib.sha256(content).hexdigest()
        asked = f"write_file {_shown(path)} ({_amount(content)})"
        await _put(_Call(bench, WRITE_FILE.name, path, asked, digest, writes=True), content)
    except _Failed as failed:
        return f"error: {_shown(path)}: {failed}"
    return f"wrote {_shown(path)}: {_amount(content)}"


async def _put(call: _Call, content: bytes, was: str = "") -> None:
    """`was` is the digest of what must still stand there."""
    if len(content) > MOST_WRITTEN:
        raise _Failed(f"it would have {len(content)} bytes; at most {MOST_WRITTEN} can be written at a time")
    said, _ = await call.run(f"was={was} sum={hashlib.sha256(content).hexdigest()}\n{_WRITE}", content)
    if said != "ok":
        raise _Failed("it is not known whether it was written; look with bash")


async def _replace(arguments: Arguments, bench: Bench) -> str:
    assert isinstance(arguments, ReplaceInFile)  # noqa: S101
    path = arguments.path
    old, new = (text.encode("utf-8", errors="replace") for text in (arguments.old, arguments.new))
    digest = hashlib.sha256(old + b"\0" + new).hexdigest()
    asked = f"replace_in_file {_shown(path)} ({len(old)} bytes by {len(new)}{', everywhere' if arguments.all else ''})"
    try:
        if not old:
            raise _Failed("old is empty; nothing was changed (write_file makes a file)")
        # Its reading counts as writing too: a role that may not write is told so at once.
        call = _Call(bench, REPLACE_IN_FILE.name, path, asked, digest, writes=True)
        content = await call.content()
        places = _places(content, old)
        if not places:
            raise _Failed(f"the text is not in it; nothing was changed{_near(content, old)}")
        if len(places) > 1 and not arguments.all:
            raise _Failed(
                f"the text is in it {len(places)} times, in lines {_listed(places)}; nothing was changed: give more of "
                "what stands around it, or all: true"
            )
        await _put(call, content.replace(old, new), hashlib.sha256(content).hexdigest())
    except _Failed as failed:
        return f"error: {_shown(path)}: {failed}"
    where = "1 place, in line" if len(places) == 1 else f"{len(places)} places, in lines"
    return f"replaced in {_shown(path)}: {where} {_listed(places)}"


def _places(content: bytes, old: bytes) -> list[int]:
    """The lines in which it begins, without overlaps."""
    found, at = [], content.find(old)
    line, seen = 1, 0
    while at >= 0:
        line += content.count(b"\n", seen, at)
        seen = at
        found.append(line)
        at = content.find(old, at + len(old))
    return found


def _near(content: bytes, old: bytes) -> str:
    """Where its first line stands though the whole does not."""
    first = old.strip().split(b"\n")[0].strip()
    lines = [number for number, line in enumerate(content.split(b"\n"), start=1) if first and first in line]
    return f"; its first line, without the blanks around it, stands in line {_listed(lines)}" if lines else ""


def _listed(lines: list[int]) -> str:
    return ", ".join(map(str, lines[:10])) + (f" and {len(lines) - 10} more" if len(lines) > 10 else "")


def _amount(content: bytes) -> str:
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    return f"{lines} {'line' if lines == 1 else 'lines'}, {len(content)} bytes"


def _shown(path: str) -> str:
    return wire_text(path if path.isprintable() and " " not in path else repr(path))[:300]


FILE_TOOLS = (
    SandboxTool(READ_FILE, _read),
    SandboxTool(WRITE_FILE, _write),
    SandboxTool(REPLACE_IN_FILE, _replace),
)
