"""Reads a request of the Anthropic Messages protocol by the provider's rules, in its words where they are known.

Blocks are numbered in the order in which the provider lays a prompt out: tools, system text, messages. A cache mark is
no content: it is taken off before a block is counted and hashed.
"""

import re
from collections.abc import Mapping

from agents.simulated.anthropic_parameters import SETTINGS, by_schema, check_parameters, thinks
from agents.simulated.anthropic_thinking import fault_of, read_thought
from agents.simulated.breakpoints import check_marks
from agents.simulated.conversation import Request, Said, Tool
from agents.simulated.errors import Refused
from agents.simulated.persona import Persona
from agents.simulated.prefix_cache import Mark
from agents.simulated.prompt import Prompt
from agents.simulated.thought import Thought
from agents.simulated.wire_rules import encode, tool_of

__all__ = ["check_parameters", "finish", "read_head", "read_message"]

_TOOL_KEYS = frozenset(["name", "description", "input_schema", "cache_control", "type", "strict", "input_examples"])
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_BLOCK_KEYS = {
    "text": frozenset(("type", "text", "cache_control", "citations")),
    "tool_use": frozenset(("type", "id", "name", "input", "cache_control")),
    "tool_result": frozenset(("type", "tool_use_id", "content", "is_error", "cache_control")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "redacted_thinking": frozenset(("type", "data")),
}


def read_head(document: Mapping[str, object], prompt: Prompt, max_tokens: int) -> Request:
    """Tools and system text, which come before every message. The transcript is the prompt's, read on later."""
    tools = _tools(document.get("tools", []), prompt)
    system = _system(document.get("system", []), prompt)
    prompt.transcript.tell(system)
    choice = document.get("tool_choice", {"type": "auto"})
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "none", "tool"):
        raise Refused("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if choice["type"] == "tool":
        raise Refused("tool_choice: simulated models do not take a forced tool")
    if choice["type"] == "any" and not tools:
        raise Refused("tool_choice: tool_choice may only be specified while providing tools.")
    amount = thinks(document, prompt.persona)
    if choice["type"] == "any" and amount and prompt.persona.thinking.tokens:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    settings = {name: document[name] for name in SETTINGS if name in document}
    if settings:
        prompt.chain.salt(encode(settings))
    return Request(
        system,
        () if choice["type"] == "none" else tools,
        prompt.transcript,
        max_tokens,
        thinks=amount,
        parallel=choice.get("disable_parallel_tool_use") is not True,
        schema=by_schema(document),
    )


def read_message(message: object, prompt: Prompt) -> None:
    """Appends one message to the prompt."""
    index = len(prompt.points)
    path = f"messages.{index}"
    if not isinstance(message, dict):
        raise Refused(f"{path}: Input should be an object")
    for key in message:
        if key not in ("role", "content"):
            raise Refused(f"{path}.{key}: Extra inputs are not permitted")
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise Refused(f"{path}.role: Input should be 'user' or 'assistant'")
    if index == 0 and role != "user":
        raise Refused('messages: first message must use the "user" role')
    content = message.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if content in ("", []):
        raise Refused(f"{path}: all messages must have non-empty content")
    if not isinstance(content, list):
        raise Refused(f"{path}.content: Input should be a valid string or list")
    calls: list[tuple[str, str]] = []
    texts: list[str] = []
    results: list[Said] = []
    kinds: list[str] = []
    thoughts: list[Thought] = []
    for number, block in enumerate(content):
        where = f"{path}.content.{number}"
        kind = _add_block(block, role, where, prompt)
        kinds.append(kind)
        if kind == "text":
            texts.append(block["text"])
        elif kind == "tool_use":
            if any(block["id"] == call for call, _ in calls):
                raise Refused(f"{path}: `tool_use` ids must be unique")
            calls.append((block["id"], block["name"]))
        elif kind != "tool_result":
            thoughts.append(read_thought(block, where, prompt))
        else:
            if texts:
                raise Refused(f"{where}: `tool_result` blocks must come first in the content of a message")
            results.append(Said("tool", _result_text(block), (), block["tool_use_id"]))
    _check_results(prompt, path, index, [result.answers or "" for result in results])
    for result in results:
        prompt.transcript.add(result)
    if texts or calls:
        prompt.transcript.add(Said(role, "\n".join(texts), tuple(calls)))
    if role == "assistant":
        prompt.fault = fault_of(prompt, path, kinds, thoughts, [call for call, _ in calls])
    prompt.end_message(role, tuple(call for call, _ in calls))


def finish(document: Mapping[str, object], prompt: Prompt, persona: Persona) -> None:
    """What can be said only of the whole request: its end, its marks, its length."""
    if not prompt.points:
        raise Refused("messages: at least one message is required")
    if prompt.waiting:
        raise _unanswered(len(prompt.points) - 1, prompt.waiting)
    if prompt.role == "assistant":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    if "cache_control" in document:
        lifetime = _lifetime(document["cache_control"], "cache_control")
        last = len(prompt.chain.links) - 1
        if any(mark.block == last and mark.lifetime != lifetime for mark in prompt.marks):
            raise Refused("cache_control: the last block is marked with another ttl already")
        if not any(mark.block == last for mark in prompt.marks):
            prompt.marks.append(Mark(last, lifetime, "cache_control"))
    check_marks(prompt.marks)
    if prompt.fault and thinks(document, persona):
        raise Refused(prompt.fault)
    if prompt.chain.tokens > persona.context_tokens:
        raise Refused(f"prompt is too long: {prompt.chain.tokens} tokens > {persona.context_tokens} maximum")


def _tools(value: object, prompt: Prompt) -> tuple[Tool, ...]:
    if not isinstance(value, list):
        raise Refused("tools: Input should be a valid list")
    tools: dict[str, Tool] = {}
    for number, tool in enumerate(value):
        path = f"tools.{number}"
        if not isinstance(tool, dict):
            raise Refused(f"{path}: Input should be an object")
        if tool.get("type", "custom") != "custom":
            raise Refused(f"{path}.type: simulated models take tools of type 'custom' alone")
        for key in tool:
            if key not in _TOOL_KEYS:
                raise Refused(f"{path}.custom.{key}: Extra inputs are not permitted")
        name = tool.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise Refused(f"{path}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in tools:
            raise Refused("tools: Tool names must be unique.")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise Refused(f"{path}.custom.input_schema: Input should be an object schema with type 'object'")
        tools[name] = tool_of(name, tool.get("description"), schema)
        _add(tool, "tool", path, prompt)
    return tuple(tools.values())


def _system(value: object, prompt: Prompt) -> str:
    if isinstance(value, str):
        value = [{"type": "text", "text": value}] if value else []
    if not isinstance(value, list):
        raise Refused("system: Input should be a valid string or list")
    texts = []
    for number, block in enumerate(value):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Refused(f"system.{number}.type: Input should be 'text'")
        _add_block(block, "system", f"system.{number}", prompt)
        texts.append(block["text"])
    return "\n".join(texts)


def _add_block(block: object, role: str, path: str, prompt: Prompt) -> str:
    """Checks a content block and appends it; returns its type."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str) or kind not in _BLOCK_KEYS:
        raise Refused(f"{path}.type: simulated models take blocks of type {', '.join(map(repr, _BLOCK_KEYS))}")
    for key in block:
        if key not in _BLOCK_KEYS[kind]:
            raise Refused(f"{path}.{kind}.{key}: Extra inputs are not permitted")
    if kind == "text":
        if not isinstance(block.get("text"), str):
            raise Refused(f"{path}.text.text: Input should be a valid string")
        if not block["text"].strip():
            raise Refused(f"{path}: text content blocks must contain non-whitespace text")
    elif kind == "tool_use":
        if role != "assistant":
            raise Refused(f"{path}: `tool_use` blocks can only be in `assistant` messages")
        if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
            raise Refused(f"{path}.tool_use: id and name should be valid strings")
        if not isinstance(block.get("input"), dict):
            raise Refused(f"{path}.tool_use.input: Input should be a valid dictionary")
    elif kind != "tool_result":
        if role != "assistant":
            raise Refused(f"{path}: `{kind}` blocks can only be in `assistant` messages")
    else:
        if role != "user":
            raise Refused(f"{path}: `tool_result` blocks can only be in `user` messages")
        if not isinstance(block.get("tool_use_id"), str):
            raise Refused(f"{path}.tool_result.tool_use_id: Field required")
        _check_result_content(block.get("content", ""), f"{path}.tool_result.content")
        if not isinstance(block.get("is_error", False), bool):
            raise Refused(f"{path}.tool_result.is_error: Input should be a valid boolean")
    _add(block, role, path, prompt)
    return kind


def _add(block: dict[str, object], role: str, path: str, prompt: Prompt) -> None:
    mark = block.get("cache_control")
    if "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    prompt.chain.add(role.encode() + b"\n" + encode(block))
    if mark is not None:
        at = f"{path}.cache_control"
        prompt.marks.append(Mark(len(prompt.chain.links) - 1, _lifetime(mark, at), at))


def _lifetime(mark: object, path: str) -> str:
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or not mark.keys() <= {"type", "ttl"}:
        raise Refused(f"{path}: Input should be an object with type 'ephemeral' and, at most, a ttl")
    lifetime = mark.get("ttl", "5m")
    if lifetime not in ("5m", "1h"):
        raise Refused(f"{path}.ephemeral.ttl: Input should be '5m' or '1h'")
    return str(lifetime)


def _check_result_content(content: object, path: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refused(f"{path}: Input should be a valid string or list")
    for number, part in enumerate(content):
        if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text":
            raise Refused(f"{path}.{number}: simulated models take text blocks alone in a tool result")
        if not isinstance(part["text"], str):
            raise Refused(f"{path}.{number}.text: Input should be a valid string")


def _result_text(block: Mapping[str, object]) -> str:
    content = block.get("content", "")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return str(content)


def _check_results(prompt: Prompt, path: str, index: int, answers: list[str]) -> None:
    """Every call of the message before is answered here, once, and nothing else is."""
    for number, answer in enumerate(answers):
        if answer not in prompt.waiting:
            raise Refused(
                f"{path}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {answer[:100]}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if answer in answers[:number]:
            raise Refused(
                f"{path}.content.{number}: each tool_use must have a single result. Found multiple `tool_result` "
                f"blocks with id: {answer[:100]}"
            )
    missing = tuple(call for call in prompt.waiting if call not in answers)
    if missing:
        raise _unanswered(index - 1, missing)


def _unanswered(index: int, calls: tuple[str, ...]) -> Refused:
    return Refused(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)[:300]}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )
