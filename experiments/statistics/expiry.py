"""Who held the floor while caches expired, as the views `expiry_costs` and `expiry_shares` have it."""

from typing import Any

from experiments.statistics.comparison import Asker

Line = dict[str, Any]

COSTS = """
SELECT expiry_costs.* FROM expiry_costs
JOIN (SELECT experiment, name AS arm, position FROM arms) AS arms USING (experiment, arm)
WHERE experiment = ? ORDER BY position, excess_usd DESC, role, holder, kind
"""

SHARES = """
SELECT arm, role, holder, kind, seconds, share FROM expiry_shares
WHERE experiment = ? ORDER BY arm, role, seconds DESC, holder, kind
"""

OF_A_TRIAL = """
SELECT expiries.*, turn, date_diff('microsecond', started_at, requested_at) / 1e6 AS at_s,
    (SELECT list({'holder': holds.holder, 'kind': holds.kind, 'seconds': seconds} ORDER BY seconds DESC)
     FROM expiry_holds AS holds WHERE holds.call = expiries.call) AS held
FROM expiries JOIN (SELECT key, turn, requested_at FROM calls) ON key = expiries.call
JOIN (SELECT trial_id, attempt, started_at FROM attempts) USING (trial_id, attempt)
WHERE trial_id = ? AND attempt = ? ORDER BY requested_at, call
"""


def expiry_costs(reader: Asker, experiment: str) -> list[Line]:
    """The view's lines, arms in the spec's order, the dearest holder first."""
    return _lines(reader, COSTS, [experiment])


def expiry_shares(reader: Asker, experiment: str) -> dict[tuple[str, str], list[Line]]:
    """By arm and role: holder, kind, seconds and share of the idle time, most first."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in _lines(reader, SHARES, [experiment]):
        found.setdefault((line["arm"], line["role"]), []).append(line)
    return found


def trial_expiries(reader: Asker, trial_id: str, attempt: int) -> list[Line]:
    """The expiries of one attempt in the order of its clock, each with `held`: holder, kind, seconds; most first."""
    return _lines(reader, OF_A_TRIAL, [trial_id, attempt])


def _lines(reader: Asker, sql: str, values: list[object]) -> list[Line]:
    names, rows = reader.query(sql, values)
    return [dict(zip(names, row, strict=True)) for row in rows]
