"""fullchain simulate: the simulated provider over loopback."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harbor_tasks.format import Task


def simulate(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 8787,
    bill: Annotated[
        Path | None,
        typer.Option(help="Where the provider keeps its own bill, one JSON line a request.", metavar="FILE"),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Tasks that its models can play, beside the bundled ones.", metavar="PATH"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The personas' dice.")] = 0,
) -> None:
    """Serves the simulated models on 127.0.0.1.

    In the wire formats of Anthropic and OpenAI, until Ctrl-C.
    """
    import asyncio

    asyncio.run(_serve(_tasks(tasks or []), port, bill, seed))


async def _serve(tasks: "list[Task]", port: int, bill: Path | None, seed: int) -> None:
    import asyncio

    from agents.simulated.app import simulated_provider
    from agents.simulated.serve import serve
    from experiments.cli.terminal import one_line, say
    from experiments.interrupts import interruptible

    with interruptible(lambda _: None):
        async with serve(simulated_provider(tasks=tasks, seed=seed, bill=bill), port=port) as bound:
            url = f"http://127.0.0.1:{bound}"
            say(f"simulated provider at {url}  ({len(tasks)} tasks; stop it with Ctrl-C)")
            say(f"  fullchain run quickstart --as served --simulator {url}")
            say(f"  Anthropic messages: base_url {url}   OpenAI chat: base_url {url}/v1   any API key")
            if bill:
                say(f"  its bill: {one_line(str(bill))}")
            await asyncio.get_running_loop().create_future()


def _tasks(paths: list[str]) -> "list[Task]":
    from experiments.cli.tasks import task_path
    from harbor_tasks.format import load_tasks

    known: dict[str, Task] = {}
    for path in ["bundled", *paths]:
        found, invalid = load_tasks(task_path(path))
        if invalid:
            raise invalid[0]
        known |= {task.name: task for task in found}
    return list(known.values())
