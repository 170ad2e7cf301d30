"""What an analyst holds: rows in every form, error bars that cover, a receipt and a sentence to cite."""

from __future__ import annotations

import datetime as dt
import io
import math
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from support.answer_kit import LEFT, answer_of, counted, receipt
from support.laws import discrete_gaussian_law

import dpsql
from dpsql.accounting import ZCDP
from dpsql.answer import Answer, CountColumns
from dpsql.receipt import Receipt, format_share
from dpsql.report.answer_json import encode_answer, encode_notes


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.999, 0.999999])
@pytest.mark.parametrize("variance", [Fraction(1, 4), 4, Fraction("25.7"), 400, 1600, 40_000])
def test_intervals_cover_with_their_probability_and_are_no_wider(level: float, variance: object) -> None:
    law = discrete_gaussian_law(Fraction(variance))  # type: ignore[arg-type]
    centre = 10**6
    (low,), (high,) = (column.to_pylist() for column in counted([centre], variance).intervals(level).columns[1:])
    reach = high - centre
    assert centre - low == reach

    def within(distance: int) -> float:
        return math.fsum(mass for noise, mass in law.items() if abs(noise) <= distance)

    assert within(reach) >= level - 1e-7
    assert reach == 0 or within(reach - 1) < level + 1e-7


def test_very_wide_noise_has_intervals_too() -> None:
    exact, wide = CountColumns((0,), Fraction(10**8)), CountColumns((0,), Fraction(10**8 + 1))
    assert exact.reach(0.95) == pytest.approx(19_600, rel=1e-3)
    assert exact.reach(0.95) <= wide.reach(0.95) <= exact.reach(0.95) + 1
    assert CountColumns((0,), Fraction(4 * 10**18)).reach(0.5) < 2**62


def test_intervals_end_at_zero() -> None:
    intervals = counted([-500, -10, 0, 10]).intervals(0.95)
    assert intervals.to_pydict() == {"key": ["k0", "k1", "k2", "k3"], "low": [0] * 4, "high": [0, 68, 78, 88]}


def test_intervals_of_nothing() -> None:
    assert counted([]).intervals().schema == pa.schema(
        [("key", pa.string()), ("low", pa.int64()), ("high", pa.int64())]
    )


@pytest.mark.parametrize(
    "level", [0, 1, -0.5, 1.5, 95, float("nan"), float("inf"), "0.95", None, True, False, Fraction(1, 2)]
)
def test_a_level_is_a_number_between_0_and_1(level: object) -> None:
    with pytest.raises(dpsql.UsageError) as caught:
        counted([5]).intervals(level)  # type: ignore[arg-type]
    assert caught.value.code == "level-range"
    assert caught.value.hint


def test_an_answer_without_counts_has_no_intervals() -> None:
    with pytest.raises(dpsql.UsageError) as caught:
        answer_of({"key": pa.array(["a"])}).intervals()
    assert caught.value.code == "no-counts"
    assert "COUNT(DISTINCT" in caught.value.hint


DAYS = pa.array([2**31 - 1, -(2**31) + 1, 5_000_000, -800_000, 0, None], pa.int32()).cast(pa.date32())
MICROSECONDS = pa.array([2**63 - 1, -(2**63) + 1, 9 * 10**18, -62167219200000001, 0, None]).cast(pa.timestamp("us"))


def test_dates_outside_pythons_calendar_come_as_text() -> None:
    rows = answer_of({"day": DAYS, "moment": MICROSECONDS}).fetchall()
    assert [day for day, _ in rows] == [
        "infinity",
        "-infinity",
        "15659-07-15",
        "-221-09-04",
        dt.date(1970, 1, 1),
        None,
    ]
    assert [moment for _, moment in rows] == [
        "infinity",
        "-infinity",
        "287168-08-24 16:00:00.000000",
        "-001-12-31 23:59:59.999999",
        dt.datetime(1970, 1, 1),  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone
        None,
    ]


def test_dates_outside_pythons_calendar_in_data_frames() -> None:
    answer = answer_of({"day": DAYS, "moment": MICROSECONDS})
    frame = answer.df()
    assert [str(kind) for kind in frame.dtypes] == ["datetime64[ms]", "datetime64[us]"]
    assert frame["day"].isna().tolist() == [False] * 5 + [True]
    assert answer.pl().height == 6
    assert "infinity" in repr(answer)


@pytest.mark.parametrize(("package", "call"), [("pandas", "df"), ("polars", "pl")])
def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, package: str, call: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(dpsql.UsageError) as caught:
        getattr(counted([5]), call)()
    assert caught.value.code == "not-installed"
    assert f"pip install 'dpsql[{package}]'" in caught.value.hint
    assert caught.value.__context__ is None


