"""What `fullchain reconcile` says of a comparison."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.bills.bill_line import BillLine, Classes
    from experiments.bills.comparison import Row, Untold
    from experiments.bills.ledger_call import LedgerCall
    from experiments.reconciling import Reconciled

MOST_ROWS = 200
"""Rows of the table: of a longer one those that are equal are left out."""

MOST_CALLS = 5
"""Calls told for a model's day."""

MOST_FINDINGS = 5

MOST_UNTOLD = 10


def say_reconciled(found: "Reconciled") -> None:
    from experiments.cli.terminal import one_line, say

    simulated = "  [simulated]" if found.simulated else ""
    files = sum(len(bill.files) for bill in found.bills)
    kinds = ", ".join(bill.format for bill in found.bills)
    say(f"experiment {one_line(found.experiment)} against {_many(files, 'file')} ({kinds}){simulated}")
    for part in (_settling, _table, _findings, _doubts, _beside, _prices):
        for line in part(found):
            say(line)
    say(verdict(found))


def _settling(found: "Reconciled") -> Iterable[str]:
    low, high = found.before
    if found.settled:
        how = ", ".join(f"{number} {outcome}" for outcome, number in sorted(found.outcomes.items()))
        never = sum(not each.arrived for each in found.settled)
        what = f"{_many(len(found.settled), 'call')} ({how}{f'; {never} of them never arrived' if never else ''})"
        if found.dry:
            yield f"would settle {what}; the experiment's total stays {_range(low, high)} (dry run)"
        else:
            now = _range(found.low, found.high)
            yield f"settled {what}: the experiment's total was {_range(low, high)} and is {now}"
            yield f"  its low rose by {_usd(found.low - low)}, its high fell by {_usd(high - found.high)}"
    if found.standing:
        yield f"{_many(found.standing, 'call')} had been settled by these bills before: nothing changed"


def _table(found: "Reconciled") -> list[str]:
    from experiments.cli.terminal import one_line, say, say_table, table

    rows = found.comparison.rows
    equal = [row for row in rows if row.exact and not row.difference]
    shown = rows if len(rows) <= MOST_ROWS else [row for row in rows if row not in equal][:MOST_ROWS]
    if not shown:
        return [f"all {len(rows)} rows are equal"] if rows else []
    made = table(
        ("day", "left"), ("model", "left"), ("class", "left"), ("ledger", "right"), ("bill", "right"),
        ("difference", "right"),
    )  # fmt: skip
    for row in shown:
        made.add_row(
            str(row.day), one_line(row.model, 60), classes_name(row.classes, row.unit), _ledger(row),
            _figure(row, row.bill), _difference(row),
        )  # fmt: skip
    say_table(made)
    say()
    left = len(rows) - len(shown)
    return [f"and {left} more rows, {len(equal)} of the {len(rows)} are equal"] if left else []


def classes_name(classes: "Classes", unit: str) -> str:
    """What is compared, in the words of the ledger's classes."""
    from experiments.bills.bill_line import EVERYTHING, PROMPT, UNCACHED, WRITES

    known = {EVERYTHING: "all", PROMPT: "prompt", UNCACHED: "input + writes", WRITES: "cache writes"}
    name = known.get(classes) or " + ".join(sorted(classes))
    return f"{name} $" if unit == "usd" else name


def _ledger(row: "Row") -> str:
    if row.exact:
        return _figure(row, row.low)
    return f"{_figure(row, row.low)} to {_figure(row, row.high)}"


def _figure(row: "Row", value: Decimal) -> str:
    return f"{value.normalize():f}" if row.unit == "usd" else f"{int(value):,}"


def _difference(row: "Row") -> str:
    if not row.difference:
        return "=" if row.exact else "in the range"
    return f"{'+' if row.difference > 0 else '-'}{_figure(row, abs(row.difference))}"


