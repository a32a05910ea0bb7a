"""Requirements of tasks: how they are read, compared and looked for inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.requires import Requirement
from tests.sandbox_tasks import bubblewrap


@pytest.mark.parametrize(
    ("text", "version", "accepted"),
    [
        ("python>=3.9", "3.10.1", True),
        ("python>=3.9", "3.9", True),
        ("python>=3.9", "3.8.19", False),
        ("numpy==1.26.0", "1.26", True),
        ("numpy==1.26.*", "1.26.4", True),
        ("numpy==1.26.*", "1.27.0", False),
        ("numpy~=1.26.2", "1.26.9", True),
        ("numpy~=1.26.2", "1.26.1", False),
        ("numpy>=1.2,<2", "1.26.4", True),
        ("numpy>=1.2,<2", "2.0", False),
        ("a!=1.0", "1.0.0", False),
        ("a>1.0", "", False),
        ("a", "", True),
        ("pandas[excel]>=2", "2.1", True),
        ("git>=2.30", "2.39.5 (Apple Git-1)", True),
    ],
)
def test_versions_are_compared_number_by_number(text: str, version: str, accepted: bool) -> None:
    requirement = Requirement.parse(text)
    assert requirement is not None
    assert requirement.accepts(version) is accepted


@pytest.mark.parametrize("text", ["", "-r x", "./local", "git+https://example.org/x", "a b", "a>=", "a==x", "$(id)"])
def test_what_is_no_requirement_is_none(text: str) -> None:
    assert Requirement.parse(text) is None


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_exactly_one_of_less_equal_and_greater_holds(left: list[int], right: list[int]) -> None:
    have, want = (".".join(map(str, numbers)) for numbers in (left, right))
    holds = [Requirement("a", ((op, want),)).accepts(have) for op in ("<", "==", ">")]
    assert holds.count(True) == 1
    assert Requirement("a", ((">=", want),)).accepts(have) is (holds[1] or holds[2])


async def test_missing_names_what_is_not_inside() -> None:
    backend = await bubblewrap()
    asked = ("python>=3.9", "bash", "coreutils", "numpy", "python>=9", "numpy>=99", "no-such-program", "bash>=3.2")
    assert await backend.missing(asked) == ("python>=9", "numpy>=99", "no-such-program")
    assert await backend.missing(()) == ()
