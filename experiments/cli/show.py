"""fullchain show: one trial as a timeline, or what the expired caches of an experiment come from."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.store.reader import Reader

Line = dict[str, Any]

CLASSES = {
    "cache_read_tokens": "read",
    "cache_write_5m_tokens": "write 5m",
    "cache_write_30m_tokens": "write 30m",
    "cache_write_1h_tokens": "write 1h",
    "cache_write_12h_tokens": "write 12h",
    "cache_write_unknown_tokens": "write",
    "input_tokens": "in",
    "output_tokens": "out",
}

COMMAND_WIDTH = 72

WHAT_WIDTH = 160
"""Longer lines of output are folded: every line of the table is as wide as its widest."""


def show(
    trial: Annotated[
        str,
        typer.Argument(help="A trial's id, or its first digits; or an experiment's name.", metavar="TRIAL|EXPERIMENT"),
    ],
    database: Database = DEFAULT_DATABASE,
    attempt: Annotated[int | None, typer.Option(min=1, help="Another attempt than the final or latest one.")] = None,
    output: Annotated[bool, typer.Option("--output", help="Prints what each command printed too.")] = False,
) -> None:
    """Shows the timeline of a trial, or whose work let the caches of an experiment expire.

    Every call, command and hand-over: role, tokens by class, dollars, causes and idle gap; then who held the floor
    while a cache expired.
    """
    from experiments.cli.expiry import one_expiry, say_experiment
    from experiments.cli.terminal import one_line, say, say_table, warn
    from experiments.statistics.expiry import trial_expiries
    from experiments.store.reader import Reader

    with Reader(database) as reader:
        if attempt is None and _lines(reader, "SELECT 1 FROM experiments WHERE name = ?", [trial]):
            say_experiment(reader, trial)
            warn(reader.warnings)
            return
        row = _find(reader, trial, attempt)
        events = _events(reader, row)
        lines = _lines(
            reader,
            "SELECT * FROM attempts WHERE trial_id = ? AND attempt = ?",
            [row["id"], row["attempt"]],
        )
        expired = trial_expiries(reader, row["id"], row["attempt"])
        gaps = _gaps(reader, row)
    warn(reader.warnings)
    for line in _heading(row, lines[0] if lines else {}):
        say(line)
    say_table(_timeline(events, gaps, output))
    for expiry in expired:
        say(one_line(f"{_clock(expiry['at_s'])} {one_expiry(expiry, _clock)}", 1000))
    if lines and lines[0]["error"]:
        say(f"error:\n{lines[0]['error'].rstrip()}")


def _find(reader: "Reader", trial: str, attempt: int | None) -> Line:
    """The trial whose id begins so, with the attempt to show. Raises QueryError."""
    from experiments.errors import QueryError

    found = _lines(
        reader,
        "SELECT *, coalesce($attempt, final_attempt, (SELECT max(attempt) FROM attempts WHERE trial_id = id)) "
        "AS attempt FROM trials WHERE starts_with(id, $trial) ORDER BY id LIMIT 6",
        {"trial": trial, "attempt": attempt},
    )
    if not found:
        raise QueryError(
            f"no trial and no experiment {trial!r} in this database; the tables `trials` and `experiments` list them"
        )
    if len(found) > 1:
        ids = ", ".join(line["id"] for line in found[:5])
        raise QueryError(
            f"several trials begin with {trial!r} ({ids}{', ...' if len(found) > 5 else ''}); give more digits"
        )
    if found[0]["attempt"] is None:
        raise QueryError(f"trial {found[0]['id']} has not begun; run its experiment first")
    known = _lines(reader, "SELECT attempt FROM attempts WHERE trial_id = ? ORDER BY attempt", [found[0]["id"]])
    if found[0]["attempt"] not in [line["attempt"] for line in known]:
        there = ", ".join(str(line["attempt"]) for line in known)
        raise QueryError(f"trial {found[0]['id']} has no attempt {found[0]['attempt']}; its attempts: {there}")
    return found[0]


def _events(reader: "Reader", trial: Line) -> list[Line]:
    """Calls, commands and hand-overs in the order of the trial's clock."""
    attempt = [trial["id"], trial["attempt"]]
    calls = _lines(reader, "SELECT 'call' AS event, * FROM call_timeline WHERE trial_id = ? AND attempt = ?", attempt)
    commands = _lines(
        reader, "SELECT 'command' AS event, * FROM command_timeline WHERE trial_id = ? AND attempt = ?", attempt
    )
    handovers = _lines(
        reader,
        "SELECT 'handover' AS event, handovers.*, from_role AS role, "
        "date_diff('microsecond', started_at, handed_at) / 1e6 AS at_s, "
        "verdict, confidence, findings, truth, truth_reason "
        "FROM handovers JOIN attempts USING (trial_id, attempt) LEFT JOIN (SELECT trial_id, attempt, handover AS seq, "
        "verdict, confidence, findings, truth, truth_reason FROM reviews) AS reviews USING (trial_id, attempt, seq) "
        "WHERE trial_id = ? AND attempt = ?",
        attempt,
    )
    rewrites = _lines(
        reader, "SELECT 'rewrite' AS event, * FROM rewrite_timeline WHERE trial_id = ? AND attempt = ?", attempt
    )
    # Stable: of one moment, the hand-over that ends a visit stands before the call that begins the next.
    return sorted([*handovers, *commands, *rewrites, *calls], key=lambda event: event["at_s"] or 0)


