"""Rows on their way into the database, and what can be read of their values."""

from datetime import UTC, datetime

Row = dict[str, object]
"""Column name -> JSON-able value, money as text, times as ISO-8601 UTC text."""

Rows = dict[str, list[Row]]
"""Table name -> rows."""


def whole(value: object) -> int:
    """A count that a row holds. Raises TypeError for anything else."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def moment(value: object) -> datetime:
    """Aware UTC, of the text or the date-time that a row holds. Raises ValueError for anything else."""
    told = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return told.astimezone(UTC)
