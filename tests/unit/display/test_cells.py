"""Cells: as many digits as an interval makes sense of, the interval within what is shown, NULL apart from its name."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from fractions import Fraction

import pytest

from dpsql.display.text import Ends, format_number, format_released, format_value


def join(value: object, ends: Ends) -> str:
    return " ".join(format_released(value, ends)).strip()


@pytest.mark.parametrize(
    ("value", "ends", "shown"),
    [
        (828, (787, 869), "828 ± 41"),
        (8123, (8081.5, 8164.5), "8123 ± 42"),
        (4, (-37, 45), "4 ± 41"),
        (-3, (-44, 38), "-3 ± 41"),
        (300, (300, 300), "300 ± 0"),
        (25.0958294, (24.94, 25.25), "25.10 ± 0.16"),
        (25.1, (20.9, 29.3), "25.1 ± 4.2"),
        (25.1, (-20.0, 70.0), "25 ± 45"),
        (3.14159, (0.0, 9.4), "3.1 (0.0 to 9.4)"),
        (25123.4, (23900.0, 26400.0), "25123 ± 1277"),
        (0.00123456, (0.00121, 0.00126), "0.001235 ± 0.000025"),
        (-0.004, (-0.5, 0.5), "0.00 ± 0.50"),
        (Decimal("55493.46"), (Decimal("55343.4"), Decimal("55643.5")), "55493 ± 151"),
        (Decimal("12.50"), (Decimal("12.4999"), Decimal("12.5001")), "12.50 ± 0.01"),
        (Decimal("2999298.814773559570"), (Fraction("2999298.7"), Fraction("2999298.93")), "2999298.81 ± 0.12"),
        (Decimal(15 * 10**30), (15 * 10**30 - 7, 15 * 10**30 + 7), f"{15 * 10**30} ± 7"),
        (5.0, (float("-inf"), 7.0), "5.0"),
        (5, None, "5"),
        (None, None, "NULL"),
    ],
)
def test_released_numbers(value: object, ends: Ends, shown: str) -> None:
    assert join(value, ends) == shown


def test_separators_are_for_tables_that_people_read() -> None:
    assert format_released(8123, (7000, 9246), grouped=True) == ("8,123", "± 1,123")
    assert format_released(8123.4, (1.0, 100000.0), grouped=True) == ("8,123", "(1 to 100,000)")


def test_what_is_shown_holds_the_interval_and_has_two_digits_of_its_half() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        value = chance.choice([chance.uniform(-1, 1), chance.uniform(0, 1e5), chance.uniform(0, 1e-4)])
        down, up = (abs(value) * 10 ** chance.uniform(-4, 1) for _ in range(2))
        shown = join(value, (value - down, value + up))
        text, *numbers = re.findall(r"-?[0-9]+\.?[0-9]*", shown)
        digits = len(text.partition(".")[2])
        unit = 10.0**-digits
        low, high = (
            map(float, numbers) if "to" in shown else (float(text) - float(numbers[0]), float(text) + float(numbers[0]))
        )
        assert value - down - 2 * unit <= low <= value - down + 1e-5 * unit or "±" in shown
        assert value + up - 1e-5 * unit <= high <= value + up + 2 * unit or "±" in shown
        assert low <= value - down + 1e-5 * unit
        assert high >= value + up - 1e-5 * unit
        assert high - low <= 2.5 * max(down, up) + 4 * unit
        assert digits == 0 or 10 <= max(down, up) / unit < 100


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234567.891, "1,234,568"),
        (25.0958294, "25.0958"),
        (0.00123456789, "0.00123457"),
        (1e-30, "1e-30"),
        (0.0, "0.0"),
        (float("nan"), "nan"),
        (1234567, "1,234,567"),
        (Decimal("1234.50"), "1,234.50"),
        (True, "True"),
        (None, "NULL"),
        ("NULL", "'NULL'"),
    ],
)
def test_numbers_without_an_interval(value: object, shown: str) -> None:
    assert format_number(value, grouped=True) == shown


def test_numbers_are_whole_where_nothing_is_grouped() -> None:
    assert format_number(25.09582941234, grouped=False) == "25.09582941234"


def test_no_text_looks_like_null_or_like_another_text() -> None:
    texts = [
        "NULL",
        "'NULL'",
        "''NULL''",
        "'''NULL'''",
        " NULL",
        "NULL ",
        "' NULL'",
        "null",
        "NUL",
        "",
        "'",
        "'a'",
        "a",
    ]
    shown = [format_value(text) for text in texts]
    assert format_value(None) == "NULL"
    assert "NULL" not in shown
    assert len(set(shown)) == len(texts)
    assert shown[0] == "'NULL'"
    assert shown[-1] == "a"


def test_nothing_that_does_not_print_is_shown() -> None:
    assert (
        format_value("a\x1b[31m\n\u202eb")
        == "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"
    )
