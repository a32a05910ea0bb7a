"""What reaches the terminal. Task names, commands and answers are written by models and strangers: no control character
of theirs may steer a terminal, and no bracket of theirs is markup."""

import errno
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 100_000
"""Columns when nobody says how wide the reader is: a table in a file or a pipe takes what its cells need, unfolded."""

FOLDED = 12
"""Columns that words may be folded to before the lines of a table run over the terminal's edge."""


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = output(stderr=stderr)
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, soft_wrap=False)


def table(*headings: tuple[str, str]) -> "Table":
    """Each heading is (title, "left" or "right"). Cells are text, never markup."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title, side in headings:
        made.add_column(title, justify="right" if side == "right" else "left", overflow="fold", no_wrap=side == "right")
    return made


def say_table(made: "Table", *, stderr: bool = False) -> None:
    """On a terminal that is too narrow for its numbers the lines run over: a number cut short is another number."""
    screen = console(stderr=stderr)
    if screen.is_terminal:
        screen.width = max(screen.width, _least_width(made))
        screen.print(made)
        return
    with screen.capture() as printed:
        screen.print(made)
    for line in printed.get().splitlines():
        say(line.rstrip(), stderr=stderr)


def _least_width(made: "Table") -> int:
    """Room for whole numbers, and for words folded to `FOLDED` columns."""
    from rich.cells import cell_len

    least = 0
    for column in made.columns:
        widest = max(cell_len(line) for cell in (column.header, *column.cells) for line in str(cell).split("\n"))
        least += (widest if column.no_wrap else min(widest, FOLDED)) + 2
    return least


def fits(headings: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> bool:
    """Whether a table of these plain cells can stand in `width` columns with no cell folded."""
    from rich.cells import cell_len

    wide = [cell_len(heading) for heading in headings]
    for row in rows:
        for place, cell in enumerate(row):
            wide[place] = max(wide[place], *(cell_len(line) for line in cell.split("\n")))
    return sum(wide) + 2 * len(wide) <= width


def say_records(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """One field a line, for rows too wide for a table; the lines of one value stand below each other."""
    from rich.cells import cell_len

    name_width = max((cell_len(heading) for heading in headings), default=0)
    indent = "\n" + " " * name_width + "   "
    for number, row in enumerate(rows, start=1):
        say(f"-- row {number} --")
        for heading, cell in zip(headings, row, strict=True):
            padding = " " * (name_width - cell_len(heading))
            say(f"{heading}{padding} | {cell}".replace("\n", indent).rstrip())


def warn(warnings: Iterable[str]) -> None:
    """A line each on stderr."""
    for warning in warnings:
        say(f"warning: {one_line(warning)}", stderr=True)


def plain(text: str) -> str:
    """Control, format and surrogate characters made visible; line ends and tabs are kept."""
    return "".join(_visible(character) if _steers(character) else character for character in text)


def one_line(text: str, limit: int | None = None) -> str:
    """Line ends become spaces; longer than `limit` characters, the rest becomes an ellipsis."""
    flat = plain(" ".join(text.split()))
    return flat if limit is None or len(flat) <= limit else f"{flat[: limit - 1]}…"


def say(text: str = "", *, stderr: bool = False) -> None:
    """One plain line, as it is: no markup, no folding."""
    stream = output(stderr=stderr)
    stream.write(plain(text) + "\n")
    stream.flush()


def output(*, stderr: bool = False) -> TextIO:
    """Standard output or standard error. Raises OSError when it was closed before we began."""
    stream = sys.stderr if stderr else sys.stdout
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    return stream


def _steers(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode()
