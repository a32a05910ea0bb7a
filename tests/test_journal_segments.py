"""The append-only journal: what was acknowledged is on disk, in order and whole, whatever happens to the process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.errors import JournalDamaged, JournalFull, StoreLocked
from experiments.store.journal import Journal, encode
from experiments.store.segment import Segment, decode
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, ended, play, sent, usage_of_turn, written

ROOT = Path(__file__).parent.parent

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
@settings(max_examples=50)
def test_an_event_is_one_line_and_comes_back_as_it_was(event: dict[str, Any]) -> None:
    line = encode({**event, "kind": "message"})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line, "here") == {**event, "kind": "message"}


@given(st.recursive(
    st.text(st.characters()) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
))  # fmt: skip
def test_whatever_a_model_wrote_becomes_a_line_that_can_be_read(content: object) -> None:
    event = decode(encode({"kind": "message", "content": content}), "here")
    assert decode(encode(event), "here") == event


def test_content_nested_beyond_all_measure_is_cut_with_a_remark() -> None:
    content: object = "\ud800 deep"
    for _ in range(5_000):
        content = [content]
    line = encode({"kind": "message", "content": content})
    assert b"nested deeper" in line
    assert len(line) < 1_000


def test_times_are_utc_with_microseconds_and_money_is_text() -> None:
    east = timezone(timedelta(hours=2))
    event = decode(
        encode({"kind": "x", "at": datetime(2026, 11, 24, 14, 0, tzinfo=east), "usd": Decimal("0.000000000001")}),
        "here",
    )
    assert event == {"kind": "x", "at": "2026-11-24T12:00:00.000000+00:00", "usd": "1E-12"}


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        encode({"kind": "x", "at": datetime(2026, 11, 24, 12, 0)})  # noqa: DTZ001  (what is refused)


async def test_lines_stand_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    async def lane(journal: Journal, name: int) -> None:
        for n in range(50):
            journal.note(encode({"kind": "note", "lane": name, "n": 2 * n}))
            await journal.durable(encode({"kind": "note", "lane": name, "n": 2 * n + 1}))
            assert f'"lane":{name},"n":{2 * n + 1}'.encode() in path.read_bytes()

    async with Journal(path) as journal:
        await asyncio.gather(*(lane(journal, name) for name in range(8)))
    events = list(Segment(path).events())
    for name in range(8):
        assert [event["n"] for event in events if event["lane"] == name] == list(range(100))


async def test_what_was_only_noted_is_there_after_closing(tmp_path: Path) -> None:
    async with Journal(tmp_path / "run.jsonl") as journal:
        journal.note(encode({"kind": "note"}))
    assert list(Segment(tmp_path / "run.jsonl").events()) == [{"kind": "note"}]


async def test_what_was_noted_reaches_the_file_without_a_durable_record(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Journal(path) as journal:
        journal.note(encode({"kind": "note"}))
        async with asyncio.timeout(60):
            while not path.stat().st_size:  # noqa: ASYNC110  (a file tells nobody)
                await asyncio.sleep(0.01)


async def test_a_cancelled_wait_keeps_the_record_and_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Journal(path) as journal:
        book = TrialJournal(journal, "trial", 1)
        sending = asyncio.create_task(book.sent(sent("trial", 1, 0, EPOCH, blocks=0)))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert [event["kind"] for event in book.events()] == ["sent"]
        await journal.durable(encode({"kind": "note"}))
    assert [event["kind"] for event in Segment(path).events()] == ["sent", "note"]


async def test_the_events_a_trial_keeps_are_the_ones_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Journal(path) as journal:
        book = TrialJournal(journal, "trial", 1)
        await play(book)
    assert book.events() == list(Segment(path).events())


@given(cut=st.integers(0, 10**6))
@settings(max_examples=30)
async def test_a_torn_last_line_is_cut_off_and_nothing_else_is_lost(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.jsonl"
    lines = [encode({"kind": "note", "n": n, "text": "x" * n}) for n in range(20)]
    whole = b"".join(lines)
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    kept = path.read_bytes().count(b"\n")
    assert [event["n"] for event in Segment(path).events()] == list(range(kept))
    async with Journal(path) as journal:
        await journal.durable(encode({"kind": "note", "n": "after"}))
    assert [event["n"] for event in Segment(path).events()] == [*range(kept), "after"]


@pytest.mark.parametrize("damage", [b"\n", b"{}\n", b"[1]\n", b'{"kind": 3}\n', b'{"kind":"note"\n', b"\xff\n"])
def test_damage_before_the_last_line_is_named_with_its_line(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode({"kind": "note"}) + damage + encode({"kind": "note"}))
    with pytest.raises(JournalDamaged, match=r"run\.jsonl:2: not a journal event"):
        list(Segment(path).events())


def test_an_answer_without_its_call_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode({"kind": "ended", "key": "t/1/solo/0/1"}))
    with pytest.raises(JournalDamaged, match="never sent"):
        Segment(path).attempts()


async def test_calls_of_interleaved_trials_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Journal(path) as journal:
        await asyncio.gather(*(play(TrialJournal(journal, f"trial-{n}", 1)) for n in range(5)))
    alone = await written(tmp_path / "alone.jsonl", [("trial-3", 1, "submitted")])
    assert Segment(path).attempts()["trial-3", 1] == alone[0]


async def test_a_journal_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Journal(path) as journal:
        assert Segment(path).alive()
        with pytest.raises(StoreLocked, match="another process writes this journal"):
            async with Journal(path):
                pass
        await journal.durable(encode({"kind": "note"}))
    assert not Segment(path).alive()


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    async with Journal(tmp_path / "run.jsonl") as journal:
        pass
    with pytest.raises(JournalFull, match="closed"):
        journal.note(encode({"kind": "note"}))


async def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalFull, match=r"cannot write the journal .* move the database"):
        async with Journal(tmp_path / "file" / "run.jsonl"):
            pass


_FILL = """
import asyncio, resource, sys
from pathlib import Path
from experiments.errors import JournalFull
from experiments.store.journal import Journal, encode

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    taken = 0
    async def lane(journal, name):
        nonlocal taken
        for n in range(1_000):
            try:
                await journal.durable(encode({"kind": "note", "lane": name, "n": n, "text": "x" * 100}))
            except JournalFull as error:
                return str(error)
            taken += 1
    try:
        async with Journal(Path(sys.argv[1])) as journal:
            said = await asyncio.gather(*(lane(journal, name) for name in range(8)))
            try:
                journal.note(encode({"kind": "note"}))
            except JournalFull:
                print("noting is refused too")
    except JournalFull:
        print("and leaving says so")
    print(taken)
    print(*set(said), sep="\\n")

