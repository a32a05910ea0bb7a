"""`fullchain usage`: which calls are in a document, what they come to together, and what is said of the rest."""

import json
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.errors import DocumentError, OutputUntold, PriceMissing, UsageError
from cost_model.prices import PriceBook
from cost_model.tokens import Tokens
from cost_model.usage import read_usage
from cost_model.usage.document import calls_in, parse
from cost_model.usage.report import Question, report
from experiments.cli import main
from tests.cost_calls import START

BOOK = PriceBook()
MODEL = "claude-opus-5-5"
USAGE = {"input_tokens": 1000, "cache_read_input_tokens": 2000, "output_tokens": 100}
USD = Decimal("0.0064")
MOST = 10**6


def told(document: object, model: str | None = MODEL, **more: Any) -> dict[str, Any]:
    return report(document, Question(BOOK, START, model=model, **more))


def start(usage: dict[str, Any], name: str = "msg_1") -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": name, "model": MODEL, "usage": usage}}


WRAPPED: list[Any] = [
    USAGE,
    {"usage": USAGE},
    {"id": "msg_1", "type": "message", "model": MODEL, "usage": USAGE},
    [{"usage": USAGE}],
    {"type": "assistant", "requestId": "req_1", "message": {"id": "msg_1", "usage": USAGE}},
    {"custom_id": "a", "result": {"type": "succeeded", "message": {"usage": USAGE}}, "note": "no batch price told"},
    [start({**USAGE, "output_tokens": 1}), {"type": "message_delta", "usage": {"output_tokens": 100}}],
    [{"event": "message_start", "data": start({**USAGE, "output_tokens": 1})},
     {"event": "message_delta", "data": {"type": "message_delta", "usage": {"output_tokens": 100}}}],
    [start({**USAGE, "output_tokens": 1}), {"type": "ping"}, {"type": "error", "error": {"message": "x"}},
     {"type": "message_delta", "usage": {"output_tokens": 60}},
     {"type": "message_delta", "usage": {"output_tokens": 100, "input_tokens": None}}, {"type": "message_stop"}],
]  # fmt: skip


@pytest.mark.parametrize("document", WRAPPED, ids=range(len(WRAPPED)))
def test_a_usage_is_found_wherever_it_stands(document: Any) -> None:
    usd = USD / 2 if isinstance(document, dict) and "custom_id" in document else USD
    assert Decimal(told(document)["cost_usd"]) == usd


CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "gpt-5"}
CHAT = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
STREAMS: list[tuple[list[dict[str, Any]], str]] = [
    ([{**CHUNK, "choices": [{"delta": {}}], "usage": None}, {**CHUNK, "choices": [], "usage": CHAT}], "gpt-5"),
    ([{**CHUNK, "choices": [{"delta": {}}]}, {**CHUNK, "choices": [{"delta": {}, "usage": CHAT}]}], "gpt-5"),
    (
        [
            {"type": "response.created", "response": {"id": "r", "model": "gpt-5", "usage": None}},
            {"type": "response.output_text.delta", "delta": "x"},
            {"type": "response.completed", "response": {"id": "r", "model": "gpt-5", "usage": {
                "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 100,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1100}}},
        ],
        "gpt-5",
    ),
    (
        [
            {"candidates": [{}], "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 1,
                                                   "totalTokenCount": 1001}},
            {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {
                "promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100}},
        ],
        "gpt-5",
    ),
    (
        [{"contentBlockDelta": {"delta": {}}}, {"messageStop": {}},
         {"metadata": {"usage": {"inputTokens": 1000, "outputTokens": 100, "totalTokens": 1100}}}],
        "gpt-5",
    ),
    (
        [{"content": "x", "stop": False},
         {"content": "", "stop": True, "timings": {"prompt_n": 1000, "cache_n": 0, "predicted_n": 100}}],
        "gpt-5",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("events", "model"), STREAMS, ids=lambda value: "")
def test_the_events_of_a_stream_are_one_call_and_never_added(events: list[dict[str, Any]], model: str) -> None:
    for document in (events, [*events, *json.loads(json.dumps(events).replace('"c"', '"d"'))]):
        made = told(document, model)
        count = 1 if document is events else 2
        assert (made["tokens"]["input"], made["tokens"]["output"]) == (1000 * count, 100 * count)
        assert Decimal(made["cost_usd"]) == Decimal("0.00225") * count


def test_a_stream_in_its_own_notation_is_read() -> None:
    events = [start({**USAGE, "output_tokens": 1}), {"type": "message_delta", "usage": {"output_tokens": 100}}]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    assert Decimal(told(parse(text))["cost_usd"]) == USD
    assert Decimal(told(parse("\n".join(json.dumps(event) for event in events)))["cost_usd"]) == USD


@pytest.mark.parametrize(
    "events",
    [
        [{"choices": [{"delta": {"content": "..."}}], "usage": None}],
        [{"type": "response.created", "response": {"usage": None}}],
        [{"usage": None}],
    ],
)
def test_a_stream_that_broke_off_before_its_usage_is_unknown_and_not_free(events: list[dict[str, Any]]) -> None:
    made = told(events, "gpt-5")
    assert made["cost_usd"] is None
    assert set(made["tokens"].values()) == {None}
    assert any("not known" in warning for warning in made["warnings"])
    beside = told([*events, {"usage": CHAT}], "gpt-5")
    assert (beside["cost_usd"], beside["list_usd"]) == (None, None)
    assert beside["cost_at_least_usd"] == "0.00225"


def test_a_stream_that_broke_off_in_its_answer_leaves_its_output_open() -> None:
    made = told([start({**USAGE, "output_tokens": 1})])
    assert made["cost_usd"] is None
    assert (made["tokens"]["input"], made["tokens"]["output"]) == (1000, None)
    assert made["cost"] == {"input": "0.004", "cache_read": "0.0004", "output": None}
    assert made["cost_at_least_usd"] == "0.0044"
    cut = {"candidates": [{}], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1}}
    assert told([cut], "gpt-5")["tokens"]["output"] is None


@pytest.mark.parametrize(
    "piece",
    [
        {"choices": [{"delta": {"content": "x" * 800}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "x" * 800}}]}}]},
        {"type": "response.output_text.delta", "delta": "x" * 800},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 800}},
        {"candidates": [{"content": {"parts": [{"text": "x" * 800}]}}]},
        {"contentBlockDelta": {"delta": {"text": "x" * 800}}},
    ],
)
def test_the_output_of_a_broken_stream_is_estimated_apart_from_its_cost(piece: dict[str, Any]) -> None:
    made = told([piece, piece])
    assert made["cost_usd"] is None
    assert made["estimate"] == {
        "output_tokens_low": 200, "output_tokens_high": 800, "output_usd_low": "0.004", "output_usd_high": "0.016",
    }  # fmt: skip


