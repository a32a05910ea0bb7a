"""Rows on their way into the database."""

Row = dict[str, object]
"""Column name -> JSON-able value, money as text, times as ISO-8601 UTC text."""

Rows = dict[str, list[Row]]
"""Table name -> rows."""
