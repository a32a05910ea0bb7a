"""Reads what a verifier wrote as its reward. The bytes are hostile: the task's tests may have run the agent's code."""

import json
import math
from typing import NoReturn

LIMIT = 65_536
"""Bytes of a reward file that are accepted."""

_KEY_LENGTH = 200


class RewardInvalid(ValueError):
    """A reward file that is no reward; the message says why, without the file's bytes."""


def parse_json(data: bytes) -> dict[str, float]:
    """reward.json: an object of at least one finite number. Raises RewardInvalid."""
    text = _text(data, "reward.json")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RewardInvalid:
        raise
    except (ValueError, RecursionError):
        # ValueError also stands for a number of more digits than the interpreter converts.
        raise RewardInvalid("reward.json is no JSON") from None
    if not isinstance(value, dict):
        raise RewardInvalid("reward.json is no object")
    if not value:
        raise RewardInvalid("reward.json has no keys")
    return {_key(key): _number(number) for key, number in value.items()}


def parse_text(data: bytes) -> dict[str, float]:
    """reward.txt: one finite number, returned as {"reward": number}. Raises RewardInvalid."""
    try:
        number = float(_text(data, "reward.txt"))
    except RewardInvalid:
        raise
    except ValueError:
        raise RewardInvalid("reward.txt is no number") from None
    if not math.isfinite(number):
        raise RewardInvalid("reward.txt is not finite")
    return {"reward": number}


def _text(data: bytes, name: str) -> str:
    if len(data) > LIMIT:
        raise RewardInvalid(f"{name} is larger than {LIMIT} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RewardInvalid(f"{name} is not UTF-8") from None
    if not text.strip():
        raise RewardInvalid(f"{name} is empty")
    return text


def _key(key: str) -> str:
    # Unprintable text covers lone surrogates, which no later encoder takes.
    if not key or len(key) > _KEY_LENGTH or not key.isprintable():
        raise RewardInvalid(f"reward.json has a key that is empty, unprintable or longer than {_KEY_LENGTH} characters")
    return key


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RewardInvalid("reward.json has a value that is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RewardInvalid("reward.json has a value that is not finite")
    return number


def _no_constant(name: str) -> NoReturn:
    raise RewardInvalid("reward.json has a value that is not finite")
