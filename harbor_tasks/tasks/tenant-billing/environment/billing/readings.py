"""Meter readings: the counter's value at the end of a day, in whole cubic metres."""

import csv
import datetime


class ReadingError(ValueError):
    """A readings file or a request that makes no sense."""


class Meter:
    """A counter with `digits` digits. It starts again at zero after its largest value."""

    def __init__(self, name, digits):
        self.name = name
        self.digits = digits
        self.values = {}

    def record(self, day, value):
        if not 0 <= value < 10**self.digits:
            raise ReadingError(f"{self.name}: {value} does not fit {self.digits} digits")
        self.values[day] = value

    def at(self, day):
        """The value on `day`; between two readings it is interpolated and rounded down."""
        if day in self.values:
            return self.values[day]
        before = [known for known in self.values if known < day]
        after = [known for known in self.values if known > day]
        if not before or not after:
            raise ReadingError(f"{self.name}: no reading around {day.isoformat()}")
        left, right = max(before), min(after)
        used = self._step(self.values[left], self.values[right])
        share = used * (day - left).days // (right - left).days
        return (self.values[left] + share) % 10**self.digits

    def used(self, start, end):
        """Cubic metres between two days."""
        return self._step(self.at(start), self.at(end))

    def _step(self, old, new):
        return new - old if new >= old else new + 10**self.digits - old


def load(path):
    """name -> Meter from a CSV file with the columns meter, digits, day, value."""
    meters = {}
    with open(path, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            meter = meters.setdefault(row["meter"], Meter(row["meter"], int(row["digits"])))
            meter.record(datetime.date.fromisoformat(row["day"]), int(row["value"]))
    return meters
