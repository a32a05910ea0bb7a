"""The simple commands of a bash text, wherever they stand: pipelines, lists, groups, substitutions, bodies.

The parser is tree-sitter's for bash. Where its tree does not account for the whole text, or where what runs could stand
in a part that it reads as plain text, the text counts as unreadable: a policy refuses it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from agents.shell.evaluation import evaluates, hides
from agents.shell.words import Unreadable, Word, read_word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_BYTES = 1 << 16
MOST_NODES = 50_000

_COMMANDS = ("command", "declaration_command", "test_command", "unset_command")
_LONE = ("variable_assignment", "file_redirect", "herestring_redirect")
"""Those that may stand without a command."""
_OUTPUT = (">", ">>", ">|", "&>", "&>>", ">&", "<>")
_QUOTED = ("raw_string", "ansi_c_string", "comment", "heredoc_start", "heredoc_end")
_SUBSTITUTES = re.compile(r"(?:^|[^\\])(?:\\\\)*(?:`|\$\(|[<>]\()")
_LEFT_OUT = re.compile(r"[ \t]+[-\w./=:,+@%]+(?:[ \t]+[-\w./=:,+@%]+)*[ \t]*", re.ASCII)
_BLANK = re.compile(r"(?:[ \t\n]|\\\n)*")
_WITHIN = {
    **dict.fromkeys(("variable_assignment", "simple_expansion", "concatenation"), re.compile(r"(?:\\\n)*")),
    **dict.fromkeys(
        ("command", "declaration_command", "unset_command", "command_name", "variable_assignments", "negated_command",
         "file_redirect", "herestring_redirect", "redirected_statement"),
        re.compile(r"(?:[ \t]|\\\n)*"),
    ),
}  # fmt: skip
"""What may lie between the parts of one word, and of one command. The parser goes on over ends of lines."""
_JOINS = re.compile(r"(?:\\\n)+")
_SETS = {
    "expansion": ("=", ":="),
    "binary_expression": ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="),
}
_MANY_LINES = ("string_content", "heredoc_body", "heredoc_content", "raw_string", "ansi_c_string", "comment")
_ENDS_LINE = re.compile(r"(?:^|[^\\])(?:\\\\)*\n")
_CONTROL = re.compile(rb"[\0-\x08\x0b-\x1f\x7f]")
_NO_ASCII = re.compile(rb"[\x80-\xff]")
_BEFORE_COMMENT = b" \t\n;&|()<>"
_DELIMITER = re.compile(r"(?P<quote>\\|(?P<mark>['\"]))?(?P<word>[A-Za-z0-9_.+-]+)(?(mark)(?P=mark))")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")


@dataclass(slots=True)
class Simple:
    """One simple command. `words` begins with its name, and is empty where only variables are set. `assigns` names the
    variables before it, `writes` the files that it is redirected to, `given` is the text of its here-document or string
    (None where it is computed), `fed` whether it has one. `evaluates`: what a variable holds may run in it."""

    text: str
    words: list[Word] = field(default_factory=list)
    assigns: list[str] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    fed: bool = False
    given: str | None = None
    evaluates: bool = False


def simple_commands(script: str) -> list[Simple]:
    """In the order in which they are written. Raises Unreadable.

    The parser is C code that some texts have ended: nothing calls this but the process of `agents.shell.judge`.
    """
    source = script.encode("utf-8", errors="replace")
    if len(source) > MOST_BYTES:
        raise Unreadable(f"it has more than {MOST_BYTES} bytes; make it shorter")
    if _CONTROL.search(source):
        raise Unreadable("it holds a control character")
    # To bash they are characters of a word like others. The parser looks each up in a table of 256.
    root = _parser().parse(_NO_ASCII.sub(b"%", source)).root_node
    read = _Script(source)
    if root.has_error:
        raise Unreadable(f"bash cannot read it, or the parser cannot: {read.mistake(root)}")
    return [read.simple(node) for node in read.checked(root)]


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Script:
    """Reads the nodes of one parsed text. Their text is taken from `source`, not from what the parser was given."""

    def __init__(self, source: bytes) -> None:
        self.source = source

    def _text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", errors="replace")

    def mistake(self, root: "Node") -> str:
        stack = [root]
        while stack:
            node = stack.pop()
            if node.is_error or node.is_missing:
                return f"line {node.start_point[0] + 1} near {self._text(node)[:40] or node.type!r}"
            stack += [child for child in reversed(node.children) if child.has_error or child.is_missing]
        return "somewhere"

    def checked(self, root: "Node") -> Iterator["Node"]:
        """The nodes to be read as simple commands. Raises Unreadable where text is unaccounted for."""
        stack, seen = [root], 0
        while stack:
            node = stack.pop()
            seen += 1
            if seen > MOST_NODES:
                raise Unreadable("it has too many parts")
            children = node.children
            if node.type == "heredoc_redirect":
                quoted = self._check_end(node)
                for child in children:
                    if child.type == "heredoc_body":
                        if not quoted:
                            self._plain_gaps(child)
                            stack += [each for each in reversed(child.children) if each.type != "heredoc_content"]
                    else:
                        stack.append(child)
                continue
            if node.type in ("command_substitution", "expansion", "arithmetic_expansion", "subscript"):
                self._check_quotes(node)
            if node.type == "comment":
                self._check_comment(node)
            elif not children:
                told = self._text(node)
                if node.is_named and node.type not in _QUOTED and _SUBSTITUTES.search(told):
                    raise Unreadable(f"line {node.start_point[0] + 1}: what {told[:40]!r} runs cannot be told")
                if node.is_named and node.type not in _MANY_LINES and _ENDS_LINE.search(told):
                    raise Unreadable(f"line {node.start_point[0] + 1}: where {told[:40]!r} ends cannot be told")
            elif node.type == "string":
                self._plain_gaps(node)
            else:
                self._no_gaps(node)
            if node.type == "expansion" and children[-2].type in ("P", "@P"):
                raise Unreadable(f"line {node.start_point[0] + 1}: what {self._text(node)[:40]!r} runs cannot be told")
            if (
                node.type in _COMMANDS
                or (node.type in _LONE and not _is_part(node))
                or _set_by(node) is not None
                or evaluates(node.type, self._text(node))
            ):
                yield node
            stack += reversed(children)

    def _check_quotes(self, node: "Node") -> None:
        """Backticks nest as the parser does not read them. Raises Unreadable."""
        told, line = self._text(node), node.start_point[0] + 1
        if told.startswith("`"):
            raise Unreadable(f"line {line}: what {told[:40]!r} runs cannot be told; write $(...) for backticks")
        if hides(node.type, told):
            raise Unreadable(f"line {line}: what {told[:40]!r} runs cannot be told; write it without quotes in it")

    def _check_comment(self, node: "Node") -> None:
        """A `#` within a word begins none, nor behind a continued line. Raises Unreadable."""
        before = self.source[: node.start_byte]
        if (before and before[-1] not in _BEFORE_COMMENT) or before.endswith(b"\\\n"):
            raise Unreadable(f"line {node.start_point[0] + 1}: whether '#' begins a comment cannot be told")

    def _check_end(self, redirect: "Node") -> bool:
        """Whether a here-document's delimiter is quoted. Raises Unreadable where it does not end where bash ends it."""
        line = redirect.start_point[0] + 1
        parts = {child.type: child for child in redirect.children if child.type.startswith("heredoc_")}
        start = parts.get("heredoc_start")
        delimiter = None if start is None else _DELIMITER.fullmatch(self._text(start))
        if start is None or delimiter is None or "heredoc_end" not in parts:
            raise Unreadable(f"line {line}: write the here-document's delimiter in letters, and its end on a line")
        # The parser skips blanks before the body, and takes lines for the end that bash does not.
        begin = self.source.find(b"\n", start.end_byte) + 1
        between = self.source[begin : parts["heredoc_body"].start_byte if "heredoc_body" in parts else begin]
        tabs = rb"\t*" if redirect.children[0].type == "<<-" else b""
        word = delimiter["word"].encode()
        end = re.compile(rb"^%b(%b)$" % (tabs, re.escape(word)), re.MULTILINE).search(self.source, begin)
        if between.strip() or end is None or end.span(1) != _span(parts["heredoc_end"]):
            raise Unreadable(f"line {line}: where the here-document ends cannot be told")
        return delimiter["quote"] is not None

    def _gaps(self, node: "Node") -> Iterator[str]:
        at = node.start_byte
        for child in node.children:
            if child.start_byte > at:
                yield self.source[at : child.start_byte].decode("utf-8", errors="replace")
            at = max(at, child.end_byte)
        if at < node.end_byte:
            yield self.source[at : node.end_byte].decode("utf-8", errors="replace")

    def _no_gaps(self, node: "Node") -> None:
        for gap in self._gaps(node):
            if self._left_out(node, gap):
                continue
            if _JOINS.fullmatch(gap):
                raise Unreadable(f"line {node.start_point[0] + 1}: put a blank before a backslash that ends a line")
            if not _WITHIN.get(node.type, _BLANK).fullmatch(gap):
                raise Unreadable(f"line {node.start_point[0] + 1}: the parser leaves out {gap.strip(' ')[:40]!r}")

    def _left_out(self, redirected: "Node", gap: str) -> list[str]:
        """Plain words before a here-document, such as the dash of `python3 - <<END`: the parser leaves them out."""
        body = _body(redirected) if redirected.type == "redirected_statement" else None
        return gap.split() if body is not None and body.type == "command" and _LEFT_OUT.fullmatch(gap) else []

    def _plain_gaps(self, node: "Node") -> None:
        """Text with substitutions in it: what lies between them must hold none that the parser overlooked."""
        plain = [*self._gaps(node), *(self._text(child) for child in node.children if child.type.endswith("_content"))]
        for text in plain:
            if _SUBSTITUTES.search(re.sub(r"[<>]\(", "", text)):
                raise Unreadable(
                    f"line {node.start_point[0] + 1}: what {text.strip()[:40]!r} runs cannot be told; write $(...) for "
                    "backticks, or quote the delimiter of a here-document that is plain text"
                )

    def simple(self, node: "Node") -> Simple:
        made = Simple(self._text(node), evaluates=evaluates(node.type, self._text(node)))
        name = _set_by(node)
        if name is not None:
            made.assigns.append(self._text(name))
            return made
        if node.type in _LONE:
            self._take(made, node)
            return made
        parent = node.parent
        if made.evaluates and node.type not in _COMMANDS:
            return made
        self._read_parts(made, list(_tested(node)) if node.type == "test_command" else node.children)
        if parent is not None and parent.type == "redirected_statement" and _body(parent) == node:
            made.text = self._text(parent)
            for gap in self._gaps(parent):
                made.words += map(Word, self._left_out(parent, gap))
            self._read_parts(made, [child for child in parent.children if child != node])
        return made

    def _read_parts(self, made: Simple, parts: "list[Node]") -> None:
        """Word by word; what only the end of a line keeps apart is one word."""
        pending, end = "", -1
        for part in parts:
            if part.type == "comment":
                continue
            if part.type in ("file_redirect", "heredoc_redirect", "herestring_redirect") or (
                part.type == "variable_assignment" and not made.words and not pending
            ):
                pending = _flush(made, pending)
                self._take(made, part)
                continue
            # Adjacent in the source but for a continued line: no blank lies between.
            if pending and self.source[end : part.start_byte].replace(b"\\\n", b"") == b"":
                pending += self._text(part)
            else:
                pending = _flush(made, pending) or self._text(part)
            end = part.end_byte
        _flush(made, pending)

    def _take(self, made: Simple, part: "Node") -> None:
        if part.type == "variable_assignment":
            found = _ASSIGNS.match(self._text(part))
            made.assigns.append(found[1] if found else self._text(part))
        elif part.type == "herestring_redirect":
            word = read_word(self._text(part.children[-1]))
            made.fed, made.given = True, f"{word.text}\n" if word.known else None
        elif part.type == "file_redirect":
            self._take_redirect(made, part)
        else:
            self._take_heredoc(made, part)

    def _take_redirect(self, made: Simple, part: "Node") -> None:
        """Words behind the target are the command's: `rm >log -rf x`."""
        operator = next((child.type for child in part.children if not child.is_named), "")
        rest = [child for child in part.children if child.is_named and child.type != "file_descriptor"]
        if operator in (">&-", "<&-"):
            self._read_parts(made, rest)
            return
        duplicates = rest and operator == ">&" and re.fullmatch(r"\d+-?|-", self._text(rest[0]))
        if operator in _OUTPUT and rest and not duplicates:
            made.writes.append(read_word(self._text(rest[0])))
        self._read_parts(made, rest[1:])

    def _take_heredoc(self, made: Simple, part: "Node") -> None:
        start = next(child for child in part.children if child.type == "heredoc_start")
        body = next((child for child in part.children if child.type == "heredoc_body"), None)
        text = "" if body is None else self._text(body)
        quoted = any(mark in self._text(start) for mark in "'\"\\")
        if part.children[0].type == "<<-":
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        made.fed, made.given = True, text if quoted or not re.search(r"[$`\\]", text) else None
        for child in part.children:
            if child.type in ("file_redirect", "herestring_redirect"):
                self._take(made, child)
            elif child.is_named and not child.type.startswith("heredoc") and child.type in _ARGUMENTS:
                self._read_parts(made, [child])


