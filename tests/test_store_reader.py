"""Questions to the store: also about a run under way, and never more than questions."""

import asyncio
import itertools
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from experiments.errors import QueryError
from experiments.store.journal import Event, Journal, journal_folder
from experiments.store.reader import Reader, query
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, play, small_plan, written

PLAN = small_plan()
TRIALS = {(trial.arm, trial.task, trial.repeat): trial.id for trial in PLAN.trials}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """solo: alpha passed and failed (400 s gaps), beta passed after a broken attempt, beta/1 not run.
    chain: alpha passed twice, beta/0 had no verdict, beta/1 died."""
    path = tmp_path_factory.mktemp("filled") / "test.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)

    async def run() -> list[list[Event]]:
        async with Journal(path.parent / "run.jsonl") as journal:
            books = []

            async def one(place: tuple[str, str, int], attempt: int = 1, **how: Any) -> None:
                books.append(TrialJournal(journal, TRIALS[place], attempt))
                await play(books[-1], **how)

            await one(("solo", "alpha", 0), idle_s=400)
            await one(("solo", "alpha", 1), idle_s=400, passed=False)
            await one(("solo", "beta", 0), ended_by="infra_error")
            await one(("solo", "beta", 0), attempt=2, turns=1)
            await one(("chain", "alpha", 0), turns=2)
            await one(("chain", "alpha", 1), turns=4)
            await one(("chain", "beta", 1), ended_by=None)
            return [book.events() for book in books]

    store.merge(asyncio.run(run()))
    return path


def rows(path: Path, sql: str, *parameters: object) -> list[dict[str, Any]]:
    with Reader(path) as reader:
        answer = reader.query(sql, parameters)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def test_compare_gives_each_arm_its_figures(filled: Path) -> None:
    solo, chain = rows(filled, "SELECT * FROM compare WHERE experiment = 'demo'")
    spent = {
        (row["trial_id"], row["attempt"]): row["usd"] for row in rows(filled, "SELECT * FROM attempt_costs")
    }  # fmt: skip
    alpha = (spent[TRIALS["solo", "alpha", 0], 1] + spent[TRIALS["solo", "alpha", 1], 1]) / 2
    beta = spent[TRIALS["solo", "beta", 0], 2]
    broken = spent[TRIALS["solo", "beta", 0], 1]
    assert (solo["arm"], solo["trials"], solo["finished"], solo["scored"], solo["passed"]) == ("solo", 4, 3, 3, 2)
    assert (solo["coverage"], solo["mean_score"], solo["turns"], solo["minutes"]) == (0.75, 0.75, 2.0, (20 + 1 / 3) / 2)
    assert solo["usd_a_task"] == (alpha + beta) / 2
    assert solo["total_usd"] == 2 * alpha + beta + broken
    assert solo["usd_a_pass"] == solo["total_usd"] / 2
    assert (solo["total_usd_low"], solo["total_usd_high"], solo["unknown_calls"]) == (*2 * [solo["total_usd"]], 0)
    assert (chain["passed"], chain["scored"], chain["unknown_calls"], chain["simulated"]) == (2, 2, 1, True)
    assert chain["total_usd_high"] > chain["total_usd_low"] > 0
    assert chain["expiry_usd"] == chain["expiry_share"] == 0


def test_the_expiry_share_comes_out_of_one_query_over_charges(filled: Path) -> None:
    solo = rows(filled, "SELECT expiry_usd, expiry_share, expiry_excess_usd FROM compare WHERE arm = 'solo'")[0]
    same = rows(
        filled,
        "SELECT sum(usd_low) FILTER (cause = 'expiry_rebuild') AS expiry_usd, expiry_usd / sum(usd_low)"
        " AS expiry_share, sum(charges.excess_usd) FILTER (cause = 'expiry_rebuild') AS expiry_excess_usd "
        "FROM charges JOIN calls ON call = key JOIN trials ON trial_id = id WHERE arm = 'solo'",
    )[0]
    assert solo == same
    assert 0 < solo["expiry_excess_usd"] < solo["expiry_usd"]


