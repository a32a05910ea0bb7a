"""A spec file's shape: each mistake is one line that names file, line, field and mend."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.errors import SpecError
from experiments.spec import DEFAULT_EPOCH, read_spec

GOOD = """\
name: tiny
tasks: [bundled]
arms:
  - name: alone
    topology: solo
    roles: {solo: sim-claude-opus-5-5}
  - name: pair
    topology: planner_worker
    roles:
      planner: {model: sim-claude-opus-5-5, lifetime: 1h}
      worker: sim-deepseek-v4-flash
    parameters: {rounds: 2}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    path = write(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def test_a_good_spec_is_read_with_the_documented_defaults(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, GOOD)).spec
    assert [arm.name for arm in spec.arms] == ["alone", "pair"]
    assert spec.arms[0].roles["solo"].model == "sim-claude-opus-5-5"
    assert spec.arms[1].roles["planner"].lifetime == "1h"
    assert (spec.repeats, spec.seed, spec.pass_threshold) == (1, 0, Decimal(1))
    assert spec.sandbox == "auto"
    assert (spec.limits.max_turns, spec.limits.command_timeout_s) == (100, 60)
    assert spec.virtual_epoch == DEFAULT_EPOCH
    assert spec.prices_at is None


def test_a_budget_is_read_exactly_and_is_not_set_by_default(tmp_path: Path) -> None:
    assert read_spec(write(tmp_path, GOOD)).spec.budget_usd is None
    assert read_spec(write(tmp_path, GOOD + "budget_usd: 0.1\n")).spec.budget_usd == Decimal("0.1")


