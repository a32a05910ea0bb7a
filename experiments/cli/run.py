"""fullchain run: everything that a spec plans and that is not in the database yet."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from experiments.runner import Report


PROBE_S = 3.0
"""How long a served simulator may take to answer before the first trial."""


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
    from experiments.cli.terminal import say

    try:
        _run(spec, database, name, concurrency, sandbox, simulator, tuple(models or ()), allow_host_network)
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
) -> None:
    import asyncio

    from experiments.cli.compare import print_comparison
    from experiments.cli.progress import watching
    from experiments.cli.terminal import say
    from experiments.experiment import find_spec, load

    experiment = load(
        find_spec(spec), name=name, sandbox=sandbox, concurrency=concurrency, models=models,
        simulator_url=simulator,
    )  # fmt: skip
    if simulator is not None:
        _reach(simulator)
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


def _reach(simulator: str) -> None:
    """Raises SpecError when no simulator answers there: every trial would break."""
    import http.client
    from urllib.parse import urlsplit

    from experiments.errors import SpecError

    at = urlsplit(simulator)
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    connection = kind(at.hostname or "", at.port, timeout=PROBE_S)
    try:
        connection.request("GET", f"{at.path.rstrip('/')}/v1/models", headers={"Authorization": "Bearer probe"})
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SpecError(
            f"--simulator: {simulator} does not answer ({reason}); start one with `fullchain simulate`"
        ) from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise SpecError(
            f"--simulator: {simulator} is no simulator (status {status} for /v1/models); "
            "give the address that `fullchain simulate` prints"
        )


def _end(report: "Report") -> None:
    from experiments.cli.terminal import say

    if report.bill:
        say(report.bill.sentence, stderr=not report.bill.equal)
    if report.broken:
        say(f"{report.broken} trials broke and have no score; run again to repeat them", stderr=True)
    raise typer.Exit(1 if report.broken or (report.bill and not report.bill.equal) else 0)
