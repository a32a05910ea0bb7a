"""Whole runs of roles that forget on purpose: what the ledger says of it, and that every view of it agrees."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cost_model.prices import PriceBook
from cost_model.what_if.change import Change
from cost_model.what_if.replay import replay, total
from experiments.cli import main
from experiments.errors import SpecError
from experiments.loading import load
from experiments.runner import run_experiment
from experiments.store.reader import Reader
from experiments.store.replay_calls import stored_arms, stored_facts
from experiments.store.store import Store
from tests.experiment_files import rows, scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation

ARMS = """\
  - name: truncate
    topology: solo
    roles: {solo: {model: sim-deepseek-v4-flash, context: {policy: truncate, above_tokens: 6000, keep_bytes: 100}}}
  - name: clear
    topology: solo
    roles:
      solo: {model: sim-claude-sonnet-5-5, context: {policy: clear, above_tokens: 6000, at_least_bytes: 2000}}
  - name: compact
    topology: solo
    roles: {solo: {model: sim-gpt-6.1-sol, context: {policy: compact, above_tokens: 7000}}}
  - name: pair
    topology: planner_worker
    parameters: {rounds: 1}
    roles:
      planner: {model: sim-claude-opus-5-5, context: {policy: compact, above_tokens: 5000, keep_last: 2}}
      worker: {model: sim-deepseek-v4-flash, context: {policy: clear, above_tokens: 6000, keep_last: 1}}
"""

BOOKED = """
SELECT arm, role, policy, count(*) AS rewrites, min(rebuilt_tokens) AS least, min(rebuilt_usd) AS usd,
    min(excess_usd) AS excess, min(bytes_removed) AS bytes, min(outcome) AS outcome, count(call) AS asked,
    count(summary_usd) AS priced
