"""What reaches the terminal. Task names, commands and answers are written by models and strangers: no control character
of theirs may steer a terminal, and no bracket of theirs is markup."""

import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 240
"""Columns when nobody says how wide the reader is: tables in a file or a pipe are not folded."""


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, soft_wrap=False)


def table(*headings: tuple[str, str]) -> "Table":
    """Each heading is (title, "left" or "right"). Cells are text, never markup."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title, side in headings:
        made.add_column(title, justify="right" if side == "right" else "left", overflow="fold", no_wrap=side == "right")
    return made


def plain(text: str) -> str:
    """Control, format and surrogate characters made visible; line ends and tabs are kept."""
    return "".join(_visible(character) if _steers(character) else character for character in text)


def one_line(text: str, limit: int | None = None) -> str:
    """Line ends become spaces; longer than `limit` characters, the rest becomes an ellipsis."""
    flat = plain(" ".join(text.split()))
    return flat if limit is None or len(flat) <= limit else f"{flat[: limit - 1]}…"


def say(text: str = "", *, stderr: bool = False) -> None:
    """One plain line, as it is: no markup, no folding."""
    stream = sys.stderr if stderr else sys.stdout
    stream.write(plain(text) + "\n")
    stream.flush()


def _steers(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode()
