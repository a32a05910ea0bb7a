"""A script as the commands that an agent types: written in pieces, run, removed."""

from functools import lru_cache

SCRIPT = "/tmp/attempt.sh"  # noqa: S108 - a path inside the task's sandbox
LOG = "/tmp/attempt.log"  # noqa: S108

_MASKS = (
    r"s/[0-9a-f]{7,64}/<hash>/g",
    r"s/^Date: .*/Date: <time>/",
    r"s/20[0-9]{2}-[01][0-9]-[0-3][0-9]/<date>/g",
    r"s/[0-9]{1,2}:[0-9]{2}:[0-9]{2}/<time>/g",
    r"s/[0-9]+\.[0-9]+ ?s\b/<seconds>/g",
)

RUN = f"bash {SCRIPT} > {LOG} 2>&1; code=$?; tail -n 40 {LOG} | sed -E '{'; '.join(_MASKS)}'; (exit $code)"
"""Commit hashes, dates and durations differ from run to run and would make the rest of the conversation differ."""

CLEAN = f"rm -f {SCRIPT} {LOG}"


@lru_cache(maxsize=256)
def write_commands(script: bytes, pieces: int) -> tuple[str, ...]:
    """Commands that write `script` byte for byte: at most `pieces`, never more than it has lines, at least one.

    The script must be UTF-8 without NUL, which a here-document cannot carry.
    """
    lines = script.decode("utf-8").split("\n")
    ends_in_newline = lines[-1] == ""
    if ends_in_newline:
        lines.pop()
    if not lines:
        return (f": > {SCRIPT}",)
    count = min(max(1, pieces), len(lines))
    bounds = [round(len(lines) * k / count) for k in range(count + 1)]
    commands = []
    for k in range(count):
        piece = lines[bounds[k] : bounds[k + 1]]
        end = _delimiter(piece, k)
        commands.append("\n".join([f"cat {'>>' if k else '>'} {SCRIPT} <<'{end}'", *piece, end]))
    if not ends_in_newline:
        commands[-1] += f"\ntruncate -s -1 {SCRIPT}"
    return tuple(commands)


def _delimiter(piece: list[str], number: int) -> str:
    """A word that is no line of the piece."""
    taken = set(piece)
    while (end := f"EOF_{number}") in taken:
        number += 1
    return end
