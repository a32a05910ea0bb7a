"""A real model in the loop: solo, planner_worker and worker_reviewer do a one-file task over two protocols, and every
count that is stored is held against the server's own.

Opt-in (`make test-local-llm`): it fetches half a gigabyte once. Nothing here asserts on speed, and no more is asked of
the model than its one file.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.store.reader import Reader
from tests.local_llm.model_file import Unavailable, cache_folder, model_file, server_python
from tests.local_llm.recording_proxy import Seen, recording_proxy
from tests.local_llm.small_server import Counters, SmallServer, small_server
from tests.task_directory import write_task

pytestmark = [pytest.mark.local_llm, pytest.mark.timeout(1800), pytest.mark.xdist_group("local_llm")]

RUN_S = 900
CONTENT = "hello from the chain"
MODELS = """\
models:
  small-chat: {{provider: local, model: small, base_url: "http://127.0.0.1:{port}/v1", actions: json_schema, {limits}}}
  small-messages:
    provider: local-messages
    protocol: anthropic_messages
    model: small
    base_url: http://127.0.0.1:{port}
    self_hosted: true
    cache: prefix-16
    temperature: true
    actions: fenced
    {limits}
"""
LIMITS = "limits: {max_output_tokens: 120, context_tokens: 8192}"
SPEC = """\
name: {protocol}
tasks: [{protocol}]
models: [models.yaml]
concurrency: 1
seed: 1
limits: {{max_turns: {turns}, command_timeout_s: 30}}
arms:
  - name: solo-{protocol}
    topology: solo
    roles: {{solo: {{model: small-{protocol}, temperature: 0}}}}
  - name: pair-{protocol}
    topology: planner_worker
    parameters: {{rounds: 1}}
    roles:
      planner: {{model: small-{protocol}, temperature: 0}}
      worker: {{model: small-{protocol}, temperature: 0}}
  - name: reviewed-{protocol}
    topology: worker_reviewer
    parameters: {{rounds: 1, tools: false}}
    roles:
      worker: {{model: small-{protocol}, temperature: 0}}
      reviewer: {{model: small-{protocol}, temperature: 0, max_turns: 2}}
"""
COMMAND = f"cd /app && echo '{CONTENT}' > hello.txt && cat next.txt"
"""What a model of this size can be brought to do: to repeat a command that it is told."""

NEXT = {
    "chat": """Written. Now delegate or submit:
{"thought": "It is written.", "tool": "delegate", "argument": "Check hello.txt."}
{"thought": "It is written.", "tool": "submit", "argument": "hello.txt is written."}
""",
    "messages": """hello.txt is written. Your next answer:

```delegate
Check hello.txt.
```

