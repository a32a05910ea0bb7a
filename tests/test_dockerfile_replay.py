"""What a sandbox makes of a Dockerfile: refused before anything runs, or carried out as Docker would."""

import tarfile
from pathlib import Path

import pytest

from harbor_tasks.dockerfile import TEXT_LIMIT
from harbor_tasks.errors import TaskRefused
from harbor_tasks.sandbox.packages import installs
from harbor_tasks.sandbox.plan import Run
from harbor_tasks.sandbox.planning import plan
from tests.sandbox_tasks import bubblewrap, write_task

REQUIRES = '[metadata]\nrequires = ["python>=3.9", "git", "numpy"]\n[environment]\nnetwork_mode = "no-network"\n'


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM a\nFROM b\n", "line 2: a second FROM"),
        ("FROM a\nVOLUME /data\n", "line 2: VOLUME is not supported"),
        ('FROM a\nSHELL ["bash"]\n', "line 2: SHELL is not supported"),
        ("FROM a\nONBUILD RUN x\n", "line 2: ONBUILD is not supported"),
        ("FROM a\nCOPY --from=x /a /b\n", "line 2: COPY --from=x is not supported"),
        ("FROM a\nRUN --mount=type=cache,target=/x make\n", "line 2: RUN --mount=type=cache,target=/x is not"),
        ("FROM a\nADD https://example.org/x /app/\n", "line 2: ADD of https://example.org/x: nothing is fetched"),
        ("FROM a\nCOPY ../secret /app/\n", "line 2: COPY of ../secret: it leads out of environment/"),
        ("FROM a\nCOPY a/../../x /app/\n", "line 2: COPY of .*leads out"),
        ("FROM a\nCOPY link /app/\n", "line 2: COPY of link: it leads out of environment/"),
        ("FROM a\nCOPY none /app/\n", "line 2: COPY of none: no such file"),
        ("FROM a\nCOPY *.none /app/\n", "line 2: COPY of .*: no such file"),
        ("FROM a\nCOPY file.txt /etc/x\n", "line 2: /etc/x belongs to the system"),
        ("FROM a\nCOPY file.txt /\n", "line 2: / belongs to the system"),
        ("FROM a\nWORKDIR /usr/src/app\n", "line 2: /usr/src/app belongs to the system"),
        ("FROM a\nCOPY file.txt\n", "line 2: COPY takes sources and a target"),
        ("FROM a\nENV oops\nENV 1=2\n", "line 3: ENV takes NAME=value"),
        ("FROM a\n\nRUN apt-get update && apt-get install -y git curl\n", "line 3: it installs curl, which task.toml"),
        ("FROM a\nRUN pip install numpy requests==2.0\n", "line 2: it installs requests==2.0"),
        ("FROM a\nRUN apk add --no-cache bash\n", "line 2: it installs bash"),
        ("FROM a\nRUN pip install -r /none.txt\n", "line 2: pip install -r /none.txt: not a file that a COPY"),
        ("FROM a\nCOPY req.txt .\nRUN pip install -r req.txt\n", "line 3: it installs flask>=1"),
        ("FROM a\nRUN pip install git+https://example.org/x\n", "line 2: it installs git[+]https"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_anything_runs(dockerfile: str, reason: str, tmp_path: Path) -> None:
    files = {"file.txt": "x", "req.txt": "numpy  # fine\nflask>=1 \\\n  --hash=sha256:00\n"}
    (tmp_path / "secret").write_text("x")
    task = write_task(tmp_path, dockerfile, toml=REQUIRES, files=files)
    (task.path / "environment" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(TaskRefused, match=f"task task-under-test: Dockerfile {reason}"):
        plan(task)


@pytest.mark.parametrize(
    "command",
    [
        "apt-get install -y git >/dev/null 2>&1 && rm -rf /var/lib/apt/lists/*",
        "apt-get update > /dev/null 2> /dev/null && apt-get install -y git 1>&2",
        "apt-get install -y git &>/dev/null; pip install 'numpy>=1.0' >>/tmp/log",
        'pip install numpy"> 1" 2>|/tmp/log </dev/null',
    ],
)
def test_redirections_do_not_hide_that_a_line_only_installs(command: str) -> None:
    found = installs(command)
    assert found.rest == ""
    assert {name[:5] for name in found.packages} <= {"git", "numpy"}
    assert found.packages


@pytest.mark.parametrize(
    "command", ["apt-get install git & make", "apt-get install git 2>&1 & make", "apt-get x |& cat"]
)
def test_a_line_with_a_background_job_stays_whole(command: str) -> None:
    assert installs(command).rest == command
    assert installs(command).packages == ()


def test_redirections_of_other_commands_stay() -> None:
    found = installs("apt-get install -y git >/dev/null 2>&1 && echo 'a && b' >/app/x 2>&1 && make 2>&1")
    assert found.rest == " : && echo 'a && b' >/app/x 2>&1 && make 2>&1"
    assert found.packages == ("git",)


def test_fields_of_task_toml_that_cannot_be_honoured_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskRefused, match=r"not supported: environment.gpus: 2 GPUs"):
        plan(write_task(tmp_path, toml="[environment]\ngpus = 2\n"))
    (tmp_path / "other").mkdir()
    with pytest.raises(TaskRefused, match=r"task.toml environment.workdir: /proc/x belongs to the system"):
        plan(write_task(tmp_path / "other", toml='[environment]\nworkdir = "/proc/x"\n'))


@pytest.mark.parametrize(
    ("command", "rest", "packages"),
    [
        ("apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/x", "", ["git"]),
        ("DEBIAN_FRONTEND=x apt-get -qq install -o X=y git=1:2.39* python3-y", "", ["git=1:2.39*", "python3-y"]),
        ("set -eux; apt-get update; apt-get install git; apt-get clean", "", ["git"]),
        ("apt-get update && apt-get install -y git && mkdir -p /data", " :  &&  :  && mkdir -p /data", ["git"]),
        ("python3 -m pip install --no-cache-dir -U 'numpy>=1.2'", "", ["numpy>=1.2"]),
        ("apk add --no-cache git bash", "", ["git", "bash"]),
        ("rm -rf /app/x", "rm -rf /app/x", []),
        ("apt-get install git || true", "apt-get install git || true", []),
        ("if true; then apt-get install git; fi", "if true; then apt-get install git; fi", []),
        ("echo $(apt-get install git)", "echo $(apt-get install git)", []),
        ("echo 'a && apt-get install x'; true", "echo 'a && apt-get install x'; true", []),
        ("apt-get source git", "apt-get source git", []),
    ],
)  # fmt: skip
def test_package_commands_are_taken_out_of_plain_chains_only(command: str, rest: str, packages: list[str]) -> None:
    found = installs(command)
    assert list(found.packages) == packages
    assert " ".join(found.rest.split()) == " ".join(rest.split())


def test_installing_declared_requirements_leaves_nothing_to_run(tmp_path: Path) -> None:
    dockerfile = (
        "FROM a\nRUN apt-get update && apt-get install -y python3 git python3-numpy\n"
        'RUN ["pip", "install", "numpy>=1.20"]\nCOPY req.txt /srv/\nRUN pip install -r /srv/req.txt\n'
    )
    planned = plan(write_task(tmp_path, dockerfile, toml=REQUIRES, files={"req.txt": "numpy<99\n"}))
    assert not any(isinstance(step, Run) for step in planned.steps)
    assert [(line, package) for line, package, _ in planned.pins] == [(3, "numpy>=1.20"), (5, "numpy<99")]


async def test_a_version_that_is_not_inside_is_refused_by_its_line(tmp_path: Path) -> None:
    task = write_task(tmp_path, "FROM a\nRUN pip install numpy==0.1\n", toml=REQUIRES)
    backend = await bubblewrap()
    reason = "task task-under-test: Dockerfile line 2: it installs numpy==0.1: the sandbox has another version or none"
    with pytest.raises(TaskRefused, match=reason):
        async with backend.start(task):
            pass


DOCKERFILE = r"""
FROM debian:12
ARG WHO=world NONE
ENV GREETING="hello $WHO" DATA=/data
ENV OLD two  words
ENV PATH=/app/bin:$PATH
WORKDIR /app/src
WORKDIR ../work
USER root
COPY file.txt copied.txt
COPY file.txt /srv
COPY file.txt dir/ ./
COPY --chmod=755 run.sh /app/bin/run-it
ENV SPACED=spaced
COPY ["a b.txt", "\\$literal.txt", "$SPACED/"]
COPY glob-*.txt globs/
COPY dir $DATA/dir
ADD archive.tar.gz unpacked/
RUN mkdir -p /workspace/deep && echo "one\ntwo" > /workspace/deep/lines && echo $WHO > /app/who
RUN ["/bin/sh", "-c", "echo '$GREETING' > exec-form"]
RUN pwd > where; run-it > ran
EXPOSE 80
LABEL a=b
HEALTHCHECK CMD true
CMD ["sleep", "infinity"]
ENTRYPOINT ["x"]
STOPSIGNAL 9
"""


async def test_a_dockerfile_is_carried_out_and_its_env_reaches_commands(tmp_path: Path) -> None:
    files = {
        "file.txt": "file\n",
        "dir/inner/f": "inner\n",
        "run.sh": "#!/bin/sh\necho ran $GREETING\n",
        "a b.txt": "blank\n",
        "$literal.txt": "dollar\n",
        "glob-1.txt": "1\n",
        "glob-2.txt": "2\n",
    }
    task = write_task(tmp_path, DOCKERFILE, files=files)
    with tarfile.open(task.path / "environment" / "archive.tar.gz", "w:gz") as tar:
        tar.add(task.path / "environment" / "file.txt", "from-archive")
    (task.path / "environment" / "dir" / "link").symlink_to("inner/f")
    async with (await bubblewrap()).start(task) as sandbox:
        assert sandbox.workdir == "/app/work"
        assert sandbox.notes == ("HEALTHCHECK not run",)
        said = await sandbox.exec(
            "pwd; cat copied.txt /srv/file.txt file.txt inner/f; stat -c %a /app/bin/run-it; cat 'spaced/a b.txt' "
            "'spaced/$literal.txt' globs/*; cat /data/dir/link unpacked/from-archive; "
            "cat /workspace/deep/lines /app/who; "
            'cat exec-form where ran; echo "$GREETING|$OLD|$DATA|${WHO-unset}"; run-it',
            timeout_s=20,
        )
        shell = await sandbox.shell()
        in_shell = await shell.run("pwd; run-it; command -v python3", timeout_s=20)
        await shell.close()
    assert said.text.splitlines() == [
        *("/app/work", "file", "file", "file", "inner", "755", "blank", "dollar", "1", "2", "inner", "file", "one"),
        *("two", "world", "$GREETING", "/app/work", "ran hello world", "hello world|two words|/data|unset"),
        "ran hello world",
    ]
    assert in_shell.text == "/app/work\nran hello world\n/run/python/bin/python3\n"


async def test_a_run_that_fails_is_refused_with_its_line_and_last_words(tmp_path: Path) -> None:
    backend = await bubblewrap()
    task = write_task(tmp_path, "FROM a\nRUN true\nRUN echo why >&2; curl -sS https://example.org/x | sh -e; false\n")
    with pytest.raises(TaskRefused, match=r"task task-under-test: Dockerfile line 3: RUN ended with 1 here, .*: "):
        async with backend.start(task):
            pass


async def test_workdir_of_task_toml_goes_before_the_dockerfiles(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nworkdir = "/elsewhere/deep"\nenv = { A = "${NONE:-dflt}" }\n'
    async with (await bubblewrap()).start(write_task(tmp_path, "FROM a\nWORKDIR /app/x\n", toml=toml)) as sandbox:
        said = await sandbox.exec("pwd; echo $A; ls -d /app/x; touch f && ls", timeout_s=20)
    assert said.text == "/elsewhere/deep\ndflt\n/app/x\nf\n"


@pytest.mark.parametrize("content", [b"# only\nsecret\n", b"# only\n\xff\n"])
def test_a_dockerignore_is_refused_rather_than_misread(content: bytes, tmp_path: Path) -> None:
    task = write_task(tmp_path, "FROM a\nCOPY . /app/\n", files={"file.txt": "x"})
    (task.path / "environment" / ".dockerignore").write_bytes(content)
    with pytest.raises(TaskRefused, match=r"line 2: COPY under a .dockerignore is not supported"):
        plan(task)


@pytest.mark.parametrize("name", ["Dockerfile", "req.txt", ".dockerignore"])
def test_a_file_too_large_to_be_read_is_refused_by_name(name: str, tmp_path: Path) -> None:
    task = write_task(tmp_path, "FROM a\nCOPY req.txt .\nRUN pip install -r req.txt\n", files={"req.txt": ""})
    with (task.path / "environment" / name).open("a") as file:
        file.write("\n" * (TEXT_LIMIT + 1))
    with pytest.raises(TaskRefused, match=f"task task-under-test: {name} is larger than 1,048,576 characters"):
        plan(task)


async def test_later_trials_get_what_the_first_one_built_and_nothing_of_what_it_did_after(tmp_path: Path) -> None:
    dockerfile = (
        "FROM a\nWORKDIR /app\nRUN date +%s%N >built; mkdir 'a b'; ln 'built' hard; ln -s built soft; chmod 640 hard; "
        "touch -d '2001-02-03 04:05:06.789' old; mkfifo pipe; mkdir mine; touch mine/in; chmod 2700 mine\n"
    )
    task = write_task(tmp_path, dockerfile)
    backend = await bubblewrap()
    look = "cat built; stat -c '%n %F %a %h %y' /app/* /app/mine/* /tmp /root; ls -A /app /tmp /logs /var"
    async with backend.start(task) as first:
        seen = (await first.exec(look, timeout_s=20)).text
        await first.exec("echo spoilt >/app/built; touch /app/new /tmp/new", timeout_s=20)
    async with backend.start(task) as one, backend.start(task) as other:
        for sandbox in (one, other):
            assert (await sandbox.exec(look, timeout_s=20)).text == seen
    assert "789" in seen


@pytest.mark.parametrize("shut", ["touch x; chmod 000 x", "mkdir x; touch x/in; chmod 500 x", "mkdir x; chmod 000 x"])
async def test_what_cannot_be_packed_is_built_each_time(shut: str, tmp_path: Path) -> None:
    task = write_task(tmp_path, f"FROM a\nWORKDIR /app\nRUN date +%s%N >built; {shut}\n")
    backend = await bubblewrap()
    built, modes = set[str](), set[str]()
    for _ in range(2):
        async with backend.start(task) as sandbox:
            said = (await sandbox.exec("cat built; stat -c %a x", timeout_s=20)).text.split()
            built.add(said[0])
            modes.add(said[1])
    assert len(built) == 2
    assert modes <= {"0", "500"}
    assert len(modes) == 1
