"""The command `fullchain`. Only typer is imported here: each command imports what it needs when it is called."""

import os
import sys
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from experiments.cli.breakeven import breakeven
from experiments.cli.compare import compare
from experiments.cli.doctor import doctor
from experiments.cli.models import models
from experiments.cli.prices import prices
from experiments.cli.query import query
from experiments.cli.reconcile import reconcile
from experiments.cli.reprice import reprice
from experiments.cli.run import run
from experiments.cli.sandboxes import sandboxes
from experiments.cli.show import show
from experiments.cli.simulate import simulate
from experiments.cli.snapshot import snapshot
from experiments.cli.tasks import tasks
from experiments.cli.topologies import topologies
from experiments.cli.usage import usage
from experiments.cli.whatif import whatif

app = typer.Typer(
    name="fullchain",
    help="Which arrangement of models solves your tasks for the least money, counting the whole chain?",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help in colour would import a Markdown parser
)
app.command()(run)
app.command()(compare)
app.command()(query)
app.command()(show)
app.command()(simulate)
app.command()(whatif)
app.command()(reprice)
app.command()(breakeven)
app.command()(usage)
app.command()(reconcile)
app.command()(snapshot)
app.command()(doctor)
app.add_typer(tasks, name="tasks")
app.add_typer(topologies, name="topologies")
app.add_typer(models, name="models")
app.add_typer(prices, name="prices")
app.add_typer(sandboxes, name="sandboxes")


def main(arguments: list[str] | None = None) -> None:
    """Exits with 0, 1 (a trial or a check failed), 2 (a mistake of the user's, one line) or 130 (interrupted).

    An error that no room raises on purpose is a bug and ends in its traceback.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=arguments or ["--help"], prog_name="fullchain", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "fullchain"
        _refuse(f"{error.format_message()} (see {command} --help)")
    except Exception as error:
        if _of_output(error):
            if isinstance(error, BrokenPipeError):
                # Whoever read has seen enough.
                raise SystemExit(1) from None
            _refuse(f"standard output cannot be written ({error}); send it elsewhere", code=1)
        if not _users(error):
            raise
        _refuse(str(error))
    raise SystemExit(code if isinstance(code, int) else 0)


def _of_output(error: Exception) -> bool:
    """Whether standard output takes no more: it is closed, or a full disk is behind it."""
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    if sys.stdout is None:
        return True
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        # What is still in the buffer would be tried once more at exit, and be told of with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _refuse(message: str, *, code: int = 2) -> NoReturn:
    from experiments.cli.terminal import one_line

    sys.stderr.write(f"fullchain: {one_line(message)}\n")
    raise SystemExit(code)


def _users(error: Exception) -> bool:
    from agents.errors import RegistryError
    from agents.simulated.errors import SimulatorError
    from cost_model.errors import CostError
    from experiments.errors import ExperimentError
    from harbor_tasks.errors import SandboxMissing, TaskError
    from topologies.errors import TopologyError

    of_a_user = (ExperimentError, TaskError, TopologyError, SandboxMissing, RegistryError, SimulatorError)
    return isinstance(error, (*of_a_user, CostError))
