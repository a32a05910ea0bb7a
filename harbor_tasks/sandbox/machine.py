"""What every sandbox does alike, over one question that each backend answers: how a process starts in it."""

import asyncio
import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import OUTPUT_LIMIT, Output
from harbor_tasks.sandbox.archive import SIZE_LIMIT, pack, unpack
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.session import Conversation, Launched, Session

FILES_TIMEOUT_S = 300.0
"""For one upload, download or read."""

_ABSENT = 44
_BASH = ("/bin/bash", "--norc", "--noprofile", "-c")
# A folder in the way may have lost its permissions, and no capability overrides that inside.
_INTO_DIRECTORY = """
if [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then rm -rf -- "$1" || exit; fi
mkdir -p -- "$1" || exit
if [ "$2" = replace ]; then
  find "$1" -mindepth 1 -delete 2>/dev/null || { chmod -R u+rwx -- "$1"; find "$1" -mindepth 1 -delete || exit; }
fi
exec tar -C "$1" --no-same-owner --keep-directory-symlink -xpf -
"""
_INTO_FILE = """
rm -rf -- "$1/$2" 2>/dev/null || { chmod -R u+rwx -- "$1/$2"; rm -rf -- "$1/$2" || exit; }
mkdir -p -- "$1" || exit
exec tar -C "$1" --no-same-owner -xpf -
"""
_AT_OR_INTO = """
if [ -d "$1" ]; then to=${1%/}/$2; else mkdir -p -- "$(dirname -- "$1")" || exit; to=$1; fi
new=$(mktemp -d) && tar -C "$new" --no-same-owner -xpf - && mv -fT -- "$new/$2" "$to" && rm -rf -- "$new"
"""
_EXTRACT = 'mkdir -p -- "$1" && exec tar -C "$1" --no-same-owner -x${2}pf -'
_COMPRESSED = {".gz": "z", ".tgz": "z", ".bz2": "j", ".tbz2": "j", ".xz": "J", ".txz": "J"}
_OUT = f"""
if [ -L "$1" ]; then exit {_ABSENT}; fi
if [ -d "$1" ]; then exec tar -C "$1" --hard-dereference -cf - .; fi
if [ -f "$1" ]; then exec tar -C "$(dirname -- "$1")" --hard-dereference -cf - -- "$(basename -- "$1")"; fi
exit {_ABSENT}
"""
# tar takes uid 0 for almighty and would fail to fill a directory that even its owner may not write.
_SAVE = """
cd / && [ -z "$(find "$@" -type d ! -perm -700 -print -quit 2>&1)" ] && exec tar --format=pax -cf - -- "$@"
"""
_RESTORE = "exec tar -C / --no-same-owner -xpf -"
# Whoever looks at its files must not find that they were read. (Of a symbolic link no system can hide it.)
_COPY = """
cd / && exec tar --format=pax --atime-preserve=system --hard-dereference -cf - -- "$@"
"""
_NO_NEWS = "due to previous errors"
"""How tar's last line ends, whatever went wrong."""
_ERRORS = 4096
"""Bytes of a script's stderr that are read."""
_CHANGED_MEANWHILE = 1
"""tar's exit code for files that changed or went while they were read: those of processes that still run."""
# Read from a stream: there may be more paths than a command takes words.
_EMPTY = """
while IFS= read -r -d '' path; do
  case $path in
    e*)
      cd "/${path#e}" || continue
      find . -mindepth 1 -delete 2>/dev/null || { chmod -R u+rwx . && find . -mindepth 1 -delete || exit; }
      ;;
    r*) rm -rf -- "/${path#r}" || exit ;;
  esac
done
"""
_LAY = 'cd / && exec tar "$@" -xpf -'
_READ = """
while [ $# -gt 0 ]; do
  size=-1
  if [ -f "$1" ] && [ ! -L "$1" ]; then
    size=$(stat -c %s -- "$1") || exit
    [ "$size" -le "$2" ] || size=$2
  fi
  printf '%s\n' "$size"
  [ "$size" -le 0 ] || head -c "$size" -- "$1" || exit
  shift 2
done
"""


class Running(Launched, Protocol):
    """A program whose outputs are piped."""

    @property
    def stdout(self) -> asyncio.StreamReader: ...

    @property
    def stderr(self) -> asyncio.StreamReader: ...

    async def wait(self) -> int:
        """Its exit code. Both outputs must have been read to their ends."""


