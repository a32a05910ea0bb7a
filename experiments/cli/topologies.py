"""fullchain topologies: the graphs there are, and their drawings."""

from typing import Annotated

import typer

topologies = typer.Typer(help="Lists and draws topologies: graphs of roles.", rich_markup_mode=None)


@topologies.command("list")
def list_topologies() -> None:
    """Name, roles, parameters with their defaults, and what each is."""
    from experiments.cli.terminal import say_table, table
    from topologies import find, names

    rows = table(("topology", "left"), ("roles", "left"), ("parameters", "left"), ("about", "left"))
    for name in names():
        topology = find(name)
        parameters = ", ".join(f"{field}={info.default}" for field, info in topology.parameters.model_fields.items())
        rows.add_row(name, ", ".join(role.name for role in topology.roles), parameters, topology.summary)
    say_table(rows)


@topologies.command("draw")
def draw(name: Annotated[str, typer.Argument(help="A name of `fullchain topologies list`.", metavar="NAME")]) -> None:
    """The graph as Mermaid text."""
    from experiments.cli.terminal import say
    from topologies import find, mermaid

    say(mermaid(find(name)).rstrip())
