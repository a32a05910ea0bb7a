"""Runs that may spend so much and no more: through the store, the command line and a terminal."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

import fullchain
from cost_model.calls import call_key
from experiments.budget import Budget
from experiments.cli import main
from experiments.cli.progress import Bar, Lines
from experiments.errors import SpecError
from experiments.experiment import Experiment
from experiments.loading import load
from experiments.runner import _model_facts, run_experiment
from experiments.standing import spent_so_far, standing
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from experiments.trial import Ended
from experiments.worst_case import PROVIDER_TOKENS, sent_bound
from tests.experiment_files import PAIR, SOLO, scalar, write_spec
from tests.sandbox_tasks import needs_isolation
from tests.store_trials import EPOCH, sent, small_plan

DEAR = "  - {name: alone, topology: solo, roles: {solo: sim-claude-opus-5-5}}\n"
SHORT = "limits: {max_turns: 4}\n"
PATIENCE_S = 90
AROUND = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "COLUMNS": "300"}


def dearest_call(experiment: Experiment, database: Path) -> Decimal:
    """The largest worst case of the calls that were sent."""
    with Reader(database) as reader:
        sizes = reader.query("SELECT model, requested_at, prompt_bytes, max_output_tokens FROM calls").rows
    return max(sent_bound(experiment.card(model, at), size, most) for model, at, size, most in sizes)


@needs_isolation
async def test_a_budget_is_kept_at_concurrency_64_and_a_larger_one_runs_every_trial_exactly_once(
    tmp_path: Path,
) -> None:
    database, spec = tmp_path / "x.duckdb", write_spec(tmp_path, DEAR, repeats=5, more=SHORT + "budget_usd: 0.15\n")
    poor = load(spec, concurrency=64)
    report = await run_experiment(poor, database)
    assert report.out_of_money
    assert report.budget is not None
    spent = scalar(database, "SELECT sum(cost_usd) FROM calls")
    assert report.budget.spent == spent
    assert Decimal("0.15") <= spent < Decimal("0.15") + dearest_call(poor, database)
    assert len(report.ended) < 5
    assert report.left == 5 - len(report.ended)
    for ended_by, number in (("max_turns", len(report.ended)), ("cancelled", report.left)):
        assert scalar(database, f"SELECT count(*) FROM attempts WHERE ended_by = '{ended_by}'") == number  # noqa: S608
    assert scalar(database, "SELECT count(*) FROM trials WHERE outcome = 'unscored' AND final_attempt IS NULL") == (
        report.left
    )
    assert report.bill is not None
    assert report.bill.equal, report.bill.sentence
    # The budget is the experiment's, over all its runs: with the same one nothing more begins.
    again = await run_experiment(load(spec, concurrency=64), database)
    assert (again.out_of_money, again.ended, again.left) == (True, {}, report.left)
    assert scalar(database, "SELECT sum(cost_usd) FROM calls") == spent
    rich = await run_experiment(load(spec, budget_usd="50"), database)
    assert (rich.out_of_money, rich.left, rich.finished_before) == (False, 0, len(report.ended))
    assert scalar(database, "SELECT count(*) FROM trials WHERE final_attempt IS NULL") == 0
    finals = "SELECT max(n) FROM (SELECT count(*) AS n FROM attempts WHERE ended_by = 'max_turns' GROUP BY trial_id)"
    assert scalar(database, finals) == 1
    assert scalar(database, "SELECT count(*) FROM attempts WHERE ended_by = 'max_turns'") == 5


async def test_calls_that_were_lost_count_with_their_worst_case(tmp_path: Path) -> None:
    database, experiment = tmp_path / "x.duckdb", load(write_spec(tmp_path, DEAR, more="budget_usd: 9\n"))
    plan, store = experiment.plan(), Store(database, experiment.prices)
    assert spent_so_far(experiment, database) == 0
    store.register(plan, _model_facts(experiment))
    trial = plan.trials[0]
    call = sent(trial.id, 1, 1, EPOCH, blocks=1)
    dead = {field: getattr(call, field) for field in call.__slots__} | {"model": "sim-claude-opus-5-5"}
    async with Journal(journal_folder(database) / "dead.jsonl") as journal:
        book = TrialJournal(journal, trial.id, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        book.message("solo", 0, 0, "system", {}, "hash", 2)
        await book.sent(type(call)(**dead))
    stands = standing(experiment, store)
    assert [each.id for each in stands.pending] == [trial.id]
    assert scalar(database, "SELECT outcome FROM calls") == "lost"
    assert call.key == call_key(trial.id, 1, "solo", 1, 1)
    # $8 is the dearest class of a prompt, $20 an answer; a million tokens.
    expected = Decimal(8 * (call.prompt_bytes + PROVIDER_TOKENS) + 20 * 1000).scaleb(-6)
    assert spent_so_far(experiment, database) == expected
    assert scalar(database, "SELECT sum(cost_high_usd) FROM calls") <= expected


@needs_isolation
def test_the_end_of_the_budget_is_one_line_with_what_is_left_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = write_spec(tmp_path, DEAR, repeats=2, more=SHORT + "budget_usd: 0.03\n")
    with pytest.raises(SystemExit) as end:
        main(["run", str(spec), "--db", str(tmp_path / "x.duckdb"), "--concurrency", "1"])
    assert end.value.code == 1
    said = capsys.readouterr()
    assert "planned trials have no score" in said.out
    spent = Decimal(scalar(tmp_path / "x.duckdb", "SELECT sum(cost_usd) FROM calls"))
    assert f"the budget is used up (${spent:.4f} of $0.03 spent): trials that need a further call end" in said.err
    assert (
        f"budget used up: ${spent:,.4f} of $0.03 spent; 2 of 2 trials are left; raise budget_usd in {spec} "
        "(or give --budget) and run the same command again to go on\n"
    ) in said.err
    assert "Traceback" not in said.err


@needs_isolation
def test_a_pilot_runs_one_planned_trial_an_arm_and_says_what_the_rest_may_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = "bundled/archive-intake, bundled/tenant-billing"
    spec, database = write_spec(tmp_path, SOLO + PAIR, tasks=tasks, repeats=3, more=SHORT), tmp_path / "x.duckdb"
    for _ in range(2):
        # The second time the pilot is finished already: it is told again, and nothing is run.
        with pytest.raises(SystemExit) as end:
            main(["run", str(spec), "--db", str(database), "--pilot", "--budget", "3"])
        assert end.value.code == 0
        said = capsys.readouterr()
        assert scalar(database, "SELECT list(arm ORDER BY arm) FROM trials WHERE final_attempt = 1") == [
            "alone",
            "pair",
        ]
        assert (
            scalar(database, "SELECT count(DISTINCT (task, repeat)) FROM trials WHERE final_attempt IS NOT NULL") == 1
        )
    with Reader(database) as reader:
        costs = dict(reader.query("SELECT arm, all_usd FROM trial_costs").rows)
    lines = said.out.splitlines()
    for arm, usd in costs.items():
        (line,) = (line for line in lines if line.startswith(f"{arm} "))
        assert line.split()[:-1] == [arm, "1", "of", "6", f"{usd:.4f}", f"{usd:.4f}", "5", f"{usd * 5:.2f}"]
    assert "It rests on one task an arm, which shows no spread between tasks, so no interval is given" in said.out
    assert "the chance that another task costs more than the dearest so far is 1 in 2" in said.out
    rest, room = 5 * sum(costs.values()), 3 - sum(costs.values())
    assert f"the estimate of the rest, ${rest:,.2f}, is less than what the budget of $3.00 has left, ${room:,.2f}" in (
        said.out
    )
    assert lines[-2] == f"start the rest: fullchain run {spec} --db {database} --budget 3"


@needs_isolation
def test_nothing_of_a_pilot_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, database = write_spec(tmp_path, SOLO, repeats=2, more=SHORT), tmp_path / "x.duckdb"
    pilot = fullchain.run(spec, db=database, pilot=True, budget_usd=Decimal(5))
    assert (len(pilot.ended), pilot.left) == (1, 1)
    rest = fullchain.run(spec, db=database)
    assert (rest.finished_before, len(rest.ended), rest.left) == (1, 1, 0)
    assert scalar(database, "SELECT count(*) FROM attempts") == 2


@contextmanager
def provider() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The address of a provider of "real" models that refuses every key, and path and nonce of what it was asked."""
    asked: list[tuple[str, str]] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, *re.findall(r"\[run (\w+)\]\\nYour role", request.decode())))
            body = b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}'
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
        finally:
            server.shutdown()
            thread.join()