def _findings(found: "Reconciled") -> Iterable[str]:
    from experiments.cli.terminal import one_line

    for finding in found.findings[:MOST_FINDINGS]:
        yield f"differs: {one_line(finding, 400)}"
    if len(found.findings) > MOST_FINDINGS:
        yield f"and {len(found.findings) - MOST_FINDINGS} more calls that differ"


def _doubts(found: "Reconciled") -> Iterable[str]:
    """For each model's day that is not equal, the calls that may explain it, and whether they can."""
    from experiments.cli.terminal import one_line

    cells: dict[tuple[str, object], list[Row]] = {}
    for row in found.comparison.rows:
        if row.difference or not row.exact:
            cells.setdefault((row.model, row.day), []).append(row)
    for (model, day), rows in cells.items():
        doubtful = rows[0].doubtful
        head = f"{one_line(model, 60)} on {day}"
        if not doubtful:
            yield f"{head}: none of its {_many(len(rows[0].calls), 'call')} broke off, was lost, refused or tried again"
        else:
            covered = "" if any(row.difference for row in rows) else ", and the ranges cover it"
            yield f"{head}: {_many(len(doubtful), 'call')} of {len(rows[0].calls)} may explain it{covered}:"
        for call in doubtful[:MOST_CALLS]:
            yield f"  {one_line(call.key, 120)}: {', '.join(call.doubts)}; {_range(call.low, call.high)}"
        if len(doubtful) > MOST_CALLS:
            yield f"  and {len(doubtful) - MOST_CALLS} more"
        for row in rows:
            if row.difference:
                yield f"  {classes_name(row.classes, row.unit)}: {_coverage(row, doubtful, found)}"


def _coverage(row: "Row", doubtful: "Sequence[LedgerCall]", found: "Reconciled") -> str:
    far = (
        f"${_figure(row, abs(row.difference))}" if row.unit == "usd" else f"{_figure(row, abs(row.difference))} tokens"
    )
    beyond = any(call.cost_usd is None for call in doubtful)
    words = [
        f"the bill has {far} {'more' if row.difference > 0 else 'less'}{' than the ranges reach' if beyond else ''}"
    ]
    if row.difference > 0:
        free = sum(call.outcome == "refused" or not call.high for call in doubtful)
        words.append(
            f"{_many(free, 'call')} that the ledger books at nothing could cover it, had the provider billed them"
            if free
            else "these calls cannot cover it: traffic that is not of this experiment, or another price, can"
        )
    else:
        own = sum((_most(call, row) for call in doubtful), Decimal(0))
        can = "could" if own >= -row.difference else "could not"
        words.append(f"these calls {can} cover it, had the provider not billed them")
    twin = _other_side(row, found)
    if twin is not None and any(len(call.days) > 1 for call in doubtful):
        words.append(f"{twin.day} differs the other way: a call over midnight may stand on the other day")
    return "; ".join(words)


def _most(call: "LedgerCall", row: "Row") -> Decimal:
    return call.usd(row.classes, call.pieces).high if row.unit == "usd" else call.units(row.classes, call.pieces).high


def _other_side(row: "Row", found: "Reconciled") -> "Row | None":
    return next(
        (
            other
            for other in found.comparison.rows
            if (other.model, other.classes, other.unit) == (row.model, row.classes, row.unit)
            and abs((other.day - row.day).days) == 1
            and other.difference * row.difference < 0
        ),
        None,
    )


def _beside(found: "Reconciled") -> Iterable[str]:
    from experiments.cli.terminal import one_line

    other, outside = found.comparison.other, found.comparison.outside
    if other:
        yield _other(other)
    for each in found.comparison.untold[:MOST_UNTOLD]:
        amount = f"{_untold(each, each.low)}{'' if each.low == each.high else f' to {_untold(each, each.high)}'}"
        why = "the bill tells no such class" + (", its other unit is compared" if each.elsewhere else "")
        name = classes_name(each.classes, each.unit)
        yield f"not compared: {name} of {one_line(each.model, 60)} on {each.day}, {amount} in the ledger: {why}"
    if len(found.comparison.untold) > MOST_UNTOLD:
        yield f"and {len(found.comparison.untold) - MOST_UNTOLD} more classes that are not compared"
    if outside:
        low, high = sum((call.low for call in outside), Decimal(0)), sum((call.high for call in outside), Decimal(0))
        calls = _many(len(outside), "call")
        yield f"not on these bills' days, models or runs: {calls} of the ledger, {_range(low, high)}"


