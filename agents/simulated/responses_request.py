"""Reads a request of the OpenAI Responses protocol by the provider's rules, in its words where they are known.

The prompt is laid out as the tools, the instructions, then the input items. A content part is one block (role and
text), and so are a call, the head of its output, and a reasoning item. Ids, states and annotations are no content, a
breakpoint neither. Nothing is persisted: what an item refers to must be in the request.
"""

from collections.abc import Mapping
from typing import Any

from agents.simulated.breakpoints import add_mark
from agents.simulated.conversation import Request, Said, Speaker
from agents.simulated.errors import Refused
from agents.simulated.openai_parameters import check_format, effort, may_call, tools
from agents.simulated.openai_refusals import missing, unknown, wrong_type, wrong_value
from agents.simulated.persona import Persona
from agents.simulated.prompt import Prompt, Reasoning
from agents.simulated.responses_parameters import check_parameters, settings
from agents.simulated.thought import Thought, issued, unseal
from agents.simulated.wire_rules import encode

__all__ = ["check_parameters", "finish", "read_head", "read_message"]

_SPEAKERS: dict[str, Speaker] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_ITEM_KEYS = {
    "message": frozenset(("type", "role", "content", "id", "status", "phase")),
    "function_call": frozenset(("type", "call_id", "name", "arguments", "id", "status")),
    "function_call_output": frozenset(("type", "call_id", "output", "id", "status")),
    "reasoning": frozenset(("type", "id", "summary", "content", "encrypted_content", "status")),
}
_OUTPUT_TEXT = frozenset(("type", "text", "annotations", "logprobs"))


def read_head(document: Mapping[str, object], prompt: Prompt, max_tokens: int) -> Request:
    """Tools and instructions, which come before every item."""
    text, reasoning = settings(document)
    salt = {**text, "effort": reasoning.get("effort")}
    if any(value is not None for value in salt.values()):
        # They are part of the prefix: other ones find nothing of what these have cached.
        prompt.chain.salt(encode(salt))
    offered = tools(document.get("tools") or [], prompt, nested=False)
    instructions = document.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise wrong_type("instructions", "a string")
        prompt.chain.add(b"system\n" + encode({"type": "input_text", "text": instructions}))
        prompt.transcript.tell(instructions)
    return Request(
        instructions or "",
        offered if may_call(document, offered=bool(offered)) else (),
        prompt.transcript,
        max_tokens,
        thinks=effort(reasoning.get("effort"), "reasoning.effort", prompt.persona),
        parallel=document.get("parallel_tool_calls") is not False,
        schema=check_format(text.get("format"), "text.format", nested=False),
    )


def read_message(item: object, prompt: Prompt) -> None:
    """Appends one input item to the prompt."""
    path = f"input[{len(prompt.points)}]"
    if not isinstance(item, dict):
        raise wrong_type(path, "an object")
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "item_reference":
        raise _not_found(str(item.get("id"))[:100])
    if not isinstance(kind, str) or kind not in _ITEM_KEYS:
        raise wrong_value(f"{path}.type", kind, *_ITEM_KEYS)
    for key in item:
        if key not in _ITEM_KEYS[kind]:
            raise unknown(f"{path}.{key}")
    if prompt.reasoning is not None and not prompt.reasoning.followed:
        if kind != "function_call" and not (kind == "message" and item.get("role") == "assistant"):
            raise _unfollowed(prompt.reasoning.id)
        prompt.reasoning = prompt.reasoning._replace(followed=True)
    _READERS[kind](item, path, prompt)


def finish(document: Mapping[str, object], prompt: Prompt, persona: Persona) -> None:
    """What can be said only of the whole request: its end and its length."""
    if not prompt.points:
        raise missing("input")
    if prompt.reasoning is not None and not prompt.reasoning.followed:
        raise _unfollowed(prompt.reasoning.id)
    if prompt.waiting:
        raise Refused(f"No tool output found for function call {prompt.waiting[0][:100]}.", param="input")
    if prompt.chain.tokens > persona.context_tokens:
        raise Refused(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code="context_length_exceeded",
        )


def _read_words(item: Mapping[str, Any], path: str, prompt: Prompt) -> None:
    role = item.get("role")
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise wrong_value(f"{path}.role", role, *_SPEAKERS)
    if role == "assistant":
        _check_reasoned(item.get("id"), item.get("id"), "message", prompt)
    expected = "output_text" if role == "assistant" else "input_text"
    text = _add_parts(item.get("content"), role, expected, f"{path}.content", prompt)
    prompt.transcript.add(Said(_SPEAKERS[role], text))
    prompt.end_message(role, prompt.waiting)


