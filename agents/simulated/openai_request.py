"""Reads a request of the OpenAI chat completions protocol by the provider's rules, in its words where they are known.

The prompt is laid out as the tools, then the messages. Where the cache sees no blocks a message is one block, its JSON
as it was sent. Where content parts can be marked each part is one, and so is what a message has beside its content;
content given as a plain string is one part, and a mark is no content.
"""

from collections.abc import Mapping

from agents.simulated.breakpoints import add_mark, cache_options, check_marks
from agents.simulated.conversation import Request, Said, Speaker
from agents.simulated.errors import Refused
from agents.simulated.openai_parameters import (
    check_flags,
    check_format,
    check_numbers,
    check_stream_options,
    effort,
    may_call,
    tools,
)
from agents.simulated.openai_refusals import missing, unknown, unsupported, wrong_type, wrong_value
from agents.simulated.persona import Persona
from agents.simulated.prompt import Prompt
from agents.simulated.wire_rules import encode, whole

# fmt: off
TAKEN = frozenset((
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "user",
    "metadata", "store", "prompt_cache_key", "safety_identifier", "service_tier", "n", "response_format",
    "reasoning_effort", "verbosity", "thinking", "prompt_cache_options", "prompt_cache_retention",
))
# fmt: on
# fmt: off
NOT_SIMULATED = frozenset((
    "stop", "logprobs", "top_logprobs", "logit_bias", "functions", "function_call", "modalities", "audio",
    "prediction", "web_search_options",
))
# fmt: on
_SALTING = ("response_format", "reasoning_effort", "verbosity", "thinking")
"""Settings that are part of the prefix: other ones find nothing of what these have cached."""