def real_spec(folder: Path, address: str = "http://127.0.0.1:9/v1", more: str = "budget_usd: 5\n") -> Path:
    (folder / "real.yaml").write_text(
        f"models:\n  paid:\n    {{provider: mine, protocol: openai_chat, model: paid, base_url: '{address}', "
        "price: deepseek-v4-flash, cache: none, limits: {max_output_tokens: 1000, context_tokens: 100000}}\n"
    )
    return write_spec(
        folder,
        "  - {name: alone, topology: solo, roles: {solo: paid}}\n",
        repeats=2,
        more=f"models: [real.yaml]\n{more}",
    )


class Person:
    """Reads a terminal to its end, and answers the question once; an answer that is a function is called."""

    def __init__(self, owner: int, answer: "str | Callable[[], None]") -> None:
        self.owner, self.answer, self.seen = owner, answer, b""

    def sits_there(self) -> None:
        while True:
            try:
                self.seen += os.read(self.owner, 65536)
            except OSError:
                # The other side has closed the terminal.
                return
            if self.answer and b"start? [y/N] " in self.seen:
                answer, self.answer = self.answer, ""
                if isinstance(answer, str):
                    os.write(self.owner, answer.encode())
                else:
                    answer()


def command(spec: Path, *options: str) -> list[str]:
    return ["run", str(spec), "--db", str(spec.parent / "x.duckdb"), *options]


