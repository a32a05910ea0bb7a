"""What runs inside a container before any command does."""

from harbor_tasks.sandbox.docker.settings import SHELLS

OUTPUTS = "/var/lib/fullchain"
"""Inside: a flood of output fills the container's layer, not its memory."""
BASH = ("/bin/bash", "--norc", "--noprofile", "-p", "-c")
"""-p: a task's BASH_ENV may name a file that commands can write, and the driver must not run it."""
LIMITS = ["-c", "0", "-f", str(4 * 1024**2), "-n", "4096"]
"""No core files; 4 GiB a file (bash counts 1024 bytes), so that a flood ends before the disk does."""
CLEAN = f"""
[ -d {OUTPUTS} ] && [ ! -L {OUTPUTS} ] || {{ rm -rf -- {OUTPUTS}; mkdir -m 1777 {OUTPUTS}; }}
find {SHELLS} {OUTPUTS} -mindepth 1 -delete 2>/dev/null
"""
"""Where no other session lives: what an agent has left must not keep the next session from starting."""
BEGIN = f"""
umask 077
mkdir -p -- "$1" && mkdir -p -- {OUTPUTS}/"${{1##*/}}" && ln -sfn -- {OUTPUTS}/"${{1##*/}}" "$1/out" || exit
echo $$ >"$1/pid"
"""
FIRST = f"""
PATH=/usr/sbin:/usr/bin:/sbin:/bin
for program in timeout head stat tar find mktemp chmod mkdir rm mv sleep; do
  command -v $program >/dev/null || {{ echo "it has no $program" >&2; exit 1; }}
done
chmod 1777 {SHELLS} || exit
if [ ! -d {OUTPUTS} ]; then
  umask 022
  mkdir -p -m 1777 {OUTPUTS} && mkdir -p /tests /solution /logs || exit
  mkdir -p -m 777 /logs/agent /logs/verifier /logs/artifacts || exit
  [ "$2" = root ] || chown -R -- "$2" /logs /tests /solution || exit
  [ -d "$1" ] || {{ mkdir -p -- "$1" && {{ [ "$2" = root ] || chown -- "$2" "$1"; }}; }} || exit
fi
echo ready
exec sleep "$3" </dev/null >/dev/null 2>&1
"""
"""What the container begins with, in place of a command that would have to be started in it; again after a restart,
when the folders are there and {SHELLS} is mounted anew."""

COPY_PATHS = """
cd / || exit
list() {
  while IFS= read -r -d '' path; do
    if [ -e "$path" ] || [ -L "$path" ]; then printf '%s\\0' "$path"; fi
  done
  [ $# -eq 0 ] || find "$@" -print0
}
list "$@" | tar --format=pax --hard-dereference --no-recursion --null --verbatim-files-from -T - -cf -
"""
"""Paths relative to the root come by stdin, each with a NUL at its end; the folders that are words go whole."""
