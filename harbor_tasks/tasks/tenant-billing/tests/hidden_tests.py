"""The hidden tests: what docs/SPEC.md says, asked of the package through probe.py."""

import calendar
import datetime
import json
import random
import sys
import unittest

sys.path.insert(0, "/tests")
sys.dont_write_bytecode = True

from confined import confined  # noqa: E402


def ask(*questions):
    """The answers of one fresh process."""
    code, stdout, stderr = confined([sys.executable, "-I", "/tests/probe.py"], text=json.dumps(questions))
    if code != 0:
        raise AssertionError(stderr.strip().splitlines()[-1:] or "the package ended the process")
    return json.loads(stdout)


def golden(name):
    with open(f"/tests/{name}", encoding="utf-8") as stream:
        return stream.read()


def boundary(first, n):
    year, month = divmod(first.year * 12 + first.month - 1 + n, 12)
    month += 1
    return datetime.date(year, month, min(first.day, calendar.monthrange(year, month)[1]))


def largest_remainders(total, weights):
    whole = sum(weights.values())
    shares = {flat: total * weight // whole for flat, weight in weights.items()}
    left = total - sum(shares.values())
    for flat in sorted(weights, key=lambda flat: (-(total * weights[flat] % whole), flat))[:left]:
        shares[flat] += 1
    return shares


def random_splits(count):
    rng = random.Random(20230131)
    for _ in range(count):
        flats = rng.sample("ABCDEFGHabcd", rng.randint(1, 8))
        weights = {flat: rng.choice((0, 1, 1, 2, 3, rng.randint(1, 997))) for flat in flats}
        weights[flats[0]] += 1
        yield rng.choice((rng.randint(0, 50), rng.randint(0, 10**6), 10**17 + rng.randint(0, 999))), weights


class Stateless(unittest.TestCase):
    """Questions whose answers depend on nothing asked before: one process answers them all."""

    FIRSTS = [datetime.date(2022, 11, 1) + datetime.timedelta(n) for n in range(500)]
    SPLITS = list(random_splits(400))
    WRAPPED = [["2023-01-01", 9990], ["2023-01-21", 10]]

    @classmethod
    def setUpClass(cls):
        answers = iter(
            ask(
                ["boundaries", ["2023-01-31", 4]],
                ["periods", ["2023-12-30", 3]],
                ["used", [4, cls.WRAPPED, "2023-01-01", "2023-01-21"]],
                ["used", [4, cls.WRAPPED, "2023-01-06", "2023-01-16"]],
                ["split", [10000, {"A": 1, "B": 1, "C": 1}]],
                ["split", [5, {"A": 1, "B": 1, "C": 4}]],
                ["split", [101, {"b": 1, "a": 1}]],
                ["split", [11, {"c": 1, "B": 1, "a": 1}]],
                *(["boundaries", [first.isoformat(), 15]] for first in cls.FIRSTS),
                *(["split", list(case)] for case in cls.SPLITS),
            )
        )
        cls.january, cls.pairs, *cls.volumes = (next(answers) for _ in range(4))
        cls.examples = [next(answers) for _ in range(4)]
        cls.all_boundaries = [next(answers) for _ in cls.FIRSTS]
        cls.all_splits = list(answers)

    def test_a_short_month_moves_only_its_own_boundary(self):
        self.assertEqual(self.january, ["2023-01-31", "2023-02-28", "2023-03-31", "2023-04-30", "2023-05-31"])

    def test_any_first_day(self):
        for first, answer in zip(self.FIRSTS, self.all_boundaries):
            self.assertEqual(answer, [boundary(first, n).isoformat() for n in range(16)], first)

    def test_a_period_ends_where_the_next_begins(self):
        self.assertEqual(
            self.pairs, [["2023-12-30", "2024-01-30"], ["2024-01-30", "2024-02-29"], ["2024-02-29", "2024-03-30"]]
        )

    def test_the_counter_goes_round(self):
        self.assertEqual(self.volumes, [20, 10])

    def test_the_examples_of_the_specification(self):
        self.assertEqual(self.examples[:2], [{"A": 3334, "B": 3333, "C": 3333}, {"A": 1, "B": 1, "C": 3}])

    def test_names_decide_between_equal_remainders(self):
        self.assertEqual(self.examples[2:], [{"b": 50, "a": 51}, {"c": 3, "B": 4, "a": 4}])

    def test_any_split(self):
        for (total, weights), answer in zip(self.SPLITS, self.all_splits):
            self.assertEqual(answer, largest_remainders(total, weights), (total, weights))


class Tariffs(unittest.TestCase):
    TIERS = [[10, "1"], [10, "2"], [None, "4"]]

    def test_every_period_starts_with_unused_tiers(self):
        volumes = (25, 25, 3, 10, 20, 0, 21, 25)
        answers = ask(
            ["new_tariff", ["t", self.TIERS, "0.5"]],
            *(["charge", ["t", volume]] for volume in volumes),
            ["tiers", ["t"]],
            ["load_tariff", ["valley"]],
            ["charge", ["valley", 15]],
            ["charge", ["valley", 21]],
            ["load_tariff", ["valley"]],
            ["charge", ["valley", 21]],
            ["standing", ["valley", 31]],
            ["tiers", ["valley"]],
            ["load_tariff", ["flat"]],
            ["charge", ["flat", 4]],
        )
        self.assertEqual(answers[1:9], [5000, 5000, 300, 1000, 3000, 0, 3400, 5000])
        self.assertEqual(answers[9], self.TIERS)
        self.assertEqual(answers[11:13], [1470, 2204])
        self.assertEqual(answers[14:17], [2204, 388, [[20, "0.98"], [None, "2.445"]]])
        self.assertEqual(answers[18], 700)


class Invoices(unittest.TestCase):
    EXPECTED = json.loads(golden("expected_lines.json"))
    OUTPUT = golden("expected_output.txt")
    HOUSES = list(dict.fromkeys(line[0] for line in EXPECTED))

    def test_neither_order_nor_earlier_runs_matter(self):
        backwards, *alone = ask(["run", [self.HOUSES[::-1]]], *(["run", [[house]]] for house in self.HOUSES))
        self.assertEqual([line for lines in alone for line in lines], self.EXPECTED)
        self.assertEqual(sorted(backwards, key=lambda line: self.HOUSES.index(line[0])), self.EXPECTED)

    def test_the_command_line(self):
        code, stdout, _ = confined([sys.executable, "-B", "-m", "billing", "/tests/data", "12"], cwd="/app")
        self.assertEqual((code, stdout), (0, self.OUTPUT))


if __name__ == "__main__":
    unittest.main(verbosity=1)
