"""The simulated provider without its HTTP: from a request's bytes and time to a priced answer.

Everything that a request can change, the caches and what is remembered of conversations, is held here. Handling a
request is one step without a wait in it, so that requests are taken one after the other in the order of arrival.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import ModuleType

import orjson

from agents.simulated import anthropic_request, openai_request, responses_request
from agents.simulated.acting import tools_told
from agents.simulated.bill import dollars
from agents.simulated.breakpoints import CacheOptions, cache_options, chosen
from agents.simulated.catalogue import Catalogue
from agents.simulated.conversation import COMMAND_TOOL, Request, Tool
from agents.simulated.dice import Dice
from agents.simulated.emission import Emission, Manner, emit
from agents.simulated.errors import Refused
from agents.simulated.persona import Persona, Protocol
from agents.simulated.play import nonce_of, respond
from agents.simulated.prefix_cache import BreakpointCache, Split, UnitCache
from agents.simulated.prompt import Prompt
from agents.simulated.prompt_chain import BlockChain, UnitChain, fingerprint
from agents.simulated.recollection import Recollection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the request's start to the first token and to the end; seconds that one tool call takes."""

    first_s: float = 0.0
    end_s: float = 0.0
    tool_s: float = 0.0

    def header(self) -> str:
        return f"first={self.first_s:.6f};end={self.end_s:.6f};tool={self.tool_s:.6f}"


@dataclass(frozen=True, slots=True)
class Served:
    """An answer before it has a protocol's shape. `tokens` by class, `document` the request's parameters, `caching` how
    breakpoints were asked for (None: the model has none)."""

    persona: Persona
    emission: Emission
    split: Split
    tokens: Mapping[str, int]
    timing: Timing
    document: Mapping[str, object]
    caching: CacheOptions | None = None

    @property
    def usd(self) -> Decimal:
        return dollars(self.tokens, self.persona.usd_per_mtok)


class Provider:
    def __init__(self, personas: Mapping[str, Persona], catalogue: Catalogue, seed: int) -> None:
        self._personas = personas
        self._catalogue = catalogue
        self._seed = seed
        self._recollections = {protocol: Recollection(_messages_name(protocol)) for protocol in _READERS}
        self._marked = {
            name: BreakpointCache(persona.policy)
            for name, persona in personas.items()
            if persona.policy.matching == "breakpoints"
        }
        self._stepped = {
            name: UnitCache(persona.policy) for name, persona in personas.items() if persona.policy.matching == "prefix"
        }

    def models(self, protocol: Protocol) -> list[str]:
        return sorted(name for name, persona in self._personas.items() if persona.speaks(protocol))

    def serve(self, protocol: Protocol, scope: str, body: bytes, at: datetime, *, timed: bool) -> Served:
        """Answers one request. `scope` is who shares the cache, `timed` whether the answer takes its persona's time.

        Raises Refused.
        """
        persona, document, request, prompt = self._read(protocol, body)
        answer = respond(persona, self._seed, self._catalogue, request)
        name = fingerprint((nonce_of(request), body))
        redacts = (
            protocol == "anthropic_messages"
            and Dice(self._seed, persona.model, name).unit("redacts") < persona.thinking.redacted
        )
        thinker = persona.model if persona.thinking.tokens else None
        manner = Manner(prompt.transcript.form, thinker, redacts)
        emission = emit(answer, name, request.max_output_tokens, manner)
        pace = persona.pace
        timing = Timing()
        if timed:
            end = pace.first_token_s + emission.tokens / pace.tokens_per_s
            timing = Timing(pace.first_token_s, end, pace.tool_s)
        breaks = persona.marking == "prompt_cache_breakpoint"
        caching = cache_options(document, persona, protocol) if breaks else None
        split = self._take(persona, _scope(scope, persona, document), prompt, at, timing, caching)
        tokens = {"input": split.uncached, "cache_read": split.read, "output": emission.tokens}
        for lifetime, written in split.written.items():
            name = persona.policy.write_class.get(lifetime, "input")
            tokens[name] = tokens.get(name, 0) + written
        return Served(persona, emission, split, tokens, timing, document, caching)

    def _read(self, protocol: Protocol, body: bytes) -> tuple[Persona, Mapping[str, object], Request, Prompt]:
        reader = _READERS[protocol]
        recollection = self._recollections[protocol]
        try:
            recalled = recollection.recall(body)
            document = orjson.loads(body) if recalled is None else recalled.document
        except orjson.JSONDecodeError as error:
            raise Refused(f"The request body is not valid JSON: {error.msg}") from None
        if not isinstance(document, dict):
            raise Refused("The request body must be a JSON object.")
        persona = self._persona(protocol, document)
        max_tokens = reader.check_parameters(document, persona)
        prompt = Prompt(persona, _chain(persona))
        request = reader.read_head(document, prompt, max_tokens)
        prompt.begin_messages()
        kept = 0
        if recalled is not None:
            remembered = recalled.remembered
            if remembered.model == persona.model and remembered.prompt.base == prompt.base:
                kept = recalled.messages
                prompt = remembered.prompt.cut(kept)
            else:
                document = _whole(body)
        messages = _messages(protocol, document)
        for message in messages:
            reader.read_message(message, prompt)
        reader.finish(document, prompt, persona)
        recollection.remember(body, persona.model, prompt, messages, kept)
        request = _complete(request, prompt)
        return persona, document, request, prompt

    def _persona(self, protocol: Protocol, document: Mapping[str, object]) -> Persona:
        model = document.get("model")
        if not isinstance(model, str):
            raise _missing(protocol, "model")
        persona = self._personas.get(model)
        if persona is None or not persona.speaks(protocol):
            raise _no_such_model(protocol, model[:200])
        return persona

    def _take(
        self, persona: Persona, scope: str, prompt: Prompt, at: datetime, timing: Timing, caching: CacheOptions | None
    ) -> Split:
        now = (at - _EPOCH) // _MICROSECOND
        first = now + round(timing.first_s * 1_000_000)
        chain = prompt.chain
        marked, stepped = self._marked.get(persona.model), self._stepped.get(persona.model)
        if marked is not None and isinstance(chain, BlockChain):
            if self._evicts(persona, chain, now):
                marked.forget(scope, chain)
            if caching is None:
                return marked.take(scope, chain, prompt.marks, now, first)
            places, writes = chosen(prompt, caching)
            return marked.take_at(scope, chain, places, writes, (now, first))
        if stepped is not None and isinstance(chain, UnitChain):
            if self._evicts(persona, chain, now):
                stepped.forget(scope, chain)
            return stepped.take(scope, chain, now, first)
        return Split(0, {}, chain.tokens)

    def _evicts(self, persona: Persona, chain: BlockChain | UnitChain, now: int) -> bool:
        """Whether what is cached of this conversation is lost before its time: the same for the same request."""
        if not persona.evicts or not chain.links:
            return False
        return Dice(self._seed, persona.model, chain.links[-1].hex(), now).unit("evicts") < persona.evicts


