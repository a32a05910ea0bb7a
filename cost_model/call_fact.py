"""What the explanation of a call starts from: raw facts of one call, nothing derived."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from cost_model.calls import Outcome
from cost_model.policy import CachePolicy
from cost_model.prefixes import PromptBlock
from cost_model.price_card import PriceCard
from cost_model.tokens import Tokens
from cost_model.usage.lines import Line


@dataclass(frozen=True, slots=True)
class CallFact:
    """What the fold must know of a call.

    `tokens` None: the usage never came or contradicted itself. `output_untold`: of the output they hold no more than is
    certain, though the answer ended well. `read_untold`: nobody told how much of their `input` was read from a cache.
    `lifetime` is the cache lifetime asked for, None for the
    policy's default. `prompt` holds the blocks that were sent, the head (tools and system text) first; `prompt_bytes`
    is the size of the request. `billed_usd` is the provider's own bill. `card` holds the prices as they were for this
    call, its tier and region worked in. `beside` is what was billed beside `tokens`, priced. Times are aware.
    `settled`: a bill told afterwards, and wholly, what the call cost: nothing of it is open, however it ended.
    `marks_known`: the request was laid out here, with a breakpoint within whatever is longer than its cache looks back.
    False: it comes from somebody else's log, and what lies that far before its end may have been out of reach.
    """

    key: str
    lane: str
    model: str
    requested_at: datetime
    first_token_at: datetime | None
    outcome: Outcome
    tokens: Tokens | None
    policy: CachePolicy
    lifetime: str | None
    card: PriceCard
    prompt: Sequence[PromptBlock]
    prompt_bytes: int
    max_output_tokens: int | None
    billed_usd: Decimal | None = None
    output_untold: bool = False
    beside: Sequence[Line] = ()
    read_untold: bool = False
    settled: bool = False
    marks_known: bool = True

    @property
    def served(self) -> bool:
        """Whether the provider certainly took the prompt in: it told its tokens or began to answer."""
        return self.tokens is not None or self.first_token_at is not None or self.outcome == "complete"
