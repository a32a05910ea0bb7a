"""A long output: the model reads its head and tail, and the whole of it is kept where the model can look it up."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.tools.bash import HEAD, TAIL, bash_result
from harbor_tasks.sandbox import KEPT_FROM, KEPT_MOST, OUTPUT_LIMIT, Output, Sandbox
from harbor_tasks.sandbox.lasting import LastingShell
from tests.sandbox_tasks import bubblewrap, write_task

FOLDER = "/tmp/fullchain-output"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await bubblewrap()).start(write_task(tmp_path)) as started:
        yield started


async def test_a_cut_output_is_kept_whole_and_its_notice_names_a_file_that_the_agent_can_read(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    got = await shell.run("seq 100000; echo late >&2; exit 7", timeout_s=20)
    assert (got.exit_code, got.kept, len(got.text)) == (7, f"{FOLDER}/1.txt", OUTPUT_LIMIT)
    told = bash_result(got, 20)
    assert told.endswith(f"[the output had {got.size} bytes; the whole output is in {FOLDER}/1.txt]")
    assert "lost" not in told
    again = await shell.run(
        f"{{ seq 100000; echo late; }} | cmp - {FOLDER}/1.txt && tail -n 1 {FOLDER}/1.txt", timeout_s=20
    )
    assert (again.exit_code, again.text, again.kept) == (0, "late\n", None)


@pytest.mark.parametrize("size", [0, 1, HEAD + TAIL - 1, HEAD + TAIL])
async def test_what_is_not_cut_is_told_as_ever_and_not_kept(sandbox: Sandbox, size: int) -> None:
    got = await LastingShell(sandbox).run(f"head -c {size} /dev/zero | tr '\\0' x", timeout_s=20)
    assert bash_result(got, 20) == f"exit code 0\n{'x' * size}"
    assert got.kept is None
    listed = await sandbox.exec(f"ls {FOLDER}", timeout_s=20)
    assert listed.exit_code == 2


async def test_many_bytes_that_are_few_characters_are_not_cut_and_named_nowhere(sandbox: Sandbox) -> None:
    got = await LastingShell(sandbox).run("printf 'é%.0s' {1..9000}", timeout_s=20)
    assert (got.size, bash_result(got, 20)) == (18_000, f"exit code 0\n{'é' * 9000}")


async def test_every_output_that_the_model_reads_cut_was_long_enough_to_be_kept() -> None:
    assert KEPT_FROM <= HEAD + TAIL


async def test_the_last_ten_are_kept_under_names_that_are_never_used_again(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    names = [(await shell.run(f"yes {number} | head -n 9000", timeout_s=20)).kept for number in range(12)]
    assert names == [f"{FOLDER}/{number}.txt" for number in range(1, 13)]
    # Another shell of the same sandbox goes on counting.
    await shell.close()
    assert (await shell.run("yes z | head -n 9000", timeout_s=20)).kept == f"{FOLDER}/13.txt"
    left = await shell.run(f"ls {FOLDER} | sort -n | tr '\\n' ' '; head -n 1 {FOLDER}/12.txt", timeout_s=20)
    assert left.text == " ".join(f"{number}.txt" for number in range(4, 14)) + " 11\n"


async def test_a_flood_is_kept_up_to_its_bound_and_told_so(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    got = await shell.run(f"head -c {KEPT_MOST + 5} /dev/zero | tr '\\0' x", timeout_s=30)
    assert f"its first {KEPT_MOST} bytes are in {FOLDER}/1.txt" in bash_result(got, 30)
    assert (await shell.run(f"stat -c %s {FOLDER}/1.txt", timeout_s=20)).text == f"{KEPT_MOST}\n"


async def test_what_a_background_job_prints_later_is_in_no_copy_and_no_other_output(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    got = await shell.run("(sleep .3; yes late | head -n 9000) & yes now | head -n 9000", timeout_s=20)
    assert got.kept == f"{FOLDER}/1.txt"
    counted = await shell.run(f"sleep .6; grep -c late {FOLDER}/1.txt; grep -c now {FOLDER}/1.txt", timeout_s=20)
    assert counted.text == "0\n9000\n"


async def test_a_timed_out_command_keeps_what_it_had_printed(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    got = await shell.run("yes here | head -n 9000; sleep 60", timeout_s=0.5)
    assert (got.timed_out, got.kept) == (True, f"{FOLDER}/1.txt")
    assert (await shell.run(f"wc -l < {FOLDER}/1.txt", timeout_s=20)).text == "9000\n"


@pytest.mark.parametrize(
    "spoil",
    [
        f"touch {FOLDER}",
        f"mkdir {FOLDER}; chmod 500 {FOLDER}",
        f"ln -s /proc {FOLDER}",
        f"mkdir {FOLDER}; mkdir {FOLDER}/99999.txt {FOLDER}/100000.txt",
        f"ln -s /nowhere {FOLDER}",
    ],
)
async def test_where_it_cannot_be_kept_the_notice_says_what_is_lost_and_the_shell_goes_on(
    sandbox: Sandbox, spoil: str
) -> None:
    shell = LastingShell(sandbox)
    await shell.run(spoil, timeout_s=20)
    got = await shell.run("seq 100000; exit 3", timeout_s=20)
    assert (got.exit_code, got.kept) == (3, None)
    assert f"what came after the first {OUTPUT_LIMIT} is lost" in bash_result(got, 20)
    assert (await shell.run("echo on", timeout_s=20)).text == "on\n"


async def test_commands_without_a_session_leave_nothing_behind(sandbox: Sandbox) -> None:
    got = await sandbox.exec("seq 100000", timeout_s=20)
    assert got.kept is None
    assert (await sandbox.exec(f"ls {FOLDER}", timeout_s=20)).exit_code == 2


async def test_the_folder_is_no_variable_of_the_agents_shell(sandbox: Sandbox) -> None:
    got = await LastingShell(sandbox).run('export -p | grep -c FULLCHAIN_KEEP; echo "[$FULLCHAIN_KEEP]"', timeout_s=20)
    assert got.text == "0\n[]\n"


def test_a_cut_without_a_file_is_told_without_one() -> None:
    told = bash_result(Output(0, "x" * 20_000, 20_000, False, 0.1), 60)
    assert told == f"exit code 0\n{'x' * HEAD}\n[... 10000 characters left out ...]\n{'x' * TAIL}"
