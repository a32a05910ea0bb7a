"""Personas see the request alone, play a task's scripts byte for byte, and can set no usage figure."""

import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.simulated.app import simulated_provider
from agents.simulated.attempt import LOG, RUN, SCRIPT, write_commands
from agents.simulated.catalogue import Catalogue
from agents.simulated.dice import Dice
from agents.simulated.errors import SimulatorError
from agents.simulated.looking import files_in, looks
from agents.simulated.persona import load_personas
from harbor_tasks.format import Task, bundled_tasks, load_task, load_tasks
from tests.simulated_client import ANTHROPIC, DEEPSEEK, EPOCH, Client, Execute, Played, Role, anthropic_head

SOLVE = (
    "#!/bin/bash\nset -e\nprintf '%s\\n' \"it's done\" > done.txt\n"
    "cat <<'EOF_0'\nEOF_1\nEOF_0\n# an end without a newline"
)
WRONG = "#!/bin/bash\necho half > done.txt\necho more\n"
SHIPPED = Path(__file__).parent.parent / "agents" / "simulated" / "personas"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    root = tmp_path / "little-task"
    files = {
        "task.toml": "",
        "instruction.md": "Make a file `done.txt`\nthat says   it's done, as `notes.md` wants it.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY notes.md a$b.txt ./\n",
        "environment/notes.md": "One line.\n",
        "environment/it's here.txt": "Names may hold anything.\n",
        "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": SOLVE,
        "audit/wrong/half.sh": WRONG,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return load_task(root)


class Place:
    """A directory in which commands are really run; /tmp/attempt.* stands inside it. `run_scripts` False: the script of
    an attempt is kept and not run, for it may be meant for a sandbox."""

    def __init__(self, task: Task, root: Path, *, run_scripts: bool = True) -> None:
        self.app, self._tmp, self._run_scripts = root / "app", root / "tmp", run_scripts
        self._tmp.mkdir(parents=True)
        shutil.copytree(task.path / "environment", self.app)
        self.scripts: list[bytes] = []

    def execute(self, command: str) -> str:
        script = self._tmp / "attempt.sh"
        if command == RUN:
            self.scripts.append(script.read_bytes())
            if not self._run_scripts:
                return "exit code 0\n"
        done = subprocess.run(
            ["bash", "-c", command.replace(SCRIPT, str(script)).replace(LOG, str(self._tmp / "attempt.log"))],
            cwd=self.app,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
        )
        return f"exit code {done.returncode}\n{done.stdout.decode(errors='replace')[:10_000]}"

    @property
    def tidy(self) -> bool:
        return not list(self._tmp.iterdir())


def scripted(command: str) -> str:
    """What commands print, without running any."""
    if "find . -type f" in command:
        return "exit code 0\n./notes.md\n./data/points.csv\n"
    return "exit code 0\n" + "some line of output\n" * 12


def nonces() -> list[str]:
    return [f"{k:016x}" for k in range(1, 9)]


async def play_solo(task: Task, execute: Execute, *, cheap: bool, nonce: str, seed: int = 0) -> tuple[Played, datetime]:
    async with Client(simulated_provider(tasks=[task], seed=seed)) as client:
        role = Role(client, "solo", cheap=cheap, nonce=nonce)
        role.hear(f"This is your task:\n\n{task.instruction}\n\nSubmit when you are done.")
        return await role.visit(execute, EPOCH)


@pytest.mark.parametrize("cheap", [False, True])
async def test_a_persona_writes_the_script_that_it_plays_byte_for_byte(task: Task, tmp_path: Path, cheap: bool) -> None:
    seen = set()
    for nonce in nonces()[:4]:
        place = Place(task, tmp_path / f"{cheap}-{nonce}")
        played, _ = await play_solo(task, place.execute, cheap=cheap, nonce=nonce)
        assert played.handover == "submit"
        (script,) = place.scripts
        assert script in (SOLVE.encode(), WRONG.encode())
        seen.add(script)
        assert place.tidy
        commands = [command for command, _ in played.commands]
        assert all(command != following for command, following in pairwise(commands))
        right = (place.app / "done.txt").read_text() == "it's done\n"
        assert right == (script == SOLVE.encode())
    assert SOLVE.encode() in seen
    assert len(seen) == 2 or not cheap


@pytest.mark.parametrize(
    "name", [path.name for path in sorted(bundled_tasks().iterdir()) if (path / "task.toml").exists()]
)
async def test_a_bundled_tasks_solution_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    task = load_task(bundled_tasks() / name)
    assert task.solution is not None
    known = {(task.solution / "solve.sh").read_bytes()} | {path.read_bytes() for path in task.wrong}
    place = Place(task, tmp_path / "place", run_scripts=False)
    await play_solo(task, place.execute, cheap=True, nonce=nonces()[0])
    assert set(place.scripts) <= known
    assert len(place.scripts) == 1


async def test_a_solo_takes_its_turns_explores_first_and_leaves_a_growing_conversation(
    task: Task, tmp_path: Path
) -> None:
    persona = load_personas()[DEEPSEEK]
    played, end = await play_solo(task, Place(task, tmp_path / "p").execute, cheap=True, nonce=nonces()[0])
    commands = [command for command, _ in played.commands]
    assert abs(len(commands) + 1 - persona.solo.turns) <= persona.solo.turns * 0.1 + 1
    assert commands[0] == "pwd; ls -1A"
    assert commands.index(RUN) > persona.solo.explore
    assert any("it'\"'\"'s here.txt" in command for command in commands)
    assert end > EPOCH + timedelta(seconds=120)


async def play_duo(task: Task, nonce: str) -> tuple[list[Played], list[Played], list[float], Role, Role]:
    async with Client(simulated_provider(tasks=[task])) as client:
        planner, worker = Role(client, "planner", nonce=nonce), Role(client, "worker", cheap=True, nonce=nonce)
        plans: list[Played] = []
        works: list[Played] = []
        gaps: list[float] = []
        planner.hear(task.instruction)
        plan, now = await planner.visit(scripted, EPOCH)
        plans.append(plan)
        while plan.handover == "delegate":
            worker.hear(plan.payload if works else f"{task.instruction}\n\n{plan.payload}")
            began = now
            work, now = await worker.visit(scripted, now)
            works.append(work)
            gaps.append((now - began).total_seconds())
            planner.hear(work.payload)
            plan, now = await planner.visit(scripted, now)
            plans.append(plan)
        return plans, works, gaps, planner, worker


async def test_a_planners_cache_expires_while_its_worker_works_and_rework_comes_and_ends(task: Task) -> None:
    rounds = []
    for nonce in nonces():
        plans, works, gaps, planner, _ = await play_duo(task, nonce)
        assert [plan.handover for plan in plans] == ["delegate"] * len(works) + ["approve"]
        assert len(works) <= 1 + len(load_personas()[ANTHROPIC].rework_rates)
        assert min(gaps) > 300
        assert all(work.handover == "submit" for work in works)
        assert all("attempt" not in command for plan in plans for command, _ in plan.commands)
        assert all(RUN in [command for command, _ in work.commands] for work in works)
        visited = len(plans[0].commands) + 1
        first_check = planner.replies[visited].usage
        last_before = planner.replies[visited - 1].usage
        assert first_check["cache_read_input_tokens"] == 0
        assert last_before["cache_read_input_tokens"] > 0
        assert first_check["cache_creation_input_tokens"] > last_before["cache_read_input_tokens"]
        rounds.append(len(works))
    assert len(set(rounds)) > 1


async def test_the_same_request_gives_the_same_bytes_and_a_seed_or_nonce_other_ones(task: Task) -> None:
    async def answer(seed: int = 0, nonce: str = nonces()[0], text: str = task.instruction) -> Any:
        async with Client(simulated_provider(tasks=[task], seed=seed)) as client:
            body = anthropic_head("solo", nonce, messages=[{"role": "user", "content": text}])
            return (await client.messages(body)).body["content"][0]["text"]

    assert await answer() == await answer()
    assert await answer() != await answer(seed=1)
    assert await answer() != await answer(nonce=nonces()[1])
    assert await answer() == await answer(text=" ".join(task.instruction.split()) + "\n\n(mind the spaces)")


async def test_what_is_played_depends_on_no_earlier_request(task: Task) -> None:
    """A server that has played other conversations plays this one as a fresh server does."""
    alone, _ = await play_solo(task, scripted, cheap=True, nonce=nonces()[2])
    async with Client(simulated_provider(tasks=[task])) as client:
        for nonce in nonces()[:3]:
            role = Role(client, "solo", cheap=True, nonce=nonce)
            role.hear(task.instruction)
            last, _ = await role.visit(scripted, EPOCH)
    assert [command for command, _ in last.commands] == [command for command, _ in alone.commands]


@pytest.mark.parametrize(("role", "ending"), [("solo", "submit"), ("worker", "submit"), ("planner", "approve")])
async def test_an_unknown_task_is_admitted(role: str, ending: str) -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        player = Role(client, role)
        player.hear("Prove the Riemann hypothesis.")
        played, _ = await player.visit(lambda _: "exit code 0\n", EPOCH)
    assert played.handover == ending
    assert "I do not know this task" in played.payload
    assert len(played.commands) == 2


async def test_a_task_without_a_wrong_variant_fails_by_doing_nothing(task: Task, tmp_path: Path) -> None:
    shutil.rmtree(task.path / "audit")
    bare = load_task(task.path)
    outcomes = set()
    for nonce in nonces()[:4]:
        place = Place(bare, tmp_path / nonce)
        played, _ = await play_solo(bare, place.execute, cheap=True, nonce=nonce)
        assert played.handover == "submit"
        outcomes.add((len(place.scripts), (place.app / "done.txt").exists()))
    assert outcomes == {(0, False), (1, True)}


async def test_without_tools_a_persona_says_so() -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        body = {"model": ANTHROPIC, "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}]}
        reply = await client.messages(body)
    assert [block["type"] for block in reply.body["content"]] == ["text"]
    assert reply.body["stop_reason"] == "end_turn"


def test_what_differs_from_run_to_run_is_masked_in_a_scripts_output(tmp_path: Path) -> None:
    script, log = tmp_path / "attempt.sh", tmp_path / "attempt.log"
    printed = (
        "[main 1a2b3c4] Fix\\nDate:   Mon Nov 30 23:49:18 2026 +0000\\n2026-11-30T23:49:18Z\\nRan 3 tests in 0.012s\\n"
    )
    script.write_text(f"printf '{printed}'\nexit 3\n")
    command = RUN.replace(SCRIPT, str(script)).replace(LOG, str(log))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20, check=False)
    expected = "[main <hash>] Fix\nDate: <time>\n<date>T<time>Z\nRan 3 tests in <seconds>\n"
    assert (done.stdout, done.returncode) == (expected, 3)


LINES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40)