def _gaps(reader: "Reader", trial: Line) -> dict[int, list[Line]]:
    """What each hand-over left idle, by its place; lanes that never called again are none."""
    found: dict[int, list[Line]] = {}
    for gap in _lines(
        reader,
        "SELECT * FROM handover_gaps WHERE trial_id = ? AND attempt = ? AND opened AND seconds IS NOT NULL",
        [trial["id"], trial["attempt"]],
    ):
        found.setdefault(gap["seq"], []).append(gap)
    return found


def _heading(trial: Line, attempt: Line) -> list[str]:
    from experiments.cli.terminal import one_line

    what = f"{trial['experiment']} / {trial['arm']} / {one_line(trial['task'])} / repeat {trial['repeat'] + 1}"
    score = "" if attempt.get("reward") is None else f", reward {attempt['reward']:g}"
    why = f" ({one_line(attempt['unscored_reason'], 200)})" if attempt.get("unscored_reason") else ""
    idle = ", and changed nothing" if attempt.get("changed") is False else ""
    how = (
        f"{attempt.get('outcome') or 'running'}{score}{why}, ended by {attempt.get('ended_by') or 'nothing yet'}{idle}"
    )
    simulated = "  [simulated]" if trial["simulated"] else ""
    notes = [
        f"sandbox {attempt.get('backend') or 'none'}",
        *([one_line(attempt["notes"])] if attempt.get("notes") else []),
    ]
    return [f"trial {trial['id']} attempt {trial['attempt']}: {what}{simulated}", how, ": ".join(notes)]


def _timeline(events: list[Line], gaps: dict[int, list[Line]], output: bool) -> "Table":
    from rich.table import Table

    from cost_model.causes import REBUILDS
    from experiments.cli.terminal import plain

    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("at", justify="right", no_wrap=True)
    made.add_column("role", no_wrap=True)
    made.add_column("$", justify="right", no_wrap=True)
    made.add_column("idle", justify="right", no_wrap=True)
    made.add_column("what", overflow="fold", ratio=1, max_width=WHAT_WIDTH)
    made.add_column("causes of the prompt's tokens", overflow="fold")
    for event in events:
        rebuilt = any(cause in (event.get("causes") or "") for cause in REBUILDS)
        made.add_row(*_row(event), style="yellow" if rebuilt else None)
        for gap in gaps.get(event["seq"], ()) if event["event"] == "handover" else ():
            made.add_row("", "", "", _clock(gap["seconds"]), f"    {_gap(gap)}", "")
        if output and event["event"] == "command" and event["output"]:
            made.add_row("", "", "", "", plain(event["output"].rstrip()), "")
    return made


