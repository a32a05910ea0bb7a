"""Tariffs: tiers of cubic metres, each with its own price, and a standing charge for each day."""

import json
from decimal import Decimal

from billing.money import cents

_loaded = {}


class Tariff:
    """`tiers` is a list of [cubic metres, price]; the last tier has no size (None) and takes the rest."""

    def __init__(self, name, tiers, daily):
        self.name = name
        self.tiers = tiers
        self.daily = daily

    def charge(self, volume):
        """Cents for `volume` cubic metres of one period: the cheapest tier fills first. Rounded once, at the end."""
        total = Decimal(0)
        for tier in self.tiers:
            size, price = tier
            taken = volume if size is None else min(volume, size)
            total += taken * price
            volume -= taken
            if size is not None:
                tier[0] = size - taken
            if volume == 0:
                break
        return cents(total)

    def standing(self, days):
        """Cents for `days` days."""
        return cents(self.daily * days)


def load(path, name):
    """The tariff `name` of a JSON file. Files are read once: a run asks for the same tariff for every house."""
    key = (str(path), name)
    if key not in _loaded:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream, parse_float=Decimal)
        for each, table in data.items():
            tiers = [[tier["size"], Decimal(tier["price"])] for tier in table["tiers"]]
            _loaded[(str(path), each)] = Tariff(each, tiers, Decimal(table["daily"]))
    if key not in _loaded:
        raise KeyError(f"{path}: no tariff {name}")
    return _loaded[key]
