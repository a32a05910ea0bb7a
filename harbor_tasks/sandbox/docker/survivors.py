"""Which processes are in a container, and how those of a session are ended from inside it."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import APIClient

END = r"""
exec 2>/dev/null
shopt -s extglob
# Without a folder everything goes but the container's own two: the init, and its first child, whose number is the
# lowest (numbers that come round again begin higher). With one, what its driver started: by descent or session.
driver=
[ -z "$1" ] || read -r driver <"$1/pid" || exit 1
declare -A found=()
[ -z "$driver" ] || found[$driver]=1
first=
for path in /proc/+([0-9]); do
  pid=${path#/proc/}
  [ "$pid" -le 1 ] || { [ -n "$first" ] && [ "$pid" -ge "$first" ]; } || first=$pid
done
for _ in {1..100}; do
  left=
  for path in /proc/+([0-9]); do
    pid=${path#/proc/}
    case $pid in 1|$$|$first) continue ;; esac
    # The name may hold blanks and brackets: the numbers begin after the last bracket.
    line=
    IFS= read -r -d '' line <"$path/stat"
    fields=(${line##*) })
    state=${fields[0]} parent=${fields[1]} session=${fields[3]}
    case $state in ''|Z|X) continue ;; esac
    if [ -n "$driver" ]; then
      [ -n "${found[$pid]}" ] || [ -n "${found[$parent]}" ] || [ "$session" = "$driver" ] || continue
      found[$pid]=1
    fi
    kill -KILL "$pid" && left=1
  done
  [ -n "$left" ] || exit 0
done
exit 1
"""
"""A script for bash, of nothing but what is built in: where processes have run out it can start none."""


_ENDING_S = 3.0
"""Of a container that is just ending the engine tells what it met with on the way (500), and then that it has (409)."""


def processes(api: "APIClient", container: str) -> dict[str, str]:
    """All processes in a container: their numbers on the engine's machine, and their words. Blocks."""
    from docker.errors import APIError

    deadline = time.monotonic() + _ENDING_S
    while True:
        try:
            top = api.top(container)
            break
        except APIError as error:
            if error.status_code == 409:
                return {}
            if error.status_code != 500 or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
    number, words = (top["Titles"].index(column) for column in ("PID", "CMD"))
    return {row[number]: row[words] for row in top["Processes"] or ()}
