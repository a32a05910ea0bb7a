"""Reward files are hostile: whatever the bytes, there come finite numbers or one short reason."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.reward import LIMIT, RewardInvalid, parse_json, parse_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def accepted(value: object) -> bool:
    """The rule, stated once more and independently."""
    return (
        isinstance(value, dict)
        and len(value) > 0
        and all(
            key and len(key) <= 200 and key.isprintable() and type(number) in (int, float) and abs(number) < 1.8e308
            for key, number in value.items()
        )
    )


@given(st.dictionaries(st.text("abc_", min_size=1), st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_an_object_of_finite_numbers_comes_back_as_it_is(rewards: dict[str, float]) -> None:
    assert parse_json(json.dumps(rewards).encode()) == rewards


@given(JSON)
def test_any_json_is_accepted_or_refused_by_the_rule(value: object) -> None:
    data = json.dumps(value).encode()
    if accepted(value):
        assert all(math.isfinite(number) for number in parse_json(data).values())
    else:
        with pytest.raises(RewardInvalid):
            parse_json(data)


@given(st.binary(max_size=200))
def test_any_bytes_give_finite_numbers_or_a_reason(data: bytes) -> None:
    for parse in (parse_json, parse_text):
        try:
            rewards = parse(data)
        except RewardInvalid as error:
            reason = str(error)
        else:
            reason = "none"
            assert rewards
            assert all(math.isfinite(number) for number in rewards.values())
        assert 0 < len(reason) < 120
        assert "\n" not in reason


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_text_reward_is_one_number_with_white_space_around(number: float) -> None:
    assert parse_text(f" {number!r}\n".encode()) == {"reward": number}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "reward.json is empty"),
        (b" \n", "reward.json is empty"),
        (b"{", "reward.json is no JSON"),
        (b"1", "reward.json is no object"),
        (b"[1]", "reward.json is no object"),
        (b"{}", "reward.json has no keys"),
        (b'{"reward": true}', "reward.json has a value that is no number"),
        (b'{"reward": "1"}', "reward.json has a value that is no number"),
        (b'{"reward": null}', "reward.json has a value that is no number"),
        (b'{"reward": {"a": 1}}', "reward.json has a value that is no number"),
        (b'{"reward": NaN}', "reward.json has a value that is not finite"),
        (b'{"reward": -Infinity}', "reward.json has a value that is not finite"),
        (b'{"reward": 1e999}', "reward.json has a value that is not finite"),
        (b'{"reward": 1' + b"0" * 400 + b"}", "reward.json has a value that is not finite"),
        (b'{"reward": 1' + b"0" * 9000 + b"}", "reward.json is no JSON"),
        (b'{"\\ud800": 1}', "reward.json has a key that is empty, unprintable or longer than 200 characters"),
        (b'{"": 1}', "reward.json has a key that is empty, unprintable or longer than 200 characters"),
        (b'{"reward": 1}\xff', "reward.json is not UTF-8"),
        (b'{"a":' * 12_000, "reward.json is no JSON"),
        (b"[" * LIMIT, "reward.json is no JSON"),
        (b" " * LIMIT + b"{}", f"reward.json is larger than {LIMIT} bytes"),
    ],
)
def test_each_wrong_reward_json_has_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RewardInvalid) as caught:
        parse_json(data)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\n", "reward.txt is empty"),
        (b"one", "reward.txt is no number"),
        (b"1 2", "reward.txt is no number"),
        (b"nan", "reward.txt is not finite"),
        (b"-inf", "reward.txt is not finite"),
        (b"9" * 5000, "reward.txt is not finite"),
        (b"\xff", "reward.txt is not UTF-8"),
        (b"1" * (LIMIT + 1), f"reward.txt is larger than {LIMIT} bytes"),
    ],
)
def test_each_wrong_reward_txt_has_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RewardInvalid) as caught:
        parse_text(data)
    assert str(caught.value) == reason