def test_dollars_agree_between_all_views(filled: Path) -> None:
    totals = rows(
        filled,
        "SELECT (SELECT sum(total_usd_low) FROM compare) AS compared,"
        " (SELECT sum(all_usd_low) FROM trial_costs) AS trials,"
        " (SELECT sum(usd_low) FROM attempt_costs) AS attempts, (SELECT sum(usd_low) FROM role_costs) AS roles,"
        " (SELECT sum(usd_low) FROM cause_costs) AS causes, (SELECT sum(usd_low) FROM cost_lines) AS lines,"
        " (SELECT sum(cost_low_usd) FROM call_timeline) AS calls, (SELECT sum(usd_low) FROM charges) AS charges",
    )[0]
    assert len(set(totals.values())) == 1
    shares = rows(filled, "SELECT sum(share) AS share FROM cause_costs GROUP BY experiment, arm")
    assert [row["share"] for row in shares] == [pytest.approx(1), pytest.approx(1)]


def test_tokens_agree_between_calls_and_charges(filled: Path) -> None:
    assert rows(
        filled,
        "SELECT key FROM calls JOIN (SELECT call, sum(units) FILTER (cause != 'output') AS prompt, "
        "sum(units) FILTER (cause = 'output') AS output FROM charges GROUP BY call) ON call = key "
        "WHERE prompt != prompt_tokens OR output != output_tokens",
    ) == []  # fmt: skip