FROM rewrite_timeline GROUP BY ALL ORDER BY ALL
"""

CHANGED = "SELECT coalesce(sum(excess_usd), 0) FROM charges WHERE cause = 'change_rebuild'"

SENT = """
SELECT count(*) FROM calls
FULL JOIN (SELECT call, count(*) AS n, min(idx) AS first FROM call_messages GROUP BY call) AS sent ON key = sent.call
WHERE n IS DISTINCT FROM blocks OR first != 0
"""

# The run that all of them look at is made once.
pytestmark = [pytest.mark.xdist_group("context-runs"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forgetful")
    asyncio.run(run_experiment(small(folder, ARMS), folder / "x.duckdb"))
    return folder / "x.duckdb"


@needs_isolation
def test_each_rewriting_is_booked_as_the_change_that_the_next_call_pays_for(database: Path) -> None:
    with Reader(database) as reader:
        names, lines = reader.query(BOOKED)
    booked = [dict(zip(names, line, strict=True)) for line in lines]
    assert [(line["arm"], line["role"], line["policy"]) for line in booked] == [
        ("clear", "solo", "clear"),
        ("compact", "solo", "compact"),
        ("pair", "planner", "compact"),
        ("pair", "worker", "clear"),
        ("truncate", "solo", "truncate"),
    ]
    for line in booked:
        assert line["outcome"] == "rewritten"
        assert line["least"] > 0
        assert line["bytes"] > 0
        assert line["usd"] > line["excess"] > 0
        assert line["asked"] == line["priced"] == (line["rewrites"] if line["policy"] == "compact" else 0)
    # Nothing but the policies alters what was sent, so that all that was rebuilt for a change is theirs.
    assert scalar(database, CHANGED) == scalar(database, "SELECT sum(excess_usd) FROM context_costs") > 0


@needs_isolation
def test_charges_add_up_to_every_prompt_and_nothing_is_blamed_on_the_provider(database: Path) -> None:
    off = scalar(
        database,
        "SELECT count(*) FROM (SELECT call, sum(units) AS n FROM charges WHERE cause != 'output' GROUP BY call) "
        "JOIN calls ON key = call WHERE n != prompt_tokens",
    )
    assert off == 0
    assert scalar(database, "SELECT count(*) FROM charges WHERE cause IN ('eviction', 'race', 'unknown')") == 0
    assert scalar(database, "SELECT count(*) FROM calls WHERE outcome != 'complete'") == 0


@needs_isolation
def test_the_messages_tell_what_each_call_was_sent(database: Path) -> None:
    assert scalar(database, SENT) == 0
    asked = "SELECT count(*) FROM call_messages WHERE content::VARCHAR LIKE '%about to be compacted%'"
    assert scalar(database, asked) == scalar(database, "SELECT count(*) FROM rewrites WHERE policy = 'compact'") > 0


@needs_isolation
def test_a_replay_without_a_change_costs_what_was_measured(database: Path) -> None:
    with Reader(database) as reader:
        arms = list(stored_arms(reader, "tiny", [], stored_facts(reader, "tiny", PriceBook())))
    assert len(arms) == 4
    for arm in arms:
        for scope in arm.scopes:
            found = replay(scope, Change())
            assert total(found.predicted) == total(found.measured)
            assert [one.explained.charges for one in found.predicted] == [
                one.explained.charges for one in found.measured
            ]


@needs_isolation
def test_charges_computed_anew_are_the_same(database: Path) -> None:
    before = rows(database)
    Store(database).rebuild_charges("tiny")
    after = rows(database)
    assert after["charges"] == before["charges"]
    assert after["calls"] == before["calls"]


@needs_isolation
def test_who_compacts_goes_on_with_the_work_and_does_not_begin_anew(database: Path) -> None:
    with Reader(database) as reader:
        lines = reader.query(
            "SELECT list(command ORDER BY seq) FROM commands JOIN trials ON id = trial_id WHERE arm = 'compact' "
            "GROUP BY trial_id"
        ).rows
    for (commands,) in lines:
        written = [command for command in commands if "/tmp/attempt.sh <<" in command]
        assert len(written) == len(set(written)) > 2
        assert [command.split()[1] for command in written] == [">", *[">>"] * (len(written) - 1)]
        assert commands.count("pwd; ls -1A") == 1
        assert sum(command.startswith("rm -f") for command in commands) == 1
    assert scalar(database, "SELECT count(*) FROM attempts WHERE ended_by != 'submitted'") == 0


@needs_isolation
def test_show_tells_of_each_rewriting(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arm, told in (("compact", "compact: "), ("clear", "results cut, ")):
        trial = scalar(database, f"SELECT id FROM trials WHERE arm = '{arm}'")  # noqa: S608
        with pytest.raises(SystemExit, match="0"):
            main(["show", trial, "--db", str(database)])
        printed = capsys.readouterr().out
        assert told in printed
        assert "bytes fewer (version 1)" in printed


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ("{policy: forget}", "context.policy: 'forget' is not known; expected"),
        ("{policy: clear}", "context: above_tokens is missing"),
        ("clear", "context: expected a mapping of fields, found 'clear'"),
        ("{policy: clear, above_tokens: 0}", "context.above_tokens: expected at least 1, found 0"),
        ("{policy: clear, above_tokens: -5}", "context.above_tokens: expected at least 1, found -5"),
        ("{policy: clear, above_tokens: much}", "context.above_tokens: expected a whole number"),
        ("{policy: clear, above_tokens: 10000000}", "takes 1000000 tokens in all, so clear would never act"),
        ("{policy: clear, above_tokens: 99999999999}", "context.above_tokens: expected at most 10000000"),
        ("{policy: clear, above_tokens: 9, keep_last: 0}", "context.keep_last: expected at least 1, found 0"),
        ("{policy: clear, above_tokens: 9, keep_bytes: 5}", "context.keep_bytes: only policy truncate"),
        ("{policy: compact, above_tokens: 9, at_least_bytes: 5}", "context.at_least_bytes: compact takes out"),
        ("{policy: none, above_tokens: 9}", "context.above_tokens: policy none forgets nothing"),
        ("{policy: clear, above_token: 9}", "context.above_token: unknown field; did you mean 'above_tokens'"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_one_line(context: str, message: str, tmp_path: Path) -> None:
    path = write_spec(tmp_path, ARM.format(context))
    with pytest.raises(SpecError) as refused:
        load(path)
    assert message in str(refused.value)
    assert "roles.solo.context" in str(refused.value)
    assert "\n" not in str(refused.value)


ARM = "  - {{name: alone, topology: solo, roles: {{solo: {{model: sim-deepseek-v4-flash, context: {}}}}}}}\n"


def test_a_policy_makes_another_arm_and_none_leaves_it_what_it_was(tmp_path: Path) -> None:
    def parts(context: str) -> dict[str, Any]:
        found = load(write_spec(tmp_path, ARM.format(context))).plan().arms[0].parts["roles"]
        assert isinstance(found, dict)
        return found["solo"]  # type: ignore[no-any-return]  # JSON

    bare = parts("null")
    assert "context" not in bare
    assert parts("{policy: none}") == bare
    kinds = [
        bare,
        parts("{policy: clear, above_tokens: 9}"),
        parts("{policy: clear, above_tokens: 9, keep_last: 4}"),
        parts("{policy: truncate, above_tokens: 9}"),
        parts("{policy: compact, above_tokens: 9}"),
    ]
    assert len({str(kind) for kind in kinds}) == len(kinds)
    assert kinds[1]["context"] == {"policy": "clear", "above_tokens": 9, "keep_last": 3, "at_least_bytes": 0}
    assert "prompt" in kinds[4]["context"]
