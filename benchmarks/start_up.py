"""How long `fullchain --help` takes, against merely importing typer and rich: the ratio must stay under 1.5.

Pairs are interleaved, so that whatever else the machine does falls on both sides.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS = 25
FLOOR = [sys.executable, "-c", "import typer, rich"]
HELP = [str(Path(sys.executable).with_name("fullchain")), "--help"]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return time.perf_counter() - start


def main() -> None:
    seconds(HELP), seconds(FLOOR)
    pairs = [(seconds(HELP), seconds(FLOOR)) for _ in range(PAIRS)]
    ours, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"fullchain --help      {ours * 1e3:6.0f} ms (median of {PAIRS})")
    print(f"import typer and rich {floor * 1e3:6.0f} ms")
    print(f"ratio                 {ratio:6.2f} (limit 1.50)")
    sys.exit(ratio > 1.5)


if __name__ == "__main__":
    main()