def test_an_empty_answer_in_every_form() -> None:
    answer = counted([])
    assert answer.fetchall() == []
    assert len(answer) == 0
    assert answer.df().empty
    assert answer.pl().is_empty()
    assert list(answer.df().columns) == answer.pl().columns == ["key", "n"]
    assert repr(answer).startswith("key | n\nanswered 10 of 10; used 27.28 % of the budget")


def test_the_receipt_in_words() -> None:
    assert str(receipt()) == "answered 10 of 10; used 27.28 % of the budget; about 2 more like this"
    assert str(replace(receipt(), more=0)).endswith("; no other like this fits")
    assert str(replace(receipt(), more=None)).endswith("; used 27.28 % of the budget")
    assert str(replace(receipt(), replayed=True)).startswith("answered 10 of 10; stored answer, nothing was charged")
    assert str(replace(receipt(), durable=False)).endswith("; trial ledger, forgotten when the session ends")
    assert str(replace(receipt(), chosen="k", answered=3)).startswith("answered 3, a number that the query chose; ")
    assert str(replace(receipt(), chosen="k", answered=0, wanted=30)).startswith("answered 0; ")


def test_the_details_of_a_receipt() -> None:
    told = dict(receipt().details())
    assert told == {
        "mechanism": "limited_domain",
        "charged": "20 items of epsilon 0.05: rho 0.00625, delta 2.5e-08",
        "ended": "all k were returned",
        "remaining": "rho 0.0166875, delta 4.75e-07",
        "accounted in": "zero-concentrated differential privacy",
        "data opened": "in this process, read-only and locked",
    }
    assert dict(receipt(stopped=True).details())["ended"] == "stopped at BOTTOM: nothing else stands out"
    assert "charged" not in dict(replace(receipt(), replayed=True).details())
    assert "forgotten" in dict(replace(receipt(), durable=False).details())["ledger"]
    assert "guarantee is that of the data set" in dict(replace(receipt(), shared=True).details())["shared"]


@pytest.mark.parametrize(
    ("share", "up", "down"),
    [
        ("0", "0 %", "0 %"),
        ("1/1000000", "0.01 %", "0 %"),
        ("0.06666", "6.67 %", "6.66 %"),
        ("0.1234", "12.34 %", "12.34 %"),
        ("0.5", "50 %", "50 %"),
        ("0.99999", "100 %", "99.99 %"),
        ("1", "100 %", "100 %"),
    ],
)
def test_what_is_used_is_rounded_up_and_what_is_left_down(share: str, up: str, down: str) -> None:
    assert (format_share(Fraction(share)), format_share(Fraction(share), down=True)) == (up, down)


def test_the_receipt_has_the_fields_of_the_contract() -> None:
    names = "mechanism k k_bar epsilon delta threshold_offset items_charged loss remaining stopped_at_bottom"
    assert list(Receipt.__dataclass_fields__) == [
        *names.split(),
        *"sealed replayed shared durable chosen certificate isolation confinement".split(),
        *"answered wanted rise outdone_by more read_as bounded_by bounds cut list_note legs charged_to".split(),
        *"known evident known_before parts total reread reused".split(),
    ]


def test_a_free_receipt() -> None:
    free = Receipt.free(LEFT, sealed=False)
    assert (free.items_charged, free.loss, free.remaining, free.epsilon) == (0, ZCDP.nothing(), LEFT, None)
    assert str(free) == "no private row was read; nothing was charged"
    assert "read no private row" in Answer(pa.table({}), free).statement()


def test_the_statement() -> None:
    sentence = counted([5]).statement()
    assert sentence.startswith(
        "Each user_id of reads is protected: adding or removing all rows of one user_id changes the probability"
    )
    assert "within (1, 1e-06)-differential privacy in all" in sentence
    assert "this answer cost rho 0.00625, delta 2.5e-08 of that budget" in sentence
    assert sentence.endswith("limited_domain).")


def test_a_repr_shows_what_a_terminal_may_show() -> None:
    keys = pa.array(["plain", "\x1b[31mred\x07", "two\nlines", "\u202eright to left", None])
    shown = repr(answer_of({"key\n": keys}))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.splitlines()[0] == "key\ufffd"
    assert len(shown.splitlines()) == 7
    assert "NULL" in shown


def test_a_repr_is_cut() -> None:
    shown = repr(counted(list(range(50))))
    assert "... 50 rows" in shown
    assert len(shown.splitlines()) == 33


def test_other_libraries_read_an_answer_directly() -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    table = pa.table({"article": ["a", None], "n": pa.array([3, 2], pa.int64())})
    answer = Answer(table, receipt())
    assert pa.table(answer) == table
    assert pl.DataFrame(answer).rows() == [("a", 3), (None, 2)]
    assert pd.DataFrame.from_arrow(answer)["n"].tolist() == [3, 2]
    assert duckdb.sql("SELECT sum(n) FROM answer").fetchall() == [(5,)]
    wider = pa.schema([("article", pa.string()), ("n", pa.int64())])
    assert pa.RecordBatchReader.from_stream(answer, schema=wider).read_all() == table


