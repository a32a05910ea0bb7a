"""Reading a file that a provider, or anybody, wrote: bounded, and every complaint names file and place."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn

from experiments.errors import BillError

MOST_BYTES = 64 << 20
"""Of one file; a longer one is no export, or can be exported in parts."""

MOST_LINES = 1_000_000
MOST_UNITS = 10**15
MOST_USD = 10**9
MOST_CALL_USD = 499_999
"""Of one call, or one part of it."""
SHOWN = 40


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file with a header. `rows` are (line of the file, cells by column name)."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, Mapping[str, str]], ...]


@dataclass(frozen=True, slots=True)
class Document:
    """What one file holds: JSON values one behind another, or a table."""

    name: str
    values: tuple[object, ...] = ()
    table: Table | None = None


def has_columns(document: Document, *columns: str) -> bool:
    return document.table is not None and set(columns) <= set(document.table.header)


def rows(document: Document) -> "Iterator[Fields]":
    """Of a table; nothing of another document."""
    if document.table is not None:
        for line, cells in document.table.rows:
            yield Fields(cells, f"{document.name}:{line}")


def read_document(path: Path, content: bytes) -> Document:
    """Raises BillError."""
    text = _text(path, content)
    start = text.lstrip()[:1]
    if not start:
        raise BillError(f"{path}: is empty; expected a JSON or CSV export, or a simulator's bill")
    if start in "{[":
        return Document(str(path), values=tuple(_json(path, text)))
    return Document(str(path), table=_table(path, text))


def read_content(path: Path) -> bytes:
    """The bytes of a file. Raises BillError."""
    try:
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise BillError(f"{path}: cannot be read ({error.strerror or error}); give an exported file") from None
    if len(content) > MOST_BYTES:
        raise BillError(f"{path}: longer than {MOST_BYTES >> 20} MiB; export fewer days at a time")
    return content


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BillError(
            f"{path}: is not UTF-8 text (byte {error.start}); give the export as it was downloaded"
        ) from None


def _json(path: Path, text: str) -> Iterator[object]:
    """Values one behind another: a page, pages, JSON lines."""
    decoder = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_number)
    place, count = 0, 0
    while place < len(text):
        if text[place] in " \t\r\n\ufeff\x1e":
            place += 1
            continue
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError, ArithmeticError) as error:
            at = error.pos if isinstance(error, json.JSONDecodeError) else place
            reason = error.msg if isinstance(error, json.JSONDecodeError) else _reason(error)
            line = text.count("\n", 0, at) + 1
            raise BillError(f"{path}:{line}: not valid JSON ({reason}); give the export as it was downloaded") from None
        count += 1
        if count > MOST_LINES:
            raise BillError(f"{path}: more than {MOST_LINES:,} values; export fewer days at a time")
        yield value


def _decimal(text: str) -> Decimal:
    return Decimal(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error) if str(error).endswith("is no number") else "a number without end"


def _table(path: Path, text: str) -> Table:
    first = text[: text.find("\n") if "\n" in text else len(text)]
    delimiter = "\t" if "\t" in first and "," not in first else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[int, Mapping[str, str]]] = []
    header: tuple[str, ...] = ()
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _header(path, cells)
                continue
            if len(cells) != len(header):
                raise BillError(
                    f"{path}:{reader.line_num}: has {len(cells)} cells, the header {len(header)} columns; "
                    "give the export as it was downloaded"
                )
            if len(rows) >= MOST_LINES:
                raise BillError(f"{path}: more than {MOST_LINES:,} rows; export fewer days at a time")
            rows.append((reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))))
    except csv.Error as error:
        raise BillError(
            f"{path}:{reader.line_num}: not valid CSV ({error}); give the export as it was downloaded"
        ) from None
    return Table(header, tuple(rows))


def _header(path: Path, cells: list[str]) -> tuple[str, ...]:
    names = tuple(cell.strip().strip("\ufeff").lower() for cell in cells)
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise BillError(f"{path}:1: the column {shown(twice)} stands twice; give the export as it was downloaded")
    return names


def shown(value: object) -> str:
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


class Fields:
    """One object or row of a bill, read field by field."""

    __slots__ = ("_raw", "where")

    def __init__(self, raw: object, where: str) -> None:
        """Raises BillError when it is no object."""
        if not isinstance(raw, Mapping):
            raise BillError(
                f"{where}: must be an object, not {type(raw).__name__}; give the export as it was downloaded"
            )
        self._raw: Mapping[str, object] = raw
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self._raw.get(name) not in (None, "")

    def raw(self) -> Mapping[str, object]:
        return self._raw

    def get(self, name: str) -> object:
        return self._raw.get(name)

    def wrong(self, name: str, expected: str) -> BillError:
        return BillError(
            f"{self.where}: {name} must be {expected}, not {shown(self._raw.get(name))}; "
            "give the export as it was downloaded"
        )

    def text(self, name: str) -> str | None:
        value = self._raw.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str) or len(value) > 1_000:
            raise self.wrong(name, "a text of at most 1,000 characters")
        return value

    def needed_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.wrong(name, "a text")
        return value

    def units(self, name: str, *, of_text: bool = False) -> int | None:
        """A whole number; None when absent or empty. `of_text`: a cell of a table, where 12.0 is 12."""
        value = self._raw.get(name)
        if value is None or (of_text and value == ""):
            return None
        number = _number(value) if not isinstance(value, str) or of_text else None
        if number is None or number != number.to_integral_value() or not 0 <= number <= MOST_UNITS:
            raise self.wrong(name, f"a whole number from 0 to {MOST_UNITS:,}")
        return int(number)

    def needed_units(self, name: str, *, of_text: bool = False) -> int:
        value = self.units(name, of_text=of_text)
        if value is None:
            raise self.wrong(name, "a whole number")
        return value

    def amount(self, name: str, *, most: int = MOST_USD) -> Decimal | None:
        """An amount of money, as a number or as text; None when absent or empty."""
        value = self._raw.get(name)
        if value is None or value == "":
            return None
        number = _number(value)
        if number is None or not 0 <= number <= most:
            raise self.wrong(name, f"an amount of money from 0 to {most:,}")
        return number

    def needed_amount(self, name: str, *, most: int = MOST_USD) -> Decimal:
        value = self.amount(name, most=most)
        if value is None:
            raise self.wrong(name, "an amount of money")
        return value

    def dollars_only(self, name: str) -> None:
        """Raises BillError for another currency: nothing is converted."""
        currency = self.text(name)
        if currency is not None and currency.lower() != "usd":
            raise BillError(
                f"{self.where}: {name} is {shown(currency)}; only US dollars can be compared with the ledger, and "
                "nothing is converted: export the bill in dollars"
            )

    def moment(self, name: str) -> datetime:
        """ISO-8601 text; UTC where it names no zone."""
        value = self._raw.get(name)
        try:
            told = datetime.fromisoformat(value) if isinstance(value, str) and len(value) < 64 else None
            if told is None or not 1970 < told.year < 9998:
                raise ValueError
        except ValueError:
            raise self.wrong(name, "a date or date-time such as 2026-11-24T00:00:00Z") from None
        return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)

    def day(self, name: str) -> date:
        return self.moment(name).date()

    def seconds(self, name: str, *, of_text: bool = False) -> datetime:
        """Seconds since 1970."""
        value = self.units(name, of_text=of_text)
        if value is None or not 0 < value < 10**11:
            raise self.wrong(name, "a time in whole seconds since 1970")
        return datetime.fromtimestamp(value, UTC)


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    if isinstance(value, int):
        # Python writes out no number of thousands of digits.
        return Decimal(value) if abs(value) < 10**18 else None
    try:
        number = value if isinstance(value, Decimal) else Decimal(value.strip()) if _plain(value) else None
    except InvalidOperation:
        return None
    if number is None or not number.is_finite() or abs(number.adjusted()) > 60 or len(number.as_tuple().digits) > 120:
        return None
    return number


def _plain(text: str) -> bool:
    return 0 < len(text) < 200 and text.isascii() and "_" not in text