def answered(spec: Path, answer: str, *options: str) -> tuple[int, str]:
    """Exit code and terminal of a run whose question is answered so; empty: it is not expected to ask."""
    owner, terminal = pty.openpty()
    person = Person(owner, answer)
    reading = threading.Thread(target=person.sits_there)
    reading.start()
    try:
        with (
            open(terminal) as given,
            open(os.dup(terminal), "w") as screen,
            redirect_stderr(screen),
            pytest.MonkeyPatch.context() as patched,
        ):
            patched.setattr("sys.stdin", given)
            patched.setattr("sys.__stdin__", given)
            for name, value in AROUND.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                main(command(spec, *options))
    finally:
        reading.join(timeout=PATIENCE_S)
        os.close(owner)
    assert isinstance(end.value.code, int)
    return end.value.code, person.seen.decode()


def interrupted(spec: Path) -> tuple[int, str]:
    """The same of a process that gets Ctrl-C at the question."""
    owner, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "experiments.cli", *command(spec)],
            cwd=Path(__file__).parent.parent, stdin=terminal, stderr=terminal, stdout=subprocess.DEVNULL,
            env={**os.environ, **AROUND},
        ) as run:  # fmt: skip
            os.close(terminal)
            killer = threading.Timer(PATIENCE_S, run.kill)
            killer.start()
            person = Person(owner, lambda: run.send_signal(signal.SIGINT))
            person.sits_there()
            code = run.wait()
            killer.cancel()
    finally:
        os.close(owner)
    return code, person.seen.decode()


@pytest.mark.parametrize("answer", ["n\n", "\n", "yep\n", "\x04"], ids=["no", "enter", "neither", "end of input"])
def test_a_run_of_real_models_that_is_not_agreed_to_sends_nothing(tmp_path: Path, answer: str) -> None:
    with provider() as (address, asked):
        code, seen = answered(real_spec(tmp_path, address), answer)
    assert (code, asked) == (1, [])
    assert "nothing was started and nothing spent" in seen
    assert not (tmp_path / "x.duckdb").exists()


