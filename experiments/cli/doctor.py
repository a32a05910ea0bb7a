"""fullchain doctor: what this machine has of what runs need, and how to mend the rest."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database


def doctor(
    db: Database = DEFAULT_DATABASE,
    extra: Annotated[
        list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Asks no model's address.")] = False,
) -> None:
    """Looks at packages, sandboxes, disks, keys, the models' addresses and the clock: a line each, with the mend.

    Costs nothing, and tells no key. Exit code 1 when something is off.
    """
    import asyncio

    from agents.registry import load_models
    from experiments.cli.terminal import one_line, say
    from experiments.doctor import examine

    models = load_models(extra or [])

    async def look() -> int:
        off = 0
        async for line in examine(models, db, offline=offline):
            off += line.standing == "off"
            standing = "OFF" if line.standing == "off" else line.standing
            say(f"{standing:4}  {line.what:15}  {one_line(line.told)}")
        return off

    off = asyncio.run(look())
    say("nothing is off" if not off else f"{off} {'thing is' if off == 1 else 'things are'} off")
    raise typer.Exit(1 if off else 0)
