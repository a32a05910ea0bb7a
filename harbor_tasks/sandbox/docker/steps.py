"""What an image build says, seen from the Dockerfile: which line needs a newer builder, and at which one it failed."""

import re
from typing import Any

from harbor_tasks.dockerfile import Instruction, parse, refused, words
from harbor_tasks.errors import TaskRefused

_STEP = re.compile(r"Step ([0-9]+)/[0-9]+ : ")
_CODE = re.compile(r" returned a non-zero code: ([0-9]+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FLAG = re.compile(r"--[a-z-]+")
_OLD_FLAGS = {"COPY": {"--from", "--chown"}, "ADD": {"--chown"}, "FROM": {"--platform"}, "HEALTHCHECK": None}
_LAST_SAID = 5
"""Lines of a failed command's output that are kept."""


class NeedsBuildKit(TaskRefused):
    """Names the first line that only BuildKit can build."""


def readable(text: str) -> list[Instruction]:
    """The instructions, one for each step of the build.

    Raises NeedsBuildKit for what only that can build: the engine's API builds without it.
    """
    try:
        instructions = parse(text)
    except TaskRefused as error:
        if "with a heredoc" in str(error):
            raise NeedsBuildKit(str(error)) from error
        raise
    for instruction in instructions:
        known = _OLD_FLAGS.get(instruction.op, set())
        if known is None:
            continue
        for word in instruction.value.split():
            flag = _FLAG.match(word)
            if flag is None:
                break
            if flag[0] not in known:
                raise NeedsBuildKit(
                    f"Dockerfile line {instruction.line}: {instruction.op} {flag[0]} needs BuildKit, and the engine's "
                    "API builds without it: install Docker's buildx, do without, or build the image yourself and name "
                    "it in task.toml environment.docker_image"
                )
    return instructions


def bases(instructions: list[Instruction]) -> list[str]:
    """The images that a build begins from, but those that it makes itself."""
    arguments: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    found: list[str] = []
    for instruction in instructions:
        if instruction.op == "ARG":
            for pair in words(instruction.value, arguments, instruction.line):
                name, equals, text = pair.partition("=")
                if equals:
                    arguments[name] = text
        elif instruction.op == "FROM":
            named = [
                word for word in words(instruction.value, arguments, instruction.line) if not word.startswith("--")
            ]
            if named and named[0] not in (*stages, *found):
                found.append(named[0])
            if len(named) == 3:
                stages.add(named[2])
    return found


class Steps:
    """Follows the messages of one build."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self._instructions = instructions
        self._at = 0
        self._said: list[str] = []
        self._error: str | None = None

    def heard(self, message: dict[str, Any]) -> None:
        if "error" in message:
            self._error = " ".join(str(message["error"]).split())
        text = _COLOUR.sub("", str(message.get("stream", "")))
        if step := _STEP.match(text):
            self._at, self._said = int(step[1]), []
        elif lines := [line.strip() for line in text.splitlines() if line.strip()]:
            # The builder's own remarks begin so ("---> Running in ...", "Removing intermediate container ...").
            said = [line for line in lines if not line.startswith(("--->", "Removing intermediate"))]
            self._said = (self._said + said)[-_LAST_SAID:]

    def refusal(self, reason: str | None = None) -> TaskRefused | None:
        """None where nothing has failed. `reason` is what stopped the build from outside."""
        what = reason or self._error
        if what is None:
            return None
        if (code := _CODE.search(what)) is not None:
            what = f"RUN ended with {code[1]}" + (f": {self._said[-1]}" if self._said else "")
        what = re.sub(r"[^ -~]", "?", what)[:400]
        if 0 < self._at <= len(self._instructions):
            return refused(self._instructions[self._at - 1].line, what)
        return TaskRefused(f"the image cannot be built: {what}")