def _read_call(item: Mapping[str, Any], path: str, prompt: Prompt) -> None:
    for name in ("call_id", "name", "arguments"):
        if not isinstance(item.get(name), str):
            raise missing(f"{path}.{name}")
    call, name = item["call_id"], item["name"]
    _check_reasoned(call, item.get("id") or call, "function_call", prompt)
    prompt.chain.add(encode({"type": "function_call", "call_id": call, "name": name, "arguments": item["arguments"]}))
    prompt.transcript.add(Said("assistant", "", ((call, name),)))
    prompt.end_message("assistant", (*prompt.waiting, call))


def _read_output(item: Mapping[str, Any], path: str, prompt: Prompt) -> None:
    call = item.get("call_id")
    if not isinstance(call, str):
        raise missing(f"{path}.call_id")
    if call not in prompt.waiting:
        raise Refused(f"No tool call found for function call output with call_id {call[:100]}.", param="input")
    if "output" not in item:
        raise missing(f"{path}.output")
    prompt.chain.add(encode({"type": "function_call_output", "call_id": call}))
    text = _add_parts(item["output"], "tool", "input_text", f"{path}.output", prompt)
    prompt.transcript.add(Said("tool", text, (), call))
    prompt.end_message("tool", tuple(waiting for waiting in prompt.waiting if waiting != call))


def _read_reasoning(item: Mapping[str, Any], path: str, prompt: Prompt) -> None:
    name, summary, sealed = item.get("id"), item.get("summary"), item.get("encrypted_content")
    if not isinstance(name, str):
        raise missing(f"{path}.id")
    if not isinstance(summary, list):
        raise missing(f"{path}.summary")
    if sealed is None:
        raise _not_found(name[:100])
    text = unseal(prompt.persona.model, sealed) if isinstance(sealed, str) else None
    if text is None:
        raise Refused(
            f"The encrypted content for item {name[:100]} could not be verified. Reason: Encrypted content could not "
            "be decrypted or parsed.",
            code="invalid_encrypted_content",
        )
    prompt.chain.add(encode({"type": "reasoning", "summary": summary, "encrypted_content": sealed}))
    prompt.reasoning = Reasoning(name[:100], (Thought(text),), followed=False)
    prompt.end_message("reasoning", prompt.waiting)


_READERS = {
    "message": _read_words,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "reasoning": _read_reasoning,
}


def _check_reasoned(checked: object, named: object, kind: str, prompt: Prompt) -> None:
    """An item that this model gave after it had thought needs that very thought before it."""
    model, origin = prompt.persona.model, issued(checked) if isinstance(checked, str) else None
    if not prompt.persona.thinking.tokens or origin is None or origin.follows(model, ()):
        return
    if prompt.reasoning is None or not origin.follows(model, prompt.reasoning.thoughts):
        raise Refused(
            f"Item '{str(named)[:100]}' of type '{kind}' was provided without its required 'reasoning' item: "
            f"'{origin.reasoning}'.",
            param="input",
        )


def _add_parts(content: object, role: str, expected: str, path: str, prompt: Prompt) -> str:
    """Adds the text parts of a content (a plain string is one) and their breakpoints; returns the text."""
    if isinstance(content, str):
        content = [{"type": expected, "text": content}]
    if not isinstance(content, list) or not content:
        raise wrong_type(path, "a string or an array of at least one part")
    texts: list[str] = []
    for number, part in enumerate(content):
        where = f"{path}[{number}]"
        if not isinstance(part, dict):
            raise wrong_type(where, "an object")
        if part.get("type") != expected:
            raise wrong_value(f"{where}.type", part.get("type"), expected)
        if not isinstance(part.get("text"), str):
            raise missing(f"{where}.text")
        known = _OUTPUT_TEXT if role == "assistant" else ("type", "text", prompt.persona.marking)
        for key in part:
            if key not in known:
                raise unknown(f"{where}.{key}")
        prompt.chain.add(role.encode() + b"\n" + encode({"type": expected, "text": part["text"]}))
        if role != "assistant":
            add_mark(part, where, prompt)
        texts.append(part["text"])
    return "\n".join(texts)


def _not_found(name: str) -> Refused:
    return Refused(
        f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        status=404,
        param="input",
    )


def _unfollowed(name: str) -> Refused:
    return Refused(
        f"Item '{name}' of type 'reasoning' was provided without its required following item.", param="input"
    )
