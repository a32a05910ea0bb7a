"""The fields that the tables of a price file share: amounts, moments and prices by class."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cost_model.price_card import PRICE_DECIMALS
from cost_model.tokens import CLASSES


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
SearchUsd = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=1000, decimal_places=PRICE_DECIMALS)]
Factor = Annotated[Decimal, BeforeValidator(_number), Field(gt=0, le=100, decimal_places=PRICE_DECIMALS)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Prices = dict[Annotated[str, BeforeValidator(_token_class)], Usd]


class PriceTable(BaseModel):
    """A table of a price file: no field that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DatedTable(PriceTable):
    """One that holds in [valid_from, valid_until), with prices of what is billed beside tokens.

    `web_search_per_1k` is dollars for a thousand searches, `storage_mtok_hour` dollars for holding a million tokens in
    an explicit cache for an hour.
    """

    valid_from: Moment | None = None
    valid_until: Moment | None = None
    web_search_per_1k: SearchUsd | None = None
    storage_mtok_hour: Usd | None = None

    def covers(self, at: datetime) -> bool:
        return not (self.valid_from and at < self.valid_from) and not (self.valid_until and at >= self.valid_until)

    def beside(self) -> dict[str, Decimal]:
        """USD per million units by class of BESIDE."""
        search = None if self.web_search_per_1k is None else self.web_search_per_1k * 1000
        told = {"web_search": search, "storage": self.storage_mtok_hour}
        return {name: usd for name, usd in told.items() if usd is not None}

    def in_order(self) -> None:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_from must be before valid_until")