def test_ctrl_c_at_the_question_sends_nothing(tmp_path: Path) -> None:
    with provider() as (address, asked):
        code, seen = interrupted(real_spec(tmp_path, address))
    assert (code, asked) == (130, []), seen
    assert "Traceback" not in seen


@needs_isolation
def test_a_run_of_real_models_tells_its_worst_case_and_starts_when_it_is_agreed_to(tmp_path: Path) -> None:
    with provider() as (address, asked):
        code, seen = answered(real_spec(tmp_path, address), "y\n")
    assert code == 1, seen
    assert [path for path, _ in asked] == ["/v1/chat/completions"] * 2
    # 100,000 tokens of prompt at $0.30 and 1,000 of answer at $1.20, in peak hours; 100 turns, 2 trials.
    (line,) = (line for line in seen.splitlines() if line.startswith("alone"))
    assert line.split() == ["alone", "2", "100", "0.0312", "6.24"]
    assert "worst case: a bound, not an estimate" in seen
    assert "budget: $5.00, of which $0.0000 is spent; the run ends there, and passes it by less than" in seen


def test_money_is_not_spent_while_a_journal_that_cannot_be_read_may_hold_what_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    damaged = journal_folder(database) / "dead.jsonl"
    damaged.parent.mkdir()
    damaged.write_text('{"kind": "sent", "key": "k"}\n')
    with provider() as (address, asked):
        spec = str(real_spec(tmp_path, address))
        with pytest.raises(SystemExit) as end:
            main(["run", spec, "--db", str(database), "--yes"])
    assert (end.value.code, asked) == (2, [])
    assert (
        "journals of earlier runs cannot be read, and so not be counted against the budget" in capsys.readouterr().err
    )
    assert damaged.exists()


@needs_isolation
def test_every_attempt_with_a_real_model_has_a_nonce_that_no_other_run_of_the_spec_can_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with provider() as (address, asked):
        spec = real_spec(tmp_path, address)
        for database in ("one.duckdb", "two.duckdb", "two.duckdb"):
            fullchain.run(spec, db=tmp_path / database, yes=True)
    nonces = {nonce for _, nonce in asked}
    assert len(nonces) == len(asked) == 6
    assert not nonces & {trial.nonce for trial in load(spec).plan().trials}


@needs_isolation
def test_yes_starts_without_a_question_and_no_budget_says_that_nothing_stops_it(tmp_path: Path) -> None:
    with provider() as (address, asked):
        code, seen = answered(real_spec(tmp_path, address, more=""), "", "--yes", "--no-budget")
    assert code == 1, seen
    assert len(asked) == 2
    assert "start?" not in seen
    assert "no budget: nothing stops the run" in seen


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def test_without_a_terminal_and_without_yes_real_models_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, database = real_spec(tmp_path), tmp_path / "x.duckdb"
    said = refusal(capsys, "run", str(spec), "--db", str(database))
    assert "(worst case $6.24, budget $5.00) and there is no terminal to ask on; add --yes to start" in said
    assert not database.exists()


def test_real_models_without_a_budget_are_refused_at_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = real_spec(tmp_path, more="")
    said = refusal(capsys, "run", str(spec), "--yes")
    assert f"{spec}:1: budget_usd: missing, and real models cost money (paid); add the dollars" in said
    assert "or run it with --no-budget" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--budget", "lots"], "--budget: 'lots' is no budget; expected dollars above 0"),
        (["--budget", "-1"], "--budget: '-1' is no budget"),
        (["--budget", "1", "--no-budget"], "--budget: cannot stand beside --no-budget"),
    ],
)
def test_a_budget_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: str
) -> None:
    assert expected in refusal(capsys, "run", str(write_spec(tmp_path)), *options)


