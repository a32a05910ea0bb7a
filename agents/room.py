"""Makes room in a role's lane, as its context policy says: every rewriting is another version of the lane, recorded."""

from typing import TYPE_CHECKING

from agents.context import Context, Outcome, Rewrite, Rewriting
from agents.lane import Block, Lane
from agents.record import Record

if TYPE_CHECKING:
    from agents.clients import Reply
    from agents.role import Role


async def make_room(role: "Role", context: Context) -> None:
    """To be called before a turn, when every tool call is answered. Raises as a turn does."""
    if context.plan.policy == "compact":
        # A summary is a turn too, and is for nothing when none is left to go on with.
        if context.compactable and role.turns + 2 <= role.seat.limits.max_turns:
            await _compact(role, context)
        return
    rewriting = context.shortened()
    if rewriting is not None:
        await role.caller.rest()
        _rewrite(role, context, rewriting, "rewritten")


async def _compact(role: "Role", context: Context) -> None:
    """Asks the model on its own lane. An answer that is no summary leaves the lane as it was before the request."""
    size = context.size
    role.turns += 1
    async with role.seat.span("turn", role.lane.name, str(role.turns)):
        block = role.lane.append(role.caller.client.user(context.prompt))
        context.append(block)
        record_block(role.seat.record, role.lane, block)
        reply, key = await role.caller.ask(role.lane, role.turns)
    # From here on no ping may send the lane as it stands.
    await role.caller.rest()
    outcome = _outcome(reply)
    rewriting = context.compacted(reply.text.strip()) if outcome == "rewritten" else None
    if rewriting is not None:
        context.failures = 0
        _rewrite(role, context, rewriting, "rewritten", key)
        return
    context.failures += 1
    _rewrite(role, context, context.taken_back(), "too_long" if outcome == "rewritten" else outcome, key)
    context.size = size


def _outcome(reply: "Reply") -> Outcome:
    if reply.ending in ("refusal", "context_full", "paused"):
        return "unfinished"
    if reply.tool_calls or reply.mend:
        return "tool_calls"
    return "rewritten" if reply.text.strip() else "no_text"


def _rewrite(role: "Role", context: Context, rewriting: Rewriting, outcome: Outcome, call: str | None = None) -> None:
    lane, seat = role.lane, role.seat
    blocks, size = lane.blocks, context.bytes
    written = lane.rewrite(rewriting.first, rewriting.messages)
    context.rewritten(rewriting.first, written)
    seat.record.rewrite(
        Rewrite(
            role=role.name,
            lane=lane.name,
            version=lane.version,
            policy=context.plan.policy,
            outcome=outcome,
            turn=role.turns + 1,
            call=call,
            first=1 + rewriting.first,
            results=rewriting.results,
            blocks_before=blocks,
            blocks_after=lane.blocks,
            bytes_before=size,
            bytes_after=context.bytes,
            at=seat.clock.now(),
        )
    )
    for block in written:
        record_block(seat.record, lane, block)


def record_block(record: Record, lane: Lane, block: Block) -> None:
    record.message(lane.name, lane.version, block.index, block.role, block.content, block.hash, block.size)
