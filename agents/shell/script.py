"""The simple commands of a bash text, wherever they stand: pipelines, lists, groups, substitutions, bodies.

The parser is tree-sitter's for bash. Where its tree does not account for the whole text, or where what runs could stand
in a part that it reads as plain text, the text counts as unreadable: a policy refuses it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from agents.shell.words import Word, read_word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_BYTES = 1 << 20
MOST_NODES = 50_000

_COMMANDS = ("command", "declaration_command", "test_command", "unset_command")
_LONE = ("variable_assignment", "file_redirect", "herestring_redirect")
"""Those that may stand without a command."""
_OUTPUT = (">", ">>", ">|", "&>", "&>>", ">&", "<>")
_QUOTED = ("raw_string", "ansi_c_string", "comment", "heredoc_start", "heredoc_end")
_SUBSTITUTES = re.compile(r"(?:^|[^\\])(?:\\\\)*(?:`|\$\(|[<>]\()")
_LEFT_OUT = re.compile(r"[ \t]+[-\w./=:,+@%]+(?:[ \t]+[-\w./=:,+@%]+)*[ \t]*", re.ASCII)
_BLANK = re.compile(r"(?:\s|\\\n)*")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")


class Unreadable(Exception):
    """What it says cannot be told; the message says where."""


@dataclass(slots=True)
class Simple:
    """One simple command. `words` begins with its name, and is empty where only variables are set. `assigns` names the
    variables before it, `writes` the files that it is redirected to, `given` is the text of its here-document or string
    (None where it is computed), `fed` whether it has one."""

    text: str
    words: list[Word] = field(default_factory=list)
    assigns: list[str] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    fed: bool = False
    given: str | None = None


def simple_commands(script: str) -> list[Simple]:
    """In the order in which they are written. Raises Unreadable."""
    source = script.encode("utf-8", errors="replace")
    if len(source) > MOST_BYTES:
        raise Unreadable(f"it has more than {MOST_BYTES} bytes")
    if "\0" in script or "\r" in script:
        raise Unreadable("it holds a NUL or a carriage return")
    root = _parser().parse(source).root_node
    if root.has_error:
        raise Unreadable(f"bash cannot read it, or the parser cannot: {_mistake(root)}")
    return [_simple(node) for node in _checked(root, source)]


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", errors="replace")


def _mistake(root: "Node") -> str:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.is_error or node.is_missing:
            return f"line {node.start_point[0] + 1} near {_text(node)[:40] or node.type!r}"
        stack += [child for child in reversed(node.children) if child.has_error or child.is_missing]
    return "somewhere"


def _checked(root: "Node", source: bytes) -> Iterator["Node"]:
    """The nodes to be read as simple commands. Raises Unreadable where text is unaccounted for."""
    stack, seen = [root], 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen > MOST_NODES:
            raise Unreadable("it has too many parts")
        children = node.children
        if node.type == "heredoc_redirect":
            start = next(child for child in children if child.type == "heredoc_start")
            quoted = any(mark in _text(start) for mark in "'\"\\")
            for child in children:
                if child.type == "heredoc_body":
                    if not quoted:
                        _plain_gaps(child, source)
                        stack += [each for each in reversed(child.children) if each.type != "heredoc_content"]
                else:
                    stack.append(child)
            continue
        if not children:
            told = _text(node)
            if node.is_named and node.type not in _QUOTED and _SUBSTITUTES.search(told):
                raise Unreadable(f"line {node.start_point[0] + 1}: what {told[:40]!r} runs cannot be told")
        elif node.type == "string":
            _plain_gaps(node, source)
        else:
            _no_gaps(node, source)
        if node.type in _COMMANDS or (node.type in _LONE and not _is_part(node)):
            yield node
        stack += reversed(children)


def _is_part(node: "Node") -> bool:
    """Whether a command reads it as its own."""
    parent = node.parent
    while parent is not None and parent.type in ("heredoc_redirect", "variable_assignments"):
        parent = parent.parent
    if parent is None:
        return False
    body = _body(parent) if parent.type == "redirected_statement" else None
    return parent.type in _COMMANDS or (body is not None and body.type in _COMMANDS)


def _body(redirected: "Node") -> "Node | None":
    return redirected.child_by_field_name("body")


def _gaps(node: "Node", source: bytes) -> Iterator[str]:
    at = node.start_byte
    for child in node.children:
        if child.start_byte > at:
            yield source[at : child.start_byte].decode("utf-8", errors="replace")
        at = max(at, child.end_byte)
    if at < node.end_byte:
        yield source[at : node.end_byte].decode("utf-8", errors="replace")


def _no_gaps(node: "Node", source: bytes) -> None:
    for gap in _gaps(node, source):
        if _left_out(node, gap):
            continue
        if not _BLANK.fullmatch(gap):
            raise Unreadable(f"line {node.start_point[0] + 1}: the parser leaves out {gap.strip()[:40]!r}")


def _left_out(redirected: "Node", gap: str) -> list[str]:
    """Plain words before a here-document, such as the dash of `python3 - <<END`: the parser leaves them out."""
    body = _body(redirected) if redirected.type == "redirected_statement" else None
    return gap.split() if body is not None and body.type == "command" and _LEFT_OUT.fullmatch(gap) else []


def _plain_gaps(node: "Node", source: bytes) -> None:
    """Text with substitutions in it: what lies between them must hold none that the parser overlooked."""
    plain = [*_gaps(node, source), *(_text(child) for child in node.children if child.type.endswith("_content"))]
    for text in plain:
        if _SUBSTITUTES.search(re.sub(r"[<>]\(", "", text)):
            raise Unreadable(
                f"line {node.start_point[0] + 1}: what {text.strip()[:40]!r} runs cannot be told; write $(...) for "
                "backticks, or quote the delimiter of a here-document that is plain text"
            )


def _simple(node: "Node") -> Simple:
    made = Simple(_text(node))
    if node.type in _LONE:
        _take(made, node)
        return made
    parent = node.parent
    _read_parts(made, node.children)
    if parent is not None and parent.type == "redirected_statement" and _body(parent) == node:
        made.text = _text(parent)
        source = parent.text or b""
        for gap in _gaps(parent, b" " * parent.start_byte + source):
            made.words += map(Word, _left_out(parent, gap))
        _read_parts(made, [child for child in parent.children if child != node])
    return made


def _read_parts(made: Simple, parts: "list[Node]") -> None:
    """Word by word; what only the end of a line keeps apart is one word."""
    top = parts[0].parent if parts else None
    source, begin = (b"", 0) if top is None else (top.text or b"", top.start_byte)
    pending, end = "", -1
    for part in parts:
        if part.type == "comment":
            continue
        if part.type in ("file_redirect", "heredoc_redirect", "herestring_redirect") or (
            part.type == "variable_assignment" and not made.words and not pending
        ):
            pending = _flush(made, pending)
            _take(made, part)
            continue
        # Adjacent in the source but for a continued line: no blank lies between.
        if pending and source[end - begin : part.start_byte - begin].replace(b"\\\n", b"") == b"":
            pending += _text(part)
        else:
            pending = _flush(made, pending) or _text(part)
        end = part.end_byte
    _flush(made, pending)


def _flush(made: Simple, raw: str) -> str:
    if raw:
        made.words.append(read_word(raw))
    return ""


def _take(made: Simple, part: "Node") -> None:
    if part.type == "variable_assignment":
        found = _ASSIGNS.match(_text(part))
        made.assigns.append(found[1] if found else _text(part))
    elif part.type == "herestring_redirect":
        word = read_word(_text(part.children[-1]))
        made.fed, made.given = True, f"{word.text}\n" if word.known else None
    elif part.type == "file_redirect":
        _take_redirect(made, part)
    else:
        _take_heredoc(made, part)


def _take_redirect(made: Simple, part: "Node") -> None:
    """Words behind the target are the command's: `rm >log -rf x`."""
    operator = next((child.type for child in part.children if not child.is_named), "")
    rest = [child for child in part.children if child.is_named and child.type != "file_descriptor"]
    if operator in (">&-", "<&-"):
        _read_parts(made, rest)
        return
    duplicates = rest and operator == ">&" and re.fullmatch(r"\d+-?|-", _text(rest[0]))
    if operator in _OUTPUT and rest and not duplicates:
        made.writes.append(read_word(_text(rest[0])))
    _read_parts(made, rest[1:])


def _take_heredoc(made: Simple, part: "Node") -> None:
    start = next(child for child in part.children if child.type == "heredoc_start")
    body = next((child for child in part.children if child.type == "heredoc_body"), None)
    text = "" if body is None else _text(body)
    quoted = any(mark in _text(start) for mark in "'\"\\")
    if part.children[0].type == "<<-":
        text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
    made.fed, made.given = True, text if quoted or not re.search(r"[$`\\]", text) else None
    for child in part.children:
        if child.type in ("file_redirect", "herestring_redirect"):
            _take(made, child)
        elif child.is_named and not child.type.startswith("heredoc") and child.type in _ARGUMENTS:
            _read_parts(made, [child])


_ARGUMENTS = (
    "word", "string", "raw_string", "ansi_c_string", "concatenation", "number", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "translated_string", "brace_expression", "arithmetic_expansion",
)  # fmt: skip
