"""How a trial's row follows from its attempts, whatever the order in which they arrive."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SETTLE = """
UPDATE {table} AS trials SET
    ended_by = best.ended_by,
    outcome = best.outcome,
    unscored_reason = best.unscored_reason,
    reward = best.reward,
    passed = best.passed,
    changed = best.changed,
    final_attempt = CASE WHEN best.finished THEN best.attempt END,
    started_at = best.started_at,
    ended_at = best.ended_at,
    wall_started_at = best.wall_started_at,
    wall_ended_at = best.wall_ended_at,
    backend = best.backend,
    notes = best.notes
FROM (
    SELECT *, coalesce(ended_by NOT IN ('cancelled', 'infra_error'), false) AS finished
    FROM attempts
    WHERE trial_id IN (SELECT unnest($trials))
    QUALIFY row_number() OVER (
        PARTITION BY trial_id ORDER BY finished DESC, CASE WHEN finished THEN attempt ELSE -attempt END
    ) = 1
) AS best
WHERE trials.id = best.trial_id
"""


def settle_trials(connection: "DuckDBPyConnection", trials: Iterable[str], table: str = "trials") -> None:
    """Brings the rows of these trials up to date with their attempts.

    The first finished attempt is final; while none is, the trial shows its latest one and is run again.
    """
    connection.execute(_SETTLE.format(table=table), {"trials": sorted(set(trials))})
