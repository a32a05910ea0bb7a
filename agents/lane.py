"""An append-only conversation with one model: each block is encoded and hashed once, and then never changes."""

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

    `wire_head` is the head as it is sent: the canonical one with its overlays, nonce and cache mark, laid on.
    `messages` holds the encoded messages in order, ready to be joined. `version` stays 0 unless a policy rewrites the
    lane on purpose.
    """

    name: str
    head: Block
    wire_head: bytes
    version: int = 0
    messages: list[bytes] = field(default_factory=list)

    @classmethod
    def open(cls, name: str, head: Message, wire_head: bytes) -> "Lane":
        return cls(name, _block(0, "system", head), wire_head)

    @property
    def blocks(self) -> int:
        return 1 + len(self.messages)

    def append(self, message: Message) -> Block:
        """Raises orjson.JSONEncodeError when the message is no JSON; the lane is then as it was."""
        block = _block(self.blocks, str(message["role"]), message)
        self.messages.append(block.encoded)
        return block


def _block(index: int, role: str, content: Message) -> Block:
    encoded = orjson.dumps(content)
    return Block(index, role, content, encoded, xxhash.xxh3_128_hexdigest(encoded), len(encoded))
