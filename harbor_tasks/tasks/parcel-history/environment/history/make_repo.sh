#!/bin/bash
# Writes the repository's history. Names, dates and contents are fixed, so that every hash is the same everywhere.
set -euo pipefail
repo=$1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 LC_ALL=C TZ=UTC
export GIT_AUTHOR_NAME='Example Dev' GIT_AUTHOR_EMAIL=dev@example.com
export GIT_COMMITTER_NAME='Example Dev' GIT_COMMITTER_EMAIL=dev@example.com
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
umask 022
tick=0

stamp() {
    tick=$((tick + 1))
    GIT_AUTHOR_DATE="$((1704186000 + tick * 5400)) +0000"
    export GIT_AUTHOR_DATE GIT_COMMITTER_DATE="$GIT_AUTHOR_DATE"
}
commit() { stamp; git add -A; git commit -q "${@:2}" -m "$1"; }
change() { sed -i -e "$2" "$1"; }

git init -q -b main "$repo"
cd "$repo"
git config user.name 'Example Dev'
git config user.email dev@example.com
git config core.autocrlf false
git config commit.gpgsign false
git config gc.auto 0
git config maintenance.auto false
git config core.fsync none
git config gc.reflogExpire never
git config gc.reflogExpireUnreachable never

cat >README.md <<'TEXT'
# parcel rates

    python3 quote.py orders.csv            the price of every order, and the total
    python3 quote.py orders.csv ORDER      one order, with the bracket that was used

`prices.csv` has one line for each zone and bracket. A bracket holds every weight up to and including its limit.
TEXT
cat >prices.csv <<'TEXT'
zone,limit_kg,price
A,1,4.20
A,2,5.10
A,5,7.30
A,10,11.00
A,30,18.50
B,1,5.60
B,2,6.70
B,5,9.40
B,10,14.20
B,30,24.00
C,1,9.90
C,2,13.20
C,5,21.00
C,10,34.50
C,30,61.00
TEXT
cat >orders.csv <<'TEXT'
order,zone,weight_kg
1001,A,0.4
1002,B,3.2
1003,C,1.1
1004,A,12
1005,A,2
1006,C,7.75
1007,B,5
1008,B,29.9
TEXT
cat >rates.py <<'TEXT'
"""Price of a parcel by zone and weight."""

import csv
from decimal import Decimal


class NoBracket(ValueError):
    """The parcel is too heavy or the zone is not served."""


def load(path):
    """zone -> list of (limit, price), lightest first."""
    table = {}
    with open(path, newline="") as stream:
        for row in csv.DictReader(stream):
            table.setdefault(row["zone"], []).append((Decimal(row["limit_kg"]), Decimal(row["price"])))
    for brackets in table.values():
        brackets.sort()
    return table


def bracket(table, zone, weight):
    """The (limit, price) that holds `weight`."""
    for limit, price in table.get(zone, []):
        if weight <= limit:
            return limit, price
    raise NoBracket(f"no bracket for {weight} kg in zone {zone}")


def price(table, zone, weight):
    return bracket(table, zone, weight)[1]
TEXT
cat >quote.py <<'TEXT'
"""python3 quote.py ORDERS [ORDER]"""

import csv
import sys
from decimal import Decimal

import rates


def orders(path):
    with open(path, newline="") as stream:
        for row in csv.DictReader(stream):
            yield row["order"], row["zone"], Decimal(row["weight_kg"])


def main(arguments):
    table = rates.load("prices.csv")
    path, wanted = arguments[0], arguments[1:]
    total = Decimal(0)
    for number, zone, weight in orders(path):
        limit, price = rates.bracket(table, zone, weight)
        total += price
        if not wanted:
            print(f"{number} {zone} {weight} kg {price}")
        elif number in wanted:
            print(f"{number} {zone} {weight} kg up to {limit} kg {price}")
    if not wanted:
        print(f"TOTAL {total}")


main(sys.argv[1:])
TEXT
commit 'Rates by zone and weight'

cat >CHANGES.md <<'TEXT'
# Changes

## 1.0
First version.
TEXT
commit 'Start a list of changes'
stamp; git tag v1.0

change orders.csv '$a 1009,C,5\n1010,A,10'
commit 'More sample orders, two of them on a limit'
change quote.py 's/^main(sys.argv\[1:\])$/if __name__ == "__main__":\n    main(sys.argv[1:])/'
commit 'Let quote.py be imported'
change prices.csv 's/^B,5,9.40/B,5,9.60/; s/^B,10,14.20/B,10,14.60/'
change CHANGES.md 's/^# Changes$/# Changes\n\n## 1.2\nNew prices for zone B./'
commit 'New prices for zone B'
stamp; git tag v1.2

# A fault with the same look, made and mended before v1.3.
change rates.py 's/^    for limit, price in table.get(zone, \[\]):$/    weight = weight + Decimal("0.01")  # the scale reads low\n    for limit, price in table.get(zone, []):/'
commit 'Make up for the old scale'
change README.md '$a \\nWeights come from the scale in the depot; see CHANGES.md for its replacement.'
commit 'Say where weights come from'
change rates.py '/the scale reads low/d'
commit 'The new scale is exact: drop the make-up weight'
change CHANGES.md 's/^# Changes$/# Changes\n\n## 1.3\nThe new scale: weights are exact again./'
commit 'Changes of 1.3'
stamp; git tag v1.3

