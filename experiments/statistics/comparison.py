"""The arms of an experiment side by side, as the view `compare` has them, and where their expiry money comes from."""

from collections.abc import Sequence
from typing import Any, Protocol

from experiments.errors import UnknownExperiment

Line = dict[str, Any]


class Asker(Protocol):
    """The database, open for reading: `experiments.store.reader.Reader` is one."""

    def query(self, sql: str, parameters: Sequence[object] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows."""


EXPIRY = """
SELECT arm, role, model, sum(cost_lines.usd_low) AS usd, count(DISTINCT call) AS calls,
    min(idle_s) AS idle_low_s, max(idle_s) AS idle_high_s
FROM cost_lines JOIN (SELECT key, idle_s FROM calls) AS idle ON key = call
WHERE experiment = ? AND cause = 'expiry_rebuild'
GROUP BY arm, role, model ORDER BY usd DESC, arm, role, model
"""

SHARE = (
    "SELECT arm, coalesce(sum(usd_low) FILTER (WHERE cause = 'expiry_rebuild'), 0) / sum(usd_low) AS expiry_share "
    "FROM charges JOIN calls ON key = call JOIN trials ON id = calls.trial_id "
    "WHERE experiment = '{experiment}' GROUP BY arm ORDER BY arm"
)
"""The expiry share of `compare`, made from `charges` alone."""


def comparison(reader: Asker, experiment: str, arms: Sequence[str] = ()) -> list[Line]:
    """One line an arm, in the spec's order; `arms` keeps only these. Raises UnknownExperiment."""
    lines = _lines(reader, "SELECT * FROM compare WHERE experiment = ?", [experiment])
    if not lines:
        known = [line["name"] for line in _lines(reader, "SELECT name FROM experiments ORDER BY name", [])]
        raise UnknownExperiment(f"no experiment {experiment!r} in this database; known: {', '.join(known) or 'none'}")
    there = [line["arm"] for line in lines]
    for arm in arms:
        if arm not in there:
            raise UnknownExperiment(f"experiment {experiment!r} has no arm {arm!r}; its arms: {', '.join(there)}")
    return [line for line in lines if not arms or line["arm"] in arms]


def expiry_sources(reader: Asker, experiment: str) -> list[Line]:
    """Who paid for expired caches: arm, role, model, usd, calls, idle seconds before them; most dollars first."""
    return _lines(reader, EXPIRY, [experiment])


def without_sandbox(reader: Asker, experiment: str) -> bool:
    """Whether a trial of it ran in host mode."""
    return bool(_lines(reader, "SELECT 1 FROM trials WHERE experiment = ? AND backend = 'host' LIMIT 1", [experiment]))


def _lines(reader: Asker, sql: str, values: list[object]) -> list[Line]:
    names, rows = reader.query(sql, values)
    return [dict(zip(names, row, strict=True)) for row in rows]