def test_date_times_keep_their_zone(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, GOOD + "prices_at: 2026-11-24T14:00:00+02:00\n")).spec
    assert spec.prices_at == datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "  broken: [\n", ":13: malformed YAML:"),
        (GOOD + "name: again\n", ":13: malformed YAML: the key 'name' stands twice; keep one of them"),
        (GOOD + "repeets: 2\n", ":13: repeets: unknown field; did you mean 'repeats'?"),
        (GOOD.replace("topology: so", "topologie: so"), ":5: arms[0].topologie: unknown field; did you mean"),
        (GOOD.replace("lifetime", "lifetme"), ":10: arms[1].roles.planner.lifetme: unknown field; did you mean"),
        (GOOD + "limits: {max_turn: 3}\n", ":13: limits.max_turn: unknown field; did you mean 'max_turns' or "),
        (GOOD.replace("1h", "1h, temperature: 3"), ":10: arms[1].roles.planner.temperature: expected at most 2"),
        (GOOD.replace("1h", "1h, temperature: hot"), ":10: arms[1].roles.planner.temperature: expected a number such"),
        (GOOD.replace("1h", "1h, effort: [high]"), ":10: arms[1].roles.planner.effort: expected text in quotes"),
        (GOOD.replace("1h", "1h, efort: high"), ":10: arms[1].roles.planner.efort: unknown field; did you mean"),
        (GOOD + "budget_usd: 0\n", ":13: budget_usd: expected more than 0, found 0"),
        (GOOD + "budget_usd: -3.5\n", ":13: budget_usd: expected more than 0, found -3.5"),
        (GOOD + "budget_usd: 1e7\n", ":13: budget_usd: expected at most 1000000, found '1e7'"),
        (GOOD + "budget_usd: .nan\n", ": budget_usd: expected a number such as 1.5, found nan; write budget_usd: 5.00"),
        (GOOD + "budget_usd: true\n", ": budget_usd: expected a number such as 1.5, found 'True'; write budget_usd: 5"),
        (GOOD + "budget_usd: five\n", ":13: budget_usd: expected a number such as 1.5, found 'five'"),
        (GOOD + "budget_usd: [5]\n", ":13: budget_usd: expected a number such as 1.5, found [5]"),
        (GOOD.replace("name: pair", "name: alone"), ":7: arms[1].name: duplicate arm 'alone': arms[0] has this name"),
        (GOOD.replace("name: tiny\n", ""), "name: missing; add it (name: my-experiment)"),
        (GOOD.replace("name: tiny", "name: a/b"), ":1: name: 'a/b' is no name; expected letters"),
        (GOOD.replace("tasks: [bundled]", "tasks: []"), ":2: tasks: is empty; name at least one"),
        (GOOD + "repeats: 0\n", ":13: repeats: expected at least 1, found 0"),
        (GOOD + "repeats: true\n", ":13: repeats: expected a whole number such as 3, found True"),
        (GOOD + "seed: '7'\n", ":13: seed: expected a whole number such as 3, found '7'"),
        (GOOD + "sandbox: podman\n", ":13: sandbox: 'podman' is not known; expected 'auto', 'docker', 'bubblewrap'"),
        (GOOD + "prices_at: 2026-11-24T12:00:00\n", "has no time zone; expected a date-time like 2026-11-24T12:00:00Z"),
        (GOOD + "prices_at: 2026-13-24T12:00:00Z\n", ":13: prices_at: expected a date-time like 2026-11-24T12:00:00Z"),
        (GOOD + "prices_at: 2026-13-45\n", ":13: prices_at: expected a date-time like 2026-11-24T12:00:00Z"),
        (GOOD + "prices_at: tomorrow\n", ":13: prices_at: expected a date-time like 2026-11-24T12:00:00Z"),
        (GOOD + "prices_at: 1999-12-31T00:00:00Z\n", ":13: prices_at: expected a date-time of the years 2000 to 2100"),
        (GOOD + "virtual_epoch: 9999-12-31T23:59:59Z\n", ":13: virtual_epoch: expected a date-time of the years 2000"),
        (GOOD + "virtual_epoch: 0001-01-01T00:00:00+14:00\n", ":13: virtual_epoch: expected a date-time of the years"),
        (GOOD + "seed: 9223372036854775808\n", ":13: seed: expected at most 9223372036854775807, found"),
        (GOOD + f"seed: {'9' * 5000}\n", ":13: seed: expected a whole number such as 3, found '99"),
        (GOOD + "repeats: 99999999999999999999999\n", ":13: repeats: expected at most 10000, found"),
        (GOOD + "pass_threshold: 1e400\n", ":13: pass_threshold: expected at most 1000000, found '1e400'"),
        (GOOD + "pass_threshold: 1e-400\n", ":13: pass_threshold: expected at least 0.000001, found"),
        (GOOD + "limits: []\n", ":13: limits: expected a mapping of fields, found []; write limits: {max_turns: 100}"),
        (GOOD + "limits: {max_turns: 1e3}\n", ":13: limits.max_turns: expected a whole number such as 3, found '1e3'"),
        (GOOD + "name2: \"\\UFFFFFFFF\"\n", "malformed YAML: "),
        (GOOD.replace("roles: {solo: sim-claude-opus-5-5}", "roles: null"), ":6: arms[0].roles: expected a mapping of"),
        (GOOD + f"description: {'[' * 1500}{']' * 1500}\n", ": nested too deep; "),
        (f"{'[' * 400}{']' * 400}\n", ": "),
        ("", ": the file is empty; expected name, tasks and arms"),
        ("- a\n- b\n", ": expected a mapping with name, tasks and arms at the top, found a list"),
        ("name: !!python/object/apply:os.system [true]\n", ":1: malformed YAML: could not determine a constructor"),
        ("a: &a [*a]\n", "a: unknown field"),
        ("name: {{tiny}}\n", ":1: malformed YAML: a key must be a plain name"),
        (GOOD + "seed: !!int ''\n", ":13: seed: expected a whole number such as 3, found ''"),
        (GOOD + "prices_at: !!timestamp soon\n", ":13: prices_at: expected a date-time like 2026-11-24T12:00:00Z"),
        (GOOD + f"seed: 1{':1' * 180}.5\n", ":13: seed: expected a whole number such as 3, found '1:1"),
        (GOOD + f"seed: 0x{'f' * 5000}\n", ":13: seed: expected a whole number such as 3, found '0xff"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place_and_mend(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_a_merged_mapping_may_say_again_what_it_merges(tmp_path: Path) -> None:
    base = "limits: &slow {max_turns: 3, command_timeout_s: 9}\n"
    spec = GOOD.replace("parameters: {rounds: 2}", "parameters: {a: {b: &b {<<: *slow, max_turns: 4}}, c: {<<: *b}}")
    limits = {"max_turns": 4, "command_timeout_s": 9}
    assert read_spec(write(tmp_path, base + spec)).spec.arms[1].parameters == {"a": {"b": limits}, "c": limits}


def test_a_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(SpecError, match=r"^/dev/zero: longer than 1000000 bytes; a spec is a short YAML file$"):
        read_spec(Path("/dev/zero"))


def test_the_longest_file_is_read_and_a_byte_more_is_not(tmp_path: Path) -> None:
    fill = "#" * (1_000_000 - len(GOOD))
    assert read_spec(write(tmp_path, GOOD + fill)).spec.name == "tiny"
    assert "longer than 1000000 bytes" in refusal(tmp_path, GOOD + fill + "#")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such spec file"):
        read_spec(tmp_path / "none.yaml")


def test_a_directory_and_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_spec(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_spec(path)
