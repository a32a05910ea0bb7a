"""Price files: dated prices in TOML that people write, and that win over the public price list.

[[price]]
model = "my-model"
source = "https://example.com/prices, 2026-11-24"
valid_from = 2026-09-10                      # UTC; optional, like valid_until (not included)
usd_per_mtok = { input = 0.15, cache_read = 0.003, output = 0.6 }
tiers = [{ above = 272000, usd_per_mtok = { input = 0.3, output = 1.2 } }]
peaks = [{ days = ["mon", "tue"], start = 01:00:00, end = 04:00:00, times = 2 }]
"""

import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cost_model.errors import PriceFileError
from cost_model.price_card import PRICE_DECIMALS, PriceCard, PriceTier
from cost_model.tokens import CLASSES

FILE_LIMIT = 1_000_000
"""Bytes of a price file that are read; a longer file is none."""

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"must be a number, not {value!r}")
    return value


def _moment(value: object) -> object:
    """A TOML date is midnight UTC, a date-time without an offset is UTC."""
    if isinstance(value, date) and not 1970 <= value.year <= 9998:
        raise ValueError(f"must lie in the years 1970 to 9998, not {value}")
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise ValueError(f"must be a date such as 2026-09-10 (without quotes), not {value!r}")


def _token_class(value: object) -> object:
    if value not in CLASSES:
        raise ValueError(f"is no token class; the classes are {', '.join(CLASSES)}")
    return value


Usd = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=10**6, decimal_places=PRICE_DECIMALS)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Prices = dict[Annotated[str, BeforeValidator(_token_class)], Usd]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PriceTierEntry(_Strict):
    """Prices from `above` prompt tokens on (not included); they reprice the whole call."""

    above: Annotated[int, Field(gt=0, strict=True)]
    usd_per_mtok: Annotated[Prices, Field(min_length=1)]


class PeakHours(_Strict):
    """Hours of the day (UTC) in which every price is multiplied by `times`. `end` 00:00:00 is midnight."""

    days: Annotated[list[Day], Field(min_length=1)]
    start: time
    end: time
    times: Annotated[Decimal, BeforeValidator(_number), Field(gt=0, le=100)]

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


class PriceEntry(_Strict):
    """Prices of one model in [valid_from, valid_until)."""

    model: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    valid_from: Moment | None = None
    valid_until: Moment | None = None
    usd_per_mtok: Prices
    tiers: list[PriceTierEntry] = []
    peaks: list[PeakHours] = []

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for needed in ("input", "output"):
            if self.usd_per_mtok.get(needed, Decimal(0)) == 0:
                raise ValueError(
                    f"usd_per_mtok.{needed} must be there and above 0; "
                    "a model that costs nothing is declared `self_hosted: true` in its registry entry"
                )
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_from must be before valid_until")
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

    def covers(self, at: datetime) -> bool:
        return not (self.valid_from and at < self.valid_from) and not (self.valid_until and at >= self.valid_until)

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
            usd_per_mtok=self.usd_per_mtok,
            tiers=tuple(PriceTier(tier.above, tier.usd_per_mtok) for tier in self.tiers),
        )
        for peak in self.peaks:
            if any(start <= at < end for start, end in peak.windows(at.date())):
                return card.times(peak.times, "in peak hours")
        return card


_STEP = Decimal(1).scaleb(-PRICE_DECIMALS)


class _PriceFile(_Strict):
    price: list[PriceEntry] = []


def load_prices(path: Path) -> list[PriceEntry]:
    """The entries of a price file, in its order. Raises PriceFileError: one line with file, entry, field and mend."""
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
        entries = _PriceFile.model_validate(document).price
    except ValidationError as error:
        raise PriceFileError(f"{path}: {_first_complaint(error, document)}") from error
    seen: dict[tuple[str, datetime | None], int] = {}
    for number, entry in enumerate(entries, start=1):
        earlier = seen.setdefault((entry.model, entry.valid_from), number)
        if earlier != number:
            raise PriceFileError(
                f"{path}: [[price]] entry {number} ({entry.model}): valid_from: is the same as in entry {earlier}; "
                "give the later prices a later valid_from, or remove one"
            )
    return entries


def _first_complaint(error: ValidationError, document: Mapping[str, object]) -> str:
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"] if part != "[key]"]
    complaint = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = "price" if len(location) == 1 else ", ".join(PriceEntry.model_fields)
        complaint = "is not a field of a price file" + (f"; known: {known}" if len(location) <= 3 else "")
    elif first["type"] == "missing":
        complaint = "is missing"
    if len(location) < 2:
        return f"{'.'.join(location)}: {complaint}"
    entries = document["price"]
    entry = entries[int(location[1])] if isinstance(entries, list) else None
    model = entry.get("model", "no model") if isinstance(entry, dict) else "not a table"
    field = ".".join(location[2:])
    where = f"[[price]] entry {int(location[1]) + 1} ({model})"
    return f"{where}: {field}: {complaint}" if field else f"{where}: {complaint}"
