"""fullchain run: everything that a spec plans and that is not in the database yet."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from experiments.runner import Report


def run(
    spec: Annotated[
        str, typer.Argument(help="A spec file, or the name of a shipped spec: quickstart.", metavar="SPEC")
    ],
    database: Database = DEFAULT_DATABASE,
    name: Annotated[
        str | None, typer.Option("--as", help="Runs the spec as a new experiment of this name.", metavar="NAME")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Trials at a time; wins over the spec.")
    ] = None,
    sandbox: Annotated[str | None, typer.Option(help="auto, bubblewrap or host; wins over the spec.")] = None,
    simulator: Annotated[
        str | None,
        typer.Option(help="A served simulator (`fullchain simulate`) instead of one in process.", metavar="URL"),
    ] = None,
    models: Annotated[
        list[Path] | None, typer.Option(help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
    allow_host_network: Annotated[
        bool, typer.Option("--allow-host-network", help="Gives tasks that ask for it the host's network; is recorded.")
    ] = False,
) -> None:
    """Runs what is not finished of SPEC, then compares its arms.

    Exit code 1 when a trial broke or the simulator's bill differs from the ledger, 130 after Ctrl-C.
    """
    import asyncio

    from experiments.cli.compare import print_comparison
    from experiments.cli.progress import watching
    from experiments.cli.terminal import say
    from experiments.experiment import find_spec, load

    experiment = load(
        find_spec(spec), name=name, sandbox=sandbox, concurrency=concurrency, models=tuple(models or ()),
        simulator_url=simulator,
    )  # fmt: skip
    from experiments.runner import run_experiment

    with watching() as watch:
        report = asyncio.run(
            run_experiment(
                experiment, database, watch=watch, simulator_url=simulator, allow_host_network=allow_host_network
            )
        )
    if report.interrupted:
        say(f"stopped; run the same command again to go on with the rest ({report.left} trials left)", stderr=True)
        raise typer.Exit(128 + report.interrupted)
    if report.nothing_to_do:
        say(f"nothing left to do: all {report.planned} trials of {experiment.name!r} are finished in {database}.")
        say(f"`fullchain run {spec} --as NAME` starts a fresh experiment.")
    print_comparison(database, experiment.name)
    _end(report)


def _end(report: "Report") -> None:
    from experiments.cli.terminal import say

    if report.bill:
        say(report.bill.sentence, stderr=not report.bill.equal)
    if report.broken:
        say(f"{report.broken} trials broke and have no score; run again to repeat them", stderr=True)
    raise typer.Exit(1 if report.broken or (report.bill and not report.bill.equal) else 0)
