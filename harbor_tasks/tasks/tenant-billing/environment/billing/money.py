"""Money is a whole number of cents. Prices are Decimal dollars for one cubic metre."""

from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")


def cents(dollars):
    """Decimal dollars to cents, half to even."""
    return int((Decimal(dollars) / CENT).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def show(amount):
    """Cents as text, e.g. 123456 -> '1234.56'."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), 100)
    return f"{sign}{whole}.{rest:02d}"
