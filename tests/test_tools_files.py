"""The tools that read and write files, against a real bash, and in a real sandbox."""

import base64
import os
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.arguments import Unfit
from agents.bench import RoleBench
from agents.clock import VirtualClock
from agents.command_policy import CommandPattern, CommandPolicy
from agents.crew import Limits, Seat
from agents.errors import CommandRefused, VisitEnded
from agents.limits import LOOP
from agents.shell.judge import Judge
from agents.tools.files import MOST_LINES, MOST_WRITTEN
from agents.tools.shelf import SHELF, Told
from agents.transport import open_http
from harbor_tasks.sandbox import OUTPUT_LIMIT, Output, Sandbox, Shell
from harbor_tasks.sandbox.lasting import LastingShell
from tests.sandbox_tasks import bubblewrap, write_task
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider


class FileShell(BareShell):
    """Takes commands of any length."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._script = folder.with_name(f"{folder.name}.command")

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
        self._script.write_text(command)
        return await super().run(f". {shlex.quote(str(self._script))}", timeout_s=timeout_s)


@dataclass
class Desk:
    """A bench over a shell, with what was recorded at it."""

    shell: Shell
    runs: list[tuple[str, Told | None]] = field(default_factory=list)

    async def run(self, command: str, told: Told | None = None) -> tuple[Output, float]:
        self.runs.append((command, told))
        output = await self.shell.run(command, timeout_s=20, keep=told is None)
        return Output(output.exit_code, output.text[:OUTPUT_LIMIT], output.size, False, 0.1), 20

    async def use(self, tool: str, **arguments: object) -> str:
        form = SHELF[tool].tool.read(arguments)
        return await SHELF[tool].act(form, self)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(FileShell(tmp_path))


async def test_a_file_is_written_read_with_line_numbers_and_changed(desk: Desk, tmp_path: Path) -> None:
    assert await desk.use("write_file", path="a/b/note.txt", content="one\ntwo\nthree\n") == (
        "wrote a/b/note.txt: 3 lines, 14 bytes"
    )
    assert await desk.use("read_file", path="a/b/note.txt") == (
        "a/b/note.txt: lines 1 to 3 of 3\n     1\tone\n     2\ttwo\n     3\tthree"
    )
    assert await desk.use("read_file", path="a/b/note.txt", first_line=2, lines=1) == (
        "a/b/note.txt: lines 2 to 2 of 3\n     2\ttwo\n[1 further lines: read on with first_line 3]"
    )
    assert await desk.use("replace_in_file", path="a/b/note.txt", old="two\nth", new="2\nTH") == (
        "replaced in a/b/note.txt: 1 place, in line 2"
    )
    assert (tmp_path / "a/b/note.txt").read_text() == "one\n2\nTHree\n"
    assert os.listdir(tmp_path / "a/b") == ["note.txt"]


async def test_a_text_that_is_absent_or_not_unique_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x = 1\ny = 2\n  x = 1\n")
    assert "in it 2 times, in lines 1, 3; nothing was changed" in await desk.use(
        "replace_in_file", path="f", old="x = 1", new="x"
    )
    absent = await desk.use("replace_in_file", path="f", old="  y = 2\nz", new="x")
    assert absent == (
        "error: f: the text is not in it; nothing was changed; its first line, without the blanks around it, stands in "
        "line 2"
    )
    assert "old is empty" in await desk.use("replace_in_file", path="f", old="", new="x")
    assert file.read_text() == "x = 1\ny = 2\n  x = 1\n"
    assert await desk.use("replace_in_file", path="f", old="x = 1", new="", all=True) == (
        "replaced in f: 2 places, in lines 1, 3"
    )
    assert file.read_text() == "\ny = 2\n  \n"


NAMES = ["-rf", "a b", "a'b\"c", "$(touch x)", "`id`", "new\nline", "é\U0001f600", "*", "end\n", "\\", "--", "a;b", "~"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_path_is_only_a_path(desk: Desk, tmp_path: Path, name: str) -> None:
    for path in (name, f"sub {name}/{name}"):
        assert (await desk.use("write_file", path=path, content="hi")).startswith("wrote ")
        assert (tmp_path / path).read_text() == "hi"
        assert "     1\thi" in await desk.use("read_file", path=path)
        assert (await desk.use("replace_in_file", path=path, old="h", new="H")).startswith("replaced")
        assert (tmp_path / path).read_text() == "Hi"
    assert sorted(os.listdir(tmp_path)) == sorted([name, f"sub {name}"])


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 4097])
@pytest.mark.parametrize("tool", ["read_file", "write_file", "replace_in_file"])
async def test_a_path_that_can_be_none_is_refused_and_nothing_runs(desk: Desk, tool: str, path: str) -> None:
    told = await desk.use(tool, path=path, content="x", old="x", new="y")
    assert "the path must have 1 to 4096 bytes and no NUL" in told
    assert desk.runs == []


CONTENT = st.text(st.characters(codec="utf-8"), max_size=300)


def test_any_text_is_written_as_it_is(tmp_path: Path) -> None:
    import asyncio

    @given(CONTENT)
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def check(content: str) -> None:
        told = asyncio.run(Desk(BareShell(str(tmp_path))).use("write_file", path="f", content=content))
        assert told.startswith("wrote")
        assert (tmp_path / "f").read_bytes() == content.encode()

    check()
    check_one = "FULLCHAIN_CONTENT\n$(id)\n\\\r\n\0\ufeff"
    asyncio.run(Desk(BareShell(str(tmp_path))).use("write_file", path="f", content=check_one))
    assert (tmp_path / "f").read_bytes() == check_one.encode()


async def test_what_is_no_text_file_is_told_as_what_it_is(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0" * 100)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert "binary file of 600 bytes" in await desk.use("read_file", path="binary")
    assert "it is a directory" in await desk.use("read_file", path="folder")
    assert "there is no such file" in await desk.use("read_file", path="nothing")
    assert "no regular file" in await desk.use("read_file", path="pipe")
    assert await desk.use("read_file", path="empty") == "empty is empty"
    assert await desk.use("read_file", path="empty", first_line=5) == "empty is empty"
    for path in ("folder", "pipe"):
        assert (await desk.use("write_file", path=path, content="x")).startswith(f"error: {path}: it is ")
        assert (await desk.use("replace_in_file", path=path, old="x", new="y")).startswith(f"error: {path}: it is ")
    assert "error: binary/x: " in await desk.use("write_file", path="binary/x", content="x")


async def test_an_end_without_a_line_break_and_foreign_bytes_are_shown(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n\nb\xff\xc3\xa9")
    assert await desk.use("read_file", path="f") == "f: lines 1 to 3 of 3\n     1\ta\n     2\t\n     3\tb\ufffdé"
    assert await desk.use("read_file", path="f", lines=2) == (
        "f: lines 1 to 2 of 3\n     1\ta\n     2\t\n[1 further lines: read on with first_line 3]"
    )
    assert await desk.use("read_file", path="f", first_line=4) == "error: f has no line 4: it has 3"
    # What it changes is the text alone: the bytes around it stay.
    await desk.use("replace_in_file", path="f", old="é", new="e")
    assert (tmp_path / "f").read_bytes() == b"a\n\nb\xffe"


async def test_a_long_file_is_read_in_parts_that_leave_nothing_out(desk: Desk, tmp_path: Path) -> None:
    lines = [f"{number} " + "é" * (number % 90) for number in range(3_000)]
    (tmp_path / "f").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        told = await desk.use("read_file", path="f", first_line=len(seen) + 1)
        part = [line.partition("\t")[2] for line in told.split("\n") if line[:6].strip().isdigit()]
        assert 0 < len(part) <= MOST_LINES
        assert len(told) < 31_000
        seen += part
        assert told.endswith("]") is (len(seen) < len(lines))
    assert seen == lines


async def test_endless_lines_are_cut_and_told(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 200_000 + "\nend\n")
    told = await desk.use("read_file", path="f")
    assert told.count("x") == 2_000
    assert "the rest of this line is left out" in told
    assert "1 further lines: read on with first_line 2" in told
    assert "     2\tend" in await desk.use("read_file", path="f", first_line=2)


async def test_a_file_in_several_pieces_is_changed_whole_and_a_larger_one_refused(desk: Desk, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(30_000))
    (tmp_path / "f").write_text(text)
    assert await desk.use("replace_in_file", path="f", old="line 29999\n", new="end\n") == (
        "replaced in f: 1 place, in line 30000"
    )
    assert (tmp_path / "f").read_text() == text.replace("line 29999\n", "end\n")
    (tmp_path / "large").write_bytes(b"x" * (MOST_WRITTEN + 1))
    assert "more than the 1048576 that this tool takes" in await desk.use(
        "replace_in_file", path="large", old="x", new="y"
    )
    assert "at most 1048576" in await desk.use("write_file", path="new", content="x" * (MOST_WRITTEN + 1))
    assert not (tmp_path / "new").exists()
    assert (await desk.use("write_file", path="new", content="é" * (MOST_WRITTEN // 2))).startswith("wrote")
    assert (tmp_path / "new").stat().st_size == MOST_WRITTEN


async def test_mode_stays_and_links_are_followed(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo a\n")
    script.chmod(0o751)
    (tmp_path / "link").symlink_to("script")
    (tmp_path / "dangling").symlink_to("made/here")
    await desk.use("replace_in_file", path="link", old="a", new="b")
    assert (tmp_path / "link").is_symlink()
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("echo b\n", 0o751)
    (tmp_path / "made").mkdir()
    await desk.use("write_file", path="dangling", content="x")
    assert (tmp_path / "made/here").read_text() == "x"
    assert (tmp_path / "dangling").is_symlink()


async def test_what_a_tool_takes_is_checked() -> None:
    read, write, replace = (SHELF[name].tool for name in ("read_file", "write_file", "replace_in_file"))
    for tool, wrong in (
        (read, {"path": 1}),
        (read, {"path": "a", "first_line": 0}),
        (read, {"path": "a", "lines": MOST_LINES + 1}),
        (read, {"path": "a", "lines": True}),
        (write, {"path": "a"}),
        (write, {"path": "a", "content": None}),
        (replace, {"path": "a", "old": "x"}),
        (replace, {"path": "a", "old": "x", "new": "y", "all": "yes"}),
        (replace, None),
    ):
        with pytest.raises(Unfit):
            tool.read(wrong)
    assert read.schema["required"] == ["path"]
    assert replace.schema["required"] == ["path", "old", "new"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[tuple[RoleBench, Notes]]:
    notes, provider = Notes(), Provider()
    async with open_http(simulator=provider.app) as http, Judge.open() as judge:
        limits = Limits(20, command_timeout_s=10, max_output_tokens=1000, deadline=None)
        clock, shell = VirtualClock(EPOCH), BareShell(str(tmp_path))
        yield RoleBench(Seat("t1", 1, NONCE, clock, notes, notes, shell, limits, http, judge=judge)), notes


async def act(bench: RoleBench, tool: str, **arguments: object) -> str:
    async with bench.seat.clock.lane("solo-0"):
        return await SHELF[tool].act(SHELF[tool].tool.read(arguments), bench)


async def test_the_record_tells_what_was_done_and_no_base64(bench: tuple[RoleBench, Notes]) -> None:
    at, notes = bench
    await act(at, "write_file", path="f", content="x" * 5000)
    await act(at, "replace_in_file", path="f", old="x", new="yy", all=True)
    await act(at, "read_file", path="f", lines=3)
    assert [row["command"] for row in notes.commands] == [
        "write_file f (1 line, 5000 bytes)",
        "replace_in_file f (1 bytes by 2, everywhere)",
        "replace_in_file f (1 bytes by 2, everywhere)",
        "read_file f lines 1 to 3",
    ]
    assert [name for _, _, name, *_ in notes.spans] == ["write_file", "replace_in_file", "replace_in_file", "read_file"]


async def test_other_contents_are_no_loop_and_the_same_are(bench: tuple[RoleBench, Notes]) -> None:
    at, _ = bench
    for number in range(12):
        await act(at, "write_file", path="f", content=str(number % 10))
    for _ in range(LOOP - 1):
        await act(at, "write_file", path="f", content="same")
    with pytest.raises(VisitEnded, match="loop"):
        await act(at, "write_file", path="f", content="same")


async def test_a_reader_may_read_and_neither_write_nor_replace(bench: tuple[RoleBench, Notes], tmp_path: Path) -> None:
    at, notes = bench
    (tmp_path / "f").write_text("here\n")
    at.policy = CommandPolicy(read_only=True)
    assert "here" in await act(at, "read_file", path="f")
    for tool in ("write_file", "replace_in_file"):
        with pytest.raises(CommandRefused, match=f"`{tool}` writes a file, and this role may only look"):
            await act(at, tool, path="f", content="x", old="here", new="x")
    assert (tmp_path / "f").read_text() == "here\n"
    assert [(row["exit_code"], "refused" in row) for row in notes.commands] == [(0, False), (None, True), (None, True)]


async def test_a_refused_command_is_recorded_never_run_and_repeated_a_loop(
    bench: tuple[RoleBench, Notes], tmp_path: Path
) -> None:
    at, notes = bench
    at.policy = CommandPolicy(deny=(CommandPattern("touch *"),))
    with pytest.raises(CommandRefused):
        await act(at, "bash", command="ls; touch spot")
    assert not (tmp_path / "spot").exists()
    [row] = notes.commands
    assert (row["command"], row["exit_code"]) == ("ls; touch spot", None)
    assert str(row["refused"]).endswith("matches the denied pattern 'touch *'")
    for _ in range(LOOP - 2):
        with pytest.raises(CommandRefused):
            await act(at, "bash", command="ls; touch spot")
    with pytest.raises(VisitEnded, match="loop"):
        await act(at, "bash", command="ls; touch spot")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await bubblewrap()).start(write_task(tmp_path)) as started:
        yield started


async def test_in_a_sandbox_they_work_from_the_shells_directory_and_as_its_user(sandbox: Sandbox) -> None:
    desk = Desk(LastingShell(sandbox))
    await desk.run("mkdir -p /app/deep; cd /app/deep; export BASH_ENV=/app/evil; echo 'echo evil' > /app/evil")
    assert (await desk.use("write_file", path="f", content="é\n" * 20_000)).startswith("wrote f: 20000 lines")
    assert (await desk.use("replace_in_file", path="/app/deep/f", old="é\n", new="e\n", all=True)).startswith(
        "replaced"
    )
    assert "   400\te" in await desk.use("read_file", path="../deep/f")
    listed = await sandbox.exec("stat -c '%a %U' /app/deep/f; ls -A /app/deep; sha256sum < /app/deep/f", timeout_s=20)
    mine = await sandbox.exec("yes e | head -n 20000 | sha256sum; ls /tmp", timeout_s=20)
    assert listed.text == f"644 root\nf\n{mine.text}"
    assert "error: /proc/new: " in await desk.use("write_file", path="/proc/new", content="x")
    assert "error: /usr/new: " in await desk.use("write_file", path="/usr/new", content="x")
    large = base64.b64encode(os.urandom(700_000)).decode()
    assert (await desk.use("write_file", path="large", content=large)).startswith("wrote")
    told = await desk.run(f"wc -c < {shlex.quote('large')}")
    assert told[0].text == f"{len(large)}\n"
