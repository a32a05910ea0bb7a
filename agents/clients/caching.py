"""How a request asks for the prompt cache. Marks are overlays: they are laid on sent bytes, and are no content.

Marked are the end of the head (tools and system), the end of the newest turn, and the end of the one before it, where
the previous request left its entry. Providers with marks look back over `LOOK_BACK` blocks only, so a turn of more gets
one within: four in all, which is what a request may carry. All marks of a role have one lifetime, so that no longer
one ever stands behind a shorter one.
"""

from dataclasses import dataclass

import orjson

from agents.clients.request import Settings
from agents.lane import Lane
from agents.registry import ModelEntry
from cost_model.policies import POLICIES

LOOK_BACK = 20
CLOSE = b"}]}"
"""How a message ends that can be marked: the mark goes into its last block."""

_OPENAI_KEY_LIMIT = 64
_NEVER_MARKED = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Caching:
    """`mark` is laid into a block, b"" where nothing is; `settings` go to the request's top level."""

    mark: bytes
    settings: Settings
    looks_back: bool

    def marked(self, lane: Lane) -> list[bytes]:
        """The lane's messages with their marks; the lane's own list where there are none."""
        if not self.mark:
            return lane.messages
        previous, newest = lane.turn_ends()
        messages = lane.messages.copy()
        if self.looks_back and sum(lane.parts[previous + 1 : newest + 1]) > LOOK_BACK:
            self._mark_within(messages, lane.parts, previous, newest)
        for index in (previous, newest):
            message = messages[index] if index >= 0 else b""
            if message.endswith(CLOSE):
                messages[index] = message[: -len(CLOSE)] + self.mark + CLOSE
        return messages

    def _mark_within(self, messages: list[bytes], parts: list[int], previous: int, newest: int) -> None:
        """Marks the first block that can be marked among those over which the newest mark looks back."""
        at = sum(parts[previous + 1 : newest + 1]) - LOOK_BACK
        for index in range(previous + 1, newest + 1):
            if at < parts[index]:
                # The very last block is marked anyway.
                beyond = parts[index] - (index == newest)
                found = self._mark_block(messages[index], range(max(at, 0), beyond))
                if found is not None:
                    messages[index] = found
                    return
            at -= parts[index]

    def _mark_block(self, message: bytes, candidates: range) -> bytes | None:
        content = orjson.loads(message).get("content")
        for position in candidates if isinstance(content, list) else ():
            if position < len(content) and content[position].get("type") not in _NEVER_MARKED:
                start = message.index(b'"content":[') + len(b'"content":[')
                end = start + len(orjson.dumps(content[: position + 1])) - len(b"[}]")
                return message[:end] + self.mark + message[end:]
        return None


def caching_of(entry: ModelEntry, lifetime: str | None, key: str) -> Caching:
    """What `entry` wants to be sent for a cache of this lifetime (None: the policy's default)."""
    settings: Settings = {"prompt_cache_key": key[:_OPENAI_KEY_LIMIT]} if entry.sends_cache_key else {}
    way, mark = entry.cache_request, b""
    if way == "marks":
        named = {} if lifetime in (None, POLICIES[entry.cache].default_lifetime) else {"ttl": lifetime}
        mark = b',"cache_control":' + orjson.dumps({"type": "ephemeral", **named})
    elif way == "breakpoints":
        mark = b',"prompt_cache_breakpoint":{"mode":"explicit"}'
        settings["prompt_cache_options"] = {"mode": "explicit"} | ({"ttl": lifetime} if lifetime else {})
    elif way == "retention" and lifetime is not None:
        settings["prompt_cache_retention"] = "24h" if lifetime == "24h" else "in_memory"
    elif way == "options" and lifetime is not None:
        settings["prompt_cache_options"] = {"ttl": lifetime}
    return Caching(mark, settings, way == "marks")
