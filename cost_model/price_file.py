"""Price files: dated prices in TOML that people write, and that win over the public price list.

[[price]]
model = "my-model"
source = "https://example.com/prices, 2026-11-24"
valid_from = 2026-09-10                      # UTC; optional, like valid_until (not included)
usd_per_mtok = { input = 0.15, cache_read = 0.003, output = 0.6 }
tiers = [{ above = 272000, usd_per_mtok = { input = 0.3, output = 1.2 } }]
peaks = [{ days = ["mon", "tue"], start = 01:00:00, end = 04:00:00, times = 2 }]
web_search_per_1k = 10                       # optional, like storage_mtok_hour

[[modifier]]
models = ["my-*"]                            # of these models ...
service_tier = "batch"                       # ... calls of this tier (or speed, inference_geo, cache_type; none: all)
source = "https://example.com/prices, 2026-11-24"
times = 0.5                                  # cost half; or usd_per_mtok = { ... } replaces prices
"""

import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from cost_model.errors import PriceFileError
from cost_model.modifier_entry import ModifierEntry
from cost_model.price_card import PRICE_DECIMALS, PriceCard, PriceTier
from cost_model.price_fields import DatedTable, Factor, Prices, PriceTable

FILE_LIMIT = 1_000_000
"""Bytes of a price file that are read; a longer file is none."""

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)


class PriceTierEntry(PriceTable):
    """Prices from `above` prompt tokens on (not included); they reprice the whole call."""

    above: Annotated[int, Field(gt=0, strict=True)]
    usd_per_mtok: Annotated[Prices, Field(min_length=1)]


class PeakHours(PriceTable):
    """Hours of the day (UTC) in which every price is multiplied by `times`. `end` 00:00:00 is midnight."""

    days: Annotated[list[Day], Field(min_length=1)]
    start: time
    end: time
    times: Factor

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.end != time() and self.start >= self.end:
            raise ValueError("start must come before end; hours over midnight take two entries")
        return self

    def windows(self, around: date) -> list[tuple[datetime, datetime]]:
        """The peak windows from a week before a date to a week after it."""
        days = (around + timedelta(days=shift) for shift in range(-8, 9))
        return [
            (datetime.combine(day, self.start, UTC), self._end(day)) for day in days if DAYS[day.weekday()] in self.days
        ]

    def _end(self, day: date) -> datetime:
        return datetime.combine(day if self.end != time() else day + timedelta(days=1), self.end, UTC)


class PriceEntry(DatedTable):
    """Prices of one model in [valid_from, valid_until)."""

    model: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    usd_per_mtok: Prices
    tiers: list[PriceTierEntry] = Field(default_factory=list)
    peaks: list[PeakHours] = Field(default_factory=list)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for needed in ("input", "output"):
            if self.usd_per_mtok.get(needed, Decimal(0)) == 0:
                raise ValueError(
                    f"usd_per_mtok.{needed} must be there and above 0; "
                    "a model that costs nothing is declared `self_hosted: true` in its registry entry"
                )
        self.in_order()
        if any(a.above >= b.above for a, b in zip(self.tiers, self.tiers[1:], strict=False)):
            raise ValueError("tiers must ascend by `above`")
        for tier in self.tiers:
            unknown = sorted(set(tier.usd_per_mtok) - set(self.usd_per_mtok))
            if unknown:
                raise ValueError(f"the tier above {tier.above} prices {unknown[0]}, which usd_per_mtok does not")
        prices = [*self.usd_per_mtok.values(), *(p for tier in self.tiers for p in tier.usd_per_mtok.values())]
        if any((price * peak.times).quantize(_STEP) != price * peak.times for peak in self.peaks for price in prices):
            raise ValueError(f"a price in peak hours has more than {PRICE_DECIMALS} decimals")
        return self

    def boundaries(self, at: datetime) -> set[datetime]:
        """The moments near `at` at which these prices change."""
        ends = {moment for moment in (self.valid_from, self.valid_until) if moment}
        return ends.union(*(window for peak in self.peaks for window in peak.windows(at.date())))

    def card(self, at: datetime, valid_from: datetime | None, valid_until: datetime | None) -> PriceCard:
        """The card at a moment that this entry covers, good for the given window."""
        card = PriceCard(
            ref=self.model,
            source=self.source,
            valid_from=valid_from,
            valid_until=valid_until,
            usd_per_mtok={**self.usd_per_mtok, **self.beside()},
            tiers=tuple(PriceTier(tier.above, tier.usd_per_mtok) for tier in self.tiers),
        )
        for peak in self.peaks:
            if any(start <= at < end for start, end in peak.windows(at.date())):
                return card.times(peak.times, "in peak hours")
        return card


_STEP = Decimal(1).scaleb(-PRICE_DECIMALS)


class PriceFile(PriceTable):
    """A whole file, its entries in its order."""

    price: list[PriceEntry] = Field(default_factory=list)
    modifier: list[ModifierEntry] = Field(default_factory=list)


def load_prices(path: Path) -> PriceFile:
    """The entries of a price file. Raises PriceFileError: one line with file, entry, field and mend."""
    text = ""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise PriceFileError(f"{path}: longer than {FILE_LIMIT:,} bytes; a price file is a short TOML file")
        text = content.decode()
        document = tomllib.loads(text, parse_float=Decimal)
    except OSError as error:
        raise PriceFileError(
            f"{path}: cannot be read ({error.strerror or error}); give the path of a price file"
        ) from error
    except UnicodeDecodeError as error:
        raise PriceFileError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        # Numbers of thousands of digits and deep nesting are faults that are no TOMLDecodeError.
        line = f"line {len(text.splitlines())}, the end of the file"
        reason = str(error).replace("at end of document", f"at {line}")
        raise PriceFileError(f"{path}: is not valid TOML ({reason}); mend that line") from error
    try:
        found = PriceFile.model_validate(document)
    except ValidationError as error:
        raise PriceFileError(f"{path}: {_first_complaint(error, document)}") from error
    seen: dict[tuple[str, datetime | None], int] = {}
    for number, entry in enumerate(found.price, start=1):
        earlier = seen.setdefault((entry.model, entry.valid_from), number)
        if earlier != number:
            raise PriceFileError(
                f"{path}: [[price]] entry {number} ({entry.model}): valid_from: is the same as in entry {earlier}; "
                "give the later prices a later valid_from, or remove one"
            )
    return found


def _first_complaint(error: ValidationError, document: Mapping[str, object]) -> str:
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"] if part != "[key]"]
    complaint = first["msg"].removeprefix("Value error, ")
    table = ModifierEntry if location[0] == "modifier" else PriceEntry
    if first["type"] == "extra_forbidden":
        known = ", ".join((PriceFile if len(location) == 1 else table).model_fields)
        complaint = "is not a field of a price file" + (f"; known: {known}" if len(location) <= 3 else "")
    elif first["type"] == "missing":
        complaint = "is missing"
    if len(location) < 2:
        return f"{'.'.join(location)}: {complaint}"
    entries = document[location[0]]
    entry = entries[int(location[1])] if isinstance(entries, list) else None
    model = entry.get("model", entry.get("models", "no model")) if isinstance(entry, dict) else "not a table"
    field = ".".join(location[2:])
    where = f"[[{location[0]}]] entry {int(location[1]) + 1} ({str(model)[:200]})"
    return f"{where}: {field}: {complaint}" if field else f"{where}: {complaint}"
