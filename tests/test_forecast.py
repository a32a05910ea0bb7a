"""What a dry run foretells: from stored trials, from personas, or nothing but a bound; and that it leaves no trace."""

import json
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cli import main
from experiments.errors import PlanChanged
from experiments.experiment import Experiment
from experiments.forecast import Forecast, forecast
from experiments.loading import find_spec, load
from experiments.paper_sandbox import environment_files, printed
from experiments.runner import _model_facts
from experiments.statistics.prediction import predicted
from experiments.statistics.student import t_quantile
from experiments.store.journal import Journal
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from harbor_tasks.format import bundled_tasks, load_tasks
from tests.experiment_files import PAIR, SOLO, small, write_spec
from tests.store_trials import EPOCH, ended, sent

# Dollars of ten repeats of each bundled task (simulated: sim-claude-opus-5-5 plans, sim-deepseek-v4-flash works).
PLANNER_WORKER = {
    "archive-intake": [0.4901, 0.304, 0.4544, 0.2856, 0.4803, 0.4484, 0.3148, 0.7007, 0.6313, 0.6622],
    "checkout-incident": [0.352, 0.2868, 0.7197, 0.3938, 0.3583, 0.3379, 0.5883, 0.3965, 0.4084, 0.325],
    "parcel-history": [0.304, 0.6062, 0.5276, 0.5506, 0.5847, 0.3136, 0.2911, 0.4022, 0.3148, 0.4943],
    "tenant-billing": [0.2967, 0.365, 0.4937, 0.5088, 0.5022, 0.5044, 0.7039, 0.3487, 0.762, 0.5472],
}
SOLO_EXPENSIVE = {
    "archive-intake": [0.3986, 0.352, 0.3799, 0.377, 0.3663, 0.3422, 0.3838, 0.4, 0.4001, 0.3664],
    "checkout-incident": [0.3618, 0.3439, 0.3315, 0.3418, 0.3726, 0.3652, 0.3685, 0.3443, 0.3602, 0.3922],
    "parcel-history": [0.3821, 0.3788, 0.3756, 0.3429, 0.3897, 0.3751, 0.3825, 0.359, 0.3285, 0.3048],
    "tenant-billing": [0.4198, 0.3399, 0.373, 0.3561, 0.3918, 0.3616, 0.373, 0.3645, 0.3719, 0.3983],
}

ACTUAL = {
    "solo-expensive": Decimal("2.910853200"),
    "planner-worker": Decimal("3.734283616"),
    "solo-cheap": Decimal("0.046810602"),
}
"""What the arms of the quickstart cost when it is run."""

REAL = "  - {name: alone, topology: solo, roles: {solo: claude-opus-5-5}}\n"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [(0.95, 1, 6.3138), (0.95, 4, 2.1318), (0.975, 10, 2.2281), (0.95, 100_000, 1.6449), (0.5, 3, 0.0)],
)
def test_quantiles_of_t_are_those_of_the_tables(probability: float, freedom: int, value: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("pool", [PLANNER_WORKER, SOLO_EXPENSIVE])
@pytest.mark.parametrize(("stored", "later"), [(1, 3), (2, 2), (2, 8), (5, 5)])
def test_the_interval_from_the_first_repeats_holds_what_the_next_ones_cost(
    pool: Mapping[str, list[float]], stored: int, later: int
) -> None:
    held = 0
    for seed in range(400):
        draw = random.Random(seed)  # noqa: S311  (a resampling, no secret)
        shuffled = {task: draw.sample(costs, len(costs)) for task, costs in pool.items()}
        cost = predicted({task: costs[:stored] for task, costs in shuffled.items()}, dict.fromkeys(pool, later))
        assert cost.half is not None
        actual = sum(sum(costs[stored : stored + later]) for costs in shuffled.values())
        held += abs(actual - cost.expected) <= cost.half
    assert held / 400 >= 0.85


@pytest.mark.parametrize("pool", [PLANNER_WORKER, SOLO_EXPENSIVE])
def test_the_interval_from_other_tasks_holds_what_a_task_costs_that_was_not_seen(
    pool: Mapping[str, list[float]],
) -> None:
    held = 0
    for seed in range(400):
        draw = random.Random(seed)  # noqa: S311  (a resampling, no secret)
        first, second, third, unseen = draw.sample(list(pool), 4)
        cost = predicted({task: draw.sample(pool[task], 2) for task in (first, second, third)}, {unseen: 2})
        assert cost.half is not None
        held += abs(sum(draw.sample(pool[unseen], 2)) - cost.expected) <= cost.half
    assert held / 400 >= 0.85


def test_one_trial_and_one_task_for_another_show_no_spread() -> None:
    assert predicted({"a": [0.5]}, {"a": 3}).half is None
    assert predicted({"a": [0.5, 0.6]}, {"b": 3}).half is None
    assert predicted({"a": [0.5]}, {"a": 3}).expected == 1.5
    with pytest.raises(ValueError, match="nothing was seen"):
        predicted({"a": []}, {"a": 3})


COSTS = st.dictionaries(st.sampled_from("abcd"), st.lists(st.floats(0, 100), min_size=2, max_size=5), min_size=2)


@given(COSTS, st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50)), st.floats(0.1, 10))
def test_a_prediction_scales_with_its_currency_and_more_trials_never_cost_less(
    seen: dict[str, list[float]], planned: dict[str, int], rate: float
) -> None:
    cost = predicted(seen, planned)
    scaled = predicted({task: [usd * rate for usd in costs] for task, costs in seen.items()}, planned)
    more = predicted(seen, {**planned, "a": planned.get("a", 0) + 1})
    assert cost.half is not None
    assert scaled.half is not None
    assert more.half is not None
    assert scaled.expected == pytest.approx(cost.expected * rate)
    assert scaled.half == pytest.approx(cost.half * rate, abs=1e-6)
    assert more.expected >= cost.expected
    assert more.half >= cost.half * (1 - 1e-9) or "a" not in seen