def test_python_starts_real_models_only_when_it_says_yes(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="real models cost money; give yes=True to start them"):
        fullchain.run(real_spec(tmp_path), db=tmp_path / "x.duckdb")
    with pytest.raises(SpecError, match="budget_usd: missing"):
        fullchain.run(real_spec(tmp_path, more=""), db=tmp_path / "x.duckdb", yes=True)
    with pytest.raises(SpecError, match="'-1' is no budget"):
        fullchain.run(real_spec(tmp_path, more=""), db=tmp_path / "x.duckdb", yes=True, budget_usd=Decimal(-1))
    assert not (tmp_path / "x.duckdb").exists()


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("{model: sim-deepseek-v4-flash, effort: high}", "takes no effort 'high'; it takes: "),
        ("{model: sim-deepseek-v4-flash, temperature: 0.5}", "takes no temperature; leave it out"),
        ("{model: sim-claude-opus-5-5, lifetime: 2h}", "has no lifetime '2h'; it has: 5m, 1h"),
    ],
)
def test_what_a_model_does_not_take_cannot_be_chosen(tmp_path: Path, role: str, expected: str) -> None:
    spec = write_spec(tmp_path, f"  - name: alone\n    topology: solo\n    roles:\n      solo: {role}\n")
    with pytest.raises(SpecError, match=r"spec\.yaml:9: arms\[0\]\.roles\.solo") as caught:
        load(spec)
    assert expected in str(caught.value)


def test_a_choice_decides_what_happens_and_none_leaves_stored_plans_as_they_are(tmp_path: Path) -> None:
    def trial_hash(role: str) -> str:
        more = tmp_path / "own.yaml"
        more.write_text(
            "models:\n  own:\n    {provider: simulated, protocol: openai_chat, model: sim-deepseek-v4-flash, price: "
            "deepseek-v4-flash, base_url: 'http://simulator.invalid/v1', cache: deepseek, efforts: [low, high], "
            "temperature: true, limits: {max_output_tokens: 1000, context_tokens: 100000}}\n"
        )
        arm = f"  - {{name: alone, topology: solo, roles: {{solo: {role}}}}}\n"
        plan = load(write_spec(tmp_path, arm, more="models: [own.yaml]\n")).plan()
        assert "effort" not in str(plan.arms[0].parts) or "effort: " in role
        return plan.trials[0].hash

    plain = trial_hash("own")
    assert plain == trial_hash("{model: own}")
    different = {trial_hash("{model: own, effort: low}"), trial_hash("{model: own, effort: high}")}
    different |= {trial_hash("{model: own, temperature: 0}"), trial_hash("{model: own, temperature: 1}")}
    assert len(different | {plain}) == 5


@needs_isolation
def test_progress_shows_the_spending_against_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    budget, (first, *_) = Budget(Decimal(2), Decimal("0.5")), small_plan().trials
    lines = Lines()
    lines.budgeted(budget)
    lines.begins(2, 0, "bubblewrap", 8)
    budget.settle("call", Decimal("0.25"))
    lines.ended(first, Ended("submitted", "passed", None, 1.0, None, Decimal("0.25")))
    assert capsys.readouterr().err.endswith(": passed  $0.2500; $0.7500 of $2.00 spent\n")
    with Progress(TextColumn("{task.fields[said]}"), console=Console(file=io.StringIO())) as progress:
        bar = Bar(progress, progress.add_task("trials", total=None, visible=False, said=""))
        bar.budgeted(budget)
        bar.begins(2, 0, "bubblewrap", 8)
        # Money is spent between two trials' ends: each drawing asks anew.
        budget.settle("call", Decimal("0.25"))
        drawn = "".join(segment.text for segment in progress.console.render(progress.get_renderable()))
    assert "0 passed, 0 failed, 0 unscored  $1.0000 of $2.00 spent" in drawn


def test_a_budget_decides_nothing_about_a_trial(tmp_path: Path) -> None:
    without = load(write_spec(tmp_path)).plan()
    assert load(write_spec(tmp_path, more="budget_usd: 3\n")).plan() == without
    assert isinstance(without.virtual_epoch, datetime)
