"""An append-only conversation with one model: each block is encoded and hashed once, and then never changes,
unless a stated policy rewrites the lane."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson
import xxhash

Message = dict[str, object]
"""One message in the shape of its wire protocol, keys in the order in which they are sent."""


@dataclass(frozen=True, slots=True)
class Block:
    """`encoded` is the canonical content as JSON; `hash` (xxh128, hex) and `size` (bytes) are those of `encoded`."""

    index: int
    role: str
    content: Message
    encoded: bytes
    hash: str
    size: int


@dataclass(slots=True)
class Lane:
    """Block 0 is the head (tools and system text), each message is one more.

    `wire_head` is the request up to the first message as it is sent: settings, and the canonical head with its
    overlays, nonce and cache mark, laid on. `messages` holds the encoded messages in order, ready to be joined, and
    `parts` how many content blocks each has. `on_wire` makes of a message's encoded content what is sent, where that is
    not the same. `version` stays 0 unless a policy rewrites the lane on purpose.
    """

    name: str
    head: Block
    wire_head: bytes
    on_wire: Callable[[bytes], bytes] | None = None
    version: int = 0
    messages: list[bytes] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    _heard: int = -1
    _turn_ends: tuple[int, int] = (-1, -1)
    _request_ends: list[int] = field(default_factory=list)

    @classmethod
    def open(
        cls, name: str, head: Message, wire_head: bytes, on_wire: Callable[[bytes], bytes] | None = None
    ) -> "Lane":
        return cls(name, _block(0, "system", head), wire_head, on_wire)

    @property
    def blocks(self) -> int:
        return 1 + len(self.messages)

    def append(self, message: Message) -> Block:
        """Raises orjson.JSONEncodeError when the message is no JSON; the lane is then as it was."""
        block = _block(self.blocks, str(message["role"]), message)
        self._add(block)
        return block

    def _add(self, block: Block) -> None:
        if block.role != "assistant":
            self._heard = len(self.messages)
        self.messages.append(block.encoded if self.on_wire is None else self.on_wire(block.encoded))
        content, calls = block.content.get("content"), block.content.get("tool_calls")
        self.parts.append(
            (len(content) if isinstance(content, list) else 1) + (len(calls) if isinstance(calls, list) else 0)
        )

    def rewrite(self, first: int, messages: Sequence[Message]) -> list[Block]:
        """Puts `messages` in the place of all from index `first` on, as another version, and returns their blocks.

        To be called by a stated policy alone: whatever the cache holds behind the altered place is lost to the lane.
        Raises orjson.JSONEncodeError when one is no JSON; the lane is then as it was.
        """
        blocks = [_block(1 + first + n, str(message["role"]), message) for n, message in enumerate(messages)]
        del self.messages[first:], self.parts[first:]
        # What an earlier request left in the cache can still be read up to its end, if that was not altered.
        del self._request_ends[bisect_left(self._request_ends, first) :]
        self._heard = self._request_ends[-1] if self._request_ends else -1
        self._turn_ends = (-1, self._heard)
        self.version += 1
        for block in blocks:
            self._add(block)
        return blocks

    @property
    def asked(self) -> int:
        """How many messages the last request held: what the model said to it is not among them."""
        return self._heard + 1

    def turn_ends(self) -> tuple[int, int]:
        """The indexes of the messages at whose ends the last two requests (the coming one is the last) want their
        cache entries: the newest message that the model did not say itself, then and now. -1 where there is none.

        To be asked for each request that is rendered; a request that is tried again changes nothing.
        """
        if self._heard != self._turn_ends[1]:
            self._turn_ends = (self._turn_ends[1], self._heard)
            self._request_ends.append(self._heard)
        return self._turn_ends


def _block(index: int, role: str, content: Message) -> Block:
    encoded = orjson.dumps(content)
    return Block(index, role, content, encoded, xxhash.xxh3_128_hexdigest(encoded), len(encoded))
