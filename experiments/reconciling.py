"""Bills against the ledger of an experiment: compared line by line, and calls that nobody knew the cost of settled."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from cost_model.prices import PriceBook
from experiments.bill import Billed, Booked, PricedAlike, reconcile
from experiments.bills import simulator
from experiments.bills.bill_line import EVERYTHING, Bill, BillLine, CallLine
from experiments.bills.comparison import Comparison, compare
from experiments.bills.contradictions import contradiction
from experiments.bills.formats import read_bills
from experiments.bills.ledger_call import LedgerCall
from experiments.bills.model_names import ModelNames
from experiments.errors import BillError
from experiments.run_lock import run_lock
from experiments.store.bill_ledger import BillLedger, attempt_of, bill_ledger, over
from experiments.store.facts import load_facts
from experiments.store.journal import journal_folder
from experiments.store.reader import Reader
from experiments.store.settlements import Settlement
from experiments.store.store import Store


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How bills and ledger stand to each other, after settling where that was done.

    `settled` are the calls whose cost was not known before, `standing` those that these bills had settled earlier.
    `low` to `high` is the ledger's total over all calls of the experiment, `before` the same before settling.
    `findings` are calls of a bill that goes call by call which differ, a line each. `dry`: nothing was stored.
    `priced_otherwise`: calls on the simulator's bill have other prices in the experiment.
    """

    experiment: str
    simulated: bool
    bills: tuple[Bill, ...]
    comparison: Comparison
    findings: tuple[str, ...]
    settled: tuple[Settlement, ...]
    standing: int
    outcomes: Mapping[str, int]
    before: tuple[Decimal, Decimal]
    low: Decimal
    high: Decimal
    dry: bool
    priced_otherwise: bool
    warnings: tuple[str, ...]

    @property
    def unknown(self) -> int:
        """Compared calls that are known as a range."""
        keys = {call.key for row in self.comparison.rows for call in row.calls if call.cost_usd is None}
        return len(keys)

    @property
    def equal(self) -> bool:
        return not self.findings and not self.comparison.differing

    @property
    def uncovered(self) -> bool:
        """Whether of the models' days that are compared something is compared neither in tokens nor in dollars."""
        return any(not each.elsewhere for each in self.comparison.untold)

    @property
    def nothing_compared(self) -> bool:
        return not self.comparison.rows and not self.findings


def reconcile_bills(
    database: Path, experiment: str, paths: Sequence[Path], *, form: str | None = None, dry: bool = False
) -> Reconciled:
    """Compares the bills with the ledger, and settles calls unless `dry` or the bills do not go call by call.

    Raises BillError, UnknownExperiment, SettlementRefused, StoreError; StoreLocked while a run of this database goes on
    and something is to be settled.
    """
    bills = read_bills(paths, form)
    book = PriceBook()
    settling = not dry and any(bill.calls or bill.complete for bill in bills)
    with ExitStack() as stack:
        warnings: list[str] = []
        if settling:
            with Reader(database) as reader:
                # An experiment that is not there must not leave a lock file behind.
                load_facts(reader.connection, experiment, lambda: book)
            stack.enter_context(_no_run(database, experiment))
            warnings += Store(database).recover().left
        before = _ledger(database, experiment, book)
        matched = [_Matched(bill, before) for bill in bills]
        told = [settlement for each in matched for settlement in each.settlements]
        new = [each for each in told if before.calls[each.call].call.settled_by is None]
        after = before
        if settling:
            Store(database).settle(experiment, told)
            after = _ledger(database, experiment, book) if new else before
            matched = [_Matched(bill, after) for bill in bills]
    outcomes: dict[str, int] = {}
    for each in new:
        outcome = before.calls[each.call].call.outcome or "in flight"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return Reconciled(
        experiment=experiment,
        simulated=after.simulated,
        bills=tuple(bills),
        comparison=_compared(matched, after),
        findings=tuple(finding for each in matched for finding in each.findings),
        settled=tuple(new),
        standing=len(told) - len(new),
        outcomes=outcomes,
        before=(before.low, before.high),
        low=after.low,
        high=after.high,
        dry=dry,
        priced_otherwise=any(each.priced_otherwise for each in matched),
        warnings=(*warnings, *after.warnings, *(line for each in matched for line in each.warnings)),
    )


