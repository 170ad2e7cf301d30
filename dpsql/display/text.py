"""Values and names as text that no terminal obeys: nouns of units and keys, numbers of cells, and CSV."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engines.arrow_types import spell_beyond_calendar

if TYPE_CHECKING:
    import pyarrow as pa

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTROLS = re.compile(  # C0 and C1 but tab and line feed, and Unicode's separators and controls of direction
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_IDENTIFIER = re.compile(r"(?:_(?i:id|uid|uuid|guid|no|nr|number|key|hash)|(?<=[a-z])(?:Id|ID|No|Number|Key))$")
_PERSON = frozenset(["id", "uid", "uuid", "guid", "u"])
_LONGEST = 40  # characters of a name in a sentence


def replace_controls(text: str) -> str:
    """Replace control characters of `text` but tab and line feed, and all that change the direction of writing.

    For text of several lines and for data: letters, joiners and spaces of all scripts stay as they are.
    """
    return _CONTROLS.sub(_REPLACEMENT, text)


def replace_unprintable(text: str) -> str:
    """Replace every character of `text` that does not print, so that no terminal or page obeys it.

    These are control characters, characters that change the direction of writing, and characters without width.
    """
    return "".join(char if char.isprintable() else _REPLACEMENT for char in text)


def unit_noun(column: str) -> str:
    """Return what one value of a privacy unit's column stands for: user for user_id, device for deviceId."""
    return "user" if column.lower() in _PERSON else shorten(_IDENTIFIER.sub("", column) or column)


def key_noun(column: str) -> str:
    """Return what one value of a key is called: item for item_id, and the name itself for any other."""
    return shorten(_IDENTIFIER.sub("", column) or column)


def plural(noun: str) -> str:
    """Return the plural of an English noun; of any other, the noun with an s."""
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search(r"(?:s|x|z|ch|sh)$", noun) else f"{noun}s"


def with_article(noun: str) -> str:
    """Return a noun with a or an."""
    return f"an {noun}" if noun[:1].lower() in "aeio" else f"a {noun}"


def shorten(name: str) -> str:
    """Return a name that may stand in a sentence: printable, and of at most 40 characters."""
    return replace_unprintable(cut(name, _LONGEST))


def cut(text: str, longest: int) -> str:
    """Return a text, the end of one that is longer than so many characters replaced by an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


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
    if not isinstance(value, float):  # a whole number or a DECIMAL shows no decimals that it does not have
        digits = min(digits, 0 if isinstance(value, int) else -int(value.as_tuple().exponent))
    digits = max(0, digits)
    unit = Fraction(1, 10**digits)
    shown = round(exact / unit) * unit
    sides = [math.ceil(side / unit - _NOISE) * unit for side in (shown - low, high - shown)]
    text = _write(shown, digits, grouped=grouped)
    if max(sides) <= max(_SKEW * min(sides), min(sides) + unit):
        return text, f"± {_write(max(sides), digits, grouped=grouped)}"
    least, most = (_write(end, digits, grouped=grouped) for end in (shown - sides[0], shown + sides[1]))
    return text, f"({least} to {most})"


def _write(value: Fraction, digits: int, *, grouped: bool) -> str:
    """Return a number with so many decimals, to the nearest."""
    whole, part = divmod(abs(round(value * 10**digits)), 10**digits)
    written = f"{whole:,}" if grouped else str(whole)
    written += f".{part:0{digits}}" if digits else ""
    return f"-{written}" if value < 0 and (whole or part) else written


# Beginnings of a formula, also in the wide signs of East Asian keyboards, and after signs that some locales split at.
_FORMULA = re.compile("(?:\\A|(?<=[;\t\n]))(?=[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")


def write_csv(table: pa.Table, *, quote_formulas: bool = False) -> str:
    """Return a table as CSV with a header: text in double quotes, NULL as an empty field.

    Control characters are replaced, as `replace_controls` says. With `quote_formulas` an apostrophe is put before each
    text, and each name of a column, that a spreadsheet would compute.
    """
    import pyarrow as pa
    from pyarrow import csv

    table = spell_beyond_calendar(table)
    if quote_formulas:
        for at, field in enumerate(table.schema):
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                values = [None if value is None else _FORMULA.sub("'", value) for value in table.column(at).to_pylist()]
                table = table.set_column(at, field.name, pa.array(values, field.type))
        table = table.rename_columns([_FORMULA.sub("'", name) for name in table.column_names])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return replace_controls(bytes(sink.getvalue()).decode())