def test_an_arm_without_a_pass_has_no_price_of_a_pass(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    for row in rows(path, "SELECT * FROM compare"):
        assert (row["trials"], row["passed"], row["usd_a_pass"], row["usd_a_task"], row["total_usd"]) == (
            4, 0, None, None, 0,
        )  # fmt: skip


def test_the_timelines_tell_when_why_and_for_how_much(filled: Path) -> None:
    trial = TRIALS["solo", "alpha", 0]
    calls = rows(filled, "SELECT * FROM call_timeline WHERE trial_id = ?", trial)
    assert [(call["at_s"], call["seconds"], call["idle_s"], call["role"], call["causes"]) for call in calls] == [
        (0.0, 4.0, None, "solo", "first_write 4000"),
        (400.0, 4.0, 400.0, "solo", "expiry_rebuild 4000, growth 500"),
        (800.0, 4.0, 400.0, "solo", "expiry_rebuild 4500, growth 500"),
    ]
    commands = rows(filled, "SELECT * FROM command_timeline WHERE trial_id = ?", trial)
    assert [(each["at_s"], each["role"], each["command"]) for each in commands] == [
        (4.0, "solo", "ls -l"), (404.0, "solo", "ls -l"), (804.0, "solo", "ls -l"),
    ]  # fmt: skip


def test_money_is_decimal_and_times_are_aware(filled: Path) -> None:
    first = rows(filled, "SELECT cost_usd, requested_at FROM calls ORDER BY requested_at, key LIMIT 1")[0]
    assert isinstance(first["cost_usd"], Decimal)
    assert first["requested_at"] == EPOCH
    assert first["requested_at"].utcoffset() == timedelta(0)


def test_the_views_of_the_file_and_of_the_reader_say_the_same(filled: Path) -> None:
    import duckdb

    with duckdb.connect(str(filled), read_only=True) as connection:
        inside = connection.execute("SELECT * FROM compare").fetchall()
    assert inside == query(filled, "SELECT * FROM compare").rows


async def test_a_running_trial_is_seen_with_its_call_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    running, finished = TRIALS["solo", "alpha", 0], TRIALS["chain", "alpha", 0]
    async with Journal(journal_folder(path) / "run.jsonl") as journal:
        book = TrialJournal(journal, finished, 1)
        await play(book)
        await play(TrialJournal(journal, running, 1), ended_by=None)
        before = rows(path, "SELECT * FROM compare"), rows(path, "SELECT * FROM calls ORDER BY key")
        flying = [row for row in before[1] if row["outcome"] is None]
        assert [(row["trial_id"], row["cost_usd"], row["cost_high_usd"]) for row in flying] == [(running, None, None)]
        assert len(before[1]) == 6
        store.merge([book.events()])
        after = rows(path, "SELECT * FROM compare"), rows(path, "SELECT * FROM calls ORDER BY key")
        assert after == before
        shown = rows(path, "SELECT calls_in_flight, unknown_calls, minutes, final FROM trial_costs WHERE NOT final")
        assert shown == [{"calls_in_flight": 1, "unknown_calls": 0, "minutes": None, "final": False}]
    dead = rows(path, "SELECT outcome, cost_high_usd > 0 AS ranged FROM calls WHERE outcome != 'complete'")
    assert dead == [{"outcome": "lost", "ranged": True}]
    assert rows(path, "SELECT ended_by FROM trials WHERE id = ?", running) == [{"ended_by": "infra_error"}]
    store.recover()
    assert rows(path, "SELECT outcome, cost_high_usd > 0 AS ranged FROM calls WHERE outcome != 'complete'") == dead


def test_readers_and_a_merging_writer_do_not_hinder_each_other(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    attempts = asyncio.run(written(tmp_path / "run.jsonl", [(trial.id, 1, "submitted") for trial in PLAN.trials]))
    child = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys; from pathlib import Path; from experiments.store.reader import query\n"
            "while True:\n"
            " rows = query(Path(sys.argv[1]), 'SELECT count(*), count(DISTINCT trial_id) FROM calls').rows\n"
            " print(*rows[0], flush=True)",
            str(path),
        ],
        cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        seen = [child.stdout.readline()]
        store = Store(path)
        for start in range(0, len(attempts), 3):
            store.merge(attempts[start : start + 3])
        seen += [child.stdout.readline() for _ in range(3)]
        child.terminate()
        seen += child.stdout.read().splitlines(keepends=True)
    counts = [tuple(map(int, line.split())) for line in seen if line.endswith("\n")]
    assert all(calls == 3 * trials for calls, trials in counts), "a merge was seen half"
    assert all(later >= earlier for earlier, later in itertools.pairwise(counts))
    assert query(path, "SELECT count(*) FROM calls").rows == [(24,)]


ATTACKS = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "COPY (SELECT 1) TO '{folder}/stolen.csv'",
    "COPY (SELECT 1) TO '{path}'",
    "COPY (SELECT 1) TO '{path}.wal'",
    "COPY calls TO '/dev/stdout'",
    "EXPORT DATABASE '{folder}/export'",
    "ATTACH '{folder}/other.duckdb'",
    "ATTACH '{path}' AS again",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret_of_python",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "SET lock_configuration = false",
    "CREATE SECRET (TYPE s3)",
    "INSERT INTO store.experiments (name) VALUES ('x')",
    "UPDATE store.trials SET passed = true",
    "DELETE FROM store.calls",
    "DROP TABLE store.calls",
    "ALTER TABLE store.calls DROP COLUMN usage",
    "SELECT * FROM read_json('https://example.com/x.json')",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_by_the_engine_itself(attack: str, filled: Path) -> None:
    import duckdb

    secret_of_python = [1, 2, 3]
    before = sorted(filled.parent.rglob("*"))
    content = filled.read_bytes()
    with Reader(filled) as reader, pytest.raises(duckdb.Error):
        reader.connection.execute(attack.format(folder=filled.parent, path=filled)).fetchall()
    assert secret_of_python == [1, 2, 3]
    assert sorted(filled.parent.rglob("*")) == before
    assert filled.read_bytes() == content


NO_QUESTIONS = [
    "CREATE TABLE t AS SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}.wal.recovery'",
    "COPY (SELECT 1) TO '{path}.wal.checkpoint'",
    "DETACH store",
    "ATTACH ':memory:' AS m",
    "SELECT 1; DROP VIEW calls",
    "",
    "-- nothing",
    "PRAGMA version",
    "CALL enable_logging()",
    "PREPARE p AS SELECT 1",
    "BEGIN",
]


def test_nothing_but_one_select_is_answered(filled: Path) -> None:
    before, content = sorted(filled.parent.rglob("*")), filled.read_bytes()
    with Reader(filled) as reader:
        for attack in (*ATTACKS, *NO_QUESTIONS):
            with pytest.raises(QueryError) as refused:
                reader.query(attack.format(folder=filled.parent, path=filled))
            assert "\n" not in str(refused.value)
        assert reader.query("SHOW TABLES").rows
        assert reader.query("WITH a AS (SELECT 1 AS x) FROM a").rows == [(1,)]
        assert reader.query("SUMMARIZE charges").rows
    assert (sorted(filled.parent.rglob("*")), filled.read_bytes()) == (before, content)


def test_bad_sql_is_one_line_that_says_what_is_wrong(filled: Path) -> None:
    with pytest.raises(QueryError, match=r"^Binder Error: Referenced column \"nonsense\" not found") as error:
        query(filled, "SELECT nonsense\nFROM calls")
    assert "\n" not in str(error.value)


def test_a_query_without_end_is_stopped(filled: Path) -> None:
    with pytest.raises(QueryError, match=r"took over 0\.2 s and was stopped"):
        query(filled, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", timeout_s=0.2)


def test_an_answer_longer_than_wanted_is_refused_without_being_held(filled: Path) -> None:
    with pytest.raises(QueryError, match=r"more than 1,000 rows; aggregate them, or add a LIMIT"):
        query(filled, "SELECT * FROM range(1000000000000)", max_rows=1000)
    assert len(query(filled, "SELECT * FROM range(1000)", max_rows=1000).rows) == 1000


def test_a_query_may_not_take_all_memory(filled: Path) -> None:
    with Reader(filled) as reader:
        assert reader.query("SELECT current_setting('memory_limit'), current_setting('temp_directory')").rows == [
            ("1.8 GiB", "")
        ]


@pytest.mark.parametrize(
    "line",
    [b'{"kind":"sent"}\n', b'{"kind":"ended","key":"k"}\n', b"no json\n", b"[]\n"],
)
def test_a_damaged_segment_is_left_out_with_a_warning(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    journal_folder(path).mkdir(exist_ok=True)
    damaged = journal_folder(path) / "bad.jsonl"
    damaged.write_bytes(line)
    with Reader(path) as reader:
        assert reader.query("SELECT count(*) FROM trials").rows == [(len(PLAN.trials),)]
        (warning,) = reader.warnings
    assert warning.startswith(str(damaged))
    assert "move it away" in warning
    damaged.unlink()
    with Reader(path) as reader:
        assert reader.warnings == ()


def test_every_table_and_view_and_column_is_documented(filled: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "schema.md").read_text(encoding="utf-8")
    sections = {
        section.split("\n", 1)[0].strip(" `"): section for section in text.split("\n### ")[1:]
    }  # fmt: skip
    with Reader(filled) as reader:
        columns = reader.query(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'memory' "
            "AND schema_name = 'main' AND NOT internal ORDER BY ALL"
        ).rows
        lacking = [f"{table}.{column}" for table, column in columns if f"| `{column}` |" not in sections.get(table, "")]
        assert lacking == []
        assert sorted(sections) == sorted({table for table, _ in columns})
        examples = [block.split("```", 1)[0] for block in text.split("```sql\n")[1:]]
        assert len(examples) >= 7
        for example in examples:
            reader.query(example)
