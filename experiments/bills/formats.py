"""All kinds of bills that can be read, and which one a file is."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from experiments.bills import (
    anthropic_console_cost,
    anthropic_console_usage,
    anthropic_cost,
    anthropic_usage,
    openai_costs,
    openai_usage,
    openrouter_activity,
    openrouter_generations,
    simulator,
)
from experiments.bills.bill_line import Bill
from experiments.bills.reading import Document, read_content, read_document
from experiments.errors import BillError


class Format(Protocol):
    """One file of this folder."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  (the module's constant)

    @property
    def fits(self) -> Callable[[Document], bool]: ...

    @property
    def read(self) -> Callable[[Sequence[Document]], Bill]: ...


_FORMATS: tuple[Format, ...] = (
    simulator, anthropic_usage, anthropic_cost, anthropic_console_usage, anthropic_console_cost, openai_usage,
    openai_costs, openrouter_activity, openrouter_generations,
)  # fmt: skip

FORMATS = {each.NAME: each for each in _FORMATS}
"""By the name that `--format` uses."""

MOST_FILES = 10_000


def read_bills(paths: Sequence[Path], form: str | None = None) -> list[Bill]:
    """The bills in the files and folders, one a format. `form` None: recognised, file by file. Raises BillError."""
    by_format: dict[str, list[Document]] = {}
    seen: dict[str, Path] = {}
    repeated: list[str] = []
    for path in _files(paths):
        content = read_content(path)
        if not content and path.suffix == ".jsonl" and form in (None, simulator.NAME):
            # A run that was stopped before its first call.
            by_format.setdefault(simulator.NAME, []).append(Document(str(path)))
            continue
        first = seen.setdefault(hashlib.sha256(content).hexdigest(), path)
        if first is not path:
            repeated.append(f"{path} is {first} once more; counted once")
            continue
        document = read_document(path, content)
        by_format.setdefault(form or _recognised(document), []).append(document)
    bills = [FORMATS[name].read(documents) for name, documents in by_format.items()]
    return [replace(bills[0], warnings=(*bills[0].warnings, *repeated)), *bills[1:]]


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
        if not inside:
            raise BillError(f"{path}: a folder without files; give exported files, or the folder of a run's bills")
        found += inside
    if len(found) > MOST_FILES:
        raise BillError(f"{len(found):,} files; give at most {MOST_FILES:,} at a time")
    return found


def _recognised(document: Document) -> str:
    fitting = [each.NAME for each in _FORMATS if each.fits(document)]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(FORMATS)
    if fitting:
        raise BillError(f"{document.name}: could be {' or '.join(fitting)}; say which with --format")
    what = "columns: " + ", ".join(document.table.header[:6]) if document.table else _fields(document)
    raise BillError(f"{document.name}: is no bill of a known kind ({what[:200]}); the known ones are {known}")


def _fields(document: Document) -> str:
    first = document.values[0] if document.values else None
    return "fields: " + ", ".join(list(first)[:6]) if isinstance(first, dict) else f"a JSON {type(first).__name__}"