def test_lines_of_one_message_are_one_call_with_the_largest_output() -> None:
    def line(number: int, output: int, name: str) -> dict[str, Any]:
        usage = {"input_tokens": number, "cache_read_input_tokens": 1000, "output_tokens": output}
        return {"type": "assistant", "requestId": "r", "message": {"id": name, "model": MODEL, "usage": usage}}

    lines = [{"type": "user", "message": {"role": "user"}}, line(2, 90, "a"), line(3, 5, "a"), line(7, 1, "b")]
    made = told(lines, None)
    assert (made["tokens"]["input"], made["tokens"]["cache_read"], made["tokens"]["output"]) == (10, 2000, 91)
    assert len(made["calls"]) == 2
    assert any("told of a call once more" in warning for warning in made["warnings"])


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**63))
def test_cost_is_additive_over_calls(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    usages: list[dict[str, Any]] = []
    for _ in range(chance.randint(2, 4)):
        plain, read, output = (chance.choice([0, 1, chance.randint(0, MOST), MOST]) for _ in range(3))
        usage = {"prompt_tokens": plain + read, "completion_tokens": output, "cached_tokens": read}
        usages.append({"model": chance.choice([MODEL, "gpt-5", "claude-haiku-4-5"]), "usage": usage})
    if chance.random() < 0.5:
        usages.sort(key=lambda one: str(one["model"]))
    cut = chance.randint(1, len(usages) - 1)
    whole, parts = told(usages, None), (told(usages[:cut], None), told(usages[cut:], None))
    assert Decimal(whole["cost_usd"]) == sum(Decimal(part["cost_usd"]) for part in parts)
    for name in ("input", "cache_read", "output"):
        assert whole["tokens"][name] == sum(part["tokens"][name] for part in parts)
    assert sum(Decimal(line["usd"]) for line in whole["lines"]) == Decimal(whole["cost_usd"])


def test_a_line_separator_within_a_text_ends_neither_line_nor_event() -> None:
    line = json.dumps({"note": "a\u2028b\x85c", "usage": USAGE}, ensure_ascii=False)
    assert len(calls_in(parse(f"{line}\r\n{line}\n")).calls) == 2
    assert len(calls_in(parse(f"data: {line}\r\n\r\ndata: {line}\n\ndata: [DONE]")).calls) == 2


def test_the_tier_that_the_response_tells_wins_over_the_one_that_was_asked_for() -> None:
    response = {"service_tier": "default", "usage": {**CHAT}}
    assert told(response, "gpt-6-sol", tier="flex")["cost_usd"] == "0.003"
    assert any("'default', not 'flex'" in w for w in told(response, "gpt-6-sol", tier="flex")["warnings"])
    assert told({"usage": CHAT}, "gpt-6-sol", tier="flex")["cost_usd"] == "0.0015"
    assert told(response, "gpt-6-sol", tier="batch")["cost_usd"] == "0.0015"
    in_batch = {"custom_id": "a", "response": {"status_code": 200, "body": response}}
    assert told(in_batch, "gpt-6-sol")["cost_usd"] == "0.0015"


def test_a_call_is_priced_at_its_own_time_unless_another_is_given() -> None:
    peak = {"timestamp": "2026-11-24T02:00:00Z", "usage": {"prompt_tokens": 10**6, "completion_tokens": 0}}
    assert told(peak, "deepseek-v4-flash")["cost_usd"] == "0.3"
    assert told(peak, "deepseek-v4-flash", at=START)["cost_usd"] == "0.15"
    assert told({"created": 1795485600, "usage": peak["usage"]}, "deepseek-v4-flash")["cost_usd"] == "0.3"


def test_without_a_model_tokens_are_told_and_no_price() -> None:
    made = told(USAGE, None)
    assert (made["tokens"]["input"], made["cost_usd"], made["price"]) == (1000, None, None)
    assert any("--model" in warning for warning in made["warnings"])


def test_the_source_and_the_date_of_the_price_are_told() -> None:
    price = told({"prompt_tokens": 1, "completion_tokens": 1}, "gpt-5.6-sol")["price"]
    assert price["source"] == "OpenAI list price 2026-08-21"
    assert price["valid_from"] == "2026-08-21T00:00:00+00:00"


def test_one_contradictory_usage_refuses_the_whole_document_and_keeps_it() -> None:
    wrong = {"input_tokens": -1, "output_tokens": 1}
    with pytest.raises(UsageError) as refusal:
        told([{"usage": USAGE}, {"usage": wrong}])
    assert refusal.value.raw == wrong


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "{", "nonsense", "[" * 100_000, '{"a": ' * 100_000, f'{{"prompt_tokens": {"9" * 5000}}}', "[]", "{}",
        "7", '["x"]', '{"usage": 7}', '{"a": 1}\n{"b": ', '{"messages": []}', "data: {",
    ],
)  # fmt: skip
def test_what_holds_no_usage_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        calls_in(parse(text))
    assert "\n" not in str(refusal.value)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["usage", "message", "response", "choices", "type", "id", "prompt_tokens", "input_tokens", "metadata",
                 "output_tokens", "completion_tokens", "iterations", "timings", "usageMetadata", "candidates", "cost",
                 "service_tier", "timestamp", "created", "delta", "prompt_tokens_details", "cached_tokens", "stop",
                 "native_tokens_prompt", "cacheDetails", "inputTokens", "server_tool_use", "content", "model"]
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(JSON)
def test_whatever_stands_in_a_document_is_answered_or_refused_in_words(document: Any) -> None:
    try:
        made = told(document)
    except (DocumentError, UsageError, PriceMissing) as error:
        words = str(error)
    else:
        words = json.dumps(made, allow_nan=False)
        assert made["cost_usd"] is None or Decimal(made["cost_usd"]) >= 0
    assert "\n" not in words


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def test_a_file_is_priced_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "usage.json"
    file.write_text(json.dumps({"input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}))
    code, out, _ = run(capsys, "usage", str(file), "--model", MODEL, "--ttl", "1h", "--at", "2026-11-24")
    assert code == 0
    assert json.loads(out)["cost"] == {"cache_write_1h": "0.008"}
    assert run(capsys, "usage", str(file), "--model", "self-hosted")[1].count('"cost_usd": "0"') == 1


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [
        ('{"input_tokens": 5, "output_tokens": NaN}', [], "output_tokens must be a whole number"),
        ('{"prompt_tokens": 5, "completion_tokens": 1}', ["--model", "none-such"], "no price is known for model"),
        ('{"prompt_tokens": 5, "completion_tokens": 1}', ["--api", "gopher"], "--api"),
        ('{"prompt_tokens": 5, "completion_tokens": 1}', ["--ttl", "1d"], "--ttl"),
        ('{"prompt_tokens": 5, "completion_tokens": 1}', ["--at", "noon"], "is no date"),
        ('{"prompt_tokens": 5, "completion_tokens": 1}', ["--cache-hours", "-1"], "--cache-hours"),
        ("{", [], "is not valid JSON"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    content: str, options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "usage.json"
    file.write_text(content)
    code, out, err = run(capsys, "usage", str(file), *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "usage", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json: cannot be read" in err


@pytest.mark.parametrize("hours", ["nan", "inf", "-1", "1e9", "many"])
def test_hours_that_are_none_are_refused(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["usage", "nowhere.json", "--cache-hours", hours])
    assert end.value.code == 2
    assert f"{hours!r} is no number of hours" in capsys.readouterr().err


def test_a_mistake_names_its_source_and_its_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.jsonl"
    good, bad = '{"input_tokens": 5, "output_tokens": 1}', '{"input_tokens": -5, "output_tokens": 1}'
    file.write_text(f"{good}\n{bad}\n")
    with pytest.raises(SystemExit, match="2"):
        main(["usage", str(file), "--model", "self-hosted"])
    assert capsys.readouterr().err.startswith(f"fullchain: {file}: call 2: usage: input_tokens must be")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit, match="2"):
        main(["usage", "-", "--model", "self-hosted"])
    assert capsys.readouterr().err.startswith("fullchain: standard input: is closed")


def test_two_values_under_one_name_contradict_each_other_and_the_same_twice_does_not() -> None:
    assert parse('{"input_tokens": 10, "input_tokens": 10}') == {"input_tokens": 10}
    for twice in ('"input_tokens": 20, "input_tokens": 10', '"input_tokens": true, "input_tokens": 1'):
        for text in (f'{{"usage": {{{twice}}}}}', f'{{"usage": null}}\n{{"a": [{{{twice}}}]}}', f"data: {{{twice}}}\n"):
            with pytest.raises(DocumentError, match="'input_tokens' stands twice in one object"):
                parse(text)


@pytest.mark.parametrize(
    ("split", "tokens"),
    [
        ((10, 20), {"cache_write_5m": 20, "cache_write_1h": 20}),
        ((30, 0), {"cache_write_5m": 40, "cache_write_1h": 0}),
        ((0, 30), {"cache_write_5m": 0, "cache_write_1h": 40}),
    ],
)
def test_a_stream_that_wrote_more_than_its_start_split_by_lifetime_is_read_with_a_warning(
    split: tuple[int, int], tokens: dict[str, int]
) -> None:
    begun = {
        "input_tokens": 0,
        "cache_creation_input_tokens": 30,
        "cache_creation": dict(zip(("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"), split, strict=True)),
        "output_tokens": 1,
    }
    ended: dict[str, Any] = {"cache_creation_input_tokens": 40, "output_tokens": 0}
    made = told([start(begun), {"type": "message_delta", "usage": ended}])
    assert {name: made["tokens"][name] for name in tokens} == tokens
    short, long = tokens["cache_write_5m"], tokens["cache_write_1h"]
    assert Decimal(made["cost_usd"]) == (5 * short + 8 * Decimal(long)) / MOST
    assert any("10 more cache writes in the end than its start split by lifetime" in text for text in made["warnings"])
    # A split of the end's own that does not add up, or an end below the start, is a contradiction.
    for wrong in ({**ended, "cache_creation": begun["cache_creation"]}, {**ended, "cache_creation_input_tokens": 20}):
        with pytest.raises(UsageError, match="cache_creation adds up to 30, cache_creation_input_tokens says"):
            told([start(begun), {"type": "message_delta", "usage": wrong}])


def test_gemini_counts_without_a_total_tell_no_output_unless_they_name_it() -> None:
    bare = {"promptTokenCount": 10, "trafficType": "ON_DEMAND_FLEX"}
    with pytest.raises(OutputUntold) as caught:
        read_usage(bare)
    assert (caught.value.told, caught.value.modifiers) == (Tokens(input=10), {"service_tier": "flex"})
    made = told({"usageMetadata": {"promptTokenCount": 10}}, "gemini-3.8-flash")
    assert (made["tokens"]["input"], made["tokens"]["output"], made["cost_usd"]) == (10, None, None)
    assert Decimal(made["cost_at_least_usd"]) == Decimal("0.0000075")
    for told_all in ({"candidatesTokenCount": 0}, {"totalTokenCount": 10}):
        assert read_usage({"promptTokenCount": 10, **told_all}).tokens == Tokens(input=10)
