"""Billing periods: from one billing day to the next, month after month."""

import calendar
import datetime


def days_in_month(year, month):
    return calendar.monthrange(year, month)[1]


def add_month(day):
    """The same day of the next month; a shorter month ends earlier."""
    year, month = (day.year + 1, 1) if day.month == 12 else (day.year, day.month + 1)
    return datetime.date(year, month, min(day.day, days_in_month(year, month)))


def boundaries(first, count):
    """`count` + 1 days: the first day of each period, and the end of the last one."""
    days = [first]
    for _ in range(count):
        days.append(add_month(days[-1]))
    return days


def periods(first, count):
    """Pairs (start, end); the end belongs to the next period."""
    days = boundaries(first, count)
    return list(zip(days, days[1:]))


def days_between(start, end):
    return (end - start).days
