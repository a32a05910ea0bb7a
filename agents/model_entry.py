"""One model as it can be hired: who answers where, what its requests may say, how its cache behaves, what it costs."""

import re
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveInt, field_validator, model_validator

from cost_model.policies import POLICIES

CacheRequest = Literal["automatic", "marks", "breakpoints", "retention", "options"]

_OURS = "every call sends its own"
_LENGTH = "an answer's length is bounded by `limits.max_output_tokens`"
_PRICE = "it changes what a call costs, and calls are priced and bounded as one answer at the standard price"
_LIFETIME = "`caching` of the entry and `lifetime` of a role ask for it, and writes are priced as these say"
_UNSEEN = "it lets the provider bill what no request and no price of this entry shows"
_NOT_IN_THE_BODY = {
    **dict.fromkeys(("model", "messages", "input", "system", "instructions", "tools", "stream"), _OURS),
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict"), _LENGTH
    ),
    **dict.fromkeys(
        (
            "n", "best_of", "candidate_count", "num_return_sequences", "service_tier", "speed", "inference_geo",
            "billing_policy", "background", "background_options", "prediction", "modalities", "audio",
        ),
        _PRICE,
    ),
    **dict.fromkeys(("cache_control", "prompt_cache_options", "prompt_cache_retention"), _LIFETIME),
    **dict.fromkeys(
        (
            "previous_response_id", "conversation", "prompt", "thread", "container", "context_management", "compaction",
            "mcp_servers", "web_search_options", "search_parameters", "enable_search", "plugins", "models", "fallbacks",
        ),
        _UNSEEN,
    ),
}  # fmt: skip
"""What no entry may set, and why: the books and the budget's bound would be wrong."""

_OURS_IN_THE_HEADERS = ("authorization", "x-api-key", "content-type", "content-length", "accept-encoding", "host")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
_EFFORT = re.compile(r"[a-z]{1,20}")


class ModelLimits(BaseModel):
    """Tokens: of one answer, and of prompt and answer together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_output_tokens: PositiveInt
    context_tokens: PositiveInt


class ModelEntry(BaseModel):
    """One model as it can be hired; `price` names a price card, and exactly one of it and `self_hosted` is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}$")
    provider: str = Field(min_length=1)
    protocol: Literal["anthropic_messages", "openai_chat", "openai_responses"]
    model: str = Field(min_length=1)
    base_url: str
    key_variable: str | None = None
    price: str | None = None
    self_hosted: bool = False
    cache: str
    limits: ModelLimits
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How an OpenAI-compatible server calls the limit of an answer; by default what its provider is known to take."""
    temperature: bool = False
    """Whether the model takes one. Where it does a role may set it."""
    efforts: tuple[str, ...] = ()
    """The words that the model takes for how much it thinks; none: a role may not set one."""
    caching: CacheRequest | None = None
    """How the prompt cache is asked for; None: as the protocol and the cache policy have it (`cache_request`).

    automatic: nothing is sent, the prefix just stays the same. marks: `cache_control` on blocks or content parts.
    breakpoints: `prompt_cache_breakpoint` on content parts and `prompt_cache_options`. retention: only a lifetime that
    a role chose is sent, as `prompt_cache_retention`. options: likewise, as `prompt_cache_options`."""
    cache_key: bool | None = None
    """Whether `prompt_cache_key` is sent; None: to OpenAI only (`sends_cache_key`)."""
    reasoning: Literal["drop", "keep"] = "keep"
    """openai_chat: whether what the model thought (reasoning_content and its like) goes back with its message."""
    actions: Literal["tools", "json_schema", "fenced"] = "tools"
    """How the model acts: native tool calls, one JSON object by a schema, or one fenced block."""
    extra_body: dict[str, JsonValue] = {}
    """Laid over the top level of every request; what bounds or multiplies the money is not for it to set."""
    headers: dict[str, str] = {}
    """Sent with every request."""

    @property
    def cache_request(self) -> CacheRequest:
        """How the prompt cache is asked for: `caching`, else what protocol and policy imply."""
        if self.caching is not None:
            return self.caching
        if POLICIES[self.cache].matching != "breakpoints":
            return "automatic"
        return "marks" if self.protocol == "anthropic_messages" else "breakpoints"

    @property
    def sends_cache_key(self) -> bool:
        return self.provider == "openai" if self.cache_key is None else self.cache_key

    @property
    def simulated(self) -> bool:
        return self.provider == "simulated"

    @property
    def output_limit_parameter(self) -> str:
        default = "max_completion_tokens" if self.provider == "openai" else "max_tokens"
        return self.max_tokens_parameter or default

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")) or "@" in value:
            raise ValueError("expected an http(s) address without credentials, such as https://api.example.com/v1")
        return value.rstrip("/")

    @field_validator("cache")
    @classmethod
    def _is_a_policy(cls, value: str) -> str:
        if value not in POLICIES:
            raise ValueError(f"unknown cache policy {value!r}; there are {', '.join(sorted(POLICIES))}")
        return value

    @field_validator("efforts")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if not _EFFORT.fullmatch(word) or value.count(word) > 1:
                raise ValueError(f"expected words such as [low, medium, high], each once, not {word!r}")
        return value

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_lane_alone(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in value:
            if name in _NOT_IN_THE_BODY:
                raise ValueError(f"{name!r} is not for an entry to set: {_NOT_IN_THE_BODY[name]}")
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, content in value.items():
            if name.lower() in _OURS_IN_THE_HEADERS:
                raise ValueError(
                    f"{name!r} is not for an entry to set: the key comes from `key_variable`, the rest from the call"
                )
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(content):
                raise ValueError(f"{name[:40]!r} is no header of one line of plain letters")
        return value

    @model_validator(mode="after")
    def _asks_for_what_there_is(self) -> Self:
        known = {"marks"} if self.protocol == "anthropic_messages" else {"breakpoints", "retention", "options"}
        if self.protocol == "openai_chat":
            known.add("marks")
        if self.caching not in (None, "automatic", *known):
            raise ValueError(f"{self.protocol} has no `caching: {self.caching}`; it has automatic, {_listed(known)}")
        if self.cache == "none" and self.caching not in (None, "automatic"):
            raise ValueError(f"`caching: {self.caching}` asks for a cache, and `cache: none` says that there is none")
        return self

    @model_validator(mode="after")
    def _is_priced_once(self) -> Self:
        if (self.price is None) is not self.self_hosted:
            raise ValueError(
                "give either `price` (whose prices count) or `self_hosted: true` (tokens cost nothing), and not both"
            )
        return self


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
