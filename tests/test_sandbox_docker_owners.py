"""Who made a thing in the engine, and whether that process still lives."""

import signal
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.sandbox.docker.owners import UNKNOWN, read, this_process
from tests.docker_leftovers import another
from tests.test_run_interrupted import PATIENCE_S

PARTS = st.sampled_from(["vm", "a.b-c_9", "1", "4194304", "0", "-", "", "x" * 254, "4026531836", " ", "\n", "é"])


@given(st.one_of(st.text(), st.lists(PARTS, max_size=6).map(" ".join), st.none(), st.integers()))
def test_a_label_is_read_back_as_it_was_written_or_not_at_all(label: object) -> None:
    owner = read(label)
    assert owner is None or str(owner) == label


def test_a_process_is_known_by_its_start_its_boot_and_its_namespace() -> None:
    me = this_process()
    assert read(str(me)) == me
    assert me.life() == "lives"
    if me.born == UNKNOWN:
        pytest.skip("this system does not tell when a process was started")
    assert replace(me, born="1").life() == "gone"
    assert replace(me, boot="0" * 36).life() == "rebooted"
    assert replace(me, boot="0" * 36, host="another").life() == "elsewhere"
    assert replace(me, space="1").life() == "elsewhere"
    assert replace(me, boot=UNKNOWN).life() == "elsewhere"


def test_a_process_lives_until_it_ends_even_where_nobody_has_heard_of_its_end() -> None:
    with another() as (process, owner):
        assert owner.pid == process.pid
        assert owner.life() == "lives"
        process.kill()
        deadline = time.monotonic() + PATIENCE_S
        # Nobody waits for it yet: its number is still taken.
        while owner.life() != "gone":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.wait() == -signal.SIGKILL
        assert owner.life() == "gone"
