"""One file per wire protocol, and what they have in common: a client renders a lane and reads the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from agents.errors import RegistryError
from agents.lane import Lane, Message
from agents.tools import Tool
from agents.transport.call import CurrentCall

if TYPE_CHECKING:
    import httpx2

    from agents.registry import ModelEntry

Ending = Literal["done", "max_tokens", "refusal", "context_full", "paused"]
"""paused: the provider interrupted a long answer, and goes on with it when it is asked again as things stand."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a role asks of its model, the same in every request; None leaves it to the provider.

    `cache_key` names the trial and the role: the provider keeps together what has the same key.
    """

    max_output_tokens: int
    cache_key: str
    lifetime: str | None = None
    effort: str | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is None when what the model wrote (`raw_arguments`) is no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, object] | None
    raw_arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call is answered with; `failed` when the call could not be carried out at all."""

    call_id: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    `message` is the assistant's message as it must stand in the next request; None when the answer was empty, which no
    provider takes back. `finish_reason` is the provider's word, `ending` what it means. `tool_seconds`: what one tool
    call of this answer takes on the trial's clock (0 for real models). `mend` is what the model is told when it acted
    in a form that cannot be read; "" when it can, or when it did not act.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    message: Message | None
    finish_reason: str
    ending: Ending
    tool_seconds: float
    mend: str = ""


class Client(Protocol):
    """One role's way to its model."""

    flavour: str
    idle: str
    """What the model is told when it did not act: that it did not, and how it can."""

    def open_lane(
        self, name: str, system: str, tools: Sequence[Tool], nonce: str, *, schema: Mapping[str, object] | None = None
    ) -> Lane:
        """`schema` is a JSON Schema that every answer's text must fit."""

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        """As they are sent, without the nonce."""

    def user(self, text: str) -> Message: ...

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        """The message or messages that answer all tool calls of one assistant message, in their order."""

    def render(self, lane: Lane) -> bytes:
        """The body of the request that the lane's next turn sends. To be called for no other purpose: the cache marks
        go by what was rendered before."""

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        """One try. Raises TryFailed when it brought no answer, and whatever the book refuses the call with."""

    @property
    def least_output(self) -> int:
        """Tokens: the least that a request may ask for."""

    async def ping(self, lane: Lane, call: CurrentCall) -> None:
        """Sends the lane's last request again and asks for the least output, so that its cache entries live on. Raises
        as `ask`."""


NATIVE_IDLE = "You called no tool, so nothing was done. Go on with a tool call."


def connect(entry: "ModelEntry", *, key: str, options: ClientOptions, http: "httpx2.AsyncClient") -> Client:
    """The client for the entry's protocol and actions, over the run's one HTTP client. Loads that protocol's SDK."""
    client = _native(entry, key, options, http)
    if entry.actions == "tools":
        return client
    from agents.clients.text_actions import TextActions

    return TextActions(client, entry.actions)


def _native(entry: "ModelEntry", key: str, options: ClientOptions, http: "httpx2.AsyncClient") -> Client:
    if entry.protocol == "anthropic_messages":
        from agents.clients.anthropic_messages import AnthropicMessages

        return AnthropicMessages(entry, key, options, http)
    if entry.protocol == "openai_chat":
        from agents.clients.openai_chat import OpenAIChat

        return OpenAIChat(entry, key, options, http)
    if entry.protocol == "openai_responses":
        from agents.clients.openai_responses import OpenAIResponses

        return OpenAIResponses(entry, key, options, http)
    raise RegistryError(f"{entry.name}: unknown protocol {entry.protocol!r}")
