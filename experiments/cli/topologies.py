"""fullchain topologies: the graphs there are, and their drawings."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from topologies import Topology

topologies = typer.Typer(help="Lists and draws topologies: graphs of roles.", rich_markup_mode=None)


class Format(StrEnum):
    mermaid = "mermaid"
    svg = "svg"
    png = "png"


@topologies.command("list")
def list_topologies(
    named: Annotated[
        list[str] | None, typer.Argument(help="Only these: names, or Python files of your own.", metavar="[NAME|FILE]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Prints JSON instead of text.")] = False,
) -> None:
    """Roles with their tools and hand-overs, and parameters with type, default and meaning.

    Exit code 1 when an installed package offers a topology that cannot be used.
    """
    import json

    from experiments.cli.terminal import say
    from topologies import describe

    found, broken = _found(named)
    described = [describe(topology) for topology in found]
    if as_json:
        say(json.dumps(described, indent=1, ensure_ascii=False))
    else:
        for number, each in enumerate(described):
            _say(each, first=number == 0)
    raise typer.Exit(1 if broken else 0)


def _found(named: list[str] | None) -> tuple[list["Topology"], bool]:
    """One broken package hides none of the others, unless it is asked for by name."""
    from experiments.cli.terminal import warn
    from topologies import TopologyError, find, names

    if named:
        return [find(name) for name in named], False
    found, warnings = [], []
    for name in names():
        try:
            found.append(find(name))
        except TopologyError as error:
            warnings.append(str(error))
    warn(warnings)
    return found, bool(warnings)


def _say(described: dict[str, Any], *, first: bool) -> None:
    from textwrap import wrap

    from experiments.cli.terminal import one_line, say, say_table, table

    if not first:
        say()
    say(one_line(f"{described['name']}: {described['summary']} ({described['place']})"))
    say()
    roles = table(("role", "left"), ("tools", "left"), ("hands over by", "left"))
    for role in described["roles"]:
        ways = [f"{each['name']} to {each['to_role'] or 'nobody: it ends'}" for each in role["handovers"]]
        roles.add_row(role["name"], ", ".join(role["tools"]), ", ".join(ways))
    say_table(roles)
    for each in described["parameters"]:
        default = "none" if each["default"] is None else str(each["default"])
        say()
        say(one_line(f"parameter {each['name']}: {each['type']}; default {default}"))
        for line in wrap(one_line(each["meaning"]), 100):
            say(f"  {line}")


@topologies.command("draw")
def draw(
    name: Annotated[
        str, typer.Argument(help="A name of `fullchain topologies list`, or a Python file.", metavar="NAME|FILE")
    ],
    style: Annotated[
        Format | None, typer.Option("--format", help="By default what FILE's ending says, else mermaid.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Written instead of standard output.", metavar="FILE")
    ] = None,
) -> None:
    """The graph: as Mermaid text, or as a picture drawn on this machine."""
    from topologies import find, mermaid

    kind = style or _by_ending(out)
    topology = find(name)
    if kind is Format.mermaid:
        content = (mermaid(topology).rstrip() + "\n").encode()
    else:
        from topologies.drawing import draw as picture

        content = picture(topology, "png" if kind is Format.png else "svg")
    _write(content, kind, out)


def _by_ending(out: Path | None) -> Format:
    if out is None:
        return Format.mermaid
    known = {
        ".svg": Format.svg,
        ".png": Format.png,
        ".mmd": Format.mermaid,
        ".md": Format.mermaid,
        ".txt": Format.mermaid,
    }
    form = known.get(out.suffix.lower())
    if form is None:
        raise typer.BadParameter(f"{out}: its ending says none of {', '.join(known)}; change it, or add --format")
    return form


def _write(content: bytes, kind: Format, out: Path | None) -> None:
    from experiments.cli.terminal import output, say

    if out is not None:
        try:
            out.write_bytes(content)
        except OSError as error:
            raise typer.BadParameter(f"{out} cannot be written ({error.strerror}); name another file") from None
        return
    if kind is not Format.png:
        say(content.decode().rstrip())
        return
    if output().isatty():
        raise typer.BadParameter("a PNG is no text for a terminal; add --out FILE")
    stream = output().buffer
    stream.write(content)
    stream.flush()
