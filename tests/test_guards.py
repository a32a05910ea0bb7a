"""Guards: what ends a trial that would go on, and that its state is verified all the same."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.clock import VirtualClock
from cost_model.calls import CallEnded
from cost_model.policies import POLICIES
from experiments.errors import SpecError
from experiments.guard import Ceiling, SpendingGuard, guard_of
from experiments.loading import load
from experiments.runner import run_experiment
from experiments.spend import SpendingBook
from experiments.worst_case import PROVIDER_TOKENS, arm_bounds
from tests.experiment_files import scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation
from tests.scripted_trial import COST, PAIR, SOLO, TOKENS, answer, bash, scripted
from tests.store_trials import EPOCH
from tests.task_directory import write_task
from tests.test_budget import CARD, MOST_OUTPUT, PROMPT_BYTES, WORST, Notebook, call, end
from tests.test_keep_alive import pong
from tests.wire_answers import anthropic_pieces
from tests.wire_provider import Script

amounts = st.tuples(st.integers(0, 500).map(lambda value: Decimal(value) / 1000), st.integers(0, 5000))


@given(
    calls=st.lists(st.tuples(st.sampled_from("ab"), amounts), max_size=30),
    trial=st.none() | amounts,
    role=st.none() | amounts,
)
def test_a_limit_is_passed_by_less_than_the_call_that_reaches_it(
    calls: list[tuple[str, tuple[Decimal, int]]],
    trial: tuple[Decimal, int] | None,
    role: tuple[Decimal, int] | None,
) -> None:
    limit, own = (Ceiling() if one is None else Ceiling(*one) for one in (trial, role))
    guard = SpendingGuard(limit, {"a": own})
    made: dict[str, list[tuple[Decimal, int]]] = {"a": [], "b": []}
    for name, (usd, tokens) in calls:
        before = [*made["a"], *made["b"]]
        expected = _reached(before, limit) or (name == "a" and bool(made["a"]) and _reached(made["a"], own))
        assert guard.used_up(name) is expected
        if not expected:
            guard.count(name, usd, tokens)
            made[name].append((usd, tokens))
    assert guard.spent.usd == sum((usd for one in made.values() for usd, _ in one), Decimal(0))
    assert guard.spent.tokens == sum(tokens for one in made.values() for _, tokens in one)


def _reached(calls: list[tuple[Decimal, int]], limit: Ceiling) -> bool:
    usd, tokens = sum((one for one, _ in calls), Decimal(0)), sum(one for _, one in calls)
    return (limit.usd is not None and usd >= limit.usd) or (limit.tokens is not None and tokens >= limit.tokens)


def test_where_nothing_is_limited_nothing_is_counted() -> None:
    assert guard_of(Ceiling(), {"solo": Ceiling()}) is None
    assert guard_of(Ceiling(), {"solo": Ceiling(tokens=1)}) is not None


@pytest.mark.parametrize(
    ("ended", "usd", "tokens"),
    [
        (end("t/1", (1000, 100)), Decimal("0.006"), 1100),
        (end("t/1", (1000, 100), cost=0.5), Decimal("0.5"), 1100),
        (end("t/1", None, "refused"), Decimal(0), 0),
        (end("t/1", None), WORST, PROMPT_BYTES + PROVIDER_TOKENS + MOST_OUTPUT),
        (end("t/1", None, "cut"), WORST, PROMPT_BYTES + PROVIDER_TOKENS + MOST_OUTPUT),
    ],
    ids=["list price", "the provider's bill", "refused", "no usage", "cut"],
)
async def test_a_call_counts_with_what_it_cost_and_with_its_most_where_that_is_unknown(
    ended: CallEnded, usd: Decimal, tokens: int
) -> None:
    guard = SpendingGuard(Ceiling(), {})
    book = SpendingBook(
        Notebook(), lambda model, at: CARD, lambda model: POLICIES["anthropic-1024"], VirtualClock(EPOCH), None, 0,
        lambda call, began: None, guard,
    )  # fmt: skip
    await book.sent(call("t/1"))
    book.ended(ended)
    # A ping counts like any other.
    await book.sent(replace(call("t/2"), turn="k1", role="planner"))
    book.ended(end("t/2", (10, 0)))
    of_role = guard.spent_by["solo"]
    assert (of_role.usd, of_role.tokens) == (usd, tokens)
    assert (guard.spent.usd, guard.spent.tokens) == (usd + Decimal("0.00004"), tokens + 10)


LIMITED = "  - {{name: alone, topology: solo, roles: {{solo: {{model: sim-claude-opus-5-5, {limit}}}}}}}\n"


@needs_isolation
@pytest.mark.parametrize(
    ("arms", "more", "calls"),
    [
        (SOLO, "limits: {max_usd: 0.011}\n", 3),
        (SOLO, f"limits: {{max_usd: {2 * Decimal(COST)}}}\n", 2),
        (SOLO, f"limits: {{max_tokens: {3 * TOKENS}}}\n", 3),
        (SOLO, f"limits: {{max_tokens: {3 * TOKENS + 1}}}\n", 4),
        (LIMITED.format(limit="max_usd: 0.011"), "", 3),
        (LIMITED.format(limit="max_tokens: 1"), "limits: {max_tokens: 1000000}\n", 1),
    ],
)
async def test_what_is_spent_ends_the_trial_before_its_next_call_and_the_state_is_verified(
    arms: str, more: str, calls: int, tmp_path: Path
) -> None:
    commands = [bash(f"echo {number}") for number in range(calls)]
    ended, found, provider = await scripted(tmp_path, arms, *commands, more=more)
    assert (ended.ended_by, ended.outcome, ended.reward) == ("over_budget", "failed", 0)
    assert ended.usd == calls * Decimal(COST)
    assert len(provider.received) == calls
    assert [row["command"] for row in found["commands"]] == [f"echo {number}" for number in range(calls)]


@needs_isolation
async def test_a_roles_limit_is_its_own_and_the_trials_that_of_all_roles(tmp_path: Path) -> None:
    brief, report = ("delegate", {"brief": "go"}), ("submit", {"report": "done"})
    poor = PAIR.replace("planner: sim-claude-opus-5-5", "planner: {model: sim-claude-opus-5-5, max_tokens: 5392}")
    ended, found, _ = await scripted(tmp_path, poor, brief, bash("true"), bash("true"), report)
    assert ended.ended_by == "over_budget"
    assert [row["role"] for row in found["calls"]] == ["planner", "worker", "worker", "worker"]
    assert [(row["from_role"], row["to_role"], row["reason"]) for row in found["handovers"]] == [
        ("planner", "worker", "delegate"), ("worker", "planner", "submit"), ("planner", None, "over_budget"),
    ]  # fmt: skip
    ended, found, _ = await scripted(
        tmp_path, PAIR, brief, bash("true"), more=f"limits: {{max_tokens: {TOKENS + 1}}}\n"
    )
    assert ended.ended_by == "over_budget"
    assert [row["role"] for row in found["calls"]] == ["planner", "worker"]


@needs_isolation
async def test_a_try_that_used_the_limit_up_is_not_repeated(tmp_path: Path) -> None:
    cut = Script(anthropic_pieces("x"), cut_after=1)
    ended, found, provider = await scripted(tmp_path, SOLO, cut, more="limits: {max_usd: 0.01}\n")
    assert (ended.ended_by, ended.outcome, ended.usd_exact) == ("over_budget", "failed", False)
    assert len(provider.received) == 1
    assert [row["outcome"] for row in found["calls"]] == ["cut"]


@needs_isolation
@pytest.mark.parametrize("pings", [1, 2])
async def test_pings_count_and_stop_where_a_limit_is_reached(pings: int, tmp_path: Path) -> None:
    limit = TOKENS + 5000 * (pings - 1) + 1
    arms = PAIR.replace(
        "planner: sim-claude-opus-5-5",
        f"planner: {{model: sim-claude-opus-5-5, max_tokens: {limit}, keep_alive: {{every_s: 200}}}}",
    )
    # The worker's calls begin after 3 s, 253 s, 503 s and 753 s; pings are due after 200 s, 400 s, 600 s and 800 s.
    work = [answer(number, bash(f"echo {number}"), 250) for number in range(3)]
    work.append(answer(3, ("submit", {"report": "done"}), 250))
    for place in (1, 3)[:pings]:
        work.insert(place, pong())
    ended, found, provider = await scripted(tmp_path, arms, ("delegate", {"brief": "go"}), *work)
    assert ended.ended_by == "over_budget"
    assert not provider.scripts
    assert [call["turn"] for call in found["calls"] if call["role"] == "planner"] == ["1", "k1", "k2"][: pings + 1]


@needs_isolation
async def test_work_that_was_done_when_the_money_ended_still_passes(tmp_path: Path) -> None:
    write_task(tmp_path / "quick")
    limit = f"limits: {{max_tokens: {TOKENS}}}\n"
    ended, _, _ = await scripted(tmp_path, SOLO, bash("touch done.txt"), tasks="quick", more=limit)
    assert (ended.ended_by, ended.outcome, ended.reward) == ("over_budget", "passed", 1)


@needs_isolation
async def test_a_simulated_run_that_a_limit_ended_is_booked_and_never_run_again(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    experiment = small(tmp_path, SOLO, more="limits: {max_usd: 0.05}\n")
    report = await run_experiment(experiment, database)
    assert [ended.ended_by for ended in report.ended.values()] == ["over_budget"]
    assert (report.left, report.broken) == (0, 0)
    assert report.bill is not None
    assert report.bill.equal, report.bill.sentence
    last = scalar(database, "SELECT arg_max(cost_usd, requested_at) FROM calls")
    spent = scalar(database, "SELECT sum(cost_usd) FROM calls")
    assert spent - last < Decimal("0.05") <= spent
    assert (await run_experiment(experiment, database)).nothing_to_do


@needs_isolation
async def test_the_same_from_the_same_command_so_often_as_the_spec_says_is_a_loop(tmp_path: Path) -> None:
    again = [bash("echo a"), bash("echo a"), bash("echo b"), *[bash("echo a")] * 3]
    ended, found, provider = await scripted(tmp_path, SOLO, *again, more="limits: {loop_after: 3}\n")
    assert (ended.ended_by, ended.outcome, ended.reward) == ("loop", "failed", 0)
    assert len(provider.received) == len(found["commands"]) == 6
    assert [(row["from_role"], row["to_role"], row["reason"]) for row in found["handovers"]] == [("solo", None, "loop")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("limits: {max_usd: 0}\n", "limits.max_usd: expected more than 0, found 0"),
        ("limits: {max_usd: -1}\n", "limits.max_usd: expected more than 0, found -1"),
        ("limits: {max_usd: true}\n", "limits.max_usd: expected a number such as 1.5, found"),
        ("limits: {max_usd: .inf}\n", "limits.max_usd: expected a number such as 1.5, found inf"),
        ("limits: {max_usd: 99999999}\n", "limits.max_usd: expected at most 1000000, found 99999999"),
        ("limits: {max_usd: lots}\n", "limits.max_usd: expected a number such as 1.5, found 'lots'"),
        ("limits: {max_tokens: 0}\n", "limits.max_tokens: expected at least 1, found 0"),
        ("limits: {max_tokens: 1.5}\n", "limits.max_tokens: expected a whole number such as 3, found 1.5"),
        ("limits: {max_tokens: [1]}\n", "limits.max_tokens: expected a whole number such as 3, found [1]"),
        (f"limits: {{max_tokens: 1{'0' * 30}}}\n", "limits.max_tokens: expected at most 1000000000000, found 1"),
        ("limits: {loop_after: 1}\n", "limits.loop_after: expected at least 2, found 1"),
        ("limits: {loop_after: 101}\n", "limits.loop_after: expected at most 100, found 101"),
        (
            "limits: {tell_time: sometimes}\n",
            "limits.tell_time: 'sometimes' is not known; expected 'late', 'always' or",
        ),
        ("limits: {max_dollars: 3}\n", "limits.max_dollars: unknown field"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_one_line(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load(write_spec(tmp_path, more=more))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("limit", ["max_usd: 0", "max_usd: nothing", "max_tokens: -3", "max_tokens: many"])
def test_a_roles_limit_that_cannot_be_is_refused_in_one_line(limit: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=rf"roles\.solo\.{limit.partition(':')[0]}: expected"):
        load(write_spec(tmp_path, LIMITED.format(limit=limit)))


def test_a_limit_is_part_of_an_arm_only_where_it_is_not_what_it_always_was(tmp_path: Path) -> None:
    def parts(more: str = "", arms: str = SOLO) -> Any:
        return load(write_spec(tmp_path, arms, more=more)).plan().arms[0].parts

    bare = parts()
    assert bare["limits"] == {"max_turns": 100, "command_timeout_s": 60.0, "max_output_tokens": None}
    assert parts("limits: {loop_after: 5, tell_time: late, max_usd: null}\n") == bare
    assert parts("limits: {max_usd: 0.50}\n") == parts("limits: {max_usd: 0.5}\n")
    changed = ["max_usd: 0.5", "max_tokens: 9", "loop_after: 6", "tell_time: never", "tell_time: always"]
    kinds = [bare, *(parts(f"limits: {{{one}}}\n") for one in changed)]
    kinds += [parts(arms=LIMITED.format(limit=one)) for one in ("effort: null", "max_usd: 0.5", "max_tokens: 9")]
    assert kinds.pop(6) == bare
    assert len({str(kind) for kind in kinds}) == len(kinds)


def test_a_plans_bound_knows_the_limits_of_dollars_tokens_and_turns(tmp_path: Path) -> None:
    at = "prices_at: 2026-11-24T12:00:00Z\n"

    def bound(more: str = "", arms: str = SOLO) -> Any:
        experiment = load(write_spec(tmp_path, arms, more=more + at, repeats=3))
        [found] = arm_bounds(experiment, experiment.plan().trials)
        return found

    free = bound()
    call_usd = free.dearest_call_usd
    assert free.usd == 3 * 100 * call_usd
    assert bound(arms=LIMITED.format(limit="max_turns: 7")).usd == 3 * 7 * call_usd
    assert bound(arms=LIMITED.format(limit="max_turns: 7")).calls == 7
    # What is in flight when a limit is reached comes on top, a ping of its own included.
    for limit in ("max_usd: 2", "max_tokens: 100000"):
        usd = 2 if "usd" in limit else Decimal(100000 * 20) / 10**6
        assert bound(f"limits: {{{limit}}}\n").usd == 3 * (usd + call_usd)
        assert bound(arms=LIMITED.format(limit=limit)).usd == 3 * (usd + call_usd)
        pinged = LIMITED.format(limit=f"{limit}, keep_alive: {{every_s: 200}}")
        assert bound(arms=pinged).usd == 3 * (usd + 2 * call_usd)
    assert bound("limits: {max_usd: 100000}\n") == free
