"""Scores what an agent left in its sandbox, in Harbor's order: clear the reward, bring the tests, run them, read."""

import asyncio
import secrets
import shlex
import signal
from dataclasses import dataclass

from harbor_tasks.errors import SandboxError
from harbor_tasks.format import Task, expand
from harbor_tasks.reward import LIMIT, RewardInvalid, parse_json, parse_text
from harbor_tasks.sandbox import OUTPUT_LIMIT, Sandbox

LOGS = "/logs/verifier"
STDOUT = f"{LOGS}/test-stdout.txt"
FILES_S = 30.0
"""For bringing the tests, beyond their own time-out, and for reading what they wrote: the agent may have put something
slow in the place of the image's programs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier said. `rewards` are finite; `unscored_reason` is set exactly when `reward` is None.

    `output` is the head (`OUTPUT_LIMIT` bytes) of what tests/test.sh printed, `seconds` its wall time.
    """

    rewards: dict[str, float] | None
    unscored_reason: str | None
    output: str
    seconds: float

    @property
    def reward(self) -> float | None:
        """The key "reward", or the value of the only key: the one number that decides passed or failed."""
        if self.rewards is None:
            return None
        if len(self.rewards) == 1:
            return next(iter(self.rewards.values()))
        return self.rewards.get("reward")


async def verify(task: Task, sandbox: Sandbox) -> Verdict:
    """Runs the task's tests on the sandbox as it stands. The agent's shell must be closed before.

    tests/test.sh's exit code is ignored: its reward file alone decides, unless the code is that of a signal (129 to
    192), since work under test that kills its tests may have forged the reward. That, a missing or wrong reward, a
    time-out and a sandbox that breaks give an unscored verdict with the reason, never a score. Raises TaskRefused when
    `[verifier] env` asks for the host's variables.
    """
    env = expand(task.config.verifier.env, table="verifier")
    timeout_s = task.config.verifier.timeout_sec
    user = task.config.verifier.user
    token = secrets.token_hex(8)
    cleared, end = f"cleared {token}\n", f"test.sh {token} ended with "
    clear = f"{_clear(sandbox.workdir)} && chmod 777 {LOGS} && chmod +x /tests/test.sh && printf %s '{cleared}'"
    try:
        async with asyncio.timeout(timeout_s + FILES_S):
            await sandbox.upload(task.tests, "/tests")
        ready = ""
        if user is not None:
            ready = (await sandbox.exec(clear, timeout_s=timeout_s, cwd="/", user="root")).text
            clear = "true"
        run = await sandbox.exec(
            f"{clear} || exit; cd {shlex.quote(sandbox.workdir)} || exit; unset OLDPWD; "
            f"/tests/test.sh >{STDOUT} 2>&1; echo '{end}'$?",
            timeout_s=timeout_s,
            cwd="/",
            env=env,
            user=user,
        )
        before, was_cleared, after = (ready + run.text).partition(cleared)
        if not was_cleared and not run.timed_out:
            return _unscored(f"verifier error: {LOGS} cannot be cleared: {before.strip()[:200]}")
        said, _, code = after.partition(end)
        async with asyncio.timeout(FILES_S):
            printed, as_json, as_text = await sandbox.read_all(
                {STDOUT: OUTPUT_LIMIT, f"{LOGS}/reward.json": LIMIT + 1, f"{LOGS}/reward.txt": LIMIT + 1}
            )
        output = (printed or b"").decode("utf-8", errors="replace") + said
        if run.timed_out:
            return _unscored(f"verifier timed out after {timeout_s:g} s", output, run.seconds)
        if killed := _killed(code.strip() or str(run.exit_code), ended=bool(code)):
            return _unscored(f"verifier error: tests/test.sh was killed ({killed})", output, run.seconds)
    except TimeoutError:
        return _unscored(f"verifier error: its files took longer than {FILES_S:g} s")
    except SandboxError as error:
        return _unscored(f"verifier error: {error}")
    if as_json is None and as_text is None:
        return _unscored(f"reward missing (tests/test.sh ended with {code.strip()})", output, run.seconds)
    try:
        rewards = parse_json(as_json) if as_json is not None else parse_text(as_text or b"")
    except RewardInvalid as error:
        return _unscored(f"reward invalid: {error}", output, run.seconds)
    verdict = Verdict(rewards, None, output, run.seconds)
    if verdict.reward is None:
        reason = 'reward invalid: reward.json has several keys and none is "reward"'
        return Verdict(rewards, reason, output, run.seconds)
    return verdict


def _clear(workdir: str) -> str:
    """The agent may have put a link or a directory where the verifier writes, have removed its own workdir, or have
    taken away permissions, which root in a sandbox cannot override: none of it may keep the work from being scored."""
    workdir = shlex.quote(workdir)
    return (
        f"for path in /logs {LOGS}; do "
        "if [ -L $path ] || [ ! -d $path ]; then rm -rf $path; else chmod u+rwx $path; fi; done; "
        f"[ -d {workdir} ] || rm -rf {workdir}; mkdir -p {LOGS} {workdir} && chmod u+rwx {workdir} && cd {LOGS} && "
        "for path in reward.txt reward.json test-stdout.txt; do "
        "rm -rf $path 2>/dev/null || { chmod -R u+rwx $path; rm -rf $path || exit; }; done"
    )


def _killed(code: str, *, ended: bool) -> str | None:
    """What ended the tests when it was not they themselves. `ended`: their shell lived to tell their exit code.

    Whoever killed them may have written the reward; a script that ends itself with the code of a signal is rare.
    """
    number = int(code) - 128 if code.isdecimal() else 0
    if 0 < number <= 64:
        return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return None if ended else "with the shell that ran it"


def _unscored(reason: str, output: str = "", seconds: float = 0.0) -> Verdict:
    return Verdict(None, reason, output, seconds)
