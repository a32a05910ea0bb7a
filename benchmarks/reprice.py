"""Seconds that it takes to price a million stored calls anew, from their raw usage.

The database is made for it, in a temporary folder: a million calls of four models in trials of a hundred, with charges,
their usage as Anthropic (with a batch and a broken answer now and then), OpenAI (Chat Completions and Responses) and
DeepSeek send it. One claim: under 20 s on two cores, for the dollars of every role and model and for their causes as
well. A plain SELECT of the same raw usage is measured beside it.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from experiments.plan import Plan, PlannedArm, PlannedTask, PlannedTrial, trial_id
from experiments.repricing.prices import NewPrices
from experiments.repricing.repricing import reprice
from experiments.repricing.sums import Sums
from experiments.store.database import opened
from experiments.store.ledger import ModelFacts
from experiments.store.reader import Reader
from experiments.store.store import Store

CALLS, CALLS_A_TRIAL = 1_000_000, 100
LIMIT_S = 20.0
PROCESSES = 2
START = datetime(2026, 11, 24, 12, tzinfo=UTC)
TASKS = 20

MODELS = {
    "opus": ModelFacts("anthropic_messages", "anthropic", "claude-opus-5-5", False, "anthropic-512"),
    "flash": ModelFacts("openai_chat", "deepseek", "deepseek-v4-flash", False, "deepseek"),
    "sol": ModelFacts("openai_responses", "openai", "gpt-6.1-sol", False, "openai-30m"),
    "terra": ModelFacts("openai_chat", "openai", "gpt-6.1-terra", False, "openai-30m-chat"),
}

PRICES = """
[[price]]
model = "claude-opus-5-5"
source = "a contract"
usd_per_mtok = { input = 3.6, cache_read = 0.18, cache_write_5m = 4.5, cache_write_1h = 7.2, output = 18 }
"""

_NUMBERS = f"""
CREATE TEMP TABLE numbers AS
SELECT i, $trials[i // {CALLS_A_TRIAL} + 1] AS trial_id, trial_id || '/1/lane/' || i % {CALLS_A_TRIAL} || '/1' AS key,
    (hash(i) % 4)::INTEGER AS kind,
    (hash(i + 1) % 2000)::BIGINT AS fresh, (64 * (hash(i + 2) % 1500))::BIGINT AS read,
    (hash(i + 3) % 4000)::BIGINT AS written, (1 + hash(i + 4) % 1200)::BIGINT AS output,
    (hash(i + 5) % 100) = 0 AS batch, (hash(i + 6) % 200) = 0 AS cut
FROM range({CALLS}) AS numbers(i)
"""  # noqa: S608  (numbers of our own)

_CALLS = """
INSERT INTO calls BY NAME
SELECT
    key, trial_id, 1 AS attempt,
    ['planner', 'worker', 'planner', 'worker'][kind + 1] AS role, 'lane ' || kind AS lane, 0 AS version, '0' AS turn,
    1 AS try, 0 AS blocks, ['opus', 'flash', 'sol', 'terra'][kind + 1] AS model, model AS wire_model,
    ['anthropic', 'deepseek', 'openai', 'openai'][kind + 1] AS provider,
    ['anthropic_messages', 'openai_chat', 'openai_responses', 'openai_chat'][kind + 1] AS flavour,
    $start::TIMESTAMPTZ + to_seconds(i / 10) AS requested_at, requested_at + INTERVAL 1 SECOND AS first_token_at,
    requested_at + INTERVAL 5 SECOND AS ended_at, CASE WHEN cut THEN 'cut' ELSE 'complete' END AS outcome,
    4 * (fresh + read + written) AS prompt_bytes, 8000 AS max_output_tokens,
    CASE WHEN kind = 0 THEN fresh + read + written ELSE fresh + read END AS prompt_tokens,
    fresh AS input_tokens, read AS cache_read_tokens, CASE WHEN kind = 0 THEN written ELSE 0 END AS cache_write_5m_tokens,
    0 AS cache_write_30m_tokens, 0 AS cache_write_1h_tokens, 0 AS cache_write_12h_tokens,
    0 AS cache_write_unknown_tokens, output AS output_tokens,
    CASE WHEN kind IN (0, 1) THEN 0 ELSE output // 2 END AS reasoning_tokens,
    'reported' AS basis, 0.01 AS cost_usd, 0.01 AS cost_low_usd, 0.01 AS cost_high_usd,
    CASE kind
        WHEN 0 THEN printf('{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":0},"output_tokens":%d,"service_tier":"%s"}',
            fresh, written, read, written, output, CASE WHEN batch THEN 'batch' ELSE 'standard' END)
        WHEN 1 THEN printf('{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":0},"prompt_cache_hit_tokens":%d,"prompt_cache_miss_tokens":%d}',
            fresh + read, output, fresh + read + output, read, read, fresh)
        WHEN 2 THEN printf('{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}',
            fresh + read, read, output, output // 2, fresh + read + output)
        ELSE printf('{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0}}',
            fresh + read, output, fresh + read + output, read, output // 2)
    END AS usage,
    false AS replayed, true AS simulated
FROM numbers
"""  # noqa: E501  (usages as they come, in one line)

_CHARGES = """
INSERT INTO charges BY NAME
SELECT key AS call, line, ['opus', 'flash', 'sol', 'terra'][kind + 1] AS model, token_class, cause,
    units, 0.0025 AS usd_low, 0.0025 AS usd_high, 0 AS excess_usd, 'reported' AS basis
FROM (
    SELECT i, key, kind, 0 AS line, 'cache_read' AS token_class, 'hit' AS cause, read AS units FROM numbers
    UNION ALL SELECT i, key, kind, 1, 'cache_write_5m', if(i % 9 = 0, 'expiry_rebuild', 'growth'), written FROM numbers
        WHERE kind = 0
    UNION ALL SELECT i, key, kind, 2, 'input', 'growth', fresh FROM numbers
    UNION ALL SELECT i, key, kind, 3, 'output', 'output', output FROM numbers
)
WHERE units > 0
"""


def build(database: Path) -> None:
    """The calls of an experiment `million`, written by DuckDB itself."""
    places = [("arm", f"task {number % TASKS}", number // TASKS) for number in range(CALLS // CALLS_A_TRIAL)]
    plan = Plan(
        experiment="million",
        description="a benchmark",
        simulated=True,
        seed=1,
        repeats=len(places) // TASKS,
        pass_threshold=1.0,
        virtual_epoch=START,
        prices_at=None,
        arms=(PlannedArm("arm", "solo", {"solo": "opus"}, {}),),
        tasks=tuple(PlannedTask(f"task {number}", str(number), "shell", {}) for number in range(TASKS)),
        trials=tuple(
            PlannedTrial(trial_id("million", *place), *place, f"{number:016x}", "same", number)
            for number, place in enumerate(places)
        ),
    )
    Store(database).register(plan, MODELS)
    with opened(database) as connection:
        connection.execute(_NUMBERS, {"trials": [trial.id for trial in plan.trials]})
        connection.execute(_CALLS, {"start": START.isoformat()})
        connection.execute(_CHARGES)
        connection.execute("CHECKPOINT")


def plain_select_s(database: Path) -> float:
    """Seconds to carry the same raw usage into Python, and do nothing with it."""
    with Reader(database) as reader:
        start = time.perf_counter()
        cursor = reader.connection.execute("SELECT usage FROM calls")
        while cursor.fetchmany(20_000):
            pass
        return time.perf_counter() - start


def peak_mb() -> Iterator[tuple[str, float]]:
    """Of this process, and of the largest of its helpers."""
    for name, whose in (("this process", resource.RUSAGE_SELF), ("the largest child", resource.RUSAGE_CHILDREN)):
        yield name, resource.getrusage(whose).ru_maxrss / 1024


def repriced(database: Path, prices: NewPrices, *, causes: bool) -> tuple[float, Sums]:
    start = time.perf_counter()
    with Reader(database) as reader:
        found = reprice(reader, "million", prices, classes=causes, causes=causes, processes=PROCESSES)
    return time.perf_counter() - start, found.repriced


def measure() -> bool:
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        database, prices = Path(folder) / "million.duckdb", Path(folder) / "prices.toml"
        prices.write_text(PRICES)
        build(database)
        select_s = plain_select_s(database)
        sums: list[Decimal] = []
        for what, causes in (("by role and model", False), ("by cause", True)):
            seconds, found = repriced(database, NewPrices((prices,)), causes=causes)
            calls = sum(counts.calls for counts in found.counts.values())
            sums.append(sum((cost.low for cost in found.cost.values()), Decimal(0)))
            print(
                f"{calls:,} stored calls repriced {what}: {seconds:.1f} s (limit {LIMIT_S:g}), {calls / seconds:,.0f} "
                f"calls/s, x{seconds / select_s:.1f} a plain SELECT of their raw usage ({select_s:.1f} s)"
            )
            holds = holds and seconds < LIMIT_S and calls == CALLS
        print("peak memory: " + ", ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in peak_mb()))
        return holds and sums[0] == sums[1] > 0


if __name__ == "__main__":
    sys.exit(0 if measure() else 1)