def _ledger(database: Path, experiment: str, book: PriceBook) -> BillLedger:
    with Reader(database) as reader:
        return bill_ledger(reader, experiment, book)


@contextmanager
def _no_run(database: Path, experiment: str) -> Iterator[None]:
    """Nobody runs an experiment of this database meanwhile. Raises StoreLocked."""
    folder = journal_folder(database)
    others = {path.stem for path in folder.glob("*.lock")} if folder.is_dir() else set()
    with ExitStack() as stack:
        for name in sorted(others | {experiment}):
            stack.enter_context(run_lock(database, name))
        yield


def _compared(matched: "Sequence[_Matched]", ledger: BillLedger) -> Comparison:
    """The bills that are whole are held against the calls of the attempts that they cover, the others against all."""
    calls = [each.call for each in ledger.calls.values()]
    parts = [compare([c for c in calls if c.attempt in each.attempts], [each.bill]) for each in matched if each.whole]
    parts.append(compare(calls, [each.bill for each in matched if not each.whole]))
    spoken = {call.key for part in parts for row in part.rows for call in row.calls}
    return Comparison(
        rows=tuple(row for part in parts for row in part.rows),
        other=tuple(line for part in parts for line in part.other),
        outside=tuple(call for call in calls if call.key not in spoken and call.high),
        # A whole bill is held against the ledger call by call, in all classes.
        untold=parts[-1].untold,
    )


