"""A models file that a person keeps: one entry more, and all else in it as it stands, comments included."""

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from agents.errors import RegistryError
from agents.strict_yaml import MODELS, read_file, read_yaml

WIDE = 1 << 20
"""Columns: no value is folded."""


def read_models_file(path: Path) -> str:
    """What stands in it; "" when there is no such file. Raises RegistryError."""
    return read_file(path, MODELS) if os.path.lexists(path) else ""


def with_entry(source: str, written: str, name: str, fields: Mapping[str, object]) -> str:
    """The text of a models file with an entry added at the end of its `models`.

    Nothing is taken out or moved. Raises RegistryError when the file is none of models, has an entry of this name, or
    is written so that nothing can be added to it by inserting lines; the message then holds the entry.
    """
    document = read_yaml(source, written)
    entries = document.get("models") if isinstance(document, dict) else None
    if document is not None and not isinstance(document, dict):
        raise RegistryError(f"{source}: expected `models:` with an entry under each model's name")
    if entries is not None and not isinstance(entries, dict):
        raise RegistryError(f"{source}: models: expected an entry under each model's name")
    if entries and name in {str(each) for each in entries}:
        raise RegistryError(f"{source}: models.{name}: stands there already; choose another name, or change it there")
    wanted = {**(document or {}), "models": {**(entries or {}), name: dict(fields)}}
    for candidate in _candidates(written, name, fields):
        try:
            if read_yaml(source, candidate) == wanted:
                return candidate
        except RegistryError:
            continue
    flow = _flow({name: dict(fields)})
    raise RegistryError(f"{source}: cannot be extended by lines alone; add this to its `models` yourself: {flow[1:-1]}")


def save(path: Path, text: str) -> None:
    """Replaces the file at once: whoever reads it finds the old text or the new one. Raises RegistryError."""
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        with draft.open("xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RegistryError(f"{path}: cannot be written: {error.strerror}") from None


def _candidates(written: str, name: str, fields: Mapping[str, object]) -> Iterator[str]:
    """Texts with the entry in the places where it may belong."""
    end = "\r\n" if "\r\n" in written else "\n"
    root = yaml.compose(written, Loader=yaml.SafeLoader)
    models = _value(root, "models")
    if models is None:
        # No `models` yet: at the end of the file, behind whatever else it has.
        closed = written if not written or written.endswith("\n") else written + end
        yield closed + end.join(("models:", *_block(name, fields, "  "), ""))
        return
    if isinstance(models, yaml.MappingNode) and models.flow_style:
        brace = models.end_mark.index - 1
        entry = _flow({name: dict(fields)})[1:-1]
        for comma in (", ", ""):
            yield f"{written[:brace]}{comma}{entry}{written[brace:]}"
        return
    indent = "  "
    if isinstance(models, yaml.MappingNode) and models.value:
        indent = " " * models.value[0][0].start_mark.column
    lines = written.splitlines(keepends=True)
    place = _last_line(models) + 1
    if lines and not lines[place - 1].endswith("\n"):
        lines[place - 1] += end
    entry_lines = [line + end for line in _block(name, fields, indent)]
    yield "".join((*lines[:place], *entry_lines, *lines[place:]))


def _value(root: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for name, value in root.value if name.value == key), None)


def _last_line(node: yaml.Node) -> int:
    """The index of the line on which the last thing of a node stands."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return _last_line(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _last_line(node.value[-1])
    end = node.end_mark
    # A block of text ends at the beginning of the line after it.
    return end.line - 1 if end.column == 0 and end.line > node.start_mark.line else end.line


def _block(name: str, fields: Mapping[str, object], indent: str) -> list[str]:
    inner = indent + "  "
    return [f"{indent}{_flow(name)}:", *(f"{inner}{_flow(key)}: {_flow(value)}" for key, value in fields.items())]


def _flow(value: object) -> str:
    """A value as YAML on one line."""
    dumped: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=WIDE)
    line = dumped.removesuffix("...\n").strip()
    if isinstance(value, str) and yaml.safe_load(line) != value:
        # Line ends of any kind, which only double quotes can hold on one line.
        line = yaml.safe_dump(value, default_style='"', width=WIDE).strip()
    return line
