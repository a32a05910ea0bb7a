"""Rolling hashes of a prompt: what a prefix cache matches on.

A link hashes the link before it and the bytes of its own block (or unit), so that equal links mean equal prefixes and
one changed byte changes every link from there on. A chain can be cut back to a state that it had before, which is how
the beginning of a known conversation is not hashed twice.
"""

from collections.abc import Hashable
from typing import NamedTuple, Protocol, Self

import xxhash

from agents.simulated.tokenizer import BYTES_PER_TOKEN, count


class State(NamedTuple):
    """Where a chain stood: how many links, the last link, the bytes not linked yet, the tokens so far."""

    links: int
    link: bytes
    pending: bytes
    tokens: int


class Chain(Protocol):
    """`tokens` is the size of the prompt so far; `links` are the hashes of its prefixes, shortest first."""

    links: list[bytes]
    tokens: int

    def add(self, block: bytes) -> None:
        """Appends one block of the prompt."""

    def salt(self, data: bytes) -> None:
        """Makes everything after this point depend on `data`, which is no content and counts no token."""

    def state(self) -> State: ...

    def cut(self, state: State) -> Self:
        """A chain of its own that stands where this one stood at `state`."""


class BlockChain:
    """One link a block: for caches that match at marked blocks. `ends[i]` is the tokens up to and with block i."""

    def __init__(self) -> None:
        self.links: list[bytes] = []
        self.ends: list[int] = []
        self.tokens = 0
        self._link = b""

    def add(self, block: bytes) -> None:
        self._link = xxhash.xxh3_128_digest(self._link + block)
        self.tokens += count(block)
        self.links.append(self._link)
        self.ends.append(self.tokens)

    def salt(self, data: bytes) -> None:
        self._link = xxhash.xxh3_128_digest(self._link + b"\0" + data)

    def state(self) -> State:
        return State(len(self.links), self._link, b"", self.tokens)

    def cut(self, state: State) -> "BlockChain":
        chain = BlockChain()
        chain.links = self.links[: state.links]
        chain.ends = self.ends[: state.links]
        chain.tokens = state.tokens
        chain._link = state.link
        return chain


class UnitChain:
    """One link per `unit` tokens: for caches that match in steps and see no blocks.

    Blocks are padded to whole tokens and laid end to end; a link closes when `unit` tokens are full.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.links: list[bytes] = []
        self.tokens = 0
        self._link = b""
        self._pending = b""

    def add(self, block: bytes) -> None:
        tokens = count(block)
        self.tokens += tokens
        stream = self._pending + block.ljust(tokens * BYTES_PER_TOKEN, b"\0")
        size = self.unit * BYTES_PER_TOKEN
        start = 0
        link = self._link
        for start in range(size, len(stream) + 1, size):
            link = xxhash.xxh3_128_digest(link + stream[start - size : start])
            self.links.append(link)
        self._link = link
        self._pending = stream[start:]

    def salt(self, data: bytes) -> None:
        self._link = xxhash.xxh3_128_digest(self._link + b"\0" + data)

    def state(self) -> State:
        return State(len(self.links), self._link, self._pending, self.tokens)

    def cut(self, state: State) -> "UnitChain":
        chain = UnitChain(self.unit)
        chain.links = self.links[: state.links]
        chain.tokens = state.tokens
        chain._link = state.link
        chain._pending = state.pending
        return chain


def fingerprint(parts: tuple[Hashable, ...]) -> str:
    """A short stable name for a tuple of strings and bytes: 32 hex digits."""
    digest = xxhash.xxh3_128()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
