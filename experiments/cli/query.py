"""fullchain query: one SQL statement over the results."""

import enum
from collections.abc import Sequence
from typing import Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database


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
    from experiments.store.reader import query as ask

    names, rows = ask(database, sql)
    _WRITERS[form](names, rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from experiments.cli.terminal import console, plain, table

    numeric = [all(_is_number(row[place]) or row[place] is None for row in rows) for place in range(len(names))]
    made = table(*((plain(name), "right" if right else "left") for name, right in zip(names, numeric, strict=True)))
    for row in rows:
        made.add_row(*(plain(_text(value)) for value in row))
    console().print(made)


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    import csv
    import sys

    from experiments.cli.terminal import plain

    shown = plain if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([shown(_text(value)) for value in row] for row in rows)


def _json(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A list of objects; money and other decimals as text, so that no digit is lost."""
    import json
    import sys

    found = [dict(zip(names, row, strict=True)) for row in rows]
    sys.stdout.write(json.dumps(found, default=_text, indent=1) + "\n")


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


def _is_number(value: object) -> bool:
    from decimal import Decimal

    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