```submit
hello.txt is written.
```
""",
}
"""A file of the task, which tells how to go on: each role can only take up what it has a tool for."""

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY next.txt /app/\n"
TURNS = {"chat": 3, "messages": 2}
"""Over chat, where a schema holds the model to an action, the planner comes back; in free text it wanders."""

DATABASE = "small.duckdb"
TEST_SH = f"""#!/bin/bash
reward=0
[ "$(cat hello.txt)" = "{CONTENT}" ] && reward=1
echo "$reward" >/logs/verifier/reward.txt
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one `fullchain run` left in its database, and what the proxy saw of it."""

    code: int
    said: str
    database: Path
    seen: tuple[Seen, ...]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with Reader(self.database) as reader:
            columns, lines = reader.query(sql)
        return [dict(zip(columns, line, strict=True)) for line in lines]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    if not os.environ.get("FULLCHAIN_LOCAL_LLM"):
        pytest.skip("opt-in: make test-local-llm")
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        python = server_python(cache)
        model = model_file(cache, python)
    except (Unavailable, OSError) as error:
        pytest.skip(f"no small model here: {error}")
    with small_server(python, model, tmp_path_factory.mktemp("server") / "log") as serving:
        yield serving


@pytest.fixture(scope="module")
def ran(server: SmallServer, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("run")
    for protocol in NEXT:
        _write(folder, protocol)
    with recording_proxy(server) as recording:
        (folder / "models.yaml").write_text(MODELS.format(port=recording.port, limits=LIMITS))
        done = [_run(folder, protocol) for protocol in NEXT]
        said = "".join(each.stdout + each.stderr for each in done)
        return Ran(max(each.returncode for each in done), said, folder / DATABASE, tuple(recording.seen))


def _write(folder: Path, protocol: str) -> None:
    task = write_task(
        folder / protocol, "[agent]\ntimeout_sec = 1200.0\n", test=TEST_SH, solve=f"echo '{CONTENT}' > hello.txt\n"
    )
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (task / "environment" / "next.txt").write_text(NEXT[protocol])
    (task / "instruction.md").write_text(f"Run this command, which creates hello.txt: {COMMAND}\n")
    (folder / f"{protocol}.yaml").write_text(SPEC.format(protocol=protocol, turns=TURNS[protocol]))


def _run(folder: Path, protocol: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli", "run", f"{protocol}.yaml", "--db", DATABASE],
        cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False,
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
    )  # fmt: skip


def test_every_arm_is_run_to_a_score_by_a_real_model(ran: Ran) -> None:
    assert ran.code == 0, ran.said
    trials = ran.rows("SELECT arm, outcome FROM trials ORDER BY arm")
    assert [trial["arm"] for trial in trials] == [
        f"{arm}-{protocol}" for arm in ("pair", "reviewed", "solo") for protocol in ("chat", "messages")
    ]
    assert {trial["outcome"] for trial in trials} <= {"passed", "failed"}, ran.said


def test_the_small_model_solves_the_task_over_both_protocols(ran: Ran) -> None:
    passed = {trial["experiment"] for trial in ran.rows("SELECT experiment FROM trials WHERE outcome = 'passed'")}
    assert passed == set(NEXT), ran.said


def test_every_stored_count_is_the_servers_own_call_by_call(ran: Ran) -> None:
    calls = ran.rows(
        "SELECT outcome, usage_error, cache_read_tokens AS cached, input_tokens AS fresh, output_tokens AS output, "
        "role, flavour FROM calls ORDER BY requested_at"
    )
    assert len(calls) == len(ran.seen) >= 8
    assert {call["outcome"] for call in calls} == {"complete"}
    assert {call["usage_error"] for call in calls} == {None}
    stored = [Counters(call["cached"], call["fresh"], call["output"]) for call in calls]
    assert stored == [each.counted for each in ran.seen]
    assert [call["role"] for call in calls] == [each.role for each in ran.seen]
    assert {call["flavour"] for call in calls} == {"openai_chat", "anthropic_messages"}
    assert sum(each.counted.cached for each in ran.seen) > 0


def test_a_prefix_that_another_conversation_took_the_slot_of_is_an_eviction(ran: Ran) -> None:
    causes = ran.rows(
        "SELECT c.key, coalesce(sum(x.units) FILTER (x.cause = 'eviction'), 0) AS evicted, "
        "coalesce(sum(x.units) FILTER (x.cause = 'hit'), 0) AS hit "
        "FROM calls c JOIN charges x ON x.call = c.key GROUP BY c.key, c.requested_at ORDER BY c.requested_at"
    )
    assert len(causes) == len(ran.seen)
    (intruded,) = [place for place, each in enumerate(ran.seen) if each.intruded]
    # The template's first tokens are alike in all conversations.
    assert causes[intruded]["hit"] < 16
    assert causes[intruded]["evicted"] > 200


def test_what_is_lost_while_another_role_works_is_an_eviction_and_what_is_kept_a_hit(ran: Ran) -> None:
    """With one slot a role that comes back finds its prefix gone; the next turn of the same role finds it."""
    causes = ran.rows(
        "SELECT coalesce(sum(x.units) FILTER (x.cause = 'eviction'), 0) AS evicted, "
        "coalesce(sum(x.units) FILTER (x.cause = 'hit'), 0) AS hit "
        "FROM calls c JOIN charges x ON x.call = c.key GROUP BY c.key, c.requested_at ORDER BY c.requested_at"
    )
    lanes = [(each.nonce, each.role) for each in ran.seen]
    kept = 0
    for place in range(1, len(lanes)):
        if ran.seen[place].intruded or lanes[place] not in lanes[:place]:
            continue
        if lanes[place] == lanes[place - 1]:
            assert causes[place]["hit"] > 200
            kept += 1
        else:
            assert causes[place]["evicted"] > 100
    assert kept