_READERS: Mapping[Protocol, ModuleType] = {
    "anthropic_messages": anthropic_request,
    "openai_chat": openai_request,
    "openai_responses": responses_request,
}


def _messages_name(protocol: Protocol) -> str:
    return "input" if protocol == "openai_responses" else "messages"


def _scope(scope: str, persona: Persona, document: Mapping[str, object]) -> str:
    """Who shares the cache: requests of another prompt_cache_key are sent to another machine, which knows nothing."""
    key = document.get("prompt_cache_key")
    return scope if persona.shape != "openai" or key is None else f"{scope}\n{str(key)[:1024]}"


def _complete(request: Request, prompt: Prompt) -> Request:
    """With the system text that the messages hold and, where the model acts in words, the tools that it tells of."""
    said = prompt.transcript.said
    lines = [line.text for line in said[:8] if line.speaker == "system"]
    system = "\n".join([request.system, *lines] if request.system else lines)
    form = prompt.transcript.form
    if request.schema and form != "json":
        raise Refused("A simulated model answers by a schema only when its system text says how it acts.")
    tools = request.tools
    if form != "tools":
        tools = tuple(Tool(name, "", "argument") for name in tools_told(system, COMMAND_TOOL))
    return replace(request, system=system, tools=tools, transcript=prompt.transcript)


def _chain(persona: Persona) -> BlockChain | UnitChain:
    return UnitChain(persona.policy.multiple) if persona.policy.matching == "prefix" else BlockChain()


def _whole(body: bytes) -> dict[str, object]:
    document: dict[str, object] = orjson.loads(body)
    return document


def _messages(protocol: Protocol, document: Mapping[str, object]) -> list[object]:
    name = _messages_name(protocol)
    if name not in document:
        raise _missing(protocol, name)
    messages = document[name]
    if isinstance(messages, str) and protocol == "openai_responses":
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, list):
        raise Refused(f"{name}: Input should be a valid list", param=name, code="invalid_type")
    return messages


def _missing(protocol: Protocol, name: str) -> Refused:
    if protocol == "anthropic_messages":
        return Refused(f"{name}: Field required")
    return Refused(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def _no_such_model(protocol: Protocol, model: str) -> Refused:
    if protocol == "anthropic_messages":
        return Refused(f"model: {model}", status=404, kind="not_found_error")
    return Refused(
        f"The model `{model}` does not exist or you do not have access to it.", status=404, code="model_not_found"
    )