def _row(event: Line) -> tuple[str, str, str, str, str, str]:
    from experiments.cli.terminal import one_line

    at, role = _clock(event["at_s"]), one_line(event["role"] or "")
    if event["event"] == "handover":
        return at, role, "", "", f"  {_handover(event)}", ""
    if event["event"] == "rewrite":
        return at, role, "", "", f"  {_rewriting(event)}", ""
    if event["event"] == "command":
        code = "timed out" if event["timed_out"] else f"exit {event['exit_code']}"
        command = one_line(event["command"], COMMAND_WIDTH)
        if event["refused"] is not None:
            return (
                at,
                role,
                "",
                "",
                f"  $ {command}   [refused: {one_line(event['refused'].rpartition('` ')[2], 120)}]",
                "",
            )
        return at, role, "", "", f"  $ {command}   [{code}, {event['seconds']:.1f} s]", ""
    tokens = ", ".join(f"{name} {event[column]:,}" for column, name in CLASSES.items() if event[column])
    how = "" if event["outcome"] == "complete" else f"  {event['outcome'] or 'in flight'}"
    how += f", settled by a bill ({event['settled_by']})" if event["settled_by"] else ""
    again = "" if event["try"] == 1 else f" try {event['try']}"
    error = f"  {one_line(event['error'], 120)}" if event["error"] else ""
    return (
        at,
        role,
        _cost(event),
        _clock(event["idle_s"]),
        f"{one_line(event['model'])} turn {event['turn']}{again}: {tokens or 'no usage'}{how}{error}",
        event["causes"] or "",
    )


def _handover(event: Line) -> str:
    from experiments.cli.terminal import one_line

    if event["kind"] is None:
        return f"ended by {one_line(event['reason'])}, nothing handed over"
    to = f"to {one_line(event['to_role'])}" if event["to_role"] else "end"
    size = "" if event["tokens"] is None else f" (about {event['tokens']:,} tokens)"
    told = one_line(event["payload"], COMMAND_WIDTH) if event["verdict"] is None else _verdict(event)
    return f"{one_line(event['kind'])} -> {to}{size}: {told}"


def _gap(gap: Line) -> str:
    """How long a lane is left idle, beside how long its cache lives."""
    from experiments.cli.terminal import one_line

    lives = "" if gap["cache_lifetime_s"] is None else f", whose cache lives {_clock(gap['cache_lifetime_s'])}"
    paid = f": rebuilt for ${gap['excess_usd']:.4f} more than a read" if gap["expired"] else ""
    return f"leaves {one_line(gap['role'])} idle{lives}{paid}"


def _verdict(review: Line) -> str:
    """Each finding on a line of its own."""
    import json

    from experiments.cli.terminal import one_line

    truth = ""
    if review["truth"] is not None:
        truth = f"; the work was {'right' if review['truth'] else 'wrong'}"
    elif review["truth_reason"] is not None:
        truth = f"; whether the work was right is not known: {one_line(review['truth_reason'], WHAT_WIDTH)}"
    lines = [f"{one_line(review['verdict'])}, confidence {review['confidence']:.2f}{truth}"]
    for finding in json.loads(review["findings"]):
        place = finding["file"] if finding["line"] is None else f"{finding['file']}:{finding['line']}"
        lines.append(f"    {one_line(place, COMMAND_WIDTH)}: {one_line(finding['problem'], COMMAND_WIDTH)}")
    return "\n".join(lines)


def _rewriting(event: Line) -> str:
    """What a context policy took out of the lane; what came of that is told by the next call."""
    if event["outcome"] != "rewritten":
        return f"{event['policy']}: no summary ({event['outcome'].replace('_', ' ')}), the lane stays as it was"
    results = f"{event['results']} results cut, " if event["results"] else ""
    blocks = f"{event['blocks_removed']} messages and " if event["blocks_removed"] else ""
    return f"{event['policy']}: {results}{blocks}{event['bytes_removed']:,} bytes fewer (version {event['version']})"


def _cost(call: Line) -> str:
    if call["cost_usd"] is not None:
        return f"{call['cost_usd']:.6f}"
    if call["cost_low_usd"] is None:
        return ""
    return f"{call['cost_low_usd']:.4f}-{call['cost_high_usd']:.4f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, tenths = divmod(round(seconds * 10), 600)
    return f"{minutes}:{tenths / 10:04.1f}"


def _lines(reader: "Reader", sql: str, values: "list[Any] | dict[str, Any]") -> list[Line]:
    names, rows = reader.query(sql, values)
    return [dict(zip(names, row, strict=True)) for row in rows]
