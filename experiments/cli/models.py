"""fullchain models: the registry's entries."""

from pathlib import Path
from typing import Annotated

import typer

models = typer.Typer(help="Lists the models that a spec can name.", rich_markup_mode=None)


@models.command("list")
def list_models(
    extra: Annotated[
        list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
) -> None:
    """Name, provider, protocol, price, cache policy and the variable that must hold the key."""
    from agents.registry import load_models
    from experiments.cli.terminal import console, one_line, table

    rows = table(
        ("model", "left"), ("provider", "left"), ("protocol", "left"), ("asked for as", "left"), ("price", "left"),
        ("cache", "left"), ("key variable", "left"),
    )  # fmt: skip
    for name, entry in sorted(load_models(extra or []).items()):
        cells = (
            name,
            "simulated" if entry.simulated else entry.provider,
            entry.protocol,
            entry.model,
            "self-hosted, $0" if entry.self_hosted else entry.price or "",
            entry.cache,
            entry.key_variable or "none",
        )
        rows.add_row(*(one_line(cell) for cell in cells))
    console().print(rows)
