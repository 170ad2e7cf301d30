"""CSV: nothing that a terminal obeys, and formulas as text where that is wanted."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pyarrow as pa
import pytest

from dpsql.display import replace_controls, replace_unprintable, write_csv


def cells(table: pa.Table, *, quote_formulas: bool = False) -> list[list[str]]:
    return list(csv.reader(io.StringIO(write_csv(table, quote_formulas=quote_formulas), newline="")))


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x2028, 0x2029, 0x202E, 0x2066])
def test_no_control_character_but_tab_and_line_feed_is_written(code: int) -> None:
    shown = chr(code) if chr(code) in "\t\n" else "\ufffd"
    table = pa.table({f"n{chr(code)}": [f"a{chr(code)}b", None]})
    assert write_csv(table) == f'"n{shown}"\n"a{shown}b"\n\n'


@pytest.mark.parametrize(
    "text", ["é", "漢\u3000字", "a\xa0b", "\u0646\u200c\u062e", "👩\u200d👩", "\ufffd", "\U0001f600", "'=1"]
)
def test_letters_joiners_and_spaces_of_all_scripts_are_written_as_they_are(text: str) -> None:
    assert cells(pa.table({text: [text]}), quote_formulas=True) == [[text], [text]]


def test_what_is_replaced_in_lines_is_replaced_in_data_too_but_not_the_other_way_round() -> None:
    for code in range(0x3000):
        if chr(code) not in "\t\n" and replace_controls(chr(code)) != chr(code):
            assert replace_unprintable(chr(code)) != chr(code)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t'=1"),
        ("\r=1", "'\ufffd=1"),
        ("\n+1", "'\n'+1"),
        ("\uff1d1", "'\uff1d1"),
        ("x;=1", "x;'=1"),
        ("a=b-c", "a=b-c"),
        ("", ""),
    ],
)
def test_formulas_are_quoted_on_request(text: str, quoted: str) -> None:
    table = pa.table({text: [text], "n": pa.array([-1]), "d": pa.array([Decimal("-1.5")]), "x": pa.array([-0.5])})
    assert cells(table)[1][0] == text.replace("\r", "\ufffd")
    assert cells(table, quote_formulas=True) == [[quoted, "n", "d", "x"], [quoted, "-1", "-1.5", "-0.5"]]


def test_null_stays_null_and_a_date_beyond_the_calendar_is_text() -> None:
    table = pa.table({"t": ["=1", None], "day": pa.array([-(2**31) + 1, 0], pa.date32())})
    assert write_csv(table, quote_formulas=True) == '"t","day"\n"\'=1","\'-infinity"\n,"1970-01-01"\n'
