"""Whole runs on simulated models in real sandboxes: what is run, what is kept, what is never repeated."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.bill import bill_folder, read_bill
from experiments.cli import main
from experiments.errors import PlanChanged, StoreLocked
from experiments.run_lock import run_lock
from experiments.runner import run_experiment
from experiments.statistics.comparison import SHARE, comparison, expiry_sources
from experiments.store.reader import Reader
from tests.experiment_files import PAIR, SOLO, rows, scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation
from tests.task_directory import write_task


@needs_isolation
async def test_a_run_scores_every_trial_books_every_call_and_agrees_with_the_providers_bill(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    report = await run_experiment(small(tmp_path, SOLO + PAIR), database)
    assert (report.planned, report.finished_before, report.left, report.broken) == (2, 0, 0, 0)
    assert {ended.ended_by for ended in report.ended.values()} == {"submitted"}
    assert report.bill is not None
    assert report.bill.equal, report.bill.sentence
    assert report.bill.calls == scalar(database, "SELECT count(*) FROM calls") > 10
    spent = scalar(database, "SELECT sum(cost_usd) FROM calls")
    assert spent == report.bill.billed == sum((ended.usd for ended in report.ended.values()), Decimal(0))
    assert scalar(database, "SELECT sum(usd_low) FROM charges") == spent
    assert scalar(database, "SELECT bool_and(changed) FROM attempts")
    with Reader(database) as reader:
        lines = {line["arm"]: line for line in comparison(reader, "tiny")}
        assert list(lines) == ["alone", "pair"]
        assert all(line["scored"] == 1 and line["simulated"] for line in lines.values())
        shares = dict(reader.query(SHARE.format(experiment="tiny")).rows)
    assert {arm: line["expiry_share"] or 0 for arm, line in lines.items()} == {
        arm: share or 0 for arm, share in shares.items()
    }
    (bill,) = bill_folder(database).iterdir()
    assert sum((line.usd for line in read_bill(bill).values()), Decimal(0)) == spent


HELD_THE_FLOOR = """
SELECT expired.key, idle_s, string_agg(DISTINCT roles.role) AS holders,
    sum(date_diff('microsecond', visits.started_at, visits.ended_at)) / 1e6 AS held_s
FROM calls AS expired
JOIN spans AS visits ON visits.trial_id = expired.trial_id AND kind = 'visit'
    AND visits.started_at >= expired.requested_at - to_microseconds((idle_s * 1e6)::BIGINT)
    AND visits.ended_at <= expired.requested_at
JOIN trial_roles AS roles ON roles.trial_id = visits.trial_id AND roles.lane = visits.lane
WHERE expired.key IN (SELECT call FROM charges WHERE cause = 'expiry_rebuild')
GROUP BY ALL
"""
"""Whose visits lie wholly in the gap before each call that rebuilt an expired cache."""


@needs_isolation
async def test_the_planner_pays_for_its_expired_cache_after_each_visit_of_the_worker_and_nobody_else_does(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, SOLO + PAIR, repeats=2), database)
    visits = scalar(database, "SELECT count(*) FROM handovers WHERE kind = 'delegate'")
    with Reader(database) as reader:
        alone, pair = comparison(reader, "tiny")
        (source,) = expiry_sources(reader, "tiny")
        shares = dict(reader.query(SHARE.format(experiment="tiny")).rows)
        gaps = reader.query(HELD_THE_FLOOR).rows
    assert (alone["expiry_usd"], shares["alone"]) == (0, 0)
    assert pair["expiry_share"] == shares["pair"] > 0.05
    assert (source["arm"], source["role"], source["model"]) == ("pair", "planner", "sim-claude-opus-5-5")
    assert source["usd"] == pair["expiry_usd"]
    assert pair["expiry_share"] == pytest.approx(float(source["usd"] / pair["total_usd"]))
    assert source["calls"] == len(gaps) == visits >= 2
    assert source["idle_low_s"] > 300
    for _, idle_s, holders, held_s in gaps:
        assert holders == "worker"
        assert 300 < held_s <= idle_s


@needs_isolation
async def test_what_is_finished_is_never_run_again_and_added_repeats_are(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path), database)
    first = rows(database)
    again = await run_experiment(small(tmp_path), database)
    assert again.nothing_to_do
    assert again.ended == {}
    assert rows(database) == first
    more = await run_experiment(small(tmp_path, repeats=2), database)
    assert (more.planned, more.finished_before, len(more.ended)) == (2, 1, 1)
    assert [call for call in rows(database)["calls"] if call in first["calls"]] == first["calls"]
    assert scalar(database, "SELECT count(*) FROM attempts") == 2


@needs_isolation
async def test_a_changed_limit_is_refused_by_name_unless_it_gets_a_name_of_its_own(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path), database)
    before = rows(database)
    changed = "limits: {max_turns: 80}\n"
    with pytest.raises(PlanChanged, match=r"arm alone: limits\.max_turns 100 -> 80; run it as a new .* --as NAME"):
        await run_experiment(small(tmp_path, more=changed), database)
    assert rows(database) == before


@contextmanager
def gone_after_one_answer() -> Iterator[str]:
    """The address of a provider that answers once, so that a run begins, and cannot be reached from then on."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            peer, _ = server.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    thread.join(timeout=60)