def _untold(each: "Untold", value: Decimal) -> str:
    return _usd(value) if each.unit == "usd" else f"{int(value):,}"


def _other(lines: "Sequence[BillLine]") -> str:
    nameless = sum(not line.models for line in lines)
    usd = sum((line.usd for line in lines if line.usd is not None), Decimal(0))
    units = sum(line.units or 0 for line in lines)
    amounts = [f"${usd.normalize():f}"] if any(line.usd is not None for line in lines) else []
    amounts += [f"{units:,} tokens"] if units else []
    places = _many(len({line.where for line in lines}), "line")
    hint = "; a line without a model is compared with nothing: export grouped by model" if nameless else ""
    return f"other traffic: {' and '.join(amounts) or 'nothing'} in {places}, no call of this experiment{hint}"


def _prices(found: "Reconciled") -> Iterable[str]:
    if any(not each.usd_counts and each.arrived for each in found.settled):
        yield "the experiment's prices are not the simulator's: settled tokens are priced as the experiment's others"
    elif found.priced_otherwise and not any(row.unit == "usd" for row in found.comparison.rows):
        yield "the experiment's prices are not the simulator's: tokens are compared, dollars are not"


def verdict(found: "Reconciled") -> str:
    """The last line: equal, within what is not known, or different; and what it does not cover."""
    untold = found.comparison.untold
    if not untold:
        return _verdict(found)
    names = sorted({classes_name(each.classes, each.unit) for each in untold})
    return f"{_verdict(found)}; not compared: {', '.join(names)}"


def _verdict(found: "Reconciled") -> str:
    rows = found.comparison.rows
    if found.nothing_compared:
        return (
            "verdict: nothing was compared: these bills have no line of a model and day that the experiment called on"
        )
    usd = [row for row in rows if row.unit == "usd"]
    units = [row for row in rows if row.unit == "units"]
    differing = found.comparison.differing
    if not found.equal:
        parts = []
        dollars, tokens = (
            [row for row in differing if row.unit == "usd"],
            [row for row in differing if row.unit == "units"],
        )
        if dollars:
            parts.append(f"${_net(dollars).normalize():f}")
        if tokens:
            parts.append(f"{int(_net(tokens)):,} tokens")
        places = f"{len(differing)} of {_many(len(rows), 'row')}" if differing else ""
        calls = _many(len(found.findings), "call") if found.findings else ""
        if not parts:
            return f"verdict: differs in {calls}, though the sums do not"
        return f"verdict: differs by {' and '.join(parts)} ({', '.join(filter(None, (places, calls)))})"
    amount = f"${sum((row.bill for row in usd), Decimal(0)).normalize():f}" if usd else ""
    counted = f"{int(sum(row.bill for row in units)):,} tokens" if units else ""
    what = " and ".join(filter(None, (amount, counted)))
    if all(row.exact for row in rows):
        compared = {call.key for row in rows for call in row.calls}
        equal = "what the bills tell is equal" if found.comparison.untold else "= to the last digit"
        return f"verdict: {equal} ({what}, {_many(len(compared), 'call')})"
    return f"verdict: within the ranges of {_many(found.unknown, 'unknown call')} (the bill: {what})"


def _net(rows: "Iterable[Row]") -> Decimal:
    """Without their signs: what is too much on one day does not make up for what is missing on another."""
    return sum((abs(row.difference) for row in rows), Decimal(0))


def _range(low: Decimal, high: Decimal) -> str:
    return _usd(low) if low == high else f"{_usd(low)} to {_usd(high)}"


def _usd(amount: Decimal) -> str:
    return f"${amount.normalize():f}" if amount else "$0"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