def test_counts_under_a_bound_say_so_wherever_they_are_shown() -> None:
    columns = {"key": pa.array(["a", "b"], pa.string()), "n": pa.array([120, 80], pa.int64())}
    answer = answer_of(columns, measures=[CountColumns((1,), Fraction(4))], bounded_by=3)
    note = "each user counted in at most 3 groups: true counts can be higher"
    assert (answer.bounded_by, answer.bound_note) == (3, note)
    assert answer.notes() == [str(answer.receipt), note]
    for shown in (repr(answer), answer._repr_html_(), answer.statement()):
        assert note in shown
    assert (encode_answer(answer)["bounded_by"], encode_answer(answer)["note"]) == (3, note)
    assert dict(answer.receipt.details())["bounds"] == note
    assert encode_notes(answer)["bounds"] == note


def test_counts_without_a_bound_say_nothing() -> None:
    answer = counted([120, 80])
    assert (answer.bounded_by, answer.bound_note, answer.notes()) == (None, "", [str(answer.receipt)])
    assert encode_answer(answer)["bounded_by"] is None
    assert answer_of({"key": pa.array(["a"])}).bounded_by is None


def test_an_answer_is_a_sequence_of_rows() -> None:
    answer = counted([120, 80])
    assert list(answer) == answer.fetchall() == [("k0", 120), ("k1", 80)]
    assert (answer[0], answer[-1], answer[:1]) == (("k0", 120), ("k1", 80), [("k0", 120)])
    assert answer.columns == ["key", "n"]
    with pytest.raises(IndexError):
        answer[2]
    assert [answer.fetchone() for _ in range(4)] == [("k0", 120), ("k1", 80), None, None]
    assert answer.fetchall() == list(answer)


def test_columns_have_their_names() -> None:
    answer = answer_of({"day": DAYS, "n": pa.array(range(len(DAYS)))})
    assert (answer["n"], answer["day"]) == ([*range(len(DAYS))], [row[0] for row in answer])
    with pytest.raises(dpsql.UsageError, match=r"no column of this name") as caught:
        answer["N"]
    assert caught.value.hint == "Its columns are day, n."
    twice = Answer(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"]), answer.receipt)
    with pytest.raises(dpsql.UsageError, match="several columns"):
        twice["n"]


def test_tables_of_other_libraries_come_under_their_own_names_too() -> None:
    answer = counted([120, 80])
    assert answer.to_pandas(intervals=True).equals(answer.df(intervals=True))
    assert answer.to_polars().equals(answer.pl())


def test_intervals_are_beside_the_counts() -> None:
    answer = counted([120, 3], variance=25)
    frame = answer.df(intervals=True)
    assert frame.columns.tolist() == ["key", "n", "n_low", "n_high"]
    low, high = (column.to_pylist() for column in answer.intervals().columns[1:])
    assert (frame["n_low"].tolist(), frame["n_high"].tolist()) == (low, high)
    wide = answer.df(intervals=True, level=0.99)
    assert (wide["n_low"] <= frame["n_low"]).all()
    assert "n_low" not in answer.df().columns
    with pytest.raises(dpsql.UsageError, match="no-counts"):
        answer_of({"key": pa.array(["a"])}).df(intervals=True)


def test_rows_without_a_count_have_no_interval() -> None:
    table = pa.table({"key": ["a", "b"], "n": pa.array([500, None], pa.int64())})
    answer = Answer(table, receipt(), measures=[CountColumns((1,), Fraction(4))])
    assert answer.intervals().to_pylist()[1] == {"key": "b", "low": None, "high": None}


def test_csv_as_text_and_as_a_file(tmp_path: Path) -> None:
    answer = answer_of(
        {"key\n": pa.array(['a,"b"', None]), "day": pa.array([-(2**31) + 1, 0], pa.date32())},
    )
    text = answer.to_csv()
    assert text == '"key\n","day"\n"a,""b""","-infinity"\n,"1970-01-01"\n'
    assert answer.to_csv(tmp_path / "answer.csv") is None
    assert (tmp_path / "answer.csv").read_text() == text
    assert counted([5]).to_csv(intervals=True).splitlines()[0] == '"key","n","n_low","n_high"'  # type: ignore[union-attr]


def test_rich_shows_the_rows_with_bars_and_the_notes() -> None:
    screen = Console(width=100, file=io.StringIO(), record=True)
    screen.print(counted([4321, 900]))
    shown = screen.export_text()
    assert "4,321" in shown
    assert "\N{FULL BLOCK}" in shown
    assert "answered 10 of 10; used 27.28 % of the budget" in shown
