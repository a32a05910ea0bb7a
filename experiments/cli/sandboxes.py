"""fullchain sandboxes: what runs hold in the Docker engine, and what runs that were killed have left there."""

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from harbor_tasks.sandbox.docker.leftovers import Removed, Thing

sandboxes = typer.Typer(help="Lists and removes what runs have left in the Docker engine.", rich_markup_mode=None)

_Answer = TypeVar("_Answer")
_WORDS = {
    "in use": "in use by a process that runs here",
    "leftover": "left by a process that has ended",
    "elsewhere": "of another machine",
}
_UNREADABLE = "its label cannot be read"


@sandboxes.command("list")
def list_sandboxes() -> None:
    """Every container, network and volume of ours in the engine that answers, and who holds it."""
    from experiments.cli.terminal import one_line, say, say_table, table

    described, found = _asked(_found())
    if not found:
        say(f"nothing of fullchain's in {one_line(described)}")
        return
    rows = table(("kind", "left"), ("name", "left"), ("task", "left"), ("owner", "left"), ("standing", "left"))
    for thing in found:
        owner = f"{thing.owner.host} {thing.owner.pid}" if thing.owner else ""
        standing = _WORDS[thing.standing] if thing.owner else _UNREADABLE
        rows.add_row(thing.kind, one_line(thing.name), one_line(thing.task, 40), owner, standing)
    say_table(rows)


@sandboxes.command("reap")
def reap_sandboxes(
    all_hosts: Annotated[
        bool,
        typer.Option("--all-hosts", help="Also what other machines hold in this engine, in use there or not; asks."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Does not ask.")] = False,
) -> None:
    """Removes what runs that were killed have left in the engine. Nothing of a run that lives here is touched.

    Exit code 1 when something could not be removed, or the answer was no.
    """
    from experiments.cli.terminal import one_line, say
    from harbor_tasks.sandbox.docker.leftovers import counted

    if all_hosts and not yes and not _agreed():
        say("nothing was removed", stderr=True)
        raise typer.Exit(1)
    removed, others = _asked(_reap(all_hosts))
    if removed.things:
        say(f"removed {counted(removed.things)}")
    elif not removed.failed:
        say("nothing to reap")
    if others:
        say(f"left alone: {counted(others)} of other machines (--all-hosts removes them too)")
    for line in removed.failed:
        say(f"cannot be removed: {one_line(line)}", stderr=True)
    raise typer.Exit(1 if removed.failed else 0)


def _agreed() -> bool:
    from experiments.cli.question import answer
    from experiments.cli.terminal import one_line, say
    from harbor_tasks.sandbox.docker.leftovers import counted

    described, found = _asked(_found())
    others = [thing for thing in found if thing.standing == "elsewhere"]
    if not others:
        return True
    hosts = sorted({thing.owner.host if thing.owner else f"({_UNREADABLE})" for thing in others})
    say(f"{one_line(described)} holds {counted(others)} of other machines: {', '.join(hosts)}", stderr=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("there is no terminal to ask on; add --yes to remove them", param_hint="--all-hosts")
    return answer("their runs may still go on; remove them? [y/N] ").strip().lower() in ("y", "yes")


async def _found() -> "tuple[str, list[Thing]]":
    from harbor_tasks.sandbox.docker.engine import find
    from harbor_tasks.sandbox.docker.leftovers import things

    engine = await find()
    return engine.described, await things(engine)


async def _reap(all_hosts: bool) -> "tuple[Removed, list[Thing]]":
    """What was removed, and what others still hold."""
    from harbor_tasks.sandbox.docker.engine import find
    from harbor_tasks.sandbox.docker.leftovers import reap, things

    engine = await find()
    removed = await reap(engine, all_hosts=all_hosts)
    return removed, [thing for thing in await things(engine) if thing.standing == "elsewhere" and not all_hosts]


def _asked(asking: "Coroutine[Any, Any, _Answer]") -> _Answer:
    """Ends the command, with one line, when the engine refuses or goes away."""
    import asyncio

    from experiments.cli.terminal import one_line, say
    from harbor_tasks.errors import SandboxBroken

    try:
        return asyncio.run(asking)
    except SandboxBroken as error:
        say(f"fullchain: {one_line(str(error))}", stderr=True)
        raise typer.Exit(1) from None
