"""What a replay predicts, held against running it: the simulated provider shares no code with the ledger."""

import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.simulated import app
from agents.simulated.prefix_cache import BreakpointCache, Mark
from agents.simulated.prompt_chain import BlockChain
from agents.simulated.tokenizer import BYTES_PER_TOKEN
from cost_model.call_fact import CallFact
from cost_model.errors import ChangeImpossible
from cost_model.prefixes import PromptBlock
from cost_model.prices import PriceBook
from cost_model.tokens import Tokens
from cost_model.what_if.change import Change, RoleChange
from cost_model.what_if.keep_alive import KeepAlive, with_pings
from cost_model.what_if.replay import replay, total
from cost_model.what_if.stored_call import StoredCall, in_order
from experiments.runner import run_experiment
from experiments.store.reader import Reader
from experiments.store.replay_calls import StoredArm, stored_arms, stored_facts
from tests.cost_calls import ANTHROPIC, OPUS, START, call
from tests.experiment_files import PAIR, small
from tests.sandbox_tasks import needs_isolation

TASK = "bundled/tenant-billing"


async def run(database: Path, arms: str) -> StoredArm:
    await run_experiment(small(database.parent, arms, tasks=TASK), database)
    with Reader(database) as reader:
        (arm,) = stored_arms(reader, "tiny", [], stored_facts(reader, "tiny", PriceBook()))
    return arm


def cost(arm: StoredArm, change: Change) -> tuple[Decimal, Decimal]:
    """Measured, and predicted."""
    replays = [replay(scope, change) for scope in arm.scopes]
    assert all(each.as_expected == each.known == len(each.measured) for each in replays)
    return (
        sum((total(each.measured).low for each in replays), Decimal(0)),
        sum((total(each.predicted).low for each in replays), Decimal(0)),
    )


@needs_isolation
@pytest.mark.timeout(600)
async def test_an_hour_of_cache_pings_a_faster_worker_and_fewer_hand_overs_cost_what_their_reruns_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = await run(tmp_path / "as-it-is", PAIR)
    before, same = cost(measured, Change())
    assert same == before

    hour = await run(
        tmp_path / "hour", PAIR.replace("sim-claude-opus-5-5", "{model: sim-claude-opus-5-5, lifetime: 1h}")
    )
    _, predicted = cost(measured, Change({"planner": RoleChange(lifetime="1h")}))
    assert predicted == cost(hour, Change())[0] != before

    kept = await run(
        tmp_path / "kept",
        PAIR.replace("sim-claude-opus-5-5", "{model: sim-claude-opus-5-5, keep_alive: {every_s: 280}}"),
    )
    _, predicted = cost(measured, Change({"planner": RoleChange(keep_alive=KeepAlive(timedelta(seconds=280)))}))
    assert predicted == cost(kept, Change())[0] != before
    without = KeepAlive(timedelta(seconds=280), most=0)
    assert cost(kept, Change({"planner": RoleChange(keep_alive=without)}))[1] == before
    with pytest.raises(ChangeImpossible, match="planner: keep-alive pings were sent here"):
        cost(kept, Change({"worker": RoleChange(times_faster=Fraction(2))}))

    rounds = max(one.round for scope in measured.scopes for one in scope)
    assert rounds > 1
    once = await run(tmp_path / "once", PAIR + "    parameters: {rounds: 1}\n")
    _, predicted = cost(measured, Change(fewer_rounds=rounds - 1))
    assert predicted == cost(once, Change())[0] != before

    persona = files("agents").joinpath("simulated/personas/sim-deepseek-v4-flash.yaml").read_text(encoding="utf-8")
    for slow, fast in (("first_token_s: 2.6", "first_token_s: 1.3"), ("per_s: 31", "per_s: 62"), ("3.8", "1.9")):
        assert slow in persona
        persona = persona.replace(slow, fast)
    (tmp_path / "fast.yaml").write_text(persona, encoding="utf-8")
    monkeypatch.setattr(app, "simulated_provider", partial(app.simulated_provider, personas=tmp_path / "fast.yaml"))
    faster = await run(tmp_path / "faster", PAIR)
    _, predicted = cost(measured, Change({"worker": RoleChange(times_faster=Fraction(2))}))
    assert predicted == cost(faster, Change())[0] != before


