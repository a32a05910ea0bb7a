"""fullchain whatif: what stored calls would have cost under another policy. Nothing is run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from decimal import Decimal

    from cost_model.call_fact import CallFact
    from cost_model.what_if.change import Change, RoleChange
    from cost_model.what_if.replay import Dollars, Replay
    from experiments.cli.levers import Levers
    from experiments.store.ledger import Facts
    from experiments.store.reader import Reader
    from experiments.store.replay_calls import StoredArm


def whatif(
    experiment: Annotated[str, typer.Argument(help="The spec's name.", metavar="EXPERIMENT")],
    database: Database = DEFAULT_DATABASE,
    arms: Annotated[str | None, typer.Option(help="Only these arms, separated by commas.", metavar="NAMES")] = None,
    role: Annotated[str | None, typer.Option(help="Whom the next five options are about.", metavar="NAME")] = None,
    ttl: Annotated[
        str | None, typer.Option(help="The cache lifetime it asks for: 5m, 1h, ... or none.", metavar="LIFETIME")
    ] = None,
    keep_alive: Annotated[
        float | None,
        typer.Option(help="Pings its waiting cache so often, counted from the last request.", metavar="SECONDS"),
    ] = None,
    faster: Annotated[
        str | None, typer.Option(help="It is so many times as fast: 2, or 1/2 for half.", metavar="TIMES")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="It has the prices and the cache of this model.", metavar="NAME")
    ] = None,
    truncate: Annotated[
        str | None,
        typer.Option(help="Its prompts over ABOVE tokens are cut to HEAD and the latest.", metavar="ABOVE:KEEP[:HEAD]"),
    ] = None,
    pings: Annotated[int | None, typer.Option(help="At most so many pings a wait.", min=0, metavar="N")] = None,
    ping_output: Annotated[int, typer.Option(help="Output tokens billed for a ping.", min=0, metavar="N")] = 0,
    fewer_handovers: Annotated[
        int, typer.Option(help="The last so many hand-overs of each trial did not happen.", min=0, metavar="N")
    ] = 0,
    prices: Annotated[
        list[Path] | None, typer.Option(help="Prices of this file; may be repeated.", metavar="FILE")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Prices of this date.", metavar="DATE")] = None,
    models: Annotated[
        list[Path] | None, typer.Option(help="A further registry file for --model; may be repeated.", metavar="FILE")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Tries every cache lifetime and pings, and names the cheapest for each role.")
    ] = False,
) -> None:
    """Replays the stored calls of an experiment under another policy and prints dollars beside the measured ones.

    Nothing is run and nothing is stored. Every attempt of every trial counts, at list prices by role and token class.
    """
    from cost_model.prices import PriceBook
    from experiments.cli.levers import Levers
    from experiments.cli.terminal import warn
    from experiments.errors import QueryError
    from experiments.store.reader import Reader
    from experiments.store.replay_calls import stored_arms, stored_facts

    levers = Levers(
        role, ttl, keep_alive, pings, ping_output, faster, model, truncate, fewer_handovers, at,
        tuple(models or ()), tuple(prices or ()),
    )  # fmt: skip
    if best == (not levers.none or role is not None):
        raise QueryError(
            "say what is different (--role with --ttl, --fewer-handovers, --at, ...), or else --best alone"
        )
    with Reader(database) as reader:
        facts = stored_facts(reader, experiment, PriceBook())
        chosen = [name.strip() for name in arms.split(",")] if arms else []
        found = list(stored_arms(reader, experiment, chosen, facts))
        repriced = _repriced(reader, experiment, found, levers, facts) if levers.at or levers.prices else None
        warn(reader.warnings)
    if best:
        from experiments.cli.whatif_best import print_best

        print_best(experiment, found)
    else:
        _print_change(experiment, found, levers, facts, repriced)


def _repriced(
    reader: "Reader", experiment: str, arms: "list[StoredArm]", levers: "Levers", facts: "Facts"
) -> "dict[str, CallFact]":
    """The calls as they would be booked at other prices, by key."""
    from cost_model.errors import PriceMissing
    from experiments.cli.levers import moment
    from experiments.repricing.prices import NewPrices
    from experiments.store.replay_calls import stored_arms

    new = NewPrices(levers.prices, moment(levers.at) if levers.at else None).facts(facts)
    again = stored_arms(reader, experiment, [arm.name for arm in arms], new)
    found = {call.fact.key: call.fact for arm in again for scope in arm.scopes for call in scope}
    for call in (call for arm in arms for scope in arm.scopes for call in scope):
        if call.fact.tokens is not None and found[call.fact.key].tokens is None:
            raise PriceMissing(
                f"these prices do not cover the call {call.fact.key} of {call.fact.model} (its service tier, region or "
                "what it used beside tokens); add them to the price file"
            )
    return found


def stamp(experiment: str, arms: "list[StoredArm]") -> str:
    """The first line: what the dollars on the left are."""
    from experiments.cli.terminal import one_line

    if arms and all(arm.simulated for arm in arms):
        how = "simulated: measured on simulated models and time, at real prices"
    elif any(arm.simulated for arm in arms):
        how = "arms marked simulated were measured on simulated models and time"
    else:
        how = "measured on real models"
    return f"experiment {one_line(experiment)}  [{how}; predicted: replayed from stored calls, nothing was run]"


def _print_change(
    experiment: str,
    arms: "list[StoredArm]",
    levers: "Levers",
    facts: "Facts",
    repriced: "dict[str, CallFact] | None",
) -> None:
    from cost_model.errors import ChangeImpossible
    from experiments.cli.levers import caveats, change_of, described
    from experiments.cli.terminal import one_line, say
    from experiments.errors import QueryError

    change = change_of(levers, facts, repriced)
    replayed, left_out = [], []
    for arm in arms:
        if levers.role is not None and levers.role not in arm.roles:
            left_out.append(
                f"{arm.name}: has no role {levers.role!r} (its roles: {', '.join(arm.roles) or 'no calls'})"
            )
            continue
        try:
            replayed.append((arm, _replays(arm, change)))
        except ChangeImpossible as error:
            left_out.append(f"{arm.name}: {error}")
    if not replayed:
        raise QueryError("; ".join(left_out) or f"experiment {experiment!r} has no calls yet; run it first")
    say(stamp(experiment, [arm for arm, _ in replayed]))
    say(one_line(f"what if: {'; '.join(described(levers))}"))
    for arm, replays in replayed:
        _say_arm(arm, replays)
    for remark in left_out:
        say(one_line(f"left out: {remark}"))
    for caveat in caveats(levers):
        say(one_line(caveat))


def _replays(arm: "StoredArm", change: "Change") -> "list[Replay]":
    from cost_model.what_if.replay import replay

    return [replay(scope, change) for scope in arm.scopes]


def _say_arm(arm: "StoredArm", replays: "list[Replay]") -> None:
    from cost_model.what_if.replay import NOTHING, by_role_and_class, total
    from experiments.cli.terminal import one_line, say, say_table, table

    before = by_role_and_class(told for each in replays for told in each.measured)
    after = by_role_and_class(told for each in replays for told in each.predicted)
    made = table(
        ("role", "left"), ("token class", "left"), ("measured $", "right"), ("predicted $", "right"),
        ("difference $", "right"),
    )  # fmt: skip
    for role in arm.roles:
        for token_class in _classes(role, before, after):
            was, now = before.get((role, token_class), NOTHING), after.get((role, token_class), NOTHING)
            made.add_row(one_line(role), token_class, usd(was), usd(now), difference(was, now))
    was = total(told for each in replays for told in each.measured)
    now = total(told for each in replays for told in each.predicted)
    made.add_row("all", "", usd(was), usd(now), difference(was, now))
    say()
    say(one_line(f"arm {arm.name}{' [simulated]' if arm.simulated else ''}"))
    say_table(made)
    for remark in remarks(arm, replays):
        say(one_line(f"{arm.name}: {remark}"))


def _classes(role: str, *sums: "dict[tuple[str, str], Dollars]") -> list[str]:
    from cost_model.tokens import CLASSES

    there = {token_class for each in sums for of, token_class in each if of == role}
    return [name for name in (*CLASSES, "unknown") if name in there]


def remarks(arm: "StoredArm", replays: "list[Replay]") -> list[str]:
    """What the reader must know to judge a replay of this arm."""
    known, as_expected = sum(each.known for each in replays), sum(each.as_expected for each in replays)
    told = []
    if as_expected < known:
        told.append(
            f"{known - as_expected} of {known} calls read more or less than the policy of their cache promises (early "
            "evictions, entries that outlived their time): held fixed as they were"
        )
    else:
        told.append(f"all {known} calls read what the policy of their cache lets them read")
    unknown = sum(len(each.measured) for each in replays) - known
    if unknown:
        told.append(f"{unknown} calls without usage keep their range")
    if any(one.call.fact.billed_usd is not None for each in replays for one in each.measured):
        told.append(
            "classes are at list prices, `all` is what providers billed; a changed call's bill is scaled with them"
        )
    if arm.in_flight:
        told.append(f"{arm.in_flight} calls are in flight and left out")
    pings = sum(one.call.ping for each in replays for one in each.predicted)
    sent = sum(one.call.pinged for each in replays for one in each.measured)
    left = sum(one.call.pinged for each in replays for one in each.predicted)
    if sent != left:
        told.append(f"{pings} pings in place of {sent - left} that were sent")
    elif pings:
        told.append(f"{pings} pings were added")
    return told


def usd(amount: "Dollars") -> str:
    """The least, marked where it may be more."""
    return f"{amount.low:.4f}" if amount.low == amount.high else f">= {amount.low:.4f}"


def difference(was: "Dollars", now: "Dollars") -> str:
    change = now.low - was.low
    share = f" ({change / was.low:+.1%})" if was.low else ""
    return f"{change:+.4f}{share}" if round(change, 4) else "-"


def words(change: "RoleChange") -> str:
    """A cache option of a role in words."""
    told = []
    if change.lifetime is not None:
        told.append("no cache" if change.lifetime == "none" else f"lifetime {change.lifetime}")
    if change.keep_alive is not None and change.keep_alive.most == 0:
        told.append("no pings")
    elif change.keep_alive is not None:
        most = "" if change.keep_alive.most is None else f", at most {change.keep_alive.most} a wait"
        told.append(f"a ping every {change.keep_alive.interval.total_seconds():g} s{most}")
    return " and ".join(told) or "as it was"


def saved(was: "Decimal", now: "Decimal | None") -> str:
    """The difference of two exact amounts; "-" for none."""
    if now is None or now == was:
        return "-"
    return f"{now - was:+.4f}" + (f" ({(now - was) / was:+.1%})" if was else "")
