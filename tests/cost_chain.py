"""A chain of an expensive lead and a cheap worker, as lists of calls: token counts are assumptions, prices were real.

Each role has one conversation that only grows. The cache's clock starts with a request.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from cost_model.call_fact import CallFact
from cost_model.policy import CachePolicy
from cost_model.price_card import PriceCard
from cost_model.tokens import Tokens
from cost_model.what_if.stored_call import StoredCall
from tests.cost_calls import START

MARKED = CachePolicy(
    "marked",
    "breakpoints",
    {"5m": timedelta(minutes=5), "1h": timedelta(hours=1)},
    "5m",
    write_class={"5m": "cache_write_5m", "1h": "cache_write_1h"},
)
LASTING = CachePolicy("lasting", "breakpoints", {"1y": timedelta(days=365)}, "1y", write_class={"1y": "cache_write_5m"})
AUTOMATIC = CachePolicy("automatic", "prefix", {}, None)


def _card(name: str, **usd: str) -> PriceCard:
    return PriceCard(name, "list", None, None, {token_class: Decimal(price) for token_class, price in usd.items()})


OPUS = _card("opus", input="5", cache_read="0.5", cache_write_5m="6.25", cache_write_1h="10", output="25")
FLASH = _card("flash", input="0.14", cache_read="0.0028", output="0.28")
FLASH_LATER = _card("flash", input="0.22", cache_read="0.007", output="0.66")
TERRA = _card("terra", input="2", cache_read="0.2", output="12")
SOL = _card("sol", input="5", cache_read="0.5", output="30")


@dataclass(frozen=True)
class Chain:
    """`plan` and `verify`: the lead's (turns, output a turn, tool result a turn) before the first hand-over and after
    each one. Seconds are of a turn, model and tool together."""

    card: PriceCard = OPUS
    policy: CachePolicy = MARKED
    base: int = 8000
    plan: tuple[int, int, int] = (26, 714, 1200)
    rounds: int = 0
    verify: tuple[int, int, int] = (0, 0, 0)
    brief: int = 0
    report: int = 0
    worker_base: int = 6000
    worker_turns: int = 0
    worker_output: int = 0
    worker_tool: int = 0
    worker_seconds: float = 14
    lead_seconds: float = 12


SOLO = Chain()
DUO = Chain(
    base=9000, plan=(8, 560, 1350), rounds=3, brief=850, report=800, verify=(3, 370, 900), worker_turns=26,
    worker_output=450, worker_tool=900,
)  # fmt: skip
AWARE = Chain(
    base=9000, plan=(8, 380, 850), rounds=4, brief=400, report=700, verify=(3, 375, 550), worker_turns=16,
    worker_output=400, worker_tool=900,
)  # fmt: skip
TERRA_SOLO = Chain(TERRA, AUTOMATIC, base=6000, plan=(18, 340, 705))
SOL_SOLO = Chain(SOL, AUTOMATIC, base=5000, plan=(9, 280, 640))
FLASH_SOLO = Chain(FLASH, AUTOMATIC, base=6000, plan=(40, 450, 900))
ALT = replace(DUO, policy=LASTING, rounds=4, verify=(5, 385, 850))
"""Costs what DUO costs, and nothing expires: a lead that reads more."""


class _Conversation:
    def __init__(self, role: str, card: PriceCard, policy: CachePolicy, prompt: int) -> None:
        self.role, self.card, self.policy, self.prompt = role, card, policy, prompt
        self.cached, self.asked_at = 0, -1e9
        self.calls: list[StoredCall] = []

    def call(self, at: float, output: int, appended: int, seconds: float, round_: int) -> float:
        """One turn from `at` on; the time when the next may begin."""
        lifetime = self.policy.lifetime(None)
        alive = lifetime is None or at - self.asked_at <= lifetime.total_seconds()
        read = self.cached if alive else 0
        rest = {"cache_write_5m" if self.policy.write_class else "input": self.prompt - read}
        fact = CallFact(
            key=f"{self.role}/{len(self.calls):03}",
            lane=self.role,
            model=self.card.ref,
            requested_at=START + timedelta(seconds=at),
            first_token_at=START + timedelta(seconds=at + 1),
            outcome="complete",
            tokens=Tokens(cache_read=read, output=output, **rest),
            policy=self.policy,
            lifetime=None,
            card=self.card,
            prompt=(),
            prompt_bytes=0,
            max_output_tokens=None,
        )
        self.calls.append(StoredCall(fact, self.role, START + timedelta(seconds=at + seconds), round_))
        self.cached, self.asked_at = self.prompt, at
        self.prompt += output + appended
        return at + seconds


def chain_calls(chain: Chain, worker: PriceCard = FLASH) -> list[StoredCall]:
    """What a metering transport would have stored. A round begins with the call that delegates."""
    at = 0.0
    lead = _Conversation("lead", chain.card, chain.policy, chain.base)
    hand = _Conversation("worker", worker, AUTOMATIC, chain.worker_base + chain.brief)
    turns, output, tool = chain.plan
    for _ in range(turns):
        at = lead.call(at, output, tool, chain.lead_seconds, 0)
    for number in range(1, chain.rounds + 1):
        at = lead.call(at, chain.brief, chain.report, chain.lead_seconds, number)
        for _ in range(chain.worker_turns):
            at = hand.call(at, chain.worker_output, chain.worker_tool, chain.worker_seconds, number)
        turns, output, tool = chain.verify
        for _ in range(turns):
            at = lead.call(at, output, tool, chain.lead_seconds, number)
    return [*lead.calls, *hand.calls]
