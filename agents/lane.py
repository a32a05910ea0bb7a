"""An append-only conversation with one model: each block is encoded and hashed once, and then never changes."""

from collections.abc import Callable
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
        role = str(message["role"])
        block = _block(self.blocks, role, message)
        if role != "assistant":
            self._heard = len(self.messages)
        self.messages.append(block.encoded if self.on_wire is None else self.on_wire(block.encoded))
        content, calls = message.get("content"), message.get("tool_calls")
        self.parts.append(
            (len(content) if isinstance(content, list) else 1) + (len(calls) if isinstance(calls, list) else 0)
        )
        return block

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
        return self._turn_ends


def _block(index: int, role: str, content: Message) -> Block:
    encoded = orjson.dumps(content)
    return Block(index, role, content, encoded, xxhash.xxh3_128_hexdigest(encoded), len(encoded))
