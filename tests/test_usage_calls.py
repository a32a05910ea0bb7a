"""`fullchain usage --calls`: a log of calls, explained without running anything."""

import io
import json
import re
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cost_model.call_file.line import FIELDS
from cost_model.price_card import PriceCard
from tests.call_lines import line_of, line_of_stored, prompt_causes, ran, text_of
from tests.cost_chain import ALT, DUO, SOL_SOLO, SOLO, Chain, chain_calls
from tests.test_cost_timelines import TIMELINES, calls_of, card_of

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLE = DOCS / "example-calls.jsonl"
T0 = "2026-11-24T12:00:00Z"
USAGE = {"input_tokens": 0, "cache_creation_input_tokens": 5000, "cache_read_input_tokens": 0, "output_tokens": 10}
LINE = {"role": "planner", "model": "claude-opus-5-5", "requested_at": T0, "usage": USAGE}


def told(
    capsys: pytest.CaptureFixture[str], path: Path, lines: list[dict[str, Any]] | str, *options: str
) -> dict[str, Any]:
    path.write_text(lines if isinstance(lines, str) else text_of(lines), encoding="utf-8")
    code, out, err = ran(capsys, "usage", "--calls", str(path), *options)
    assert (code, err) == (0, "")
    made: dict[str, Any] = json.loads(out)
    return made


def price_file(path: Path, *cards: PriceCard) -> Path:
    path.write_text(
        "".join(
            f'[[price]]\nmodel = "{card.ref}"\nsource = "a test"\n'
            f"usd_per_mtok = {{ {', '.join(f'{name} = {usd}' for name, usd in card.usd_per_mtok.items())} }}\n"
            for card in cards
        )
    )
    return path