# A branch that is merged later: the culprit sits in its middle.
git checkout -q -b tidy-lookup
change rates.py 's/^    """The (limit, price) that holds `weight`."""$/    """The first (limit, price) of the zone that holds `weight` kilograms."""/'
commit 'Say what bracket() returns'
cat >lookup.tmp <<'TEXT'
    brackets = table.get(zone, [])
    at = bisect.bisect([limit for limit, _ in brackets], weight)
    if at == len(brackets):
        raise NoBracket(f"no bracket for {weight} kg in zone {zone}")
    return brackets[at]
TEXT
change rates.py '/^    for limit, price in table.get/,/^    raise NoBracket/{
/^    raise NoBracket/r lookup.tmp
d
}'
change rates.py 's/^import csv$/import bisect\nimport csv/'
rm lookup.tmp
commit 'Look brackets up by bisection'
change README.md 's/^# parcel rates$/# Parcel rates/'
commit 'Capital letter in the title'

git checkout -q main
change orders.csv '$a 1011,B,0.95\n1012,A,4.99'
commit 'Two more sample orders'
# From here on quote.py does not start, until the missing module comes.
change quote.py 's/^import rates$/import money\nimport rates/; s/^    total = Decimal(0)$/    total = money.ZERO/'
commit 'Count money in its own module'
change CHANGES.md 's/^# Changes$/# Changes\n\n## 1.4\n- Money has its own module./'
commit 'Note the money module'
change orders.csv '$a 1013,C,28.4\n1014,B,1.5'
commit 'Sample orders from the islands'
change README.md 's/^`prices.csv` has one line for each zone and bracket. A bracket/`prices.csv` has one line for each zone and bracket, in dollars. A bracket/'
commit 'Say which currency'
change prices.csv 's/^A,30,18.50/A,30,18.90/'
commit 'Zone A: heaviest bracket'
stamp; git merge -q --no-ff -m "Merge branch 'tidy-lookup'" tidy-lookup >/dev/null
git branch -q -d tidy-lookup
change prices.csv 's/^C,30,61.00/C,30,62.50/'
commit 'Zone C: heaviest bracket'
cat >money.py <<'TEXT'
"""Amounts of money."""

from decimal import Decimal

ZERO = Decimal(0)


def show(amount):
    return f"{amount:.2f}"
TEXT
commit 'Add the money module that was left out'
change quote.py 's/{price}"/{money.show(price)}"/; s/{total}"/{money.show(total)}"/'
commit 'Show money with two places'

# The feature branch that will be lost. Its last commit is amended once.
git checkout -q -b feature/labels
cat >labels.py <<'TEXT'
"""Text of a parcel's label."""


def label(number, zone, weight):
    return f"No. {number}\nZone {zone}\n{weight} kg\n"
TEXT
commit 'Labels: number, zone and weight'
cat >>labels.py <<'TEXT'


RETURN_ADDRESS = "Depot, Harbour Road, Sandwick"


def label_with_return(number, zone, weight):
    return label(number, zone, weight) + f"Return to: {RETURN_ADDRESS}\n"
TEXT
commit 'Labels: print the return address'
change labels.py 's/Depot, Harbour Road, Sandwick/Depot 2, Harbour Road 14, Sandwick/'
change README.md '$a \\nLabels are in labels.py.'
commit 'Labels: print the return address' --amend
git checkout -q main

cat >oversize.tmp <<'TEXT'
    brackets = table.get(zone, [])
    if oversize:
        # Bulky parcels are charged one bracket higher; in the highest one nothing changes.
        weight = max(weight, OVERSIZE_FROM)
    at = bisect.bisect([limit for limit, _ in brackets], weight)
TEXT
change rates.py '/^    brackets = table.get/,/^    at = bisect/{
/^    at = bisect/r oversize.tmp
d
}'
rm oversize.tmp
change rates.py 's/Bulky parcels are charged one bracket higher; in the highest one nothing changes\./A bulky parcel never counts as lighter than this./'
change rates.py 's/^def bracket(table, zone, weight):$/def bracket(table, zone, weight, oversize=False):/'
change rates.py 's/^class NoBracket/OVERSIZE_FROM = Decimal("7.5")\n\n\nclass NoBracket/'
commit 'Oversize parcels'
change quote.py 's/^            yield row\["order"\], row\["zone"\], Decimal(row\["weight_kg"\])$/            yield row["order"], row["zone"], Decimal(row["weight_kg"]), row.get("size") == "bulky"/'
change quote.py 's/for number, zone, weight in/for number, zone, weight, oversize in/; s/rates.bracket(table, zone, weight)/rates.bracket(table, zone, weight, oversize)/'
commit 'Orders may say that a parcel is bulky'
change orders.csv '1s/$/,size/; 2,$s/$/,/; s/^1003,.*/1003,C,1.1,bulky/; s/^1012,.*/1012,A,4.99,bulky/'
commit 'Sample orders with sizes'
change CHANGES.md 's/^- Money has its own module\.$/- Money has its own module.\n- Oversize parcels./'
commit 'Note oversize parcels'
change rates.py 's/^def price(table, zone, weight):$/def price(table, zone, weight, oversize=False):/; s/return bracket(table, zone, weight)\[1\]/return bracket(table, zone, weight, oversize)[1]/'
commit 'price() knows oversize parcels too'
change README.md 's/^`prices.csv` has/Orders have a column `size`; `bulky` parcels never count as lighter than 7.5 kg.\n\n`prices.csv` has/'
commit 'Describe the size column'
stamp; git branch -q -D feature/labels
