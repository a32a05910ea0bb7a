"""Calls that a bill settles: exact from then on, in every view, whatever is booked anew; refused where two differ."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cost_model.tokens import Tokens
from experiments.bill import bill_folder
from experiments.cli import main
from experiments.errors import BillError, SettlementRefused, StoreLocked, UnknownExperiment
from experiments.reconciling import Reconciled, reconcile_bills
from experiments.repricing.repricing import reprice
from experiments.run_lock import run_lock
from experiments.runner import run_experiment
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader, query
from experiments.store.settlements import Settlement
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.experiment_files import PAIR, small
from tests.sandbox_tasks import needs_isolation
from tests.store_trials import EPOCH, MODELS, ended, sent, small_plan, usage_of_turn
from tests.test_run_interrupted import started, wait_for_calls

PLAN = small_plan(arms=("solo",), tasks=("alpha",), repeats=1)
TRIAL = PLAN.trials[0].id
LOST = f"{TRIAL}/1/solo/1/1"
COMPUTED = (
    "key, idle_s, prompt_tokens, input_tokens, cache_read_tokens, cache_write_5m_tokens, output_tokens, basis, "
    "list_usd, cost_usd, cost_low_usd, cost_high_usd, excess_usd, unexplained_read_tokens"
)


WIRE = "claude-opus-5-5"


async def played(
    path: Path, usages: Sequence[dict[str, object] | None], *, died: bool = False, wire: str = WIRE
) -> None:
    """One attempt whose calls have these usages; None: the answer broke off, or with `died` nobody recorded it."""
    async with Journal(path) as journal:
        book = TrialJournal(journal, TRIAL, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap", notes="")
        book.role("solo", "solo", "dear", "You solve tasks.", [])
        book.message("solo", 0, 0, "system", {"system": "You solve tasks."}, "head", 12_000)
        now = EPOCH
        for turn, usage in enumerate(usages):
            book.message("solo", 0, 2 * turn + 1, "user", f"message {turn}", f"user {turn}", 1_500)
            call = replace(sent(TRIAL, 1, turn, now, blocks=2 * turn + 2), wire_model=wire)
            await book.sent(call)
            if usage is not None or not died:
                book.ended(ended(call, usage, outcome="complete" if usage else "cut"))
            book.message("solo", 0, 2 * turn + 2, "assistant", [], f"assistant {turn}", 500)
            now += timedelta(seconds=20)
        if not died:
            await book.attempt_ended(
                ended_by="submitted", outcome="failed", unscored_reason=None, reward=0.0, passed=False, changed=True,
                started_at=EPOCH, ended_at=now, wall_started_at=EPOCH, wall_ended_at=EPOCH,
            )  # fmt: skip


def stored(folder: Path, usages: Sequence[dict[str, object] | None], *, died: bool = False, wire: str = WIRE) -> Path:
    path = folder / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    asyncio.run(played(journal_folder(path) / "run.jsonl", usages, died=died, wire=wire))
    assert Store(path).recover().left == ()
    return path


def tokens_of(usage: dict[str, object]) -> dict[str, int]:
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    assert isinstance(read, int)
    assert isinstance(written, int)
    return {"cache_read": read, "cache_write_5m": written, "output": 100}


def bill_line(turn: int, tokens: dict[str, int], usd: str = "0.5", status: int = 200, model: str | None = WIRE) -> str:
    at = (EPOCH + timedelta(seconds=20 * turn)).isoformat()
    line = {
        "call": f"{TRIAL}/1/solo/{turn}/1", "response": None, "model": model, "tokens": tokens, "usd": usd,
        "requested_at": at, "status": status, "error": None,
    }  # fmt: skip
    return json.dumps(line) + "\n"


def bill_of(folder: Path, *lines: str) -> Path:
    path = folder / "bill.jsonl"
    path.write_text("".join(lines))
    return path


USAGES = [usage_of_turn(0), usage_of_turn(1), usage_of_turn(2)]
TOKENS = [tokens_of(usage) for usage in USAGES]


def computed(path: Path) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    with Reader(path) as reader:
        return (
            reader.query(f"SELECT {COMPUTED} FROM calls ORDER BY key").rows,  # noqa: S608
            reader.query("SELECT * FROM charges ORDER BY ALL").rows,
        )


def settled(path: Path, *lines: str, dry: bool = False) -> Reconciled:
    return reconcile_bills(path, "demo", [bill_of(path.parent, *lines)], dry=dry)


def test_a_settled_call_and_all_later_ones_are_booked_as_if_its_usage_had_come(tmp_path: Path) -> None:
    (tmp_path / "known").mkdir()
    known = stored(tmp_path / "known", USAGES)
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    assert computed(path) != computed(known)
    found = settled(path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    assert [each.call for each in found.settled] == [LOST]
    assert computed(path) == computed(known)
    assert query(path, "SELECT outcome FROM calls WHERE key = ?".replace("?", f"'{LOST}'")).rows == [("cut",)]
    assert found.before[0] < found.low == found.high < found.before[1]
    Store(path).rebuild_charges("demo")
    assert computed(path) == computed(known), "settlements outlive a rebuild"
    Store(path).upgrade()
    again = settled(path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    assert (again.settled, again.standing) == ((), 1)
    assert computed(path) == computed(known), "settling twice changes nothing"


@pytest.mark.parametrize("causes", [True, False])
def test_a_settled_call_is_repriced_from_what_settled_it(causes: bool, tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    settled(path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    with Reader(path) as reader:
        found = reprice(reader, "demo", None, arms=(), classes=not causes, causes=causes)
        (measured,) = reader.query("SELECT sum(cost_low_usd), sum(cost_high_usd), sum(list_usd) FROM calls").rows
    (cost,) = found.repriced.cost.values()
    assert (cost.low, cost.high) == measured[:2]
    assert cost.low == cost.high
    assert sum(each.low for each in found.repriced.listed.values()) == measured[2]


def test_what_settles_is_a_fact_that_views_and_timelines_label(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    settled(path, bill_line(0, TOKENS[0]), bill_line(1, TOKENS[1]))
    assert query(path, "SELECT outcome, basis, settled_by FROM call_timeline ORDER BY key").rows == [
        ("complete", "reported", None),
        ("lost", "reported", "simulator"),
    ]
    assert query(path, "SELECT unknown_calls, total_usd_low = total_usd_high FROM compare").rows == [(0, True)]
    (told,) = query(path, "SELECT told FROM settlements").rows[0]
    assert json.loads(told)["tokens"] == TOKENS[1]


def test_a_lost_call_that_a_whole_bill_does_not_have_never_arrived(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    found = settled(path, bill_line(0, TOKENS[0]))
    assert [(each.call, each.arrived) for each in found.settled] == [(LOST, False)]
    assert query(path, f"SELECT cost_usd, basis, outcome FROM calls WHERE key = '{LOST}'").rows == [  # noqa: S608
        (Decimal(0), "reported", "lost")
    ]


@pytest.mark.parametrize("refused", [True, False])
def test_a_call_that_never_arrived_has_no_tokens_anywhere(
    refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    lines = [bill_line(0, TOKENS[0]), *([bill_line(1, {}, usd="0", status=529)] if refused else [])]
    assert run_command("demo", "--db", str(path), "--bill", str(bill_of(tmp_path, *lines))) == 0
    out = capsys.readouterr().out
    assert "verdict: = to the last digit" in out
    assert "in the range" not in out
    tokens = ", ".join(f"{name}_tokens" for name in ("prompt", *TOKENS[0]))
    assert query(path, f"SELECT {tokens}, list_usd, cost_usd FROM calls WHERE key = '{LOST}'").rows == [  # noqa: S608
        (0, 0, 0, 0, Decimal(0), Decimal(0))
    ]
    assert query(path, f"SELECT * FROM charges WHERE call = '{LOST}'").rows == []  # noqa: S608


@pytest.mark.parametrize("causes", [True, False])
def test_the_calls_after_one_that_never_arrived_are_repriced_as_they_were_booked(causes: bool, tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2], None])
    with Reader(path) as reader:
        keys = [key for (key,) in reader.query("SELECT key FROM calls ORDER BY key").rows]
    settlements = [Settlement(keys[1], "simulator", "b", None, Decimal(0), arrived=False)]
    assert Store(path).settle("demo", settlements) == [LOST]
    with Reader(path) as reader:
        found = reprice(reader, "demo", None, arms=(), classes=not causes, causes=causes)
        (measured,) = reader.query("SELECT sum(cost_low_usd), sum(cost_high_usd) FROM calls").rows
    (cost,) = found.repriced.cost.values()
    assert (cost.low, cost.high) == measured
    assert cost.low < cost.high


def test_a_bill_that_lacks_an_answered_call_is_not_whole_and_settles_no_absence(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], USAGES[1], None], died=True)
    found = settled(path, bill_line(0, TOKENS[0]))
    assert found.settled == ()
    assert any("booked" in finding and "not on the bill" in finding for finding in found.findings)
    assert not found.equal


def test_a_call_that_the_provider_refused_costs_nothing(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    found = settled(path, bill_line(0, TOKENS[0]), bill_line(1, {}, usd="0", status=529))
    assert [each.arrived for each in found.settled] == [False]
    assert found.low == found.high


OWN = "sim-claude-opus-5-5"
"""A model whose prices are the simulator's, so that its bill's dollars are compared."""


def dollars(tokens: dict[str, int]) -> str:
    price = {"input": "4", "cache_read": "0.2", "cache_write_5m": "5", "output": "20"}
    return f"{sum((count * Decimal(price[name]) for name, count in tokens.items()), Decimal(0)) / 10**6:f}"


def own_line(turn: int, tokens: dict[str, int], usd: str | None = None, *, status: int = 200, model: str = OWN) -> str:
    return bill_line(turn, tokens, dollars(tokens) if usd is None else usd, status, model)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (own_line(1, {**TOKENS[1], "output": 99_999}, dollars(TOKENS[1])), "its tokens cost .*, and it bills"),
        (own_line(1, TOKENS[1], "0.004"), r"its tokens cost .*, and it bills \$0\.004"),
        (own_line(1, {"output": 1_500}), r"billed 1,500 output tokens, and it can have had 0 to 1,000"),
        (own_line(1, {"cache_read": 50_000}), r"billed 50,000 cache_read tokens, and it can have had 0 to 9,001"),
        (own_line(1, {"output": 900_000}), r"billed \$18, booked between \$0 and"),
        (own_line(1, TOKENS[1], model="other"), "the bill names the model 'other', and it went to 'sim-claude-opus"),
        (own_line(1, TOKENS[1]).replace(f'"{OWN}"', "null"), "the bill names no model, and it went to"),
        (own_line(1, TOKENS[1], status=400), "says that it was refused, and yet bills 4,600 tokens and"),
        (own_line(1, {}, "0.1", status=400), r"was refused, and yet bills 0 tokens and \$0\.1"),
    ],
)
def test_a_line_that_cannot_be_true_of_its_call_settles_nothing_and_is_told_by_key(
    line: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True, wire=OWN)
    before = computed(path)
    bill = bill_of(tmp_path, own_line(0, TOKENS[0]), line)
    found = reconcile_bills(path, "demo", [bill])
    assert (found.settled, found.equal) == ((), False)
    (finding,) = found.findings
    assert re.search(rf"^call {LOST}: .*{complaint}.*bill\.jsonl:2", finding)
    assert computed(path) == before
    assert run_command("demo", "--db", str(path), "--bill", str(bill)) == 1
    assert "differs by $0 " not in capsys.readouterr().out


def test_what_a_true_line_settles_costs_what_its_charges_sum_to(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]], wire=OWN)
    found = settled(path, *(own_line(turn, TOKENS[turn]) for turn in range(3)))
    assert [each.call for each in found.settled] == [LOST]
    billed = sum((Decimal(dollars(tokens)) for tokens in TOKENS), Decimal(0))
    assert found.low == found.high == billed
    sums = "sum(cost_usd), sum(list_usd), (SELECT sum(usd_low) FROM charges), (SELECT sum(usd_high) FROM charges)"
    assert query(path, f"SELECT {sums} FROM calls").rows == [(billed,) * 4]  # noqa: S608


def test_a_refusal_that_bills_an_answered_call_is_told(tmp_path: Path) -> None:
    path = stored(tmp_path, USAGES[:2])
    (finding,) = settled(path, bill_line(0, TOKENS[0]), bill_line(1, TOKENS[1], status=400)).findings
    assert f"call {LOST}: the bill says that it was refused, and yet bills 4,600 tokens" in finding


def test_a_bill_that_contradicts_a_settlement_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    settled(path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    before = computed(path)
    other = {**TOKENS[1], "output": 101}
    with pytest.raises(
        SettlementRefused, match=rf"the call {LOST} is settled already by .*bill\.jsonl, at .*output 101"
    ):
        settled(path, bill_line(0, TOKENS[0]), bill_line(1, other), bill_line(2, TOKENS[2]))
    with pytest.raises(SettlementRefused, match="this bill says nothing, for it never arrived"):
        settled(path, bill_line(0, TOKENS[0]), bill_line(1, {}, "0", status=500), bill_line(2, TOKENS[2]))
    lacking = settled(path, bill_line(0, TOKENS[0]), bill_line(2, TOKENS[2]))
    assert [finding for finding in lacking.findings if LOST in finding], "it is booked, and not on this bill"
    assert computed(path) == before


def test_two_lines_of_one_call_count_once_where_they_agree_and_are_refused_where_not(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    lines = (bill_line(0, TOKENS[0]), bill_line(1, TOKENS[1]))
    with pytest.raises(BillError, match=rf"bill\.jsonl:3: the call {LOST} stands at .*:2 already, with other figures"):
        settled(path, *lines, bill_line(1, TOKENS[0]))
    found = settled(path, *lines, lines[1])
    assert len(found.settled) == 1
    assert "1 lines of calls stand twice; counted once" in found.warnings


def test_a_dry_run_stores_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    before, content = computed(path), path.read_bytes()
    lines = (bill_line(0, TOKENS[0]), bill_line(1, TOKENS[1]))
    with run_lock(path, "demo"):
        found = settled(path, *lines, dry=True)
        assert len(found.settled) == 1
        with pytest.raises(StoreLocked, match="experiment 'demo' is being run by another process"):
            settled(path, *lines)
    with run_lock(path, "another"), pytest.raises(StoreLocked, match="experiment 'another' is being run"):
        settled(path, *lines)
    assert computed(path) == before
    assert path.read_bytes() == content


def test_calls_of_other_experiments_are_other_traffic_and_an_unknown_experiment_is_named(tmp_path: Path) -> None:
    path = stored(tmp_path, USAGES)
    strange = bill_line(0, TOKENS[0]).replace(TRIAL, "ffffffffffff")
    found = settled(path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)), strange)
    assert found.equal
    assert len({line.where for line in found.comparison.other}) == 1
    with pytest.raises(UnknownExperiment, match="known: demo"):
        reconcile_bills(path, "none", [bill_of(tmp_path, strange)])
    assert not (journal_folder(path) / "none.lock").exists()


def test_a_generation_of_openrouter_settles_the_dollars_of_the_call_that_it_names(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    table = (
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug\n"
        f"msg-{LOST},2026-11-24 12:00:20.5,0.0125,4500,100,maker/model\n"
        "gen-other,2026-11-24 12:00:21,7,1,1,maker/model\n"
    )
    bill = tmp_path / "activity.csv"
    bill.write_text(table)
    found = reconcile_bills(path, "demo", [bill])
    assert [(each.call, each.usd, each.tokens) for each in found.settled] == [(LOST, Decimal("0.0125"), None)]
    columns = "cost_usd, cost_low_usd, cost_high_usd, billed_usd, basis, prompt_tokens"
    assert query(path, f"SELECT {columns} FROM calls WHERE key = '{LOST}'").rows == [  # noqa: S608
        (*[Decimal("0.0125")] * 4, "reported", None)
    ]
    assert query(path, f"SELECT sum(usd_low), sum(usd_high) FROM charges WHERE call = '{LOST}'").rows == [  # noqa: S608
        (Decimal("0.0125"), Decimal("0.0125"))
    ]
    assert found.low == found.high
    bill.write_text(table.replace("0.0125", "0.0126"))
    with pytest.raises(SettlementRefused, match=r"at \$0\.012500000000, and this bill says \$0\.0126"):
        reconcile_bills(path, "demo", [bill])


def test_only_an_ended_call_of_the_experiment_is_settled(tmp_path: Path) -> None:
    path = stored(tmp_path, USAGES)
    with pytest.raises(SettlementRefused, match="the call nobody's is no ended call of experiment 'demo'"):
        Store(path).settle("demo", [Settlement("nobody's", "simulator", "b", Tokens(), Decimal(0))])
    assert query(path, "SELECT count(*) FROM settlements").rows == [(0,)]


def test_a_strangers_line_is_kept_in_bounds_and_its_dollars_to_the_twelfth_decimal(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    bill = tmp_path / "generation.json"
    record = {
        "id": f"msg-{LOST}", "created_at": "2026-11-24T12:00:20Z", "model": "\ud800\0" + "x" * 900, "is_byok": True,
        "deep": [[[1]]], "huge": 10**30, "more": {"a": {"b": 1}}, **{f"field {n}": 0.5 for n in range(200)},
    }  # fmt: skip
    text = json.dumps(record)[:-1] + ', "total_cost": 0.01234567890123456, "upstream_inference_cost": 1e-13}'
    bill.write_text(text)
    for told in ((1, 0), (0, 1)):
        found = reconcile_bills(path, "demo", [bill])
        assert (len(found.settled), found.standing) == told
    assert query(path, "SELECT usd FROM settlements").rows == [(Decimal("0.012345678901"),)]
    assert found.low == found.high
    bill.write_text(text.replace("0.01234567890123456", "500000"))
    with pytest.raises(BillError, match="total_cost must be an amount of money from 0 to 499,999"):
        reconcile_bills(path, "demo", [bill])


def run_command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended_with:
        main(["reconcile", *arguments])
    assert isinstance(ended_with.value.code, int)
    return ended_with.value.code


def test_the_command_tells_what_it_settled_and_ends_with_1_where_bill_and_ledger_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    bill = bill_of(tmp_path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    where = ("demo", "--db", str(path), "--bill", str(bill))
    assert run_command(*where, "--dry-run") == 0
    assert "verdict: within the ranges of 1 unknown call (the bill: 13,800 tokens)" in capsys.readouterr().out
    assert run_command(*where) == 0
    out = capsys.readouterr().out
    assert "settled 1 call (1 cut): the experiment's total was $" in out
    assert "settled tokens are priced as the experiment's others" in out
    assert out.endswith("verdict: = to the last digit (13,800 tokens, 3 calls)\n")
    assert run_command(*where, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], told["settled_before"], told["total"][0]) == (True, 1, told["total"][1])
    bill_of(tmp_path, bill_line(0, {**TOKENS[0], "output": 99}), *(bill_line(turn, TOKENS[turn]) for turn in (1, 2)))
    assert run_command(*where) == 1
    out = capsys.readouterr().out
    assert "differs: call" in out
    assert "verdict: differs by 1 tokens (1 of 3 rows, 1 call)" in out
    assert f"{LOST}: cut, settled by" in out


def test_of_a_run_that_was_killed_before_its_first_call_nothing_is_said_of_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [], died=True)
    assert run_command("demo", "--db", str(path), "--bill", str(bill_of(tmp_path))) == 1
    out = capsys.readouterr().out
    assert "prices are not" not in out
    assert "verdict: nothing was compared" in out


def test_a_verdict_covers_what_the_bill_tells_and_names_what_it_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, USAGES)
    result = {"model": WIRE, "uncached_input_tokens": 0, "output_tokens": 300}
    written = sum(tokens["cache_write_5m"] for tokens in TOKENS)
    read = sum(tokens["cache_read"] for tokens in TOKENS)
    result["cache_creation_5m_input_tokens"] = written
    page = {"starting_at": "2026-11-24T00:00:00Z", "ending_at": "2026-11-25T00:00:00Z", "results": [result]}
    bill = tmp_path / "usage.json"
    bill.write_text(json.dumps({"data": [page]}))
    where = ("demo", "--db", str(path), "--bill", str(bill))
    assert run_command(*where) == 1
    said = capsys.readouterr()
    assert f"not compared: cache_read of {WIRE} on 2026-11-24, {read:,} in the ledger" in said.out
    assert "to the last digit" not in said.out
    assert said.out.endswith("3 calls); not compared: cache_read\n")
    assert "1 results have no cache_read_input_tokens, which the documented report always has" in said.err
    assert run_command(*where, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], [each["classes"] for each in told["not_compared"]]) == (False, [["cache_read"]])
    bill.write_text(json.dumps({"data": [{**page, "results": [{**result, "cache_read_input_tokens": read}]}]}))
    assert run_command(*where) == 0
    assert "verdict: = to the last digit" in capsys.readouterr().out


def test_the_command_refuses_rubbish_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, USAGES)
    bad = tmp_path / "bad.json"
    bad.write_text('{"data": [{"starting_at": "2026-11-24T00:00:00Z", "results": NaN}]}')
    for extra in ((), ("--format", "openai-costs"), ("--format", "nothing")):
        assert run_command("demo", "--db", str(path), "--bill", str(bad), *extra) == 2
        err = capsys.readouterr().err
        assert err.startswith("fullchain: ")
        assert err.count("\n") == 1


@needs_isolation
async def test_after_kill_9_the_simulators_bills_settle_what_was_lost_to_the_last_digit(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with started(tmp_path, database, repeats=1) as run:
        wait_for_calls(run, database, 8)
        run.kill()
        run.communicate(timeout=60)
    await run_experiment(small(tmp_path, PAIR, repeats=1), database)
    lines = [json.loads(line) for file in bill_folder(database).iterdir() for line in file.read_bytes().splitlines()]
    billed = sum((Decimal(line["usd"]) for line in lines), Decimal(0))
    found = reconcile_bills(database, "tiny", [bill_folder(database)])
    lost = query(database, "SELECT count(*) FROM calls WHERE outcome = 'lost'").rows[0][0]
    assert (len(found.settled), found.equal) == (lost, True)
    assert lost > 0
    assert found.before[0] < found.before[1]
    assert found.low == found.high == billed
    rows = query(database, "SELECT sum(cost_usd), (SELECT sum(usd_high) FROM charges) FROM calls").rows
    assert rows == [(billed, billed)]
    again = reconcile_bills(database, "tiny", [bill_folder(database)])
    assert (again.settled, again.standing, again.low) == ((), lost, billed)
