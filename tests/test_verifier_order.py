"""Verifying in the real sandbox, in Harbor's order: clear the reward, bring the tests, run them, read the reward."""

from pathlib import Path

import pytest

from harbor_tasks.format import load_task
from harbor_tasks.sandbox import OUTPUT_LIMIT
from harbor_tasks.verifier import Verdict, verify
from tests.sandbox_tasks import bubblewrap
from tests.task_directory import TEST_SH, write_task


async def verdict(tmp_path: Path, test: str = TEST_SH, *, toml: str = "", before: str | None = None) -> Verdict:
    """The verdict of a task whose agent ran `before`."""
    task = load_task(write_task(tmp_path / "t", toml, test=test))
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        if before is not None:
            shell = await sandbox.shell()
            await shell.run(before, timeout_s=20)
            await shell.close()
        return await verify(task, sandbox)


async def test_the_state_that_the_agent_left_is_scored_in_the_workdir(tmp_path: Path) -> None:
    assert (await verdict(tmp_path / "1", before="touch done.txt")).reward == 1.0
    assert (await verdict(tmp_path / "2")).reward == 0.0


async def test_a_reward_that_the_agent_wrote_does_not_survive(tmp_path: Path) -> None:
    forged = "echo 1 >/logs/verifier/reward.txt; echo '{\"reward\": 1}' >/logs/verifier/reward.json"
    found = await verdict(tmp_path, "#!/bin/bash\necho no reward\n", before=forged)
    assert found == Verdict(None, "reward missing (tests/test.sh ended with 0)", "no reward\n", found.seconds)


async def test_tests_that_the_agent_left_are_replaced_by_the_tasks(tmp_path: Path) -> None:
    before = "mkdir -p /tests && printf '#!/bin/bash\\necho 1 >/logs/verifier/reward.txt\\n' | tee /tests/test.sh"
    assert (await verdict(tmp_path, before=before)).reward == 0.0


async def test_links_and_directories_in_the_verifiers_way_are_removed(tmp_path: Path) -> None:
    before = (
        "rm -rf /logs/verifier; mkdir -p /app/mine; ln -s /app/mine /logs/verifier; touch done.txt; "
        "mkdir -p /app/mine/reward.json"
    )
    assert (await verdict(tmp_path, before=before)).reward == 1.0


@pytest.mark.parametrize("path", ["/logs", "/logs/verifier", "/app", "/tests"])
async def test_permissions_that_the_agent_took_away_do_not_keep_it_from_being_scored(tmp_path: Path, path: str) -> None:
    assert (await verdict(tmp_path, before=f"chmod 000 {path}")).reward == 0.0


@pytest.mark.parametrize("name", ["reward.txt", "reward.json", "test-stdout.txt"])
async def test_a_closed_directory_where_the_verifier_writes_is_removed(tmp_path: Path, name: str) -> None:
    before = f"mkdir -p /logs/verifier/{name}/x; chmod 000 /logs/verifier/{name}"
    assert (await verdict(tmp_path, before=before)).reward == 0.0


@pytest.mark.parametrize(
    ("kill", "why"),
    [
        ("kill -9 $$", "killed (SIGKILL)"),
        # bash says nothing of these two.
        ("kill -PIPE $$", "killed (SIGPIPE)"),
        ("trap - INT; kill -INT $$", "killed (SIGINT)"),
        ("kill -9 $$ $PPID", "killed (SIGKILL)"),
        ("kill -PIPE $PPID; sleep 5", "killed (SIGPIPE)"),
        ("kill -ALRM $(ps -o ppid= $PPID); sleep 5", "killed (with the shell that ran it)"),
        ("kill -RTMIN+3 $$", "killed (signal 37)"),
    ],
)
async def test_a_reward_beside_tests_that_were_killed_does_not_count(tmp_path: Path, kill: str, why: str) -> None:
    found = await verdict(tmp_path, f"#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n{kill}\n")
    assert found.reward is None
    assert why in (found.unscored_reason or "")


async def test_a_process_that_the_agent_left_running_cannot_write_the_reward(tmp_path: Path) -> None:
    before = "(while true; do echo 1 >/logs/verifier/reward.txt; sleep 0.01; done) >/dev/null 2>&1 & disown"
    assert (await verdict(tmp_path, "#!/bin/bash\nsleep 0.2\n", before=before)).reward is None


async def test_the_exit_code_is_ignored_and_output_is_kept(tmp_path: Path) -> None:
    found = await verdict(
        tmp_path, "#!/bin/bash\necho out; echo err >&2\necho 0.25 >/logs/verifier/reward.txt\nexit 3\n"
    )
    assert (found.rewards, found.unscored_reason) == ({"reward": 0.25}, None)
    assert found.output == "out\nerr\n"


async def test_reward_json_comes_before_reward_txt(tmp_path: Path) -> None:
    both = "#!/bin/bash\ncd /logs/verifier\necho 1 >reward.txt\necho '{\"score\": 0.5}' >reward.json\n"
    found = await verdict(tmp_path, both)
    assert found.rewards == {"score": 0.5}
    assert found.reward == 0.5


async def test_a_wrong_reward_json_is_not_made_up_for_by_reward_txt(tmp_path: Path) -> None:
    found = await verdict(tmp_path, "#!/bin/bash\ncd /logs/verifier\necho 1 >reward.txt\n: >reward.json\n")
    assert (found.reward, found.unscored_reason) == (None, "reward invalid: reward.json is empty")


async def test_several_keys_without_reward_are_kept_but_unscored(tmp_path: Path) -> None:
    found = await verdict(tmp_path, '#!/bin/bash\necho \'{"a": 1, "b": 0}\' >/logs/verifier/reward.json\n')
    assert found.rewards == {"a": 1.0, "b": 0.0}
    assert found.reward is None
    assert found.unscored_reason == 'reward invalid: reward.json has several keys and none is "reward"'


async def test_a_time_out_is_unscored_even_after_a_reward(tmp_path: Path) -> None:
    slow = "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\nsleep 60\n"
    found = await verdict(tmp_path, slow, toml="[verifier]\ntimeout_sec = 0.5")
    assert (found.reward, found.unscored_reason) == (None, "verifier timed out after 0.5 s")


async def test_the_verifiers_variables_reach_the_tests(tmp_path: Path) -> None:
    toml = '[verifier]\nenv = {GIVEN = "${UNSET_HERE:-0.75}"}'
    assert (
        await verdict(tmp_path, '#!/bin/bash\necho "$GIVEN" >/logs/verifier/reward.txt\n', toml=toml)
    ).reward == 0.75


async def test_endless_output_is_kept_only_at_its_head(tmp_path: Path) -> None:
    loud = "#!/bin/bash\nhead -c 3000000 /dev/zero | tr '\\0' x\necho 1 >/logs/verifier/reward.txt\n"
    found = await verdict(tmp_path, loud)
    assert found.reward == 1.0
    assert found.output == "x" * OUTPUT_LIMIT


@pytest.mark.parametrize("before", ["rm -rf /app/* /app/.[!.]*; cd /; rmdir /app", "chmod 000 /app"])
async def test_an_agent_that_ruined_its_workdir_is_scored_or_unscored_but_never_passes(
    tmp_path: Path, before: str
) -> None:
    found = await verdict(tmp_path, before=before)
    assert found.reward in (None, 0.0)
    assert (found.unscored_reason is None) == (found.reward is not None)
