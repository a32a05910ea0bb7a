"""fullchain reconcile: the ledger against what the providers billed."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from experiments.reconciling import Reconciled


def reconcile(
    experiment: Annotated[str, typer.Argument(help="Name of the experiment.", metavar="EXPERIMENT")],
    bill: Annotated[
        list[Path],
        typer.Option("--bill", help="An exported bill, or a folder of them; may be repeated.", metavar="FILE"),
    ],
    database: Database = DEFAULT_DATABASE,
    form: Annotated[
        str | None, typer.Option("--format", help="The kind of bill; left out it is recognised.", metavar="NAME")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Settles nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Prints JSON; money as text, so that no digit is lost.")
    ] = False,
) -> None:
    """Compares a provider's bill with the ledger, by model, day (UTC) and token class.

    A bill that goes call by call (the simulator's, OpenRouter's generations) settles lost calls: their exact dollars
    stand in every view from then on. Exits with 1 when bill and ledger differ, or the bill does not tell all classes.
    """
    from experiments.bills.formats import FORMATS
    from experiments.cli.reconcile_words import say_reconciled
    from experiments.cli.terminal import warn
    from experiments.reconciling import reconcile_bills

    if form is not None and form not in FORMATS:
        raise typer.BadParameter(
            f"{form!r} is none that can be read; one of {', '.join(FORMATS)}", param_hint="--format"
        )
    found = reconcile_bills(database, experiment, bill, form=form, dry=dry_run)
    warn(found.warnings)
    if as_json:
        _say_json(found)
    else:
        say_reconciled(found)
    raise typer.Exit(0 if found.equal and not found.nothing_compared and not found.uncovered else 1)


def _say_json(found: "Reconciled") -> None:
    import json

    from experiments.cli.reconcile_words import MOST_CALLS, verdict
    from experiments.cli.terminal import output

    told: dict[str, Any] = {
        "experiment": found.experiment,
        "simulated": found.simulated,
        "bills": [{"format": bill.format, "files": list(bill.files)} for bill in found.bills],
        "rows": [
            {
                "day": str(row.day),
                "model": row.model,
                "classes": sorted(row.classes),
                "unit": "usd" if row.unit == "usd" else "tokens",
                "ledger_low": _plain(row.low),
                "ledger_high": _plain(row.high),
                "bill": _plain(row.bill),
                "difference": _plain(row.difference),
                "calls": [
                    {"key": call.key, "doubts": list(call.doubts), "low": _plain(call.low), "high": _plain(call.high)}
                    for call in (row.doubtful if row.difference or not row.exact else ())[:MOST_CALLS]
                ],
            }
            for row in found.comparison.rows
        ],
        "calls_that_differ": list(found.findings),
        "settled": [] if found.dry else [each.call for each in found.settled],
        "would_settle": [each.call for each in found.settled] if found.dry else [],
        "settled_before": found.standing,
        "total_before": [_plain(amount) for amount in found.before],
        "total": [_plain(found.low), _plain(found.high)],
        "other_traffic_usd": _plain(
            sum((line.usd for line in found.comparison.other if line.usd is not None), Decimal(0))
        ),
        "other_traffic_lines": len({line.where for line in found.comparison.other}),
        "outside_calls": len(found.comparison.outside),
        "not_compared": [
            {
                "day": str(each.day),
                "model": each.model,
                "classes": sorted(each.classes),
                "unit": "usd" if each.unit == "usd" else "tokens",
                "ledger_low": _plain(each.low),
                "ledger_high": _plain(each.high),
                "compared_in_the_other_unit": each.elsewhere,
            }
            for each in found.comparison.untold
        ],
        "equal": found.equal and not found.nothing_compared and not found.uncovered,
        "verdict": verdict(found).removeprefix("verdict: "),
    }
    output().write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if amount else "0"
