"""fullchain simulate: the simulated provider as a process of its own, which a run then uses, and its bill."""

import json
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.bill import read_bill
from experiments.cli import main
from tests.experiment_files import rows, scalar, write_spec
from tests.sandbox_tasks import needs_isolation

ROOT = Path(__file__).parent.parent


@needs_isolation
def test_a_served_simulator_plays_a_run_and_keeps_its_own_bill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, bill = str(write_spec(tmp_path)), tmp_path / "bill.jsonl"
    served, inside = tmp_path / "served.duckdb", tmp_path / "inside.duckdb"
    command = [sys.executable, "-m", "experiments.cli", "simulate", "--port", "0", "--bill", str(bill)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None
            first = provider.stdout.readline()
            assert first.startswith("simulated provider at http://127.0.0.1:")
            url = first.split()[3]
            for arguments in (["--db", str(served), "--simulator", url], ["--db", str(inside)]):
                with pytest.raises(SystemExit) as end:
                    main(["run", spec, *arguments])
                assert end.value.code == 0, capsys.readouterr().err
            provider.send_signal(signal.SIGINT)
            _, error = provider.communicate(timeout=30)
        finally:
            provider.kill()
    assert (provider.returncode, error) == (0, "")
    assert rows(served) == rows(inside)
    lines = [json.loads(line) for line in bill.read_text().splitlines()]
    assert {"call", "response", "model", "tokens", "usd"} <= lines[0].keys()
    assert all(line["response"].startswith("chatcmpl") and line["tokens"]["output"] > 0 for line in lines)
    billed = read_bill(bill)
    assert sum((line.usd for line in billed.values()), Decimal(0)) == scalar(served, "SELECT sum(cost_usd) FROM calls")
    assert billed.keys() == {call["key"] for call in rows(served)["calls"]}