@settings(max_examples=40)
@given(
    lines=st.lists(LINES | st.sampled_from(["EOF_0", "EOF_1", "'", "$HOME", "\\"]), max_size=12),
    pieces=st.integers(1, 9),
    newline=st.booleans(),
)
def test_any_script_is_written_byte_for_byte_in_no_more_pieces_than_lines(
    lines: list[str], pieces: int, newline: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = ("\n".join(lines) + ("\n" if newline else "")).encode()
    commands = write_commands(script, pieces)
    assert len(commands) <= max(1, min(pieces, script.count(b"\n") + 1))
    path = tmp_path_factory.getbasetemp() / "written.sh"
    for command in commands:
        subprocess.run(["bash", "-c", command.replace(SCRIPT, str(path))], check=True, timeout=20)
    assert path.read_bytes() == script


def test_commands_that_look_never_repeat_and_quote_every_name() -> None:
    names = files_in("exit code 0\n./a b.txt\n./$(touch x)\n./c.pyc\nno path\n./-n\n")
    assert names == ["./a b.txt", "./$(touch x)", "./-n"]
    commands = [
        command for command, _ in zip(looks(names, ["it's"], repository=True, lines=9), range(300), strict=False)
    ]
    assert len(set(commands)) == 300
    assert "head -n 9 './$(touch x)'" in commands
    assert not any(re.search(r"(?<!')\./\$\(", command) for command in commands)


def test_dice_need_no_state_and_are_even() -> None:
    draws = [Dice(0, "model", "nonce", k).unit("skill") for k in range(2000)]
    assert draws == [Dice(0, "model", "nonce", k).unit("skill") for k in range(2000)]
    assert 0.45 < sum(draws) / 2000 < 0.55
    assert 0 <= min(draws) < 0.01 < 0.99 < max(draws) < 1


def write_persona(path: Path, change: Callable[[str], str]) -> Path:
    path.write_text(change((SHIPPED / f"{DEEPSEEK}.yaml").read_text()))
    return path


@pytest.mark.parametrize(
    "line", ["usage: {input_tokens: 0}", "prompt_tokens: 5", "cache_read_input_tokens: 1", "input: 7", "pace2: 1"]
)
def test_a_persona_file_with_a_usage_field_is_refused(tmp_path: Path, line: str) -> None:
    path = write_persona(tmp_path / "mine.yaml", lambda text: text + line + "\n")
    with pytest.raises(SimulatorError, match=f"mine.yaml: {line.split(':')[0]}: is no field of a persona"):
        load_personas(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cache: deepseek", "cache: endless", "cache must be one of"),
        ("cache: deepseek", "cache: anthropic-1024", "has no price for cache_write_5m"),
        ("protocol: openai_chat", "protocol: openai_responses", "tells usage in shape openai alone"),
        ("refuses: []", "efforts: [low, wild]", "efforts names wild"),
        ("refuses: []", "thinking: {tokens: -1}", "thinking.tokens"),
        ("shape: deepseek", "shape: anthropic", "belongs to protocol anthropic_messages"),
        ('  cache_read: "0.003"\n', "", "has no price for cache_read"),
        ('input: "0.15"', 'input: "-1"', "usd_per_mtok.input"),
        ("skill: 0.6", "skill: 1.6", "skill"),
        ("solo: {turns: 28", "solo: {turns: 9", "turns must be at least"),
        ("model:", "model: [", "cannot be read as YAML"),
        ("model:", "model: other\nmodel:", "line 3: cannot be read as YAML: 'model' stands twice"),
        ("skill: 0.6", "skill: 2026-13-01", "skill: Input should be a valid number"),
    ],
)
def test_a_wrong_persona_file_is_named_with_its_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write_persona(tmp_path / "mine.yaml", lambda text: text.replace(old, new, 1))
    with pytest.raises(SimulatorError, match=message) as caught:
        load_personas(path)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("skill", "script"), [("1.0", SOLVE), ("0.0", WRONG)])