def served(calls: list[StoredCall]) -> list[StoredCall]:
    """The calls with the usage that the simulated provider's cache gives them, each marking its head and its end."""
    cache, answered = BreakpointCache(ANTHROPIC), []
    for one in in_order(calls):
        chain = BlockChain()
        for block in one.fact.prompt:
            chain.add(block.hash.encode().ljust(block.size, b"."))
        asked = one.fact.lifetime or "5m"
        at = (one.fact.requested_at - START) // timedelta(microseconds=1)
        marks = [Mark(block, asked, "") for block in sorted({0, len(one.fact.prompt) - 1})]
        split = cache.take("scope", chain, marks, at, at if one.ping else at + 1_000_000)
        tokens = Tokens(
            cache_read=split.read,
            cache_write_5m=split.written.get("5m", 0),
            cache_write_1h=split.written.get("1h", 0),
            input=split.uncached,
            output=(one.fact.tokens or Tokens()).output,
        )
        answered.append(replace(one, fact=replace(one.fact, tokens=tokens)))
    return answered


def lanes(chance: random.Random, alike: bool) -> list[StoredCall]:
    """Two roles of one model that take turns, with gaps around every lifetime. `alike`: their prompts begin alike."""
    calls: list[StoredCall] = []
    prompts = {role: [PromptBlock("head" if alike else role, 8000)] for role in ("planner", "checker")}
    at = 0.0
    for number in range(chance.randint(2, 14)):
        at += chance.choice([20.0, 60.0, 279.0, 281.0, 301.0, 500.0, 900.0, 3601.0])
        role = chance.choice(["planner", "planner", "checker"])
        prompts[role] = [
            *prompts[role],
            *(PromptBlock(f"{role}{number}.{part}", BYTES_PER_TOKEN * chance.randint(10, 900)) for part in "ab"),
        ]
        fact: CallFact = replace(
            call(at, "", Tokens(output=chance.randint(1, 500)), key=f"{number:02}", lane=role, first_token_s=1.0),
            prompt=prompts[role],
            prompt_bytes=sum(block.size for block in prompts[role]),
        )
        calls.append(StoredCall(fact, role, fact.requested_at + timedelta(seconds=10)))
    return calls


@given(st.integers(0, 2**63), st.sampled_from(["1h", "pings", "both", "few pings", "slower", "faster"]))
@settings(max_examples=300, deadline=None)
def test_every_cache_lever_costs_what_the_simulated_cache_bills_with_it(seed: int, lever: str) -> None:
    # Of a head that one role keeps for an hour and another for five minutes the two caches think differently.
    calls = lanes(random.Random(seed), alike=lever not in ("1h", "both"))  # noqa: S311
    pings = KeepAlive(timedelta(seconds=280))
    role = {
        "1h": RoleChange(lifetime="1h"),
        "pings": RoleChange(keep_alive=pings),
        "few pings": RoleChange(keep_alive=replace(pings, most=2)),
        "both": RoleChange(lifetime="1h", keep_alive=KeepAlive(timedelta(seconds=3580))),
        "slower": RoleChange(times_faster=Fraction(1, 3)),
        "faster": RoleChange(times_faster=Fraction(3)),
    }[lever]
    replayed = replay(served(calls), Change({"planner": role}))
    assert replayed.as_expected == replayed.known
    times = {one.call.fact.key: one.call for one in replayed.predicted if not one.call.ping}
    again = [
        replace(
            one,
            fact=replace(
                one.fact,
                lifetime=role.lifetime if one.role == "planner" else None,
                requested_at=times[one.fact.key].fact.requested_at,
                first_token_at=times[one.fact.key].fact.requested_at + timedelta(seconds=1),
            ),
            ended_at=times[one.fact.key].ended_at,
        )
        for one in calls
    ]
    if role.keep_alive is not None:
        again = with_pings(again, {"planner": role.keep_alive})
    rerun = served(again)
    usage = {one.fact.key: one.fact.tokens for one in rerun}
    predicted = {one.call.fact.key: one.call.fact.tokens for one in replayed.predicted}
    assert predicted == usage
    assert total(replayed.predicted).low == sum(OPUS.cost(tokens) for tokens in usage.values() if tokens)
