"""What a lead makes of the price of its own tokens: the response curve of price-awareness, an assumption.

Being willing is one probability. It decides, each by a draw of its own, whether the work is handed over at all, whether
looking round is handed over with it, whether a report is believed after one look, and who mends what is not right yet.
So a dearer lead hands over more often, and more. The draws do not depend on the ratio.
"""

import re

_TOLD = re.compile(r"One token that you write or read costs as much as (\d{1,9}(?:\.\d{1,9})?) of the worker's")

HALF = 10.0
"""The ratio at which every second lead hands its work over."""

UNTOLD = 0.25
"""How willing a lead is that was told no ratio."""


def told_ratio(text: str) -> float | None:
    """The ratio that a prompt tells, None where it tells none."""
    found = _TOLD.search(text)
    return float(found[1]) if found else None


def willing(ratio: float | None) -> float:
    """In [0, 1), growing with the ratio."""
    return UNTOLD if ratio is None else ratio / (ratio + HALF)
