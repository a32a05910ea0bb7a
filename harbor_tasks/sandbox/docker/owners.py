"""Which process a container belongs to, and whether that still lives.

A process id alone comes round again, and several machines, or containers on one machine, may share an engine. So the
label names the machine's boot, the process namespace and the process's start as well, where the system tells them.
"""

import os
import re
import socket
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

UNKNOWN = "-"
Life = Literal["lives", "gone", "rebooted", "elsewhere"]
"""`rebooted`: a machine of this one's name, before this machine's last start. `elsewhere`: nobody here can tell."""

_FORM = re.compile(r"([A-Za-z0-9._-]{1,253}) ([1-9][0-9]{0,9}) ([0-9a-f-]{36}|-) ([0-9]{1,20}|-) ([0-9]{1,20}|-)")
_LARGEST = 2**31 - 1
_ENDED = ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class Owner:
    """`boot` is the id of the machine's boot, `space` the number of the process namespace, `born` when the process was
    started, in ticks since the boot; each "-" where the system does not tell. str() gives the label."""

    host: str
    pid: int
    boot: str
    space: str
    born: str

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    def life(self) -> Life:
        here = this_process()
        if self.boot != here.boot:
            return "rebooted" if self.host == here.host and UNKNOWN not in (self.boot, here.boot) else "elsewhere"
        # One boot is one machine, whatever it is called by now.
        if self.space != here.space or (self.boot == UNKNOWN and self.host != here.host):
            return "elsewhere"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            pass
        stat = _stat(self.pid)
        if stat is None or self.born == UNKNOWN:
            return "lives"
        state, born = stat
        return "lives" if born == self.born and state not in _ENDED else "gone"


def this_process() -> Owner:
    host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:253] or "_"
    stat = _stat(os.getpid())
    return Owner(host, os.getpid(), _boot(), _space(), stat[1] if stat else UNKNOWN)


def read(label: object) -> Owner | None:
    """None for anything but what `Owner` writes: whoever can reach the engine can write a label."""
    if not isinstance(label, str) or (found := _FORM.fullmatch(label)) is None:
        return None
    host, pid, boot, space, born = found.groups()
    return Owner(host, int(pid), boot, space, born) if int(pid) <= _LARGEST else None


def _stat(pid: int) -> tuple[str, str] | None:
    """A process's state and when it was started; None where that cannot be read."""
    try:
        # The name may hold blanks and brackets: the fields begin after the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), fields[19].decode()
    except (OSError, IndexError):
        return None


def _boot() -> str:
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN
    return text if re.fullmatch(r"[0-9a-f-]{36}", text) else UNKNOWN


def _space() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return UNKNOWN