class _Matched:
    """A bill with its call lines matched to the ledger's calls, and what follows from each."""

    def __init__(self, bill: Bill, ledger: BillLedger) -> None:
        self.whole = bill.complete
        self.findings: tuple[str, ...] = ()
        self.settlements: list[Settlement] = []
        self._ledger = ledger
        lines, repeated = _once_each(bill.calls)
        self.warnings = [
            *bill.warnings,
            *([f"{repeated} lines of calls stand twice; counted once"] if repeated else []),
        ]
        self._alike = PricedAlike() if bill.format == simulator.NAME else None
        keys = self._keys(bill, lines)
        self.attempts = {attempt_of(key) for key in keys.values() if key.split("/")[0] in ledger.trials}
        known = {key: line for line in lines if (key := keys.get(line.reference)) in ledger.calls}
        known = {key: line for key, line in known.items() if ledger.calls[key].call.outcome is not None}
        figures = [figure for line in lines for figure in self._figures(line, keys.get(line.reference), known)]
        self.bill = replace(bill, lines=(*bill.lines, *figures))
        self.priced_otherwise = any(not self._counts(ledger.calls[key].call) for key in known)
        self._untrue = self._contradictions(known)
        self._settle(known)
        if self.whole:
            ours = {key: line for line in lines if attempt_of(key := keys[line.reference]) in self.attempts}
            self._hold_against(ours)

    def _keys(self, bill: Bill, lines: Sequence[CallLine]) -> dict[str, str]:
        """The ledger's key by the bill's name of a call."""
        if bill.format == simulator.NAME:
            return {line.reference: line.reference for line in lines}
        by_id: dict[str, set[str]] = {}
        for key, each in self._ledger.calls.items():
            for name in each.call.ids:
                by_id.setdefault(name, set()).add(key)
        return {
            line.reference: next(iter(keys)) for line in lines if len(keys := by_id.get(line.reference, set())) == 1
        }

    def _figures(self, line: CallLine, key: str | None, known: Mapping[str, CallLine]) -> Iterator[BillLine]:
        call = key if key in known else None
        # A bill that names calls by our keys leaves no doubt; a provider's id of a call that was lost nobody knows.
        foreign, day = self.whole and call is None, line.at.date()
        for classes, units in line.units.items():
            yield BillLine(day, line.models, classes, line.where, units=units, call=call, foreign=foreign)
        # At other prices than the experiment's only tokens can be compared.
        if call is None or self._counts(self._ledger.calls[call].call):
            yield BillLine(day, line.models, EVERYTHING, line.where, usd=line.usd, call=call, foreign=foreign)

    def _counts(self, call: LedgerCall) -> bool:
        """Whether the bill's dollars are made at the experiment's prices."""
        if self._alike is None:
            return True
        return self._alike(call.wire_model, self._ledger.facts.card(call.model, call.requested_at))

    def _settle(self, known: Mapping[str, CallLine]) -> None:
        for key, line in known.items():
            call = self._ledger.calls[key].call
            counts = self._counts(call)
            if key in self._untrue or (call.settled_by is None and call.cost_usd is not None):
                continue
            tokens = line.tokens if line.arrived else None
            self.settlements.append(
                Settlement(
                    key, self.bill.format, _file(line), tokens, round(line.usd, 12), counts,
                    line.arrived, line.told,
                )
            )  # fmt: skip
        if self.whole:
            self._settle_absent(known)

    def _settle_absent(self, known: Mapping[str, CallLine]) -> None:
        """What a whole bill lacks never arrived; but a bill that lacks a call that was answered is not whole."""
        absent = [each.call for each in over(self._ledger.calls, self.attempts) if each.call.key not in known]
        absent = [call for call in absent if call.outcome is not None]
        if any(call.low for call in absent):
            return
        files = {attempt_of(line.reference): _file(line) for line in self.bill.calls}
        for call in absent:
            if call.cost_usd is None or call.settled_by is not None:
                file = files[call.attempt]
                self.settlements.append(Settlement(call.key, self.bill.format, file, None, Decimal(0), arrived=False))

    def _contradictions(self, known: Mapping[str, CallLine]) -> dict[str, str]:
        """By key, why a line of the simulator's bill cannot be true; a provider's own word needs no leave."""
        if self._alike is None or not known:
            return {}
        names = ModelNames(each.call for each in self._ledger.calls.values())
        found = {}
        for key, line in known.items():
            call = self._ledger.calls[key].call
            card = self._ledger.facts.card(call.model, call.requested_at) if self._counts(call) else None
            why = contradiction(line, call, names, card)
            if why is not None:
                found[key] = f"call {key}: {why} ({line.where})"
        return found

    def _hold_against(self, ours: Mapping[str, CallLine]) -> None:
        """Call by call, so that two errors which cancel in a sum are found."""
        booked = {
            each.call.key: Booked(each.call.low, each.call.high, each.tokens, self._counts(each.call))
            for each in over(self._ledger.calls, self.attempts)
            if each.call.outcome is not None and each.call.key not in self._untrue
        }
        flying = {each.call.key for each in self._ledger.calls.values() if each.call.outcome is None}
        billed = {
            key: Billed(line.usd, {name: n for classes, n in line.units.items() for name in classes})
            for key, line in ours.items()
            if key not in flying and key not in self._untrue
        }
        self.findings = (*self._untrue.values(), *reconcile(billed, booked).findings)


def _file(line: CallLine) -> str:
    return line.where.rpartition(":")[0]


def _once_each(lines: Sequence[CallLine]) -> tuple[list[CallLine], int]:
    """Raises BillError for a call that stands twice with different figures."""
    seen: dict[str, CallLine] = {}
    repeated = 0
    for line in lines:
        first = seen.setdefault(line.reference, line)
        if first is line:
            continue
        if (first.units, first.usd, first.arrived) != (line.units, line.usd, line.arrived):
            raise BillError(
                f"{line.where}: the call {line.reference[:80]} stands at {first.where} already, with other figures; "
                "give the bills of one database at a time"
            )
        repeated += 1
    return list(seen.values()), repeated
