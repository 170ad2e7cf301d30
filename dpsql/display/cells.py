"""Cells of released tables as text: numbers with ±, NULL apart from the text NULL, and nothing that does not print."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from dpsql.display.element import replace_unprintable

__all__ = ["Ends", "format_number", "format_released", "format_value"]

Number = int | float | Decimal | Fraction
Ends = tuple[Number, Number] | None  # of the interval of a released value; None for NULL
_SIGNIFICANT = 2  # digits of half an interval
_SKEW = Fraction(5, 4)  # of the longer side of an interval to the shorter one, up to which one number stands for both
_NOISE = Fraction(1, 10**6)  # of the last digit: what a DOUBLE is beyond a decimal number makes no further one
_MOST_DIGITS = 6  # of a DOUBLE without an interval


def format_value(value: object) -> str:
    """Return a value as one line of text: NULL as the bare word, and a text that reads like it in quotes, as in SQL."""
    if value is None:
        return "NULL"
    text = replace_unprintable(str(value))
    if isinstance(value, str) and text.strip("' ") == "NULL":
        return "'" + text.replace("'", "''") + "'"
    return text


def format_number(value: object, *, grouped: bool) -> str:
    """Return a number without an interval; where it is `grouped`, with separators, and a DOUBLE with 6 digits."""
    if not grouped or not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return format_value(value)
    if not isinstance(value, float):
        return f"{value:,}"
    if not value or not math.isfinite(value):
        return str(value)
    digits = _MOST_DIGITS - 1 - math.floor(math.log10(abs(value)))
    if digits > 2 * _MOST_DIGITS:
        return f"{value:.{_MOST_DIGITS}g}"
    return _write(Fraction(value), max(0, digits), grouped=True)


def format_released(value: object, ends: Ends, *, grouped: bool = False) -> tuple[str, str]:
    """Return a released number and half of the width of its interval, such as 828, ± 41 or 25.13, ± 0.16.

    It has as many decimals as two digits of that half have, and no digit before the point is left out. Half the width
    is rounded up, so that the interval is always within what is shown. Where one side is much longer than the other
    the ends are shown: 3.1, (0.0 to 9.4). Without an interval nothing is behind it.
    """
    if ends is None or not isinstance(value, int | float | Decimal) or not all(map(math.isfinite, (value, *ends))):
        return format_number(value, grouped=grouped), ""
    exact, low, high = (Fraction(each) for each in (value, *ends))
    half = max(high - exact, exact - low)
    digits = _SIGNIFICANT - 1 - math.floor(math.log10(half)) if half > 0 else _SIGNIFICANT
    digits = max(0, digits if isinstance(value, float) else min(digits, _count_decimals(value)))
    unit = Fraction(1, 10**digits)
    shown = round(exact / unit) * unit
    sides = [math.ceil(side / unit - _NOISE) * unit for side in (shown - low, high - shown)]
    text = _write(shown, digits, grouped=grouped)
    if max(sides) <= max(_SKEW * min(sides), min(sides) + unit):
        return text, f"± {_write(max(sides), digits, grouped=grouped)}"
    least, most = (_write(end, digits, grouped=grouped) for end in (shown - sides[0], shown + sides[1]))
    return text, f"({least} to {most})"


def _count_decimals(value: int | Decimal) -> int:
    return 0 if isinstance(value, int) else max(0, -int(value.as_tuple().exponent))


def _write(value: Fraction, digits: int, *, grouped: bool) -> str:
    """Return a number with so many decimals, to the nearest."""
    whole, part = divmod(abs(round(value * 10**digits)), 10**digits)
    written = f"{whole:,}" if grouped else str(whole)
    written += f".{part:0{digits}}" if digits else ""
    return f"-{written}" if value < 0 and (whole or part) else written