def test_personas_foretell_what_each_arm_of_the_quickstart_costs_and_nothing_is_left_behind(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    found = forecast(load(find_spec("quickstart")), database)
    assert list(tmp_path.iterdir()) == []
    assert (found.planned, found.finished, found.trials_left) == (24, 0, 24)
    for arm in found.arms:
        assert (arm.source, arm.trials, set(arm.left.values())) == ("rehearsed", 8, {2})
        assert arm.expected_usd is not None
        assert arm.low_usd < ACTUAL[arm.arm] < arm.high_usd < arm.bound_usd
        assert abs(arm.expected_usd / ACTUAL[arm.arm] - 1) < Decimal("0.05")
    assert found.low_usd < sum(ACTUAL.values()) < found.high_usd


def test_a_rehearsal_is_the_same_each_time_and_tells_what_was_not_rehearsed_from_what_was(tmp_path: Path) -> None:
    spec = small(tmp_path, repeats=10, more="budget_usd: 0.02\n")
    found = forecast(spec, tmp_path / "x.duckdb")
    assert found == forecast(spec, tmp_path / "x.duckdb")
    (arm,) = found.arms
    assert (arm.source, arm.trials, arm.trials_left) == ("rehearsed", 8, 10)
    assert arm.expected_usd is not None
    assert found.reached_after == int(Decimal("0.02") / (arm.expected_usd / 10))


async def stored(experiment: Experiment, database: Path, counts: Mapping[str, int]) -> Store:
    """Registers the plan, and so many finished trials of each arm, of one call each: trial n has n * 1,000 tokens."""
    store = Store(database, experiment.prices)
    plan = experiment.plan()
    store.register(plan, _model_facts(experiment))
    async with Journal(database.parent / "run.jsonl") as journal:
        books = []
        for arm, count in counts.items():
            model = next(iter(experiment.arms[arm].roles.values())).entry.name
            for number, trial in enumerate([trial for trial in plan.trials if trial.arm == arm][:count], start=1):
                book = TrialJournal(journal, trial.id, 1)
                await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
                book.message("solo", 0, 0, "system", "x", "head", 10)
                call = sent(trial.id, 1, 0, EPOCH, blocks=1)
                for name, value in {"model": model, "flavour": experiment.models[model].protocol}.items():
                    object.__setattr__(call, name, value)
                await book.sent(call)
                usage: dict[str, object] = {
                    "prompt_tokens": number * 1000, "prompt_cache_hit_tokens": 0,
                    "prompt_cache_miss_tokens": number * 1000, "completion_tokens": 0, "total_tokens": number * 1000,
                }  # fmt: skip
                book.ended(ended(call, usage))
                await book.attempt_ended(
                    ended_by="submitted", outcome="passed", unscored_reason=None, reward=1.0, passed=True,
                    changed=True, started_at=EPOCH, ended_at=EPOCH, wall_started_at=EPOCH, wall_ended_at=EPOCH,
                )  # fmt: skip
                books.append(book)
        assert store.merge([book.events() for book in books]) == []
    return store


async def test_stored_trials_of_the_same_arm_are_the_evidence_whatever_experiment_they_are_of(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await stored(small(tmp_path, repeats=4), database, {"alone": 4})
    before = names(tmp_path)

    def told(**changes: object) -> Forecast:
        path = write_spec(tmp_path, SOLO + PAIR, **changes)  # type: ignore[arg-type]  # tests hand on any change
        return forecast(load(path, name="other"), database, served=True)

    alone, pair = told(repeats=2).arms
    # $0.15 a million: four trials of $0.00015 to $0.00060, so two more of 0.000375 each.
    assert (alone.source, alone.trials, alone.expected_usd) == ("stored", 4, Decimal("0.00075"))
    half = t_quantile(0.95, 3) * (0.00015**2 * 5 / 3 * (2 + 4 / 4)) ** 0.5
    assert float(alone.high_usd) == pytest.approx(0.00075 + half, abs=2e-6)
    assert alone.low_usd == max(Decimal(0), round(Decimal(0.00075 - half), 6))
    # The pair's worker is the same model in another arrangement: that is no evidence.
    assert (pair.source, pair.expected_usd, pair.high_usd) == ("none", None, pair.bound_usd)
    assert told(more="limits: {max_turns: 80}\n").arms[0].source == "none"
    assert told(more="pass_threshold: 0.5\n").arms[0].source == "stored"
    # Another task of which nothing is stored, and but one that is.
    other = told(tasks="bundled/tenant-billing, bundled/archive-intake")
    assert (other.arms[0].source, other.interval, other.low_usd) == ("stored_one", False, Decimal(0))
    assert names(tmp_path) == before


async def test_what_is_finished_is_not_counted_and_a_changed_plan_is_refused_as_the_run_would(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await stored(small(tmp_path, repeats=3), database, {"alone": 3})
    found = forecast(small(tmp_path, repeats=5), database)
    assert (found.planned, found.finished, found.trials_left) == (5, 3, 2)
    assert found.arms[0].source == "stored"
    assert found.spent_usd == Decimal("0.0009")
    done = forecast(small(tmp_path, repeats=3), database)
    assert done.trials_left == 0
    assert done.expected_usd == done.low_usd == done.high_usd == 0
    with pytest.raises(PlanChanged, match=r"limits\.max_turns 100 -> 80"):
        forecast(small(tmp_path, more="limits: {max_turns: 80}\n"), database)


def test_real_models_without_a_trial_have_a_bound_and_need_neither_key_nor_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    spec = write_spec(tmp_path, REAL)
    where = ["--db", str(tmp_path / "x.duckdb")]
    for arguments, told in (([], "no budget_usd"), (["--budget", "5"], "budget $5.00, $0.0000 of it spent: the run")):
        with pytest.raises(SystemExit, match="0"):
            main(["run", str(spec), "--dry-run", *where, *arguments])
        printed_lines = capsys.readouterr().out.splitlines()
        assert any("no data: at most $" in line for line in printed_lines)
        assert any(line.startswith(told) for line in printed_lines)
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(spec), "--dry-run", "--json", *where])
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["expected_usd"] is found["total"]["high_usd"] is None
    assert Decimal(found["total"]["at_most_usd"]) > 100
    assert found["arms"][0]["source"] == "none"
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]
    for arguments in (["--json"], ["--dry-run", "--budget", "NaN"], ["--dry-run", "--budget", "-1"]):
        with pytest.raises(SystemExit, match="2"):
            main(["run", str(spec), *arguments, *where])
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_database_that_is_none_ends_a_dry_run_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junk = tmp_path / "junk.duckdb"
    junk.write_bytes(b"\x00\xff junk")
    with pytest.raises(SystemExit, match="2"):
        main(["run", "quickstart", "--dry-run", "--db", str(junk)])
    (line,) = capsys.readouterr().err.splitlines()
    assert "junk.duckdb" in line
    assert junk.read_bytes() == b"\x00\xff junk"


def test_looks_on_paper_print_what_the_environments_files_hold() -> None:
    (task,) = load_tasks(bundled_tasks() / "archive-intake")[0]
    files = environment_files(task)
    assert "Dockerfile" not in files
    assert printed("pwd; ls -1A", files, "/app").splitlines() == ["/app", "RULES.md", "incoming", "stations.tsv"]
    assert printed("head -n 2 ./RULES.md", files, "/app").splitlines() == files["RULES.md"][:2]
    assert printed("tail -n 2 ./RULES.md", files, "/app").splitlines() == files["RULES.md"][-2:]
    assert printed("sed -n '2,3p' ./RULES.md", files, "/app").splitlines() == files["RULES.md"][1:3]
    assert printed("wc -l ./RULES.md", files, "/app") == f"{len(files['RULES.md'])} ./RULES.md\n"
    for command in ("rm -rf /", "head -n 2 ./no-such-file", "head -n 2 './half", "cat > /tmp/x <<'E'\nE"):
        assert printed(command, files, "/app") == ""
