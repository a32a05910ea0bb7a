"""fullchain query: one SQL statement over the results."""

import enum
import math
from collections.abc import Sequence
from typing import Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

LINE_WIDTH = 10_000
"""Widest line of a table; every row is padded to it."""


class Format(enum.StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT (also SHOW TABLES, DESCRIBE compare).", metavar="SQL")],
    database: Database = DEFAULT_DATABASE,
    form: Annotated[Format, typer.Option("--format", help="How the rows are written.")] = Format.table,
) -> None:
    """Answers one read-only SQL statement, also while a run writes. Money is exact, times are UTC."""
    from experiments.cli.terminal import warn
    from experiments.store.reader import QUERY_ROWS, Reader

    with Reader(database) as reader:
        names, rows = reader.query(sql, max_rows=QUERY_ROWS)
    warn(reader.warnings)
    _WRITERS[form](names, rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """On a terminal too narrow for the rows, and for rows that no line should hold, one field a line."""
    from experiments.cli.terminal import console, fits, one_line, plain, say_records, say_table, table

    screen = console()
    headings = [one_line(name) for name in names]
    cells = [[plain(_text(value)) for value in row] for row in rows]
    if rows and not fits(headings, cells, min(screen.width, LINE_WIDTH)):
        say_records(headings, cells)
        return
    numeric = [all(_is_number(row[place]) or row[place] is None for row in rows) for place in range(len(names))]
    made = table(*((name, "right" if right else "left") for name, right in zip(headings, numeric, strict=True)))
    for row in cells:
        made.add_row(*row)
    say_table(made)


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    import csv

    from experiments.cli.terminal import output, plain

    shown = plain if output().isatty() else str
    writer = csv.writer(output(), lineterminator="\n")
    writer.writerow(names)
    writer.writerows([shown(_text(value)) for value in row] for row in rows)


def _json(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A list of objects; money and other decimals as text, so that no digit is lost; what is no number is null."""
    import json

    from experiments.cli.terminal import output

    found = [_jsonable(dict(zip(names, row, strict=True))) for row in rows]
    output().write(json.dumps(found, default=_text, indent=1, allow_nan=False) + "\n")


def _markdown(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from experiments.cli.terminal import one_line, say

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"

    say(line(names))
    say("|" + " --- |" * len(names))
    for row in rows:
        say(line([_text(value) for value in row]))


_WRITERS = {Format.table: _table, Format.csv: _csv, Format.json: _json, Format.markdown: _markdown}


def _text(value: object) -> str:
    from datetime import datetime
    from decimal import Decimal

    if value is None:
        return ""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _jsonable(value: object) -> object:
    """JSON has neither NaN nor infinities, and its keys are text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_text(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    return value


def _is_number(value: object) -> bool:
    from decimal import Decimal

    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
