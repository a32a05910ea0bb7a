"""Adding an entry to a models file leaves everything in it as it stands."""

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.errors import RegistryError
from agents.models_file import read_models_file, save, with_entry

FIELDS = {"provider": "local", "model": "mine", "limits": {"max_output_tokens": 100, "context_tokens": 8000}}

COMMENTED = """\
# our models
providers:
  house: {protocol: openai_chat}   # the gateway
models:
    # the cheap one
    first: {provider: house, model: a}   # keep
    second:
        provider: house
        headers:
            X-Team: chain   # last line of it

# the end
"""


def test_a_new_file_holds_the_entry_alone() -> None:
    assert yaml.safe_load(with_entry("f", "", "mine", FIELDS)) == {"models": {"mine": FIELDS}}


def test_every_line_that_stood_there_stands_there_still_in_its_order() -> None:
    extended = with_entry("f", COMMENTED, "mine", FIELDS).splitlines()
    added = [line for line in extended if line not in COMMENTED.splitlines()]
    assert [line for line in extended if line not in added] == COMMENTED.splitlines()
    assert added[0] == "    mine:"
    assert extended.index("    mine:") == extended.index("            X-Team: chain   # last line of it") + 1


@pytest.mark.parametrize(
    "written",
    [
        "# nothing yet\n",
        "models:\n",
        "models: {}\n",
        "models: {a: {provider: x}}\n",
        "models: {\n  a: {provider: x},\n}\n# end\n",
        "models:\n  a: {provider: x}",
        "models:\r\n  a: {provider: x}\r\n",
        "models:\n  a:\n    model: |\n      text\n\nproviders: {}\n",
        "models:\n  a: {provider: x}\nproviders:\n  p: {cache: none}\n",
        "providers:\n  p: {cache: none}",
        "models:\n  a:\n    efforts:\n      - low\n      - high\n",
        "---\nmodels:\n  a: {provider: x}\n",
    ],
)
def test_any_way_of_writing_a_models_file_can_be_extended(written: str) -> None:
    before = yaml.safe_load(written) or {}
    after = yaml.safe_load(with_entry("f", written, "mine", FIELDS))
    assert after == {**before, "models": {**(before.get("models") or {}), "mine": FIELDS}}


@settings(max_examples=25, deadline=None)
@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,20}", fullmatch=True),
    fields=st.dictionaries(
        st.sampled_from(["model", "base_url", "price", "cache"]), st.text(st.characters(codec="utf-8")), min_size=1
    ),
)
def test_any_name_and_value_comes_back_as_it_was_given(name: str, fields: dict[str, str]) -> None:
    added = (
        yaml.safe_load(with_entry("f", COMMENTED, name, fields))["models"] if name not in ("first", "second") else {}
    )
    assert not added or next(value for key, value in added.items() if key not in ("first", "second")) == fields


def test_an_entry_of_the_same_name_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"models\.first: stands there already"):
        with_entry("f", COMMENTED, "first", FIELDS)


@pytest.mark.parametrize("written", ["- a\n", "models: [a]\n", "models: {a: b\n"])
def test_a_file_that_is_none_of_models_is_refused(written: str) -> None:
    with pytest.raises(RegistryError, match=r"^f:"):
        with_entry("f", written, "mine", FIELDS)


def test_a_file_that_lines_cannot_extend_is_left_alone_and_the_entry_is_told() -> None:
    with pytest.raises(RegistryError, match=r"add this to its `models` yourself: mine: \{provider: local"):
        with_entry("f", "x: &a {p: {provider: x}}\nmodels: *a\n", "mine", FIELDS)


def test_saving_keeps_the_mode_and_writes_through_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    save(link, "new: ä\r\n")
    assert link.is_symlink()
    assert read_models_file(link) == "new: ä\r\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be written: No such file"):
        save(tmp_path / "no" / "models.yaml", "x")