@pytest.mark.parametrize("blocks", [True, False], ids=["with-blocks", "counts-alone"])
@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline["id"])
def test_a_known_timeline_has_its_causes_and_its_dollars(
    timeline: dict[str, Any], blocks: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for event, fact in zip(timeline["events"], calls_of(timeline), strict=True):
        assert fact.tokens is not None
        sent = [{"hash": block.hash, "tokens": block.size // 4} for block in fact.prompt] if blocks else None
        lines.append(line_of(fact, role=event["role"], blocks=sent))
    made = told(
        capsys, tmp_path / "calls.jsonl", lines, "--prices", str(price_file(tmp_path / "p.toml", card_of(timeline)))
    )
    before = 0
    for event, call in zip(timeline["events"], made["calls"], strict=True):
        total = call["prompt_tokens"]
        expected = {
            "write": {"first_write": total - before},
            "rebuild_expired": {"expiry_rebuild": before, "growth": total - before},
            "keepalive": {"hit": before},
            "hit": {"hit": before, "growth": total - before},
        }
        assert prompt_causes(call) == expected[event["kind"]]
        assert Decimal(call["cost_usd"]) == Decimal(event["cost_usd"])
        before = total
    assert Decimal(made["totals"]["cost_usd"]) == Decimal(timeline["expected_total_usd"])
    if "excess_vs_warm_usd" in timeline:
        assert Decimal(made["totals"]["excess_usd"]) == Decimal(timeline["excess_vs_warm_usd"])


def chain(of: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    calls = chain_calls(of)
    lines = [line_of_stored(one, cache="anthropic-512" if one.fact.policy.write_class else "glm") for one in calls]
    prices = price_file(tmp_path / "p.toml", *{one.fact.card.ref: one.fact.card for one in calls}.values())
    made = told(capsys, tmp_path / "calls.jsonl", lines, "--prices", str(prices))
    return made["totals"], [call["expiry"] for call in made["calls"] if call["expiry"]]


@pytest.mark.parametrize(
    ("of", "usd", "missed"), [(SOLO, 1.200, 0), (DUO, 1.291, 3), (SOL_SOLO, 0.170, 0), (ALT, 1.293, 0)]
)
def test_the_reference_chain_has_its_figures(
    of: Chain, usd: float, missed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals, expired = chain(of, tmp_path, capsys)
    assert float(totals["cost_usd"]) == pytest.approx(usd, rel=0.01)
    assert len(expired) == missed
    assert all((one["holder"], one["idle_s"]) == ("worker", 376) for one in expired)


def test_two_chains_that_cost_the_same_are_told_apart_by_their_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duo, _ = chain(DUO, tmp_path, capsys)
    alt, _ = chain(ALT, tmp_path, capsys)
    assert float(duo["cost_usd"]) == pytest.approx(float(alt["cost_usd"]), rel=0.01)
    assert float(duo["causes"]["expiry_rebuild"]["usd"]) == pytest.approx(0.558, rel=0.01)
    assert "expiry_rebuild" not in alt["causes"]
    assert duo["excess_usd"] == "0.513015"
    assert alt["excess_usd"] == "0"


def test_lanes_models_and_apis_mix_in_one_file_and_lines_may_stand_in_any_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = EXAMPLE.read_text().splitlines()
    forwards = told(capsys, tmp_path / "a.jsonl", "\n".join(lines))
    backwards = told(capsys, tmp_path / "b.jsonl", "\n\n".join(reversed(lines)))
    assert forwards == backwards
    assert [call["key"] for call in forwards["calls"]] == ["p1", "p2", "w1", "w2", "w3", "p3", "p4"]
    assert forwards["models"]["deepseek-v4-flash"]["cache"] == ["deepseek"]


def test_standard_input_is_read_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(EXAMPLE.read_bytes())))
    code, out, _ = ran(capsys, "usage", "--calls", "-")
    assert code == 0
    assert out == ran(capsys, "usage", "--calls", str(EXAMPLE))[1]


def test_lines_that_tell_of_one_call_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    response = {"id": "msg_1", "model": "claude-opus-5-5", "usage": USAGE}
    first = {"role": "planner", "requested_at": T0, "usage": {**response, "usage": {**USAGE, "output_tokens": 1}}}
    last = {"role": "planner", "requested_at": "2026-11-24T12:00:03Z", "usage": response}
    made = told(capsys, tmp_path / "x.jsonl", [first, last, LINE, LINE])
    (one, other) = made["calls"]
    assert {one["key"], other["key"]} >= {"msg_1"}
    assert [call["tokens"]["output"] for call in (one, other)] == [10, 10]
    assert [call["requested_at"][:19] for call in (one, other)] == ["2026-11-24T12:00:00"] * 2
    assert made["warnings"] == ["2 of the lines told of a call once more: each call is counted once"]


def test_a_key_that_two_roles_claim_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text_of([{**LINE, "key": "a"}, {**LINE, "key": "a", "role": "worker"}]))
    code, out, err = ran(capsys, "usage", "--calls", str(path))
    assert (code, out) == (2, "")
    assert "x.jsonl: line 2: role: is 'worker', but line 1 tells of the same call ('a') with 'planner'" in err


def test_what_is_not_known_is_null_with_a_range_and_never_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bounded = {**LINE, "usage": None, "blocks": [["head", 1000]], "max_output_tokens": 100, "key": "bounded"}
    unbounded = {**LINE, "usage": None, "lane": "other", "key": "unbounded"}
    cut = {**LINE, "outcome": "cut", "max_output_tokens": 1000, "key": "cut", "lane": "third"}
    refused = {**LINE, "usage": None, "outcome": "refused", "key": "refused"}
    made = told(capsys, tmp_path / "x.jsonl", [bounded, unbounded, cut, refused])
    calls = {call["key"]: call for call in made["calls"]}
    for name in ("bounded", "unbounded", "cut"):
        assert calls[name]["cost_usd"] is None
        assert calls[name]["list_usd"] is None
    # 1,000 tokens by their blocks: at most twice as many, at the dearest price of a prompt, and 100 of output.
    assert Decimal(calls["bounded"]["cost_high_usd"]) == Decimal(2001) * 8 / 10**6 + Decimal("0.002")
    assert calls["bounded"]["prompt_tokens"] is None
    assert set(calls["bounded"]["tokens"].values()) == {None}
    assert calls["unbounded"]["cost_high_usd"] is None
    assert (calls["cut"]["cost_low_usd"], calls["cut"]["cost_high_usd"]) == ("0.0252", "0.045")
    assert calls["cut"]["tokens"]["output"] is None
    assert prompt_causes(calls["cut"]) == {"first_write": 5000}
    assert (calls["refused"]["cost_usd"], calls["refused"]["prompt_tokens"]) == ("0", 0)
    totals = made["totals"]
    assert (totals["known"], totals["unknown"], totals["cost_usd"], totals["cost_high_usd"]) == (1, 3, None, None)
    assert totals["cost_low_usd"] == "0.0252"
    assert totals["tokens"]["cache_write_5m"] is None


def test_a_read_that_a_server_does_not_tell_gives_a_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": None}}
    (call,) = told(capsys, tmp_path / "x.jsonl", [{**LINE, "model": "deepseek-v4-flash", "usage": usage}])["calls"]
    assert (call["cost_usd"], call["cost_low_usd"], call["cost_high_usd"]) == (None, "0.000003", "0.00015")
    assert (call["tokens"]["input"], call["tokens"]["cache_read"]) == (None, None)
    assert prompt_causes(call) == {"unknown": 1000}


def test_blocks_tell_a_shared_head_and_an_altered_prompt_which_counts_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(key: str, at: int, lane: str, read: int, wrote: int, *blocks: str) -> dict[str, Any]:
        usage = {**USAGE, "cache_read_input_tokens": read, "cache_creation_input_tokens": wrote}
        sent = [[name, 5000] for name in blocks]
        when = f"2026-11-24T12:00:{at:02}Z"
        return {**LINE, "key": key, "lane": lane, "requested_at": when, "usage": usage, "blocks": sent}

    lines = [
        line("1", 0, "a", 0, 10_000, "head", "x"),
        line("2", 20, "b", 0, 10_000, "head", "y"),
        line("3", 40, "a", 5000, 10_000, "head", "other", "z"),
    ]
    calls = told(capsys, tmp_path / "x.jsonl", lines)["calls"]
    assert prompt_causes(calls[1]) == {"eviction": 5000, "first_write": 5000}
    assert prompt_causes(calls[2]) == {"hit": 5000, "change_rebuild": 5000, "growth": 5000}
    refused = {**LINE, "key": "0", "lane": "a", "usage": None, "outcome": "refused"}
    assert told(capsys, tmp_path / "z.jsonl", [*lines, refused])["calls"][1:] == calls
    made = told(capsys, tmp_path / "y.jsonl", [*lines[:2], {**lines[2], "blocks": None}])
    assert prompt_causes(made["calls"][1]) == {"first_write": 10_000}
    assert made["warnings"] == ["1 of the calls of lane 'a' have no blocks: all of it is explained by counts and times"]


@pytest.mark.parametrize(("grown", "cause"), [(20, "eviction"), (21, "uncacheable"), (60, "uncacheable")])
def test_a_log_whose_lane_outgrew_the_look_back_in_one_go_shows_no_eviction(
    grown: int, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {**USAGE, "cache_creation_input_tokens": 5000 + 100 * grown}
    sent = [["head", 5000], *([f"turn {number}", 100] for number in range(grown))]
    lines = [
        {**LINE, "key": "1", "blocks": sent[:1]},
        {**LINE, "key": "2", "blocks": sent, "usage": usage, "requested_at": "2026-11-24T12:00:10Z"},
    ]
    second = told(capsys, tmp_path / "x.jsonl", lines)["calls"][1]
    assert prompt_causes(second) == {cause: 5000, "growth": 100 * grown}
    assert (second["excess_usd"] == "0") == (cause == "uncacheable")


def test_the_lifetime_is_the_lines_own_then_what_was_billed_then_the_one_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = {**LINE, "requested_at": "2026-11-24T12:10:00Z", "key": "late"}
    first = {**LINE, "key": "first"}
    told_1h = {**USAGE, "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 5000}}

    def cause(first: dict[str, Any], *options: str) -> dict[str, int]:
        return prompt_causes(told(capsys, tmp_path / "x.jsonl", [first, late], *options)["calls"][1])

    assert cause(first) == {"expiry_rebuild": 5000}
    assert cause({**first, "lifetime": "1h"}) == {"eviction": 5000}
    assert cause({**first, "usage": told_1h}) == {"eviction": 5000}
    assert cause(first, "--ttl", "1h") == {"eviction": 5000}
    assert cause({**first, "lifetime": "5m"}, "--ttl", "1h") == {"expiry_rebuild": 5000}


def test_options_hold_where_a_line_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {"role": "solo", "requested_at": 1795521600.5, "usage": USAGE}
    path = tmp_path / "x.jsonl"
    assert told(capsys, path, [bare], "--model", "claude-opus-5-5")["totals"]["cost_usd"] == "0.0252"
    assert told(capsys, path, [bare], "--model", "claude-opus-5-5", "--tier", "batch")["totals"]["cost_usd"] == "0.0126"
    free = told(capsys, path, [bare], "--model", "self-hosted")
    assert free["totals"]["cost_usd"] == "0"
    assert free["calls"][0]["requested_at"] == "2026-11-24T12:00:00.500000+00:00"
    assert "writes were billed, which prefix-16 has none of" in free["warnings"][0]
    prices = tmp_path / "p.toml"
    prices.write_text('[[price]]\nmodel = "ours"\nsource = "a test"\nusd_per_mtok = { input = 1, output = 2 }\n')
    ours = {**bare, "model": "ours", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    path.write_text(text_of([ours]))
    code, _, err = ran(capsys, "usage", "--calls", str(path), "--prices", str(prices))
    assert code == 2
    assert "line 1: cache: is needed, here or as --cache: how prompts to 'ours' are cached is not known" in err
    assert told(capsys, path, [ours], "--prices", str(prices), "--cache", "none")["totals"]["cost_usd"] == "0.00002"
    then = {**LINE, "model": "deepseek-v4-flash", "usage": {"prompt_tokens": 10**6, "completion_tokens": 0}}
    assert told(capsys, path, [then], "--at", "2026-11-24T02:00Z")["totals"]["cost_usd"] == "0.3"
    assert told(capsys, path, [then])["totals"]["cost_usd"] == "0.15"


def test_the_providers_bill_is_the_cost_and_what_stands_beside_is_told_with_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    billed = {**LINE, "model": "glm-5.3", "usage": {"prompt_tokens": 1000, "completion_tokens": 0, "cost": 0.5}}
    searched = {**LINE, "usage": {**USAGE, "server_tool_use": {"web_search_requests": 2}}, "lane": "b"}
    made = told(capsys, tmp_path / "x.jsonl", [billed, searched])
    by_model = {call["model"]: call for call in made["calls"]}
    assert (by_model["glm-5.3"]["cost_usd"], by_model["glm-5.3"]["list_usd"]) == ("0.5", "0.0014")
    assert by_model["claude-opus-5-5"]["classes"]["web_search"] == {"units": 2, "usd": "0.02"}
    assert made["totals"]["cost_usd"] == "0.5452"
    assert made["totals"]["list_usd"] == "0.0466"


def test_a_missing_first_token_time_is_taken_to_have_come_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = {**LINE, "requested_at": "2026-11-24T12:00:02Z", "key": "again"}
    slow = {**LINE, "first_token_at": "2026-11-24T12:00:09Z", "key": "slow"}
    path = tmp_path / "x.jsonl"
    assert prompt_causes(told(capsys, path, [slow, again])["calls"][1]) == {"race": 5000}
    assert prompt_causes(told(capsys, path, [LINE, again])["calls"][1]) == {"eviction": 5000}


HOSTILE = [
    ("", "holds no call"),
    ("\n \n", "holds no call"),
    ("{", "line 1: is not valid JSON"),
    ("[]", "line 1: is list, not an object"),
    ("7", "line 1: is int, not an object"),
    ('{"a": ' * 100_000, "line 1: is not valid JSON"),
    ('{"role": ' + "9" * 5000 + "}", "line 1: is not valid JSON"),
    ({"requested_at": None}, "line 1: requested_at: is missing"),
    ({"requested_at": True}, "line 1: requested_at: must be a time"),
    ({"requested_at": "yesterday"}, "line 1: requested_at: must be a time"),
    ({"requested_at": 10**300}, "line 1: requested_at: must be a time"),
    ({"requested_at": "1999-01-01T00:00:00Z"}, "line 1: requested_at: must be a time"),
    ({"requested_at": "0001-01-01T00:00:00+23:59"}, "line 1: requested_at: must be a time"),
    ({"first_token_at": "2026-11-24T11:59:59Z"}, "line 1: first_token_at: lies before"),
    ({"ended_at": 1}, "line 1: ended_at: must be a time"),
    ({"role": None}, "line 1: role: is missing"),
    ({"role": ""}, "line 1: role: must be text of 1 to 200"),
    ({"role": 7}, "line 1: role: must be text"),
    ({"lane": "x" * 201}, "line 1: lane: must be text"),
    ({"model": None}, "line 1: model: is missing"),
    ({"model": "none-such"}, "line 1: model: no price is known for model 'none-such'"),
    ({"rolle": "x"}, "line 1: rolle: unknown field; did you mean role?"),
    ({"\x1b[2J": 1}, "unknown field"),
    ({"api": "gopher"}, "line 1: api: 'gopher' is none that is known"),
    ({"cache": "gopher"}, "line 1: cache: 'gopher' is none that is known"),
    ({"lifetime": "1d"}, "line 1: lifetime: '1d' is none of anthropic-512 (5m, 1h)"),
    ({"outcome": "happy"}, "line 1: outcome: 'happy' is none"),
    ({"usage": 7}, "line 1: usage: must be an object or null, not int"),
    ({"usage": {}}, "line 1: usage: no usage in it"),
    ({"usage": {"weather": 1}}, "line 1: usage: no usage in it"),
    ({"events": []}, "line 1: usage: give either `usage`"),
    ({"usage": {**USAGE, "output_tokens": -1}}, "line 1: usage: output_tokens must be a whole number"),
    ({"usage": {**USAGE, "output_tokens": 1.5}}, "line 1: usage: output_tokens must be a whole number"),
    ({"usage": {**USAGE, "input_tokens": 10**12}}, "line 1: usage: input_tokens must be a whole number"),
    ({"usage": {**USAGE, "service_tier": "gold"}}, "line 1: model: service_tier is 'gold', and no price"),
    ({"max_output_tokens": -1}, "line 1: max_output_tokens: must be a whole number"),
    ({"prompt_bytes": True}, "line 1: prompt_bytes: must be a whole number"),
    ({"blocks": {"a": 1}}, "line 1: blocks: must be a list"),
    ({"blocks": [["a", 1], ["b"]]}, "line 1: blocks[1]: must be"),
    ({"blocks": [["a", -1]]}, "line 1: blocks[0]: tokens must be from 0"),
    ({"blocks": [["a", 1.0]]}, "line 1: blocks[0]: must be"),
    ({"blocks": [["a", True]]}, "line 1: blocks[0]: must be"),
    ({"blocks": [[["a"], 1]]}, "line 1: blocks[0]: must be"),
    ({"blocks": [{"hash": "a", "size": 1}]}, "line 1: blocks[0]: must be"),
]


@pytest.mark.parametrize(("line", "complaint"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_is_none_is_refused_in_one_line_naming_line_and_field(
    line: str | dict[str, Any], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    text = line if isinstance(line, str) else text_of([{k: v for k, v in {**LINE, **line}.items() if v is not None}])
    path.write_text(text)
    code, out, err = ran(capsys, "usage", "--calls", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert "x.jsonl: " in err
    assert "\x1b" not in err


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "-1e999999999999999999999", "0.5"])
def test_a_number_that_is_none_is_refused(number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for field in ("requested_at", "max_output_tokens", "input_tokens"):
        text = text_of([{**LINE, "max_output_tokens": 5}])
        text = re.sub(rf'"{field}": ("[^"]*"|\d+)', f'"{field}": {number}', text)
        path = tmp_path / "x.jsonl"
        path.write_text(text)
        code, out, err = ran(capsys, "usage", "--calls", str(path))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "line 1: " in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give either a FILE (or -) or --calls FILE"),
        (["usage.json", "--calls", "calls.jsonl"], "give either a FILE (or -) or --calls FILE"),
        (["--calls", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--calls", str(EXAMPLE), "--cache-hours", "1"], "does not go with --calls"),
        (["--calls", str(EXAMPLE), "--cache", "gopher"], "'gopher' is no policy"),
        (["usage.json", "--cache", "none"], "goes with --calls"),
    ],
)
def test_a_wrong_question_is_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "usage", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\x80\xff\x00" * 100)
    code, _, err = ran(capsys, "usage", "--calls", str(path))
    assert code == 2
    assert "is not UTF-8 text" in err


def test_a_line_separator_within_a_text_ends_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps({**LINE, "role": "a\u2028b\x7f"}, ensure_ascii=False)
    (call,) = told(capsys, tmp_path / "x.jsonl", text)["calls"]
    assert call["role"] == "a\u2028b\x7f"


def test_the_example_of_the_documentation_prints_the_figures_that_stand_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (DOCS / "cost-model.md").read_text(encoding="utf-8")
    code, out, _ = ran(capsys, "usage", "--calls", str(EXAMPLE))
    assert code == 0
    made, printed = json.loads(out), [line.strip().rstrip(",") for line in out.splitlines()]
    fragments = re.findall(r"```json\n(.*?)\n```", page, re.DOTALL)
    assert len(fragments) == 3
    for fragment in fragments:
        shown = [line.strip().rstrip(",") for line in fragment.splitlines()]
        assert any(printed[place : place + len(shown)] == shown for place in range(len(printed)))
    for call in made["calls"]:
        causes = ", ".join(f"{cause} {count:,}" for cause, count in prompt_causes(call).items())
        idle = "" if call["idle_s"] is None else f"{call['idle_s']:.0f}"
        row = (f"`{call['key']}`", idle, f"{call['prompt_tokens']:,}", causes, call["cost_usd"], call["excess_usd"])
        assert f"| {' | '.join(row)} |" in page
    assert f"${made['totals']['cost_usd']}" in page
    assert f"${made['totals']['roles']['worker']['cost_usd']}" in page
    expiry = next(call["expiry"] for call in made["calls"] if call["expiry"])
    assert Decimal(expiry["excess_usd"]) == 13_600 * (Decimal(5) - Decimal("0.2")) / 10**6
    assert f"**{expiry['excess_usd']}**" in page


def test_the_documentation_has_every_field_of_a_line() -> None:
    page = (DOCS / "cost-model.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \| (.*) \|$", page.split("## A calls file")[1].split("\n## ")[0], re.MULTILINE)
    assert dict(table) == dict(FIELDS)


def test_a_chain_as_lines_is_explained_as_the_ledger_explains_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = replace(DUO, worker_seconds=11.54)
    _, expired = chain(slower, tmp_path, capsys)
    assert len(expired) == 3
    assert all(sum(held["seconds"] for held in one["held"]) == pytest.approx(one["idle_s"]) for one in expired)


def test_a_name_that_comes_twice_with_two_values_is_an_error_that_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text_of([LINE])[:-1].rstrip() + "\n" + text_of([LINE]).strip()[:-1] + ', "role": "worker"}\n')
    code, _, err = ran(capsys, "usage", "--calls", str(path))
    assert code == 2
    assert "line 2: 'role' stands twice in one object, as 'planner' and as 'worker'" in err
