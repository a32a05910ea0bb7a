"""Calls that a bill settles: exact from then on, in every view, whatever is booked anew; refused where two differ."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from cost_model.tokens import Tokens
from experiments.errors import BillError, SettlementRefused, StoreLocked, UnknownExperiment
from experiments.reconciling import reconcile_bills
from experiments.repricing.repricing import reprice
from experiments.run_lock import run_lock
from experiments.store.journal import journal_folder
from experiments.store.reader import Reader, query
from experiments.store.settlements import Settlement
from experiments.store.store import Store
from tests.settled_ledgers import (
    LOST,
    TOKENS,
    TRIAL,
    USAGES,
    bill_line,
    bill_of,
    computed,
    settled,
    stored,
)


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
