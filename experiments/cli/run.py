"""fullchain run: everything that a spec plans and that is not in the database yet."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from experiments.runner import Report


def run(
    spec: Annotated[
        str,
        typer.Argument(help="A spec file, or the name of a shipped one: quickstart, levers, ...", metavar="SPEC"),
    ],
    database: Database = DEFAULT_DATABASE,
    name: Annotated[
        str | None, typer.Option("--as", help="Runs the spec as a new experiment of this name.", metavar="NAME")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Trials at a time; wins over the spec.")
    ] = None,
    sandbox: Annotated[str | None, typer.Option(help="auto, docker, bubblewrap or host; wins over the spec.")] = None,
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
    budget: Annotated[
        str | None,
        typer.Option(help="What the experiment may spend over all its runs; wins over the spec.", metavar="USD"),
    ] = None,
    no_budget: Annotated[bool, typer.Option("--no-budget", help="Spends without a limit.")] = False,
    pilot: Annotated[
        bool, typer.Option("--pilot", help="Runs one planned trial an arm, on one task, and estimates the rest.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Starts real models without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tells what would be run and what it may cost; runs and writes nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON.")] = False,
    publish: Annotated[
        Path | None,
        typer.Option(help="Renews a read copy of the database there every few seconds.", metavar="FILE"),
    ] = None,
) -> None:
    """Runs what is not finished of SPEC, then compares its arms.

    Exit code 1 when a trial broke, the budget is used up or the simulator's bill differs from the ledger, 130 after
    Ctrl-C.
    """
    from experiments.cli.terminal import say

    try:
        _run(
            spec, database, name, concurrency, sandbox, simulator, tuple(models or ()), allow_host_network,
            budget, no_budget, pilot, yes, dry_run, as_json, publish,
        )  # fmt: skip
    except KeyboardInterrupt:
        # While the trials run a signal is theirs; this is before them, or after.
        say("stopped; run the same command again to go on with what is left", stderr=True)
        raise typer.Exit(130) from None


def _run(
    spec: str,
    database: Path,
    name: str | None,
    concurrency: int | None,
    sandbox: str | None,
    simulator: str | None,
    models: tuple[Path, ...],
    allow_host_network: bool,
    budget: str | None,
    no_budget: bool,
    pilot: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    publish: Path | None,
) -> None:
    import asyncio

    from experiments.cli.compare import print_comparison
    from experiments.cli.forecast import print_forecast
    from experiments.cli.progress import watching
    from experiments.cli.served import reach
    from experiments.cli.spending import agreed, out_of_money, print_pilot
    from experiments.cli.terminal import say
    from experiments.errors import SpecError
    from experiments.loading import find_spec, load

    if as_json and not dry_run:
        raise SpecError("--json: only --dry-run has it; ask for a run's figures with `fullchain query --format json`")
    experiment = load(
        find_spec(spec), name=name, sandbox=sandbox, concurrency=concurrency, models=models,
        simulator_url=simulator, budget_usd=budget, no_budget=no_budget, to_run=not dry_run,
    )  # fmt: skip
    if dry_run:
        print_forecast(experiment, database, pilot=pilot, served=simulator is not None, as_json=as_json)
        return
    if simulator is not None:
        reach(simulator)
    if not agreed(experiment, database, pilot=pilot, yes=yes):
        say("nothing was started and nothing spent", stderr=True)
        raise typer.Exit(1)
    from experiments.runner import run_experiment

    with watching() as watch:
        report = asyncio.run(
            run_experiment(
                experiment, database, watch=watch, simulator_url=simulator, allow_host_network=allow_host_network,
                pilot=pilot, publish=publish,
            )
        )  # fmt: skip
    if report.interrupted:
        say(f"stopped; run the same command again to go on with the rest ({report.left} trials left)", stderr=True)
        raise typer.Exit(128 + report.interrupted)
    if report.nothing_to_do:
        say(f"nothing left to do: all {report.planned} trials of {experiment.name!r} are finished in {database}.")
        say(f"`fullchain run {spec} --as NAME` starts a fresh experiment.")
    if pilot:
        print_pilot(experiment, database, _again(spec, database, name, budget, no_budget))
    else:
        print_comparison(database, experiment.name)
    if report.out_of_money:
        say(out_of_money(report, experiment), stderr=True)
    _end(report)


def _again(spec: str, database: Path, name: str | None, budget: str | None, no_budget: bool) -> list[str]:
    """The command that runs the rest; what else was given on the command line is the caller's to repeat."""
    where = [] if database == DEFAULT_DATABASE else ["--db", str(database)]
    money = ["--no-budget"] if no_budget else ["--budget", budget] if budget else []
    return ["fullchain", "run", spec, *where, *(["--as", name] if name else []), *money]


def _end(report: "Report") -> None:
    from experiments.cli.terminal import say

    if report.bill:
        say(report.bill.sentence, stderr=not report.bill.equal)
    if report.broken:
        say(f"{report.broken} trials broke and have no score; run again to repeat them", stderr=True)
    failed = report.broken or report.out_of_money or (report.bill and not report.bill.equal)
    raise typer.Exit(1 if failed else 0)
