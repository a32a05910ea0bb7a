"""The diff that reviewers read: exact, bounded, the same every time, whatever agents leave behind."""

import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from experiments.changes import Changes
from harbor_tasks.format import bundled_tasks, load_task
from harbor_tasks.tree_diff import CELLS, FILE_LIMIT, LIMIT, NAMED, NOTHING, _unified, tree_diff
from tests.sandbox_tasks import bubblewrap


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    root.mkdir()
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def diff(folder: Path, before: dict[str, str | bytes], after: dict[str, str | bytes]) -> str:
    return tree_diff(tree(folder / "before", before), tree(folder / "after", after))


def test_files_that_were_added_changed_and_removed_are_shown_as_a_unified_diff(tmp_path: Path) -> None:
    before: dict[str, str | bytes] = {"a.txt": "one\ntwo\nthree\n", "gone": "x\n", "same": "y\n", "bin": b"\0\1"}
    after: dict[str, str | bytes] = {"a.txt": "one\n2\nthree\n", "sub/new": "n", "same": "y\n", "bin": b"\0\2"}
    assert diff(tmp_path, before, after) == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        "Binary file bin changed\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- /dev/null\n+++ b/sub/new\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file"
    )


def test_without_a_change_it_says_so_and_what_only_looking_rewrites_is_no_change(tmp_path: Path) -> None:
    after: dict[str, str | bytes] = {"a": "x\n", "__pycache__/a.pyc": b"\0", "r/.git/index": b"\0\3"}
    assert diff(tmp_path, {"a": "x\n"}, after) == NOTHING


def test_what_git_keeps_comes_after_everything_else(tmp_path: Path) -> None:
    told = diff(tmp_path, {}, {".git/HEAD": "ref\n", "z.txt": "z\n"})
    assert told.index("z.txt") < told.index(".git/HEAD")


def test_a_long_change_is_cut_in_its_middle_with_a_notice(tmp_path: Path) -> None:
    told = diff(tmp_path, {}, {"long": "".join(f"line {n}\n" for n in range(9000))})
    assert len(told) < FILE_LIMIT + 200
    assert "+line 0\n" in told
    assert told.endswith("+line 8999")
    assert "lines of this file's changes left out" in told


def test_beyond_the_limit_files_are_only_named(tmp_path: Path) -> None:
    told = diff(tmp_path, {}, {f"f{n:04}": "a line of text\n" * 50 for n in range(400)})
    assert len(told) < LIMIT + 40 * NAMED
    assert "further files only the names are told" in told
    assert "added: f0100" in told
    assert told.endswith(" more]")


def test_names_and_lines_may_hold_anything(tmp_path: Path) -> None:
    before, after = (
        tree(tmp_path / "before", {}),
        tree(tmp_path / "after", {"a\nb": "x" * 5000, "big": b"a" * 2_000_000}),
    )
    (after / os.fsdecode(b"n\xff")).write_text("y\n")
    (after / "link").symlink_to("/etc/passwd")
    told = tree_diff(before, after)
    assert "+++ b/'a\\nb'" in told
    assert "[...]" in told
    assert "Binary file big added" in told
    assert "link" not in told
    told.encode("utf-8")


def test_two_files_that_nothing_aligns_take_bounded_time(tmp_path: Path) -> None:
    lines = 4 * int(CELLS**0.5)
    one, other = ("".join(f"{n * k % 97}\n" for n in range(lines)) for k in (3, 5))
    started = time.process_time()
    told = diff(tmp_path, {"f": one}, {"f": other})
    assert time.process_time() - started < 10
    assert "left out" in told


LINES = st.lists(st.sampled_from("abcd"), max_size=40)


@given(LINES, LINES)
def test_a_unified_diff_makes_the_second_file_of_the_first(before: list[str], after: list[str]) -> None:
    made, place = list[str](), 0
    for line in _unified(before, after):
        if line.startswith("@@"):
            first, _, count = line.split(" ")[1][1:].partition(",")
            start = int(first) - (1 if count != "0" else 0)
            made += before[place:start]
            place = start
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert before[place] == line[1:]
            place += 1
            made += [line[1:]] if line.startswith(" ") else []
    assert made + before[place:] == after


async def test_links_pipes_and_unreadable_files_of_an_agent_neither_hang_nor_break_it() -> None:
    hostile = (
        "mkfifo pipe; ln -s / root; ln -s loop loop; ln -s /etc/passwd docs/passwd; echo 5 >five; "
        "echo no >secret; chmod 000 secret; mkdir shut; echo in >shut/in; chmod 000 shut; truncate -s 3M hole; "
        "mkdir -p many; for n in $(seq 600); do echo $n >many/$n; done; rm -rf data"
    )
    backend = await bubblewrap()
    task = load_task(bundled_tasks() / "tenant-billing")
    async with backend.start(task) as sandbox, Changes.since_now(sandbox) as changes:
        assert await changes.diff() == NOTHING
        assert (await sandbox.exec(hostile, timeout_s=20, cwd=sandbox.workdir)).exit_code == 0
        told = await changes.diff()
        assert told == await changes.diff()
    assert "+++ b/five\n@@ -0,0 +1 @@\n+5" in told
    assert "Binary file hole added" in told
    assert "pipe" not in told
    assert "root:x" not in told
    assert len(told) < LIMIT + 40 * NAMED


async def test_a_working_directory_that_is_gone_is_told_as_such() -> None:
    backend = await bubblewrap()
    task = load_task(bundled_tasks() / "tenant-billing")
    async with backend.start(task) as sandbox, Changes.since_now(sandbox) as changes:
        await sandbox.exec("rm -rf /app/* /app/.[!.]* 2>/dev/null; rmdir /app", timeout_s=20, cwd="/")
        told = await changes.diff()
    assert "[no diff: the working directory is gone]" in told or "+++ /dev/null" in told
