"""fullchain tasks: what there is, and whether it measures anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harbor_tasks.check import CheckResult
    from harbor_tasks.format import Task

tasks = typer.Typer(help="Lists and checks task directories in Harbor's format.", rich_markup_mode=None)

Where = Annotated[str, typer.Argument(help="A task, a directory of tasks, bundled or bundled/<name>.", metavar="PATH")]


@tasks.command("list")
def list_tasks(path: Where = "bundled") -> None:
    """The tasks at PATH. Exit code 1 when one of them is not valid."""
    from experiments.cli.terminal import one_line, say, say_table, table
    from harbor_tasks.format import load_tasks

    found, invalid = load_tasks(task_path(path))
    rows = table(
        ("task", "left"), ("category", "left"), ("agent limit s", "right"), ("needs", "left"), ("about", "left")
    )
    for task in found:
        limit = task.config.agent.timeout_sec
        rows.add_row(
            one_line(task.name),
            one_line(task.category or ""),
            "none" if limit is None else f"{limit:g}",
            one_line(", ".join(task.requires)),
            one_line(_about(task), 70),
        )
    say_table(rows)
    for error in invalid:
        say(f"not valid: {one_line(str(error))}", stderr=True)
    raise typer.Exit(1 if invalid else 0)


@tasks.command("check")
def check_tasks(
    path: Where = "bundled",
    sandbox: Annotated[str, typer.Option(help="auto, docker, bubblewrap or host.")] = "auto",
) -> None:
    """Runs each task: its solution must pass, doing nothing must fail, its known wrong solutions must fail.

    Exit code 1 when a task does not hold, is not valid or is refused by the sandbox.
    """
    import asyncio

    from experiments.cli.terminal import one_line, say
    from harbor_tasks.format import load_tasks

    found, invalid = load_tasks(task_path(path))
    good = asyncio.run(_check(found, sandbox)) and not invalid
    for error in invalid:
        say(f"not valid: {one_line(str(error))}", stderr=True)
    raise typer.Exit(0 if good else 1)


async def _check(found: "list[Task]", sandbox: str) -> bool:
    from experiments.cli.terminal import one_line, say
    from harbor_tasks.check import check
    from harbor_tasks.errors import TaskRefused
    from harbor_tasks.sandbox.backends import choose

    backend = await choose(sandbox, found)
    if backend.warning:
        say(f"warning: {one_line(backend.warning)}", stderr=True)
    good = True
    for task in found:
        try:
            result = await check(task, backend)
        except TaskRefused as refused:
            say(f"refused  {one_line(task.name)}: {one_line(str(refused))}")
            good = False
            continue
        _say(result)
        good = good and result.ok
    return good


def _say(result: "CheckResult") -> None:
    from experiments.cli.terminal import one_line, say

    say(f"{'ok' if result.ok else 'NOT OK':<8} {one_line(result.task)}")
    for leg in result.legs:
        reward = "unscored" if leg.reward is None else f"reward {leg.reward:g}"
        reason = f": {one_line(leg.reason, 200)}" if leg.reason else ""
        state = "as expected" if leg.ok else f"EXPECTED TO {leg.expected.upper()}"
        say(f"         {one_line(leg.name):<24} {reward:<12} {leg.seconds:6.1f} s  {state}{reason}")


def task_path(path: str) -> Path:
    """`bundled`, `bundled/<name>`, or a path."""
    from harbor_tasks.format import bundled_tasks

    shelf, _, name = path.partition("/")
    if shelf == "bundled" and not Path(path).exists():
        return bundled_tasks() / name if name else bundled_tasks()
    return Path(path)


def _about(task: "Task") -> str:
    described = task.config.task.description if task.config.task else ""
    return described or task.instruction.strip().partition("\n")[0]