asyncio.run(main())
"""


def test_a_full_disk_tells_every_caller_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    child = subprocess.run(
        [sys.executable, "-c", _FILL, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    noting, leaving, taken, *said = child.stdout.splitlines()
    assert (noting, leaving) == ("noting is refused too", "and leaving says so")
    assert len(said) == 1
    assert "File too large" in said[0]
    assert "free some space" in said[0]
    content = path.read_bytes()
    assert content.endswith(b"\n")
    assert len(list(Segment(path).events())) == int(taken) > 0


_RUN = """
import asyncio, os, sys
from pathlib import Path
from experiments.store.journal import Journal, encode

async def main():
    async with Journal(Path(sys.argv[1])) as journal:
        async def lane(name):
            for n in range(1_000_000):
                await journal.durable(encode({"kind": "note", "lane": name, "n": n}))
                os.write(1, f"{name} {n}\\n".encode())
        await asyncio.gather(*(lane(name) for name in range(8)))

asyncio.run(main())
"""


def test_what_was_acknowledged_before_kill_9_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with subprocess.Popen([sys.executable, "-c", _RUN, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(2_000)]
        assert Segment(path).alive()
        os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.read().splitlines(keepends=True)
    assert not Segment(path).alive()
    acknowledged = {tuple(map(int, line.split())) for line in told if line.endswith(b"\n")}
    stored = [(event["lane"], event["n"]) for event in Segment(path).events()]
    assert len(stored) == len(set(stored))
    assert acknowledged <= set(stored)


async def test_a_call_and_its_answer_keep_every_field(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    call = sent("trial", 1, 0, datetime(2026, 11, 24, 12, 0, 0, 5, tzinfo=UTC), blocks=2)
    async with Journal(path) as journal:
        book = TrialJournal(journal, "trial", 1)
        await book.sent(call)
        book.ended(ended(call, usage_of_turn(0)))
    first, second = Segment(path).events()
    assert first["requested_at"] == "2026-11-24T12:00:00.000005+00:00"
    assert {name: first[name] for name in call.__slots__ if name != "requested_at"} == {
        name: getattr(call, name) for name in call.__slots__ if name != "requested_at"
    }
    assert second["usage"] == usage_of_turn(0)
    assert json.loads(json.dumps(second)) == second