def _is_part(node: "Node") -> bool:
    """Whether a command reads it as its own."""
    parent = node.parent
    while parent is not None and parent.type in ("heredoc_redirect", "variable_assignments"):
        parent = parent.parent
    if parent is None:
        return False
    body = _body(parent) if parent.type == "redirected_statement" else None
    return parent.type in _COMMANDS or (body is not None and body.type in _COMMANDS)


def _set_by(node: "Node") -> "Node | None":
    """The name of the variable that a loop, a default or an assignment in arithmetic sets."""
    if node.type == "for_statement":
        return node.child_by_field_name("variable")
    operators = _SETS.get(node.type)
    if operators is None or not any(child.type in operators for child in node.children):
        return None
    return next((child for child in node.children if child.type in ("variable_name", "subscript")), None)


def _tested(node: "Node") -> "Iterator[Node]":
    """The words of a test, one by one."""
    for child in node.children:
        if child.type in ("binary_expression", "unary_expression", "parenthesized_expression"):
            yield from _tested(child)
        else:
            yield child


def _span(node: "Node") -> tuple[int, int]:
    return node.start_byte, node.end_byte


def _body(redirected: "Node") -> "Node | None":
    return redirected.child_by_field_name("body")


def _flush(made: Simple, raw: str) -> str:
    if raw:
        made.words.append(read_word(raw))
    return ""


_ARGUMENTS = (
    "word", "string", "raw_string", "ansi_c_string", "concatenation", "number", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "translated_string", "brace_expression", "arithmetic_expansion",
)  # fmt: skip
