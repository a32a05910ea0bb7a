"""python3 -m billing DIRECTORY COUNT: prints the invoices of a data directory."""

import pathlib
import sys

from billing.invoice import load_all, run
from billing.money import show


def main(arguments):
    if len(arguments) != 2 or not arguments[1].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    houses, meters, tariffs = load_all(pathlib.Path(arguments[0]))
    for line in run(houses, meters, tariffs, int(arguments[1])):
        print(f"{line.house} {line.start} {line.end} {line.volume} m3 {show(line.total)}")
        for flat in sorted(line.shares):
            print(f"  {flat} {show(line.shares[flat])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
