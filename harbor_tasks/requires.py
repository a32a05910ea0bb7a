"""What `[metadata] requires` asks for: names of programs or Python modules, with bounds on their versions."""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Sandbox

PROBE_TIMEOUT_S = 60.0

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)(?:\[[^\]]*\])?(?P<bounds>(?:[<>=!~]=?=?[^,<>=!~]+,?)*)"
)
_BOUND = re.compile(r"(?P<op>>=|<=|==|!=|~=|>|<)(?P<version>[0-9]+(?:\.[0-9]+)*)(?:\.\*)?")
_PROBE = r"""
import importlib.metadata, importlib.util, json, platform, re, shutil, subprocess, sys
named = {"coreutils": "sort", "findutils": "find", "diffutils": "cmp", "procps": "ps", "util-linux": "flock",
         "iproute2": "ip", "gnupg": "gpg", "ripgrep": "rg", "xz-utils": "xz", "p7zip": "7z", "openssh-client": "ssh"}
found = {}
for name in sys.argv[1:]:
    program = shutil.which(named.get(name, name))
    if name in ("python", "python3"):
        found[name] = platform.python_version()
    elif program:
        try:
            said = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=5).stdout.decode("utf-8", "replace")
        except (OSError, subprocess.TimeoutExpired):
            said = ""
        version = re.search(r"[0-9]+(\.[0-9]+)+", said)
        found[name] = version.group() if version else ""
    else:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            module = name.replace("-", "_")
            if module.isidentifier() and importlib.util.find_spec(module):
                found[name] = ""
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """`bounds` are (operator, version) pairs that must all hold."""

    name: str
    bounds: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Requirement | None":
        """None when the text is no such requirement (a URL, a path, an option)."""
        match = _REQUIREMENT.fullmatch(re.sub(r"\s*([<>=!~,]+)\s*", r"\1", text.partition(";")[0].strip()))
        if match is None:
            return None
        bounds = []
        for part in filter(None, match["bounds"].split(",")):
            bound = _BOUND.fullmatch(part)
            if bound is None:
                return None
            # "1.4.*" asks for any 1.4, as "~=1.4.0" does.
            op = "~=" if part.endswith(".*") and bound["op"] == "==" else bound["op"]
            version = bound["version"] + (".0" if op == "~=" and bound["op"] == "==" else "")
            bounds.append((op, version))
        return cls(match["name"].lower(), tuple(bounds))

    def accepts(self, version: str) -> bool:
        """Whether the version satisfies every bound; an unknown version ("") satisfies none."""
        return all(_holds(version, op, bound) for op, bound in self.bounds)


async def missing_inside(sandbox: Sandbox, requires: Iterable[str]) -> set[str]:
    """Those that are not inside, or in another version than asked for, or that nobody can read."""
    asked = {text: Requirement.parse(text) for text in requires}
    names = sorted({requirement.name for requirement in asked.values() if requirement is not None})
    said = await sandbox.exec(f"python3 -I -c {shlex.quote(_PROBE)} {shlex.join(names)}", timeout_s=PROBE_TIMEOUT_S)
    try:
        found: dict[str, str] = json.loads(said.text)
    except ValueError as error:
        raise SandboxBroken(f"the sandbox's Python does not run: {said.text.strip()[-200:]}") from error
    return {
        text
        for text, requirement in asked.items()
        if requirement is None or requirement.name not in found or not requirement.accepts(found[requirement.name])
    }


def _holds(version: str, op: str, bound: str) -> bool:
    have, want = _numbers(version), _numbers(bound)
    if not have:
        return False
    width = max(len(have), len(want))
    order = 0
    for left, right in zip_longest(have, want, fillvalue=0):
        if left != right:
            order = 1 if left > right else -1
            break
    if op == "~=":
        prefix = want[: max(1, len(want) - 1)]
        return order >= 0 and (have + [0] * width)[: len(prefix)] == prefix
    return {">=": order >= 0, "<=": order <= 0, "==": order == 0, "!=": order != 0, ">": order > 0, "<": order < 0}[op]


def _numbers(version: str) -> list[int]:
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return [int(part) for part in match.group().split(".")] if match else []
