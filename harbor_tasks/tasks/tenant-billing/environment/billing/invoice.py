"""Invoices: what each flat of a house pays for each period."""

import csv
import datetime
from dataclasses import dataclass

from billing import periods, readings, tariff
from billing.split import split


@dataclass(frozen=True)
class House:
    name: str
    meter: str
    tariff: str
    first: datetime.date
    weights: dict


@dataclass(frozen=True)
class Line:
    """One period of one house. `shares` maps each flat to its cents."""

    house: str
    start: datetime.date
    end: datetime.date
    volume: int
    total: int
    shares: dict


def load_houses(path):
    """Houses from a CSV file with the columns house, meter, tariff, first, flats ("A=3;B=2")."""
    houses = []
    with open(path, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            weights = {}
            for part in row["flats"].split(";"):
                flat, _, weight = part.partition("=")
                weights[flat.strip()] = int(weight)
            first = datetime.date.fromisoformat(row["first"])
            houses.append(House(row["house"], row["meter"], row["tariff"], first, weights))
    return houses


def invoice(house, meters, tariffs, count):
    """The lines of the first `count` periods of a house. `tariffs` is the path of the tariff file."""
    lines = []
    for start, end in periods.periods(house.first, count):
        volume = meters[house.meter].used(start, end)
        rate = tariff.load(tariffs, house.tariff)
        total = rate.charge(volume) + rate.standing(periods.days_between(start, end))
        lines.append(Line(house.name, start, end, volume, total, split(total, house.weights)))
    return lines


def run(houses, meters, tariffs, count):
    """The lines of all houses, house after house."""
    lines = []
    for house in houses:
        lines += invoice(house, meters, tariffs, count)
    return lines


def load_all(directory):
    """(houses, meters, path of the tariff file) of a data directory."""
    return (
        load_houses(directory / "houses.csv"),
        readings.load(directory / "readings.csv"),
        directory / "tariffs.json",
    )
