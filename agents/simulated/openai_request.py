"""Reads a request of the OpenAI chat completions protocol by the provider's rules, in its words where they are known.

The prompt is laid out as the tools, then each message as one block: its JSON as it was sent.
"""

import re
from collections.abc import Mapping

from agents.simulated.conversation import Request, Said, Speaker, Tool
from agents.simulated.errors import Refused
from agents.simulated.persona import Persona
from agents.simulated.prompt import Prompt
from agents.simulated.wire_rules import encode, tool_of, whole

# fmt: off
TAKEN = frozenset((
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "user",
    "metadata", "store", "prompt_cache_key", "safety_identifier", "service_tier", "n",
))
# fmt: on
# fmt: off
NOT_SIMULATED = frozenset((
    "stop", "response_format", "logprobs", "top_logprobs", "logit_bias", "functions", "function_call",
    "modalities", "audio", "prediction", "reasoning_effort", "verbosity", "web_search_options",
    "prompt_cache_retention", "thinking",
))
# fmt: on

_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
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
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_parameters(document: Mapping[str, object], persona: Persona) -> int:
    """Top-level parameters; returns the bound on the answer's tokens. Raises Refused."""
    for name in document:
        if name not in TAKEN:
            if name in NOT_SIMULATED:
                raise _unsupported(name, "by simulated models")
            raise Refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        if name in persona.refuses:
            raise _unsupported(name, "with this model")
    for name in ("stream", "parallel_tool_calls", "store"):
        if not isinstance(document.get(name) or False, bool):
            raise _wrong_type(name, "a boolean")
    for name, (low, high) in _BOUNDS.items():
        value = document.get(name) or 0
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise Refused(
                f"Invalid '{name}': expected a number from {low} to {high}.", param=name, code="invalid_value"
            )
    if document.get("n") not in (None, 1):
        raise _unsupported("n", "by simulated models unless it is 1")
    options = document.get("stream_options")
    if options is not None:
        if not document.get("stream"):
            raise Refused(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
            )
        if not isinstance(options, dict) or not options.keys() <= {"include_usage", "include_obfuscation"}:
            raise _wrong_type("stream_options", "an object with include_usage")
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
    tools = _tools(document.get("tools") or [], prompt)
    choice = document.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        raise _unsupported("tool_choice", "by simulated models when it forces a tool")
    if choice not in ("auto", "none", "required"):
        raise Refused("Invalid value for 'tool_choice': expected 'auto', 'none' or 'required'.", param="tool_choice")
    if choice == "required" and not tools:
        raise Refused("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    return Request("", () if choice == "none" else tools, prompt.transcript, max_tokens)


def read_message(message: object, prompt: Prompt) -> None:
    """Appends one message to the prompt."""
    index = len(prompt.points)
    path = f"messages[{index}]"
    if not isinstance(message, dict):
        raise _wrong_type(path, "an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise Refused(
            f"Invalid value for '{path}.role': expected 'system', 'developer', 'user', 'assistant' or 'tool'.",
            param=f"{path}.role",
            code="invalid_value",
        )
    for key in message:
        if key not in _MESSAGE_KEYS[role]:
            raise Refused(f"Unknown parameter: '{path}.{key}'.", param=f"{path}.{key}", code="unknown_parameter")
    calls = _calls(message.get("tool_calls"), path) if role == "assistant" else []
    text = _text(message.get("content"), f"{path}.content", optional=role == "assistant" and bool(calls))
    answers: str | None = None
    waiting = prompt.waiting
    if role == "tool":
        answers = _answered(message.get("tool_call_id"), path, index, waiting)
        waiting = tuple(call for call in waiting if call != answers)
    elif waiting:
        raise _unanswered(waiting)
    else:
        waiting = tuple(call for call, _ in calls)
    prompt.chain.add(encode(message))
    prompt.transcript.add(Said(_SPEAKERS[role], text, tuple(calls), answers))
    prompt.end_message(role, waiting)


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
    if prompt.chain.tokens > persona.context_tokens:
        raise Refused(
            f"This model's maximum context length is {persona.context_tokens} tokens. However, your messages resulted "
            f"in {prompt.chain.tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


def _tools(value: object, prompt: Prompt) -> tuple[Tool, ...]:
    if not isinstance(value, list):
        raise _wrong_type("tools", "an array")
    tools: dict[str, Tool] = {}
    for number, tool in enumerate(value):
        path = f"tools[{number}]"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(function, dict):
            raise _wrong_type(path, "an object with type 'function' and a function")
        for key in (*(key for key in tool if key not in ("type", "function")), *function):
            if key not in ("name", "description", "parameters", "strict"):
                raise Refused(f"Unknown parameter: '{path}.{key}'.", param=path, code="unknown_parameter")
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise Refused(
                f"Invalid '{path}.function.name': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'.",
                param=f"{path}.function.name",
                code="invalid_value",
            )
        if name in tools:
            raise Refused(f"Invalid 'tools': the function name '{name}' is not unique.", param="tools")
        schema = function.get("parameters", {})
        if not isinstance(schema, dict):
            raise _wrong_type(f"{path}.function.parameters", "an object")
        tools[name] = tool_of(name, function.get("description"), schema)
        prompt.chain.add(encode(tool))
    return tuple(tools.values())


def _calls(value: object, path: str) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        raise _wrong_type(f"{path}.tool_calls", "an array of at least one call")
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
            raise _wrong_type(f"{path}.tool_calls[{number}]", "a function call with id, name and arguments")
        calls.append((call["id"], function["name"]))
    return calls


def _text(content: object, path: str, *, optional: bool) -> str:
    if content is None and optional:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise Refused(f"Invalid value for '{path}': expected a string, got {_kind(content)}.", param=path)
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused(f"Invalid '{path}': simulated models take text parts alone.", param=path)
    return "\n".join(part["text"] for part in content)


def _answered(call: object, path: str, index: int, waiting: tuple[str, ...]) -> str:
    if not isinstance(call, str):
        raise Refused(
            f"Missing required parameter: '{path}.tool_call_id'.",
            param=f"{path}.tool_call_id",
            code="missing_required_parameter",
        )
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


def _unsupported(name: str, why: str) -> Refused:
    return Refused(f"Unsupported parameter: '{name}' is not supported {why}.", param=name, code="unsupported_parameter")


def _wrong_type(name: str, expected: str) -> Refused:
    return Refused(f"Invalid type for '{name}': expected {expected}.", param=name, code="invalid_type")


def _kind(value: object) -> str:
    return "null" if value is None else "an array" if isinstance(value, list) else type(value).__name__
