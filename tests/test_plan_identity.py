"""A plan's identities: stable ids and nonces, balanced interleaving, a hash that covers what decides a trial."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from experiments.loading import find_spec, load
from experiments.plan import Parts, Plan, PlannedArm, PlannedTask, changes, nonce, plan, trial_id
from experiments.spec import Spec

NAMES = st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8),
                 min_size=1, max_size=5, unique=True)  # fmt: skip


SEEDS = st.integers(-(2**63), 2**63 - 1)


def planned(arms: list[str], tasks: list[str], repeats: int, seed: int, experiment: str = "e", turns: int = 9) -> Plan:
    spec = Spec.model_validate(
        {
            "name": "e", "tasks": ["bundled"], "repeats": repeats, "seed": seed,
            "arms": [{"name": "a", "topology": "solo", "roles": {"solo": "m"}}],
        }
    )  # fmt: skip
    parts: Parts = {"limits": {"max_turns": turns}}
    return plan(
        spec,
        experiment=experiment,
        simulated=True,
        arms=[PlannedArm(name, "solo", {"solo": "m"}, {**parts, "name": name}) for name in arms],
        tasks=[PlannedTask(name, f"digest of {name}", None, {"digest": f"digest of {name}"}) for name in tasks],
    )


@given(NAMES, NAMES, st.integers(1, 4), SEEDS)
def test_every_arm_task_and_repeat_is_planned_once_under_an_id_of_its_own(
    arms: list[str], tasks: list[str], repeats: int, seed: int
) -> None:
    trials = planned(arms, tasks, repeats, seed).trials
    assert {(trial.arm, trial.task, trial.repeat) for trial in trials} == {
        (arm, task, repeat) for arm in arms for task in tasks for repeat in range(repeats)
    }
    assert len({trial.id for trial in trials}) == len({trial.nonce for trial in trials}) == len(trials)
    assert [trial.position for trial in trials] == list(range(len(trials)))


@given(NAMES, NAMES, st.integers(1, 4), SEEDS)
def test_each_block_runs_every_arm_once_on_one_task(arms: list[str], tasks: list[str], repeats: int, seed: int) -> None:
    trials = planned(arms, tasks, repeats, seed).trials
    for start in range(0, len(trials), len(arms)):
        block = trials[start : start + len(arms)]
        assert Counter(trial.arm for trial in block) == Counter(arms)
        assert len({(trial.task, trial.repeat) for trial in block}) == 1


@given(NAMES, NAMES, st.integers(1, 3), st.integers(1, 3), SEEDS)
def test_added_repeats_leave_earlier_trials_what_they_are(
    arms: list[str], tasks: list[str], repeats: int, more: int, seed: int
) -> None:
    before, after = planned(arms, tasks, repeats, seed).trials, planned(arms, tasks, repeats + more, seed).trials
    assert after[: len(before)] == before


@given(NAMES, NAMES, SEEDS)
def test_an_added_arm_or_task_leaves_the_ids_nonces_and_hashes_of_the_others(
    arms: list[str], tasks: list[str], seed: int
) -> None:
    def identities(plan: Plan) -> set[tuple[str, str, str]]:
        return {(trial.id, trial.nonce, trial.hash) for trial in plan.trials}

    before = identities(planned(arms, tasks, 2, seed))
    assert before < identities(planned([*arms, "one more"], tasks, 2, seed))
    assert before < identities(planned(arms, [*tasks, "one more"], 2, seed))


def test_order_and_nonces_follow_the_seed_and_nothing_else() -> None:
    arms, tasks = ["a", "b", "c"], ["x", "y", "z"]
    assert planned(arms, tasks, 2, 1) == planned(arms, tasks, 2, 1)
    first, second = planned(arms, tasks, 2, 1).trials, planned(arms, tasks, 2, 2).trials
    assert [(trial.arm, trial.task) for trial in first] != [(trial.arm, trial.task) for trial in second]
    assert {trial.id for trial in first} == {trial.id for trial in second}
    assert not {trial.nonce for trial in first} & {trial.nonce for trial in second}


def test_another_experiment_has_other_ids_and_the_same_nonces() -> None:
    first, second = planned(["a"], ["x"], 1, 1), planned(["a"], ["x"], 1, 1, experiment="f")
    assert first.trials[0].id != second.trials[0].id
    assert first.trials[0].nonce == second.trials[0].nonce


def test_ids_and_nonces_never_change_between_versions() -> None:
    assert trial_id("quickstart", "solo-cheap", "a-task", 1) == "ec2aeec2973d"
    assert nonce(7, "solo-cheap", "sha", 1) == "618f1f5d1c1b3f18"


def test_the_shipped_quickstart_is_three_arms_on_four_tasks_twice() -> None:
    shipped = load(find_spec("quickstart"))
    quickstart = shipped.plan()
    assert (quickstart.experiment, quickstart.simulated, shipped.simulated) == ("quickstart", True, True)
    assert [arm.name for arm in quickstart.arms] == ["solo-expensive", "planner-worker", "solo-cheap"]
    assert (len(quickstart.tasks), len(quickstart.trials)) == (4, 24)
    assert quickstart.virtual_epoch == quickstart.prices_at == datetime(2026, 11, 24, 12, tzinfo=UTC)
    limits = quickstart.arms[0].parts["limits"]
    assert limits == {"max_turns": 100, "command_timeout_s": 60.0, "max_output_tokens": None}


def test_joined_names_cannot_be_confused() -> None:
    assert trial_id("a", "b c", "d", 0) != trial_id("a b", "c", "d", 0)


def test_a_changed_limit_changes_the_hash_and_is_named() -> None:
    before, after = planned(["a"], ["x"], 1, 1, turns=60), planned(["a"], ["x"], 1, 1, turns=80)
    assert before.trials[0].id == after.trials[0].id
    assert before.trials[0].hash != after.trials[0].hash
    assert changes(before.arms[0].parts, after.arms[0].parts) == ["limits.max_turns 60 -> 80"]


def test_added_removed_and_long_values_are_named_without_their_text() -> None:
    at = datetime(2026, 11, 24, tzinfo=UTC).isoformat()
    assert changes({"a": {"b": 1}}, {"a": {"c": [at]}}) == ["a.b 1 -> unset", f'a.c unset -> ["{at}"]']
    assert changes({"a": "x" * 64}, {"a": "y" * 64}) == ["a changed"]
    assert changes({"a": {"b": 1}}, {"a": {"b": 1}}) == []
