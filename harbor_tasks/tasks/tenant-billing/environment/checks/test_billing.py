"""What was checked so far: python3 -m unittest discover -s checks -t ."""

import datetime
import unittest
from decimal import Decimal

from billing import money, periods, readings
from billing.split import split
from billing.tariff import Tariff

D = datetime.date


class Money(unittest.TestCase):
    def test_half_goes_to_even(self):
        self.assertEqual([money.cents("0.125"), money.cents("0.135")], [12, 14])

    def test_show(self):
        self.assertEqual([money.show(5), money.show(123456), money.show(-70)], ["0.05", "1234.56", "-0.70"])


class Periods(unittest.TestCase):
    def test_middle_of_the_month(self):
        self.assertEqual(periods.periods(D(2023, 11, 15), 2), [
            (D(2023, 11, 15), D(2023, 12, 15)), (D(2023, 12, 15), D(2024, 1, 15))])

    def test_leap_year(self):
        self.assertEqual(periods.boundaries(D(2024, 1, 31), 1), [D(2024, 1, 31), D(2024, 2, 29)])


class Readings(unittest.TestCase):
    def test_the_counter_goes_round(self):
        meter = readings.Meter("M", 5)
        meter.record(D(2023, 1, 1), 99998)
        meter.record(D(2023, 2, 1), 3)
        self.assertEqual(meter.used(D(2023, 1, 1), D(2023, 2, 1)), 5)

    def test_between_readings(self):
        meter = readings.Meter("M", 5)
        meter.record(D(2023, 1, 1), 100)
        meter.record(D(2023, 1, 11), 119)
        self.assertEqual(meter.at(D(2023, 1, 6)), 109)


class Tariffs(unittest.TestCase):
    def test_tiers_fill_in_order(self):
        tariff = Tariff("t", [[10, Decimal(1)], [10, Decimal(2)], [None, Decimal(4)]], Decimal("0.5"))
        self.assertEqual(tariff.charge(25), 5000)
        self.assertEqual(tariff.standing(30), 1500)


class Split(unittest.TestCase):
    def test_even_split(self):
        self.assertEqual(split(9000, {"A": 1, "B": 2}), {"A": 3000, "B": 6000})

    def test_weight_zero_pays_nothing(self):
        self.assertEqual(split(500, {"A": 0, "B": 2}), {"A": 0, "B": 500})
