"""A task's digest: equal for equal content, different for any change that could change a run."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_tasks.digest import tree_digest
from harbor_tasks.format import load_task
from tests.task_directory import write_task

NAMES = st.text("abc .-", min_size=1, max_size=6).filter(lambda name: name.strip(". ") == name)
TREES = st.dictionaries(st.tuples(NAMES, NAMES), st.tuples(st.binary(max_size=40), st.booleans()), max_size=5)


def digest(tree: dict[tuple[str, str], tuple[bytes, bool]], *, backwards: bool = False) -> str:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for (folder, file), (content, executable) in sorted(tree.items(), reverse=backwards):
            path = root / folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if executable else 0o640)
        return tree_digest(root)


@settings(max_examples=50)
@given(TREES)
def test_the_order_of_writing_does_not_count(tree: dict[tuple[str, str], tuple[bytes, bool]]) -> None:
    assert digest(tree) == digest(tree, backwards=True)


@settings(max_examples=100)
@given(TREES, TREES)
def test_two_trees_agree_exactly_when_names_bytes_and_x_bits_do(
    one: dict[tuple[str, str], tuple[bytes, bool]], two: dict[tuple[str, str], tuple[bytes, bool]]
) -> None:
    assert (digest(one) == digest(two)) == (one == two)


def test_a_copy_elsewhere_has_the_same_digest_and_compiled_files_do_not_count(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path / "one" / "t"))
    copied = shutil.copytree(task.path, tmp_path / "two" / "t")
    compiled = copied / "tests" / "__pycache__" / "x.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"compiled")
    assert load_task(copied).digest == task.digest


def test_the_boundary_between_name_and_content_counts(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "ab").write_text("c")
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "a").write_text("bc")
    assert tree_digest(tmp_path / "1") != tree_digest(tmp_path / "2")


def test_one_changed_byte_of_a_test_changes_the_tasks_digest(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    before = load_task(path).digest
    (path / "tests" / "test.sh").write_text((path / "tests" / "test.sh").read_text() + "\n")
    changed = load_task(path).digest
    (path / "tests" / "test.sh").chmod(0o755)
    assert len({before, changed, load_task(path).digest}) == 3