class Machine(ABC):
    """A `Sandbox`. `env` is what every command starts with; a Dockerfile's ENV adds to it."""

    backend: str
    outputs = "/tmp/fullchain-output"  # noqa: S108 (inside)
    """Where its shells keep long outputs, as seen inside."""
    _owning: tuple[str, ...] = ("--no-same-owner",)
    """How tar gives files to their owners where a copy is laid in."""

    def __init__(self, workdir: str, env: Mapping[str, str]) -> None:
        self.workdir = workdir
        self.env = dict(env)
        self.notes: tuple[str, ...] = ()
        self._sessions: set[Session] = set()

    @abstractmethod
    async def _converse(self, env: Mapping[str, str], user: str | None) -> Conversation:
        """Starts a driver (`driver_words`) in the sandbox, with this environment, as this user or the sandbox's own."""

    @abstractmethod
    async def _run(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> Running:
        """Starts a program of ours in the sandbox, its outputs piped, its input a file from where it stands."""

    async def _run_as_root(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> Running:
        """The same as root inside, who is the one user where there is no other."""
        return await self._run(argv, env=env, stdin=stdin)

    async def shell(self, env: Mapping[str, str] | None = None, user: str | None = None) -> Session:
        return await self._open(self.workdir, env or {}, user, keep=self.outputs)

    async def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Output:
        session = await self._open(cwd or self.workdir, env or {}, user)
        try:
            return await session.run(command, timeout_s=timeout_s)
        finally:
            await self._end(session)

    async def upload(self, source: Path, target: str) -> None:
        if await asyncio.to_thread(source.is_dir):
            await self._bring([(source, ".")], _INTO_DIRECTORY, target, "replace")
        else:
            folder, _, name = target.rpartition("/")
            await self._bring([(source, name)], _INTO_FILE, folder or "/", name)

    async def add(self, entries: Sequence[tuple[Path, str]], target: str, *, mode: int | None = None) -> None:
        """Puts files and directories, each under its name, into the directory `target`, over what stands there."""
        await self._bring(entries, _INTO_DIRECTORY, target, "add", mode=mode)

    async def put(self, source: Path, target: str, *, mode: int | None = None) -> None:
        """Puts one file at `target`, or into it when a directory stands there."""
        await self._bring([(source, source.name)], _AT_OR_INTO, target, source.name, mode=mode)

    async def extract(self, archive: Path, target: str) -> None:
        """Unpacks a tar, compressed or not, into the directory `target`."""
        with archive.open("rb") as stream:
            await self._files(_EXTRACT, target, _COMPRESSED.get(archive.suffix, ""), stdin=stream)

    async def save(self, folders: Sequence[str], stream: IO[bytes]) -> None:
        """Packs the folders at the root, whole, into `stream`. Raises SandboxBroken when that cannot be done."""
        code, said = await self._tool(_SAVE, *folders, output=stream, limit=SIZE_LIMIT)
        if code != 0:
            raise SandboxBroken(f"the folders cannot be packed: {said}")

    async def restore(self, stream: IO[bytes]) -> None:
        """Unpacks what `save` packed. The stream can be restored any number of times, also at once."""
        # Another opening has a position of its own.
        with open(f"/proc/self/fd/{stream.fileno()}", "rb") as own:  # noqa: ASYNC230
            await self._files(_RESTORE, "/", stdin=own)

    async def copy(self, folders: Sequence[str], stream: IO[bytes]) -> None:
        """Packs folders at the root into `stream`, rewound, as they are while others work in them; nobody inside can
        tell. Raises SandboxBroken when a file cannot be read."""
        code, said = await self._tool(_COPY, *folders, output=stream, limit=SIZE_LIMIT)
        if code not in (0, _CHANGED_MEANWHILE):
            raise SandboxBroken(f"its files cannot be copied, perhaps for their own permissions: {said}")

    async def lay(self, files: CopiedFiles, layout: Layout) -> None:
        """Makes this sandbox, which must be a fresh one of the task, hold the files in place of its own."""
        with tempfile.TemporaryFile() as cleared, tempfile.TemporaryFile() as stream:
            words = [*(f"e{path}" for path in layout.emptied), *(f"r{path}" for path in layout.removed)]
            cleared.write(b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words))
            cleared.seek(0)
            await self._files(_EMPTY, "/", stdin=cleared, as_root=True)
            await asyncio.to_thread(files.write, stream)
            await self._files(_LAY, *self._owning, stdin=stream, as_root=True)

    async def download(self, source: str, target: Path) -> None:
        with tempfile.TemporaryFile() as stream:
            code, said = await self._tool(_OUT, source, output=stream, limit=SIZE_LIMIT)
            if code == _ABSENT or not await asyncio.to_thread(unpack, stream, target):
                raise FileNotFoundError(f"{source}: neither a regular file nor a directory in the sandbox {said}")

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes | None:
        return (await self.read_all({path: limit}))[0]

    async def read_all(self, limits: Mapping[str, int]) -> tuple[bytes | None, ...]:
        words = [word for path, limit in limits.items() for word in (path, str(limit))]
        room = sum(limits.values()) + 32 * len(limits)
        with tempfile.TemporaryFile() as stream:
            code, said = await self._tool(_READ, *words, output=stream, limit=room)
            if code != 0:
                raise SandboxBroken(f"{', '.join(limits)} cannot be read: {said}")
            return tuple(_one_read(stream, path, limit) for path, limit in limits.items())

    async def close(self) -> None:
        """Ends every session. Each backend then removes what the sandbox wrote."""
        for session in list(self._sessions):
            await self._end(session)

    async def _end(self, session: Session) -> None:
        self._sessions.discard(session)
        # Whoever cancels us goes on to remove the folders: no process may be left in them then.
        await to_its_end(session.close())

    async def _open(self, cwd: str, env: Mapping[str, str], user: str | None, *, keep: str = "") -> Session:
        told = {"FULLCHAIN_CWD": cwd, "FULLCHAIN_KEEP": keep}
        launched, reader, writer = await self._converse({**self.env, **env, **told}, user)
        session = Session(launched, reader, writer, keep)
        self._sessions.add(session)
        try:
            await session.begin()
        except BaseException:
            await self._end(session)
            raise
        return session

    async def _bring(
        self, entries: Sequence[tuple[Path, str]], script: str, *arguments: str, mode: int | None = None
    ) -> None:
        with await asyncio.to_thread(pack, entries, mode) as stream:
            await self._files(script, *arguments, stdin=stream)

    async def _files(self, script: str, *arguments: str, stdin: IO[bytes], as_root: bool = False) -> None:
        with tempfile.TemporaryFile() as output:
            code, said = await self._tool(
                script, *arguments, stdin=stdin, output=output, limit=OUTPUT_LIMIT, as_root=as_root
            )
        if code != 0:
            raise SandboxBroken(f"files cannot be put at {arguments[0]}: {said or f'exit code {code}'}")

    async def _tool(
        self,
        script: str,
        *arguments: str,
        stdin: IO[bytes] | None = None,
        output: IO[bytes],
        limit: int,
        as_root: bool = False,
    ) -> tuple[int, str]:
        """Runs a script of ours inside, its output into `output`, rewound. Returns the exit code and its last words.

        Raises SandboxBroken when it prints more than `limit` bytes or does not end.
        """
        run = self._run_as_root if as_root else self._run
        running = await run(
            [*_BASH, script, "files", *arguments], env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, stdin=stdin
        )
        errors = asyncio.ensure_future(_head(running.stderr, _ERRORS))
        try:
            async with asyncio.timeout(FILES_TIMEOUT_S):
                total = 0
                while data := await running.stdout.read(1 << 18):
                    total += len(data)
                    if total > limit + 1024:
                        raise SandboxBroken(f"{arguments[0]}: more than {limit} bytes to bring out")
                    output.write(data)
                said = (await errors).decode("utf-8", errors="replace").strip().splitlines()
                code = await running.wait()
        except TimeoutError:
            raise SandboxBroken(f"{arguments[0]}: files took longer than {FILES_TIMEOUT_S:.0f} s") from None
        finally:
            errors.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await errors
            await running.kill()
        output.seek(0)
        told = [line for line in said if not line.endswith(_NO_NEWS)]
        return code, told[-1] if told else ""


async def _head(stream: asyncio.StreamReader, most: int) -> bytes:
    """Up to its end: one line may come in several pieces."""
    found = b""
    while len(found) < most and (data := await stream.read(most - len(found))):
        found += data
    return found


def _one_read(stream: IO[bytes], path: str, limit: int) -> bytes | None:
    """Bounded, and whole: whatever answers in the script's place must not pass half a file off as one."""
    told = stream.readline(32)
    try:
        size = int(told)
    except ValueError:
        size = limit + 1
    if size == -1:
        return None
    data = stream.read(size) if 0 <= size <= limit else b""
    if len(data) != size:
        raise SandboxBroken(f"{path} cannot be read: it changed while it was")
    return data


async def to_its_end(clean_up: Awaitable[None]) -> None:
    """Awaits it whole even where the caller is cancelled meanwhile; the cancellation comes out afterwards."""
    running = asyncio.ensure_future(clean_up)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await running
        raise
