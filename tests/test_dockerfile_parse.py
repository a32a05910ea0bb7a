"""Reading Dockerfiles: instructions, continuation lines, quoting and expansion as Docker does them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.dockerfile import EXPANDED_LIMIT, MOST_INSTRUCTIONS, Instruction, parse, words
from harbor_tasks.errors import TaskRefused


def test_continuations_comments_and_empty_lines_keep_the_first_lines_number() -> None:
    text = (
        "# syntax=docker/dockerfile:1\n# escape=\\\n\nFROM debian:12 AS base\nrun apt-get update && \\\n"
        '  # why\n\n    echo done   \\\n    && true\nCMD ["bash"]\r\nENV A=1'
    )
    assert parse(text) == [
        Instruction(4, "FROM", "debian:12 AS base"),
        Instruction(5, "RUN", "apt-get update &&     echo done       && true"),
        Instruction(10, "CMD", '["bash"]'),
        Instruction(11, "ENV", "A=1"),
    ]


@pytest.mark.parametrize(
    "text",
    ["FROM x\nRUN <<EOF\necho\nEOF\n", "FROM x\nCOPY <<-'END' /f\nx\nEND\n", "FROM x\nRUN cat > /f <<EOF\nx\nEOF\n"],
)
def test_a_heredoc_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(TaskRefused, match=r"Dockerfile line 2: .* heredoc"):
        parse(text)


@pytest.mark.parametrize("text", ["RUN cat <<<word", "RUN echo $((1<<2))", "RUN echo '1 << 2'"])
def test_what_only_looks_like_a_heredoc_is_none(text: str) -> None:
    assert len(parse(text)) == 1


def test_another_escape_character_and_a_line_that_is_no_instruction_are_refused() -> None:
    with pytest.raises(TaskRefused, match="line 1: escape=` is not supported"):
        parse("# escape=`\nFROM x\n")
    with pytest.raises(TaskRefused, match="line 2: expected an instruction, found '&& oops'"):
        parse("FROM x\n&& oops\n")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("$A/${B}x", ["one/x"]),
        ("${B:-two words} ${A:-no} ${A:+yes} ${B:+no}", ["two words", "one", "yes", ""]),
        ("'$A' \"$A\" \\$A", ["$A", "one", "$A"]),
        ('k="a b" "" x\\ y', ["k=a b", "", "x y"]),
        ('"a\\"b\\n"', ['a"b\\n']),
        ("100% $ $1", ["100%", "$", "$1"]),
    ],
)
def test_words_are_split_unquoted_and_expanded(value: str, expected: list[str]) -> None:
    assert words(value, {"A": "one"}, 1) == expected


@pytest.mark.parametrize("value", ['"open', "'open", "${A%x}", "${", "${A:?x}"])
def test_what_cannot_be_expanded_is_refused_by_its_line(value: str) -> None:
    with pytest.raises(TaskRefused, match="Dockerfile line 7: "):
        words(value, {"A": "one"}, 7)


def test_variables_that_double_again_and_again_are_refused_before_they_fill_the_memory() -> None:
    value = "x" * (EXPANDED_LIMIT // 2)
    assert words('$A"$A"', {"A": value}, 7) == [2 * value]
    with pytest.raises(TaskRefused, match="Dockerfile line 7: its variables stand for more than 131,072 characters"):
        words("$A$A $B", {"A": value, "B": "x"}, 7)


def test_a_dockerfile_without_end_is_refused() -> None:
    assert len(parse("ENV A=1\n" * MOST_INSTRUCTIONS)) == MOST_INSTRUCTIONS
    with pytest.raises(TaskRefused, match="line 1001: more than 1,000 instructions"):
        parse("ENV A=1\n" * (MOST_INSTRUCTIONS + 1))


@given(st.lists(st.text(st.characters(exclude_characters="'", codec="utf-8"), max_size=20), max_size=5))
def test_single_quoted_words_come_back_as_they_were(values: list[str]) -> None:
    assert words(" ".join(f"'{value}'" for value in values), {}, 1) == values
