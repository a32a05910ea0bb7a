"""What a check makes of a model's two answers: what is as the entry says, and what is off, each with its advice."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from agents.errors import ProviderRefused, RegistryError
from agents.model_entry import ModelLimits
from agents.probe import CALLS, longest_prompts
from agents.registry import ModelEntry, load_models
from cost_model.errors import PriceMissing
from cost_model.policies import POLICIES
from cost_model.price_card import SELF_HOSTED
from cost_model.prices import PriceBook
from experiments.model_check import CheckedModel, check_model, price_card, worst_case
from tests.dripping_server import dripping
from tests.wire_answers import sse
from tests.wire_provider import Provider, Script, entry, served

SIMULATED = [name for name, each in load_models().items() if each.simulated]


def chat(*usages: Mapping[str, Any] | None, command: str | None = "echo ready") -> list[Script]:
    """One answer for each usage, which calls bash unless `command` is None."""
    scripts = []
    for usage in usages:
        delta: dict[str, Any] = {"role": "assistant", "content": "I am here."}
        if command is not None:
            function = {"name": "bash", "arguments": orjson.dumps({"command": command}).decode()}
            delta = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}],
            }
        head = {"id": "x1", "object": "chat.completion.chunk", "model": "wire-model"}
        reason = "stop" if command is None else "tool_calls"
        pieces = [
            sse({**head, "choices": [{"index": 0, "delta": delta}]}),
            sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        ]
        if usage is not None:
            pieces.append(sse({**head, "choices": [], "usage": usage}))
        scripts.append(Script([*pieces, b"data: [DONE]\n\n"]))
    return scripts


def usage(prompt: int, cached: int | None, **more: Any) -> dict[str, Any]:
    told = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20, **told, **more}


async def checked(*scripts: Script, **changes: Any) -> tuple[CheckedModel, Provider]:
    provider = Provider(*scripts)
    async with served(provider.app) as url:
        model = entry("local", base_url=f"{url}/v1", **changes)
        return await check_model(model, SELF_HOSTED), provider


@pytest.mark.parametrize("actions", ["tools", "json_schema", "fenced"])
@pytest.mark.parametrize("name", SIMULATED)
async def test_every_simulated_model_does_what_its_entry_says(name: str, actions: str) -> None:
    model = entry(name, actions=actions)
    found = await check_model(model, price_card(model, PriceBook()))
    assert found.findings == ()
    first, second = found.calls
    assert first.exchange.acted == "valid"
    assert first.tokens is not None
    assert second.tokens is not None
    assert first.tokens.cache_read == 0
    assert second.tokens.cache_read == second.predicted_read
    assert second.tokens.cache_read > 0
    assert found.usd == sum(call.usd or 0 for call in found.calls) > 0


@pytest.mark.parametrize("name", SIMULATED)
async def test_the_prompt_is_just_above_the_caches_minimum_and_the_cost_within_the_stated_worst_case(name: str) -> None:
    model = entry(name)
    card = price_card(model, PriceBook())
    found = await check_model(model, card)
    tokens = found.calls[0].tokens
    assert tokens is not None
    minimum = max(POLICIES[model.cache].minimum_tokens, 400)
    assert minimum < tokens.prompt < 2 * minimum + 400
    for call, bound in zip(found.calls, longest_prompts(model, 1000), strict=True):
        assert call.exchange.sent.prompt_bytes <= bound
    assert found.usd <= worst_case(model, card)


async def test_a_server_that_reads_its_cache_as_predicted_is_well() -> None:
    found, provider = await checked(*chat(usage(600, 0), usage(640, 592)))
    assert found.findings == ()
    assert [call.predicted_read for call in found.calls] == [0, 592]
    first, second = (each.json["messages"] for each in provider.received)
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["system", "user", "assistant", "tool"]
    assert found.calls[1].usage[:2] == (("prompt_tokens", 640), ("completion_tokens", 20))


@pytest.mark.parametrize(
    ("scripts", "changes", "what", "advice"),
    [
        (chat(usage(600, None), usage(640, None)), {}, "nothing was read from the cache", "no field for cached tokens"),
        (chat(usage(600, 0), usage(640, 0)), {}, "nothing was read from the cache, 592 tokens", "check again"),
        (chat(usage(600, 0), usage(640, 96)), {}, "96 tokens were read .* 592 were predicted", "rewrites the prompt"),
        (chat(usage(600, 0), usage(640, 592)), {"cache": "none"}, "says `cache: none`, and 592", "name the policy"),
        (chat(None, None), {}, "no usage came", "switch on the usage"),
        (chat(usage(600, 900), usage(640, 592)), {}, "the usage is not believed", "protocol"),
        (chat(usage(600, 0), usage(640, 592), command=None), {}, "only talked", "actions: json_schema"),
        (chat(usage(600, 0), usage(640, 592), command=None), {"actions": "json_schema"}, "JSON object", "fenced"),
        (chat(usage(600, 0), usage(640, 592)), {"cache": "gemini-1024"}, "fewer than the cache's minimum of 1,024", ""),
        (
            chat(usage(1600, 0), usage(1640, 0)),
            {"cache": "qwen-explicit", "caching": "marks"},
            "nothing was written to the cache",
            "caching: marks",
        ),
    ],
)
async def test_what_is_off_is_told_with_advice(
    scripts: list[Script], changes: dict[str, Any], what: str, advice: str
) -> None:
    found, _ = await checked(*scripts, **changes)
    import re

    (match,) = [each for each in found.findings if re.search(what, each.what)]
    assert re.search(advice, match.advice)


async def test_a_second_call_that_is_refused_is_a_finding_and_the_first_is_still_told() -> None:
    refused = Script(status=400, body=b'{"error": {"message": "reasoning_content is missing", "type": "invalid"}}')
    found, _ = await checked(*chat(usage(600, 0)), refused)
    assert len(found.calls) == 1
    (finding,) = found.findings
    assert "reasoning_content is missing" in finding.what
    assert "`reasoning`" in finding.advice


async def test_a_first_call_that_is_refused_is_no_check() -> None:
    key = Script(status=401, body=b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}')
    with pytest.raises(ProviderRefused) as refused:
        await checked(key)
    assert refused.value.fault == "key"


async def test_no_more_calls_are_sent_than_the_worst_case_counts() -> None:
    """A stream that broke may have been billed."""
    (answer,) = chat(usage(600, 0))
    cut = Script(answer.pieces, cut_after=1)
    provider = Provider(cut, cut, answer)
    async with served(provider.app) as url:
        with pytest.raises(ProviderRefused, match="a further try could cost more than the worst case"):
            await check_model(entry("local", base_url=f"{url}/v1"), SELF_HOSTED)
    assert len(provider.received) == CALLS


async def test_what_could_not_be_read_of_an_answer_that_came_whole_is_told() -> None:
    (answer,) = chat(usage(600, 0))
    number = b'data: {"x": ' + b"1" * 5000 + b"}\n\n"
    odd = Script([b"".join([number, *answer.pieces])])
    with pytest.raises(ProviderRefused, match=r"Exceeds the limit .* digits.*a further try could cost more"):
        await checked(odd, odd)


async def test_a_server_that_never_comes_to_an_end_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.model_check.CALL_LIMIT_S", 0.2)
    monkeypatch.setattr("agents.retry.FIRST_WAIT_S", 0.0)
    async with dripping("body") as url:
        with pytest.raises(ProviderRefused, match=r"local: ReadTimeout: no whole answer within 0\.2 s"):
            await check_model(entry("local", base_url=f"{url}/v1"), SELF_HOSTED)


async def test_tries_that_were_refused_cost_nothing_and_do_not_count() -> None:
    body = b'{"error": {"message": "busy", "type": "overloaded"}}'
    busy = Script(status=503, body=body, headers={"retry-after": "0"})
    found, provider = await checked(busy, busy, *chat(usage(600, 0), usage(640, 592)))
    assert found.findings == ()
    assert found.tries == len(provider.received) == 4


def test_a_model_whose_limits_have_no_room_for_its_cache_is_refused() -> None:
    small = entry("claude-haiku-4-5", limits=ModelLimits(max_output_tokens=1000, context_tokens=4096))
    with pytest.raises(RegistryError, match="context_tokens: 4096 has no room"):
        worst_case(small, SELF_HOSTED)


def test_a_class_without_a_price_is_found_before_anything_is_sent() -> None:
    model: ModelEntry = entry("deepseek-v4-flash", cache="anthropic-1024")
    with pytest.raises(PriceMissing, match="cache_write_5m"):
        price_card(model, PriceBook())


@pytest.mark.parametrize("name", [name for name, each in load_models().items() if not each.simulated])
def test_every_shipped_model_has_room_for_its_check(name: str) -> None:
    first, second = longest_prompts(entry(name), 1000)
    assert first < second
