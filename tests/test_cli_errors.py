"""The command line's mistakes: one line on stderr, exit code 2, no traceback."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from experiments.cli import main, served
from experiments.store.journal import journal_folder

SPEC = """\
name: tiny
tasks: [bundled]
arms:
  - name: alone
    topology: solo
    roles: {solo: sim-claude-opus-5-5}
"""


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fullchain: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "topology: solo",
            "topology: sollo",
            "spec.yaml:5: arms[0].topology: topology 'sollo' is unknown: did you mean 'solo'? there are planner_",
        ),
        ("sim-claude-opus-5-5", "sim-claude-opus", "arms[0].roles.solo: unknown model 'sim-claude-opus'; did you mean"),
        ("sim-claude-opus-5-5", "claude-opus-5-5", "set the environment variable ANTHROPIC_API_KEY"),
        ("{solo: ", "{sole: ", "the role 'solo' of topology 'solo' has no model; add `solo: <model name>`"),
        ("{solo: ", "{worker: local, solo: ", "topology 'solo' has no role 'worker'; its roles: solo"),
        ("[bundled]", "[bundled/nope]", "spec.yaml:2: tasks[0]: no bundled task 'nope'; known: "),
        ("[bundled]", "[nowhere]", "spec.yaml:2: tasks[0]: no task directory 'nowhere'"),
        ("[bundled]", "[bundled", "malformed YAML"),
        (
            "{solo: sim-claude-opus-5-5}",
            "{solo: sim-claude-opus-5-5}\n  - {name: alone, topology: solo, roles: {solo: sim-claude-opus-5-5}}",
            "spec.yaml:7: arms[1].name: duplicate arm 'alone'",
        ),
        ("name: tiny", "nam: tiny", "nam: unknown field; did you mean 'name'?"),
        ("sim-claude-opus-5-5}", "sim-claude-opus-5-5}\n    parameters: {rounds: 3}", "arms[0].parameters: "),
        ("solo: sim-claude-opus-5-5", "solo: {model: sim-deepseek-v4-flash, lifetime: 1h}", "has no lifetime '1h'"),
        ("name: tiny", "name: tiny\nmodels: [none.yaml]", "spec.yaml:2: models[0]: "),
        ("name: tiny", "name: tiny\nprices: [none.toml]", "spec.yaml:2: prices[0]: "),
        ("name: tiny", "name: tiny\nmodels: [none.yaml]", "none.yaml: no such models file; give the path of one"),
        ("name: tiny", "name: tiny\nsandbox: host\nmodels: [real.yaml]", "host sandbox isolates nothing"),
        (
            "roles: {solo: sim-claude-opus-5-5}",
            "roles: {solo: sim-claude-opus-5-5}\n  - {name: real, topology: solo, roles: {solo: local}}",
            "arms: mixes simulated models (sim-claude-opus-5-5) with real ones (local)",
        ),
    ],
)
def test_a_wrong_spec_is_refused_before_anything_runs(
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    expected: str,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    text = SPEC.replace(before, after)
    if "real.yaml" in text:
        text = text.replace("sim-claude-opus-5-5", "local")
        (spec.parent / "real.yaml").write_text("models: {}\n")
    spec.write_text(text)
    database = spec.parent / "x.duckdb"
    assert expected in refusal(capsys, "run", str(spec), "--db", str(database))
    assert not database.exists()


def test_a_model_without_a_price_is_refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec.parent / "mine.yaml").write_text(
        "models:\n  mine:\n    {provider: local, protocol: openai_chat, model: mine, base_url: 'http://127.0.0.1:9/v1',"
        " price: nobody-knows-it, cache: none, limits: {max_output_tokens: 99, context_tokens: 999}}\n"
    )
    spec.write_text(SPEC.replace("sim-claude-opus-5-5", "mine") + "models: [mine.yaml]\n")
    assert "no price is known for model 'nobody-knows-it'" in refusal(capsys, "run", str(spec))


def test_a_task_without_tests_is_named(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = spec.parent / "mine"
    (task / "environment").mkdir(parents=True)
    (task / "environment" / "Dockerfile").write_text("FROM debian\n")
    (task / "task.toml").write_text("")
    (task / "instruction.md").write_text("Do it.\n")
    spec.write_text(SPEC.replace("bundled", "mine"))
    assert "spec.yaml:2: tasks[0]: task mine: tests/test.sh is missing" in refusal(capsys, "run", str(spec))
    (task / "task.toml").write_text("[agent\n")
    assert "task.toml is no TOML" in refusal(capsys, "run", str(spec))


def test_the_host_sandbox_is_refused_to_a_served_simulator(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "run", str(spec), "--sandbox", "host", "--simulator", "http://127.0.0.1:1")
    assert "refused to a served simulator" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run"], "Missing argument 'SPEC'"),
        (["run", "no-such-spec"], "no shipped spec of this name; known: context, levers, price-aware, quickstart"),
        (["run", "quickstrat"], "did you mean 'quickstart'?"),
        (["run", "quickstart", "--as", "a/b"], "--as: 'a/b' is no name"),
        (
            ["run", "quickstart", "--sandbox", "dokcer"],
            "--sandbox: 'dokcer' is not known; expected auto, docker, bubblewrap or host",
        ),
        (["run", "quickstart", "--as", "a b"], "beginning with a letter or digit"),
        (["run", "quickstart", "--simulator", "nonsense"], "--simulator"),
        (["run", "quickstart", "--simulator", "http://[bad"], "--simulator: 'http://[bad' is no address"),
        (["run", "quickstart", "--simulator", "http://127.0.0.1:99999"], "is no address"),
        (["run", "quickstart", "--simulator", "http://127.0.0.1:port"], "is no address"),
        (["run", "quickstart", "--simulator", "http://127.0.0.1:1"], "http://127.0.0.1:1 does not answer (Connection"),
        (["run", "x" * 5000], "cannot be read (File name too long)"),
        (["run", "quickstart", "--db", "/proc/x.duckdb"], "/proc/x.duckdb: its folder of journals"),
        (["rnu"], "No such command 'rnu'"),
        (["compare", "x", "--db", "none.duckdb"], "none.duckdb: no such database"),
        (["query", "SELECT 1", "--db", "none.duckdb"], "none.duckdb: no such database"),
        (["show", "abc", "--db", "none.duckdb"], "none.duckdb: no such database"),
        (["topologies", "draw", "star"], "topology 'star' is unknown"),
        (["tasks", "list", "nowhere"], "nowhere: expected a task directory"),
        (["models", "list", "--models", "none.yaml"], "none.yaml: no such models file; give the path of one"),
        (["simulate", "--tasks", "nowhere"], "nowhere: expected a task directory"),
    ],
)
def test_a_wrong_command_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "is no simulator (status 404 for /v1/models)"),
        (b"SSH-2.0-OpenSSH\r\n", "does not answer (SSH-2.0"),
        (b"", "does not answer (timed out)"),
    ],
)
def test_a_server_that_is_no_simulator_is_refused_before_the_first_trial(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: bytes, expected: str
) -> None:
    monkeypatch.setattr(served, "PROBE_S", 5.0 if answer else 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)
                peer.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        said = refusal(capsys, "run", str(spec), "--simulator", address, "--db", str(spec.parent / "x.duckdb"))
        thread.join(timeout=60)
    assert f"--simulator: {address} {expected}" in said
    assert not (spec.parent / "x.duckdb").exists()


def test_a_plan_too_large_to_be_held_is_refused_before_it_is_made(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = "".join(
        f"  - {{name: a{number}, topology: solo, roles: {{solo: sim-claude-opus-5-5}}}}\n" for number in range(120)
    )
    spec.write_text(f"name: tiny\ntasks: [bundled/archive-intake]\nrepeats: 10000\narms:\n{arms}")
    assert "spec.yaml:3: repeats: plans 1,200,000 trials, more than 1,000,000" in refusal(capsys, "run", str(spec))


def test_a_file_in_the_place_of_the_journals_is_named(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = spec.parent / "x.duckdb"
    journals = journal_folder(database)
    journals.write_text("")
    said = refusal(capsys, "run", str(spec), "--db", str(database))
    assert f"{journals}: expected a folder for the journals, found a file; move it away" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode closes a folder to root")
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "quickstart", "--db", "closed/x.duckdb"],
        ["run", "closed/x.yaml"],
        ["query", "SELECT 1", "--db", "closed/x.duckdb"],
        ["compare", "x", "--db", "closed/x.duckdb"],
        ["tasks", "list", "closed"],
    ],
)
def test_a_closed_folder_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    try:
        said = refusal(capsys, *arguments)
    finally:
        closed.chmod(0o755)
    assert "closed" in said
    assert "Permission denied" in said


def test_ctrl_c_before_the_first_trial_is_said(spec: Path) -> None:
    code = (
        "import os, signal, sys\nimport experiments.loading as module\nfrom experiments.cli import main\n"
        "load = module.load\n"
        # A shell's background job starts with SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def interrupted(*given, **named):\n    os.kill(os.getpid(), signal.SIGINT)\n    return load(*given, **named)\n"
        "module.load = interrupted\nmain(sys.argv[1:])"
    )
    database = str(spec.parent / "x.duckdb")
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(spec), "--db", database], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 130
    assert done.stderr == "stopped; run the same command again to go on with what is left\n"


def test_help_imports_nothing_heavy() -> None:
    heavy = "pydantic duckdb langgraph langsmith anthropic openai httpx2 starlette uvicorn genai_prices yaml orjson"
    code = (
        "import sys\nfrom experiments.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join(name for name in {heavy.split()} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "compare" in done.stdout


def test_text_from_strangers_cannot_steer_the_terminal() -> None:
    from experiments.cli.terminal import one_line, plain

    assert plain("a\x1b[2Jb\u202e\u2028c\ttab\n") == "a\\x1b[2Jb\\u202e\\u2028c\ttab\n"
    assert one_line("two\nlines  \r\n here") == "two lines here"
    assert one_line("x" * 20, 5) == "xxxx…"
