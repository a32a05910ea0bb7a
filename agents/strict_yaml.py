"""YAML that people write, read with a bound and so that nothing in it is lost without a word.

A `FileKind` says how the faults of its files are told.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agents.errors import RegistryError

LIMIT = 1_000_000
"""Bytes of a file that are read; a longer one is none that people write."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """The error of its files, and what that says of each fault; `{}` stands for the detail."""

    error: Callable[[str], Exception]
    too_long: str
    too_deep: str
    missing: str = "cannot be read: {}"
    unreadable: str = "cannot be read: {}"
    no_text: str = "cannot be read: it is not UTF-8 text"
    malformed: str = "no valid YAML: {}; mend that line"
    twice: str = "{!r} stands twice"
    line: str = "{}: line {}"

    def told(self, where: object, fault: str, detail: object = "") -> Exception:
        return self.error(f"{where}: {fault.format(detail)}")


MODELS = FileKind(
    RegistryError,
    too_long=f"longer than {LIMIT:,} bytes; a models file is a short YAML file",
    too_deep="nested too deep; give each model its fields under `models:`",
    missing="no such models file; give the path of one (`fullchain models add` writes it)",
)


def read_file(path: Path, kind: FileKind) -> str:
    """What stands in it, at most `LIMIT` bytes. Raises the error of its kind, one line with the path."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        # A name that no file can have is a ValueError.
        fault = kind.missing if isinstance(error, FileNotFoundError) else kind.unreadable
        raise kind.told(path, fault, getattr(error, "strerror", error)) from None
    if len(content) > LIMIT:
        raise kind.told(path, kind.too_long)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise kind.told(path, kind.no_text, error.start) from None


def parse(source: str, written: str, kind: FileKind) -> tuple[yaml.Node | None, Any]:
    """The document as nodes, which know their lines (None when nothing stands in it), and as plain values.

    Raises the error of its kind, one line with the source and, where it is known, the line.
    """
    try:
        loader = _StrictLoader(written)
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = kind.line.format(source, mark.line + 1) if mark else source
        problem = error.problem or error.context or "cannot be parsed"
        if isinstance(error, _KeyTwice):
            problem = kind.twice.format(problem)
        raise kind.told(where, kind.malformed, problem) from None
    except yaml.YAMLError as error:
        raise kind.told(source, kind.malformed, " ".join(str(error).split())) from None
    except RecursionError:
        raise kind.told(source, kind.too_deep) from None
    except (ValueError, OverflowError) as error:
        raise kind.told(source, kind.malformed, f"{error}: write that character itself") from None


def read_yaml(source: str, written: str) -> object:
    """The plain values of a models file. Raises RegistryError, as `parse` does."""
    return parse(source, written, MODELS)[1]


class _KeyTwice(yaml.MarkedYAMLError):
    """Its problem is the key."""


_ODD = re.compile(r"[-+]?(0[0-9_bxBX][0-9a-fA-F_]*|[0-9_]+(:[0-9_.]+)+)")


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: one of its values would be lost without a word.

    What looks like a date or a number and is none stays text, so that its field refuses it by name; so does what YAML
    1.1 reads as another number than most people do (1:30 is its 90, 010 its 8).
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Not when it is constructed: then a mapping already holds what was merged into it.
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain name", key.start_mark)
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise _KeyTwice(None, None, key.value, key.start_mark)
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int | float) and isinstance(node, yaml.ScalarNode) and _ODD.fullmatch(node.value):
                return node.value
            if isinstance(value, int):
                # Python refuses to write out one of thousands of digits, and so could no message.
                str(value)
            return value
        except (ValueError, OverflowError, LookupError, AttributeError):
            if not isinstance(node, yaml.ScalarNode):
                raise
            self.recursive_objects.pop(node, None)
            return node.value
