"""Calls written as the lines of a calls file, with the usage that their provider would have sent."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from cost_model.call_fact import CallFact
from cost_model.tokens import Tokens
from cost_model.what_if.stored_call import StoredCall
from experiments.cli import main


def usage_of(tokens: Tokens, api: str) -> dict[str, Any]:
    if api == "anthropic_messages":
        return {
            "input_tokens": tokens.input,
            "cache_read_input_tokens": tokens.cache_read,
            "cache_creation_input_tokens": tokens.cache_write_5m + tokens.cache_write_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": tokens.cache_write_5m,
                "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            },
            "output_tokens": tokens.output,
        }
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
    }


def line_of(fact: CallFact, **more: Any) -> dict[str, Any]:
    """Without what a log need not have: `more` adds it, or takes a field away with None."""
    api = "anthropic_messages" if fact.policy.write_class else "openai_chat"
    line = {
        "key": fact.key,
        "role": fact.lane,
        "model": fact.card.ref,
        "requested_at": fact.requested_at.isoformat(),
        "first_token_at": None if fact.first_token_at is None else fact.first_token_at.isoformat(),
        "usage": None if fact.tokens is None else usage_of(fact.tokens, api),
        **more,
    }
    return {name: value for name, value in line.items() if value is not None or name == "usage"}


def line_of_stored(call: StoredCall, **more: Any) -> dict[str, Any]:
    return line_of(call.fact, ended_at=call.end.isoformat(), **more)


def text_of(lines: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """`fullchain` with these arguments: its exit code, what it said and what it complained of."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def prompt_causes(call: dict[str, Any]) -> dict[str, int]:
    return {cause: told["units"] for cause, told in call["causes"].items() if told["units"]}