_SPEAKERS: dict[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MESSAGE_KEYS = {
    "system": frozenset(("role", "content", "name")),
    "developer": frozenset(("role", "content", "name")),
    "user": frozenset(("role", "content", "name")),
    "assistant": frozenset(("role", "content", "name", "tool_calls", "refusal", "reasoning_content")),
    "tool": frozenset(("role", "content", "tool_call_id")),
}


def check_parameters(document: Mapping[str, object], persona: Persona) -> int:
    """Top-level parameters; returns the bound on the answer's tokens. Raises Refused."""
    for name in document:
        if name not in TAKEN:
            if name in NOT_SIMULATED:
                raise unsupported(name, "by simulated models")
            raise unknown(name)
        if name in persona.refuses:
            raise unsupported(name, "with this model")
    if document.get("thinking") is not None and persona.shape != "deepseek":
        raise unknown("thinking")
    if document.get("prompt_cache_retention") is not None and persona.marking is None:
        raise unsupported("prompt_cache_retention", "by simulated models")
    check_flags(document, ("stream", "parallel_tool_calls", "store"))
    check_numbers(document)
    cache_options(document, persona, "openai_chat")
    if document.get("verbosity") not in (None, "low", "medium", "high"):
        raise wrong_value("verbosity", document["verbosity"], "low", "medium", "high")
    if document.get("n") not in (None, 1):
        raise unsupported("n", "by simulated models unless it is 1")
    check_stream_options(document, "include_usage", "include_obfuscation")
    bounds = [name for name in ("max_completion_tokens", "max_tokens") if document.get(name) is not None]
    if len(bounds) == 2:
        raise Refused("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for name in bounds:
        value = whole(document[name])
        if value is None or not 1 <= value <= persona.max_output_tokens:
            raise Refused(
                f"Invalid '{name}': expected a whole number from 1 to {persona.max_output_tokens}.",
                param=name,
                code="invalid_value",
            )
        return value
    return persona.max_output_tokens


def read_head(document: Mapping[str, object], prompt: Prompt, max_tokens: int) -> Request:
    """The tools, which come before every message. The system text is a message and is filled in at the end."""
    settings = {name: document[name] for name in _SALTING if document.get(name) is not None}
    if settings:
        prompt.chain.salt(encode(settings))
    offered = tools(document.get("tools") or [], prompt, nested=True)
    callable_now = may_call(document, offered=bool(offered))
    persona = prompt.persona
    thinks = _thinks(document, persona)
    if offered and thinks and persona.thinking.tokens and persona.shape == "openai":
        raise Refused(
            f"Function tools with reasoning_effort are not supported for {persona.model} in /v1/chat/completions. "
            "Please use /v1/responses instead.",
            param="reasoning_effort",
        )
    return Request(
        "",
        offered if callable_now else (),
        prompt.transcript,
        max_tokens,
        thinks=thinks,
        parallel=document.get("parallel_tool_calls") is not False,
        schema=check_format(document.get("response_format"), "response_format", nested=True),
    )


def _thinks(document: Mapping[str, object], persona: Persona) -> float:
    thinks = effort(document.get("reasoning_effort"), "reasoning_effort", persona)
    thinking = document.get("thinking")
    if thinking is None:
        return thinks
    kind = thinking.get("type") if isinstance(thinking, dict) else thinking
    if kind not in ("enabled", "disabled"):
        raise wrong_value("thinking.type", kind, "enabled", "disabled")
    return thinks if kind == "enabled" else 0.0


def read_message(message: object, prompt: Prompt) -> None:
    """Appends one message to the prompt."""
    index = len(prompt.points)
    path = f"messages[{index}]"
    if not isinstance(message, dict):
        raise wrong_type(path, "an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise Refused(
            f"Invalid value for '{path}.role': expected 'system', 'developer', 'user', 'assistant' or 'tool'.",
            param=f"{path}.role",
            code="invalid_value",
        )
    for key in message:
        if key not in _MESSAGE_KEYS[role]:
            raise unknown(f"{path}.{key}")
    calls = _calls(message.get("tool_calls"), path) if role == "assistant" else []
    optional = role == "assistant" and bool(calls)
    parts = _parts(message.get("content"), f"{path}.content", prompt.persona.marking, optional=optional)
    answers: str | None = None
    waiting = prompt.waiting
    if role == "tool":
        answers = _answered(message.get("tool_call_id"), path, index, waiting)
        waiting = tuple(call for call in waiting if call != answers)
    elif waiting:
        raise _unanswered(waiting)
    else:
        waiting = tuple(call for call, _ in calls)
    if prompt.persona.marking is None:
        prompt.chain.add(encode(message))
    else:
        _add_parts(message, role, parts, path, prompt)
    if role == "user":
        prompt.fault = ""
    elif calls and not isinstance(message.get("reasoning_content"), str):
        prompt.fault = prompt.fault or (
            f"Missing `reasoning_content` field in the assistant message at message index {index}. For more "
            "information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        )
    said = "\n".join(str(part["text"]) for part in parts)
    prompt.transcript.add(Said(_SPEAKERS[role], said, tuple(calls), answers))
    prompt.end_message(role, waiting)


def _add_parts(
    message: Mapping[str, object], role: str, parts: list[dict[str, object]], path: str, prompt: Prompt
) -> None:
    head = role.encode() + b"\n"
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    if rest:
        prompt.chain.add(head + encode(rest))
    for number, part in enumerate(parts):
        prompt.chain.add(head + encode({"type": "text", "text": part["text"]}))
        add_mark(part, f"{path}.content[{number}]", prompt)


def finish(document: Mapping[str, object], prompt: Prompt, persona: Persona) -> None:
    """What can be said only of the whole request: its end and its length."""
    if not prompt.points:
        raise Refused(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    if prompt.waiting:
        raise _unanswered(prompt.waiting)
    if prompt.role == "assistant":
        raise Refused("The last message must not be from the assistant.", param="messages")
    demands = persona.thinking.tokens and persona.thinking.demanded and persona.shape == "deepseek"
    if prompt.fault and demands and _thinks(document, persona):
        raise Refused(prompt.fault, code="invalid_request_error")
    if persona.marking == "cache_control":
        check_marks(prompt.marks)
    if prompt.chain.tokens > persona.context_tokens:
        raise Refused(
            f"This model's maximum context length is {persona.context_tokens} tokens. However, your messages resulted "
            f"in {prompt.chain.tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


def _calls(value: object, path: str) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        raise wrong_type(f"{path}.tool_calls", "an array of at least one call")
    calls: list[tuple[str, str]] = []
    for number, call in enumerate(value):
        function = call.get("function") if isinstance(call, dict) else None
        if (
            not isinstance(call, dict)
            or call.get("type") != "function"
            or not isinstance(call.get("id"), str)
            or not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not isinstance(function.get("arguments"), str)
        ):
            raise wrong_type(f"{path}.tool_calls[{number}]", "a function call with id, name and arguments")
        calls.append((call["id"], function["name"]))
    return calls


def _parts(content: object, path: str, marking: str | None, *, optional: bool) -> list[dict[str, object]]:
    """The text parts of a content; a plain string is one."""
    if content is None and optional:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise Refused(f"Invalid value for '{path}': expected a string, got {_kind(content)}.", param=path)
    for number, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused(f"Invalid '{path}': simulated models take text parts alone.", param=path)
        for key in part:
            if key not in ("type", "text", marking):
                raise unknown(f"{path}[{number}].{key}")
    return content


def _answered(call: object, path: str, index: int, waiting: tuple[str, ...]) -> str:
    if not isinstance(call, str):
        raise missing(f"{path}.tool_call_id")
    if call not in waiting:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            param=f"messages.[{index}].role",
        )
    return call


def _unanswered(calls: tuple[str, ...]) -> Refused:
    return Refused(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(calls)[:300]}",
        param="messages",
    )


def _kind(value: object) -> str:
    return "null" if value is None else "an array" if isinstance(value, list) else type(value).__name__