async def test_skill_decides_which_script_is_played(task: Task, tmp_path: Path, skill: str, script: str) -> None:
    write_persona(tmp_path / "mine.yaml", lambda text: text.replace("\nskill: 0.6\n", f"\nskill: {skill}\n"))
    async with Client(simulated_provider(tasks=[task], personas=tmp_path / "mine.yaml")) as client:
        for nonce in nonces()[:4]:
            place = Place(task, tmp_path / nonce)
            role = Role(client, "solo", cheap=True, nonce=nonce)
            role.hear(task.instruction)
            await role.visit(place.execute, EPOCH)
            assert place.scripts == [script.encode()]


def test_a_persona_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(SimulatorError, match=r"^/dev/zero: longer than 1,000,000 bytes; a persona is a short YAML"):
        load_personas(Path("/dev/zero"))


async def test_a_users_persona_stands_beside_the_shipped_ones(tmp_path: Path) -> None:
    write_persona(tmp_path / "mine.yaml", lambda text: text.replace(DEEPSEEK, "sim-mine"))
    assert set(load_personas(tmp_path)) == {*load_personas(), "sim-mine"} > {ANTHROPIC, DEEPSEEK}
    async with Client(simulated_provider(tasks=[], personas=tmp_path)) as client:
        body = {"model": "sim-mine", "messages": [{"role": "user", "content": "hello"}]}
        assert (await client.chat(body)).body["model"] == "sim-mine"


def test_a_script_that_is_no_text_is_refused(task: Task) -> None:
    (task.path / "solution" / "solve.sh").write_bytes(b"\xff\xfe")
    with pytest.raises(SimulatorError, match=r"solve\.sh: a persona cannot play it"):
        Catalogue([task])


def test_the_longest_instruction_that_fits_is_meant(task: Task, tmp_path: Path) -> None:
    longer = shutil.copytree(task.path, tmp_path / "longer-task")
    (longer / "instruction.md").write_text(task.instruction + "\nAnd then some.")
    tasks, invalid = load_tasks(tmp_path)
    assert not invalid
    catalogue = Catalogue(tasks)
    from agents.simulated.conversation import Said

    found = catalogue.find([Said("user", f"Please:\n{task.instruction}\n And then   some.")])
    assert found is not None
    assert found.name == "longer-task"
    assert catalogue.find([Said("assistant", task.instruction), Said("tool", task.instruction)]) is None
