"""What is tried again, how long it waits on the trial's clock, and that every try is a booked call."""

import logging
from datetime import timedelta
from email.utils import format_datetime

import pytest

from agents.clock import VirtualClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import ProviderRefused, VisitEnded
from agents.handover import Handover, HandoverTool, RoleDesign
from agents.retry import LONGEST_RETRY_AFTER_S, TRIES
from agents.transport import open_http
from tests.wire_answers import anthropic_pieces, openai_pieces
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry

SOLO = RoleDesign("solo", "solo", (HandoverTool("submit", None, "Hands in.", "report", "What you did."),))
DONE = {
    "sim-claude-opus-5-5": anthropic_pieces("", [("c1", "submit", '{"report": "done"}')]),
    "sim-deepseek-v4-flash": openai_pieces("", [("c1", "submit", '{"report": "done"}')]),
}
BOTH = pytest.mark.parametrize("model", list(DONE), ids=["anthropic", "openai"])


async def visit(model: str, *scripts: Script, url: str | None = None) -> tuple[Handover, Notes, float]:
    """One visit of solo; returns also the virtual seconds that it took."""
    notes, clock = Notes(), VirtualClock(EPOCH)
    provider = Provider(*scripts)
    async with open_http(simulator=None if url else provider.app, simulator_url=url) as http:
        limits = Limits(max_turns=5, command_timeout_s=5, max_output_tokens=1000, deadline=None)
        seat = Seat("t1", 1, NONCE, clock, notes, notes, BareShell("/"), limits, http)
        role = hire([SOLO], {"solo": RoleModel(entry(model))}, seat, prompt_of=lambda _: "Your role: solo.")["solo"]
        try:
            handover = await role.visit("begin")
        finally:
            role.seat.record.span("end", "", "", EPOCH, clock.now())
    return handover, notes, (clock.now() - EPOCH).total_seconds()


def refused(status: int, message: str = "busy", **headers: str) -> Script:
    body = b'{"type":"error","error":{"type":"x","message":"%s"}}' % message.encode()
    return Script(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


@BOTH
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_busy_provider_is_asked_again_after_the_wait_it_asked_for(model: str, status: int) -> None:
    handover, notes, seconds = await visit(model, refused(status, retry_after="40"), Script(DONE[model]))
    assert handover.payload == "done"
    assert notes.log == [
        "sent t1/1/solo-0/1/1",
        "refused t1/1/solo-0/1/1",
        "sent t1/1/solo-0/1/2",
        "complete t1/1/solo-0/1/2",
    ]
    assert seconds == 40
    assert [(kind, name) for kind, _, name, _, _ in notes.spans if kind == "wait"] == [("wait", "backoff")]


@BOTH
async def test_a_date_to_retry_after_is_understood_and_capped(model: str) -> None:
    soon = format_datetime(EPOCH + timedelta(seconds=90), usegmt=True)
    late = format_datetime(EPOCH + timedelta(days=9), usegmt=True)
    answers = (refused(429, retry_after=soon), refused(429, retry_after=late), Script(DONE[model]))
    _, _, seconds = await visit(model, *answers)
    assert seconds == 90 + LONGEST_RETRY_AFTER_S


@BOTH
async def test_a_stream_that_was_cut_is_asked_for_again(model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        handover, notes, seconds = await visit(model, Script(DONE[model], cut_after=3), Script(DONE[model]))
    assert handover.kind == "submit"
    assert [end.outcome for end in notes.ends] == ["cut", "complete"]
    assert 0.75 <= seconds <= 1
    assert notes.validity == {"t1/1/solo-0/1/2": True}


@BOTH
async def test_tries_end_and_the_error_says_what_the_provider_said(model: str) -> None:
    with pytest.raises(
        ProviderRefused, match=rf"{model} as solo: HTTP 529: very busy \(given up after {TRIES} tries\)"
    ):
        await visit(model, *(refused(529, "very\\nbusy") for _ in range(TRIES)))


@BOTH
async def test_a_provider_that_is_not_there_is_tried_and_given_up(model: str) -> None:
    with pytest.raises(ProviderRefused, match="ConnectError"):
        await visit(model, url="http://127.0.0.1:9")


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_what_a_retry_cannot_mend_is_not_retried(model: str, status: int) -> None:
    with pytest.raises(ProviderRefused, match=f"HTTP {status}: no such thing"):
        await visit(model, refused(status, "no such thing"))


@BOTH
async def test_a_full_context_ends_the_visit(model: str) -> None:
    with pytest.raises(VisitEnded, match="context_full"):
        await visit(model, refused(400, "This model's maximum context length is 8 tokens"))