@needs_isolation
def test_a_provider_that_cannot_be_reached_is_no_score_and_is_tried_again_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    with gone_after_one_answer() as address, pytest.raises(SystemExit) as end:
        main(["run", str(write_spec(tmp_path)), "--db", str(database), "--simulator", address])
    assert end.value.code == 1
    assert "1 of 1 planned trials have no score" in (said := capsys.readouterr()).out
    assert "broke and has no score" in said.err
    assert "Traceback" not in said.err
    with Reader(database) as reader:
        (line,) = comparison(reader, "tiny")
        assert (line["scored"], line["trials"]) == (0, 1)
    report = asyncio.run(run_experiment(small(tmp_path), database))
    assert (report.broken, report.left, report.finished_before) == (0, 0, 0)
    assert scalar(database, "SELECT list(ended_by ORDER BY attempt) FROM attempts") == ["infra_error", "submitted"]
    assert scalar(database, "SELECT final_attempt FROM trials") == 2


@needs_isolation
async def test_a_task_that_cannot_be_run_here_is_skipped_by_name_and_the_others_run(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    task = tmp_path / "needs-a-gpu"
    for folder in ("environment", "tests"):
        (task / folder).mkdir(parents=True)
    (task / "environment" / "Dockerfile").write_text("FROM debian\n")
    (task / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (task / "instruction.md").write_text("Train it.\n")
    (task / "task.toml").write_text("[environment]\ngpus = 1\n")
    report = await run_experiment(small(tmp_path, tasks="bundled/archive-intake, needs-a-gpu"), database)
    assert list(report.skipped) == ["needs-a-gpu"]
    assert "1 GPUs" in report.skipped["needs-a-gpu"]
    assert (report.planned, len(report.ended), report.left) == (2, 1, 1)
    assert scalar(database, "SELECT count(*) FROM attempts") == 1


@needs_isolation
async def test_a_task_whose_requirement_is_not_inside_is_skipped_by_name(tmp_path: Path) -> None:
    write_task(tmp_path / "needs-more", '[metadata]\nrequires = ["bash", "python>=9", "no-such-program"]')
    spec = small(tmp_path, tasks="needs-more", more="sandbox: bubblewrap\n")
    report = await run_experiment(spec, tmp_path / "x.duckdb")
    assert report.skipped == {"needs-more": "the sandbox bubblewrap lacks python>=9, no-such-program"}
    assert (report.ended, report.left) == ({}, 1)


@needs_isolation
@pytest.mark.parametrize("allowed", [False, True])
def test_what_became_of_a_public_network_stands_in_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], allowed: bool
) -> None:
    write_task(tmp_path / "online", '[environment]\nnetwork_mode = "public"')
    database = tmp_path / "x.duckdb"
    spec = str(write_spec(tmp_path, tasks="online", more="sandbox: bubblewrap\n"))
    for command in (["run", spec, *(["--allow-host-network"] if allowed else [])], ["show", ""]):
        with pytest.raises(SystemExit) as end:
            main([*command, "--db", str(database)])
        shown = capsys.readouterr()
        assert end.value.code == 0, shown.err
    note = "the host's network was given (--allow-host-network)" if allowed else "public network asked for; ran without"
    assert scalar(database, "SELECT notes FROM attempts") == note
    assert f"sandbox bubblewrap: {note}" in shown.out


@needs_isolation
async def test_a_process_that_the_agent_left_is_gone_before_its_work_is_verified(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    forging = "while :; do echo 1 >/logs/verifier/reward.txt; sleep .01; done"
    write_task(
        tmp_path / "forged",
        solve=f"setsid bash -c '{forging}' >/dev/null 2>&1 &\nuntil [ -s /logs/verifier/reward.txt ]; do :; done\n"
        "touch done.txt\n",
        test="#!/bin/bash\nsleep 0.3\nls\n",
    )
    await run_experiment(small(tmp_path, tasks="forged", repeats=4), database)
    with Reader(database) as reader:
        found = reader.query("SELECT outcome, reward, unscored_reason, verifier_output FROM attempts").rows
    assert {row[:3] for row in found} == {("unscored", None, "reward missing (tests/test.sh ended with 0)")}
    assert "done.txt\n" in {output for *_, output in found}, "the forging script was never played"


async def test_two_runs_of_one_experiment_do_not_start_the_same_trials(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with run_lock(database, "tiny"), pytest.raises(StoreLocked, match="is being run by another process"):
        await run_experiment(small(tmp_path), database)
    assert not database.exists()


@needs_isolation
def test_the_commands_run_compare_show_and_query_tell_one_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--db", str(database)])
        printed = capsys.readouterr()
        assert end.value.code == 0, printed.err
        return printed.out

    database, spec = tmp_path / "x.duckdb", str(write_spec(tmp_path, PAIR))
    first = said("run", spec)
    assert "bill: $" in first
    assert "[simulated" in first
    again = said("run", spec)
    assert "nothing left to do: all 1 trials of 'tiny' are finished" in again
    assert "--as NAME` starts a fresh experiment" in again
    table = said("compare", "tiny")
    assert table in again
    assert "pair" in table
    assert said("compare", "tiny", "--arms", "pair") == table
    with pytest.raises(SystemExit) as end:
        main(["compare", "tiny", "--arms", "nope", "--db", str(database)])
    assert end.value.code == 2
    assert "experiment 'tiny' has no arm 'nope'; its arms: pair" in capsys.readouterr().err
    trial = said("query", "SELECT id FROM trials", "--format", "csv").splitlines()[1]
    shown = said("show", trial[:6])
    assert f"trial {trial} attempt 1: tiny / pair / checkout-incident / repeat 1  [simulated]" in shown
    assert "delegate -> to worker" in shown
    assert "[exit 0, " in shown
    assert "first_write" in shown
    total = said("query", "SELECT sum(cost_usd) AS usd FROM calls", "--format", "json")
    assert f"{Decimal(total.split(chr(34))[3]):.4f}" in table
