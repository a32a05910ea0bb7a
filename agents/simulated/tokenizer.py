"""The one tokenizer of every simulated model: four bytes of UTF-8 are one token, and each block rounds up.

It is additive over blocks and depends on nothing but bytes, so that a count can be checked with a calculator. Real
tokenizers differ by language and content; no figure of a simulated run claims to match them.
"""

BYTES_PER_TOKEN = 4


def count(block: bytes) -> int:
    """Tokens of one block; 0 only for an empty one."""
    return (len(block) + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN
