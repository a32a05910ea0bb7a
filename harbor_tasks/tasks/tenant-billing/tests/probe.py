"""Asks the package in /app one batch of questions: a JSON list on stdin, a JSON list of answers on stdout.

It runs in a process of its own, so that the tests beside it never import what they judge.
"""

import datetime
import json
import pathlib
import sys
from decimal import Decimal

sys.path.insert(0, "/app")
sys.dont_write_bytecode = True

from billing import invoice, periods, readings, tariff  # noqa: E402
from billing.split import split  # noqa: E402

made = {}


def plain(tiers):
    return [[size, str(price)] for size, price in tiers]


def day(text):
    return datetime.date.fromisoformat(text)


def lines(houses):
    directory = pathlib.Path("/tests/data")
    every, meters, tariffs = invoice.load_all(directory)
    chosen = [next(house for house in every if house.name == name) for name in houses]
    return [
        [line.house, line.start.isoformat(), line.end.isoformat(), line.volume, line.total, line.shares]
        for line in invoice.run(chosen, meters, tariffs, 12)
    ]


def used(digits, values, start, end):
    meter = readings.Meter("probe", digits)
    for when, value in values:
        meter.record(day(when), value)
    return meter.used(day(start), day(end))


def new_tariff(name, tiers, daily):
    made[name] = tariff.Tariff(name, [[size, Decimal(price)] for size, price in tiers], Decimal(daily))


def load_tariff(name):
    made[name] = tariff.load("/tests/data/tariffs.json", name)


QUESTIONS = {
    "boundaries": lambda first, count: [each.isoformat() for each in periods.boundaries(day(first), count)],
    "periods": lambda first, count: [[a.isoformat(), b.isoformat()] for a, b in periods.periods(day(first), count)],
    "split": split,
    "used": used,
    "new_tariff": new_tariff,
    "load_tariff": load_tariff,
    "charge": lambda name, volume: made[name].charge(volume),
    "standing": lambda name, days: made[name].standing(days),
    "tiers": lambda name: plain(made[name].tiers),
    "run": lines,
}

answers = [QUESTIONS[question](*arguments) for question, arguments in json.load(sys.stdin)]
json.dump(answers, sys.stdout)
