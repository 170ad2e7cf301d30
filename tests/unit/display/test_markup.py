"""Answers as HTML: nothing in them is obeyed, nothing reaches out, and what is shown is what was released."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree as ET

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_kit import LEFT, LOSS, counted, receipt
from support.html_pages import cells, page, words

import dpsql
from dpsql.accounting import ZCDP, ApproximateDP, BudgetVector
from dpsql.answer import Answer, CountColumns, Promise
from dpsql.display import (
    Bar,
    Message,
    Meter,
    Part,
    Sheet,
    SheetColumn,
    box_html,
    is_plural,
    plural,
    remove_style,
    replace_unprintable,
    sheet_html,
    style_sheet,
    with_article,
)
from dpsql.display.text import element, meter_html
from dpsql.errors import Place
from dpsql.quantities import Delta, Epsilon

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)' \"x\"",
    "&lt;b&gt; &amp;",
    "</style><style>*{display:none}",
    "<!-- ",
    "]]>",
    "${alert(1)} {{7*7}} $x^2$",
]
GRANTED = BudgetVector("0.0229375", "5e-7")


def answer_of(keys: list[str | None], name: str = "key") -> Answer:
    table = pa.table({name: pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})
    promise = Promise("user_id", "reads", ApproximateDP(Epsilon(1), Delta("1e-6")), limit=GRANTED)
    return Answer(table, receipt(), measures=[CountColumns((1,), Fraction(4))], promise=promise)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_never_read_as_markup(text: str) -> None:
    root = page(answer_of([text], name=text[:50])._repr_html_())
    assert cells(root)[0][0] == text
    assert text[:50] in words(root)


@pytest.mark.parametrize("text", HOSTILE)
def test_an_attribute_is_never_read_as_markup(text: str) -> None:
    root = ET.fromstring(element("div", {"aria-label": text}))
    assert root.attrib == {"aria-label": text}
    assert len(root) == 0


@given(st.text(st.characters(codec="utf-8"), max_size=150))
def test_any_text_is_one_cell_of_printable_characters(text: str) -> None:
    assert cells(page(answer_of([text])._repr_html_()))[0][0] == replace_unprintable(text)


def test_what_turns_the_direction_or_hides_is_replaced() -> None:
    shown = answer_of(["\u202eright to left", "zero\u200bwidth", "\x1b[31m", "two\nlines", None])._repr_html_()
    mark = "\ufffd"
    wanted = [f"{mark}right to left", f"zero{mark}width", f"{mark}[31m", f"two{mark}lines", "NULL"]
    assert [row[0] for row in cells(page(shown))] == wanted


def test_a_long_text_is_shortened_and_a_long_answer_cut() -> None:
    root = page(answer_of(["x" * 5000] * 80)._repr_html_())
    assert len(cells(root)) == 50
    assert {len(row[0]) for row in cells(root)} == {200}
    assert "The first 50 of 80 rows are shown" in words(root)
    wide = page(sheet_html(Sheet("wide", [SheetColumn(f"c{at}", False) for at in range(40)], [["x"] * 40], 1)))
    assert len(cells(wide)[0]) == 24
    assert "The first 24 of 40 columns are shown" in words(wide)


def test_counts_and_intervals_are_the_released_ones() -> None:
    answer = counted([4321, 900, -3])
    shown = cells(page(answer._repr_html_()))
    _, (high, *_) = (column.to_pylist() for column in answer.intervals(0.95).columns[1:])
    half = high - 4321
    assert [row[:2] for row in shown] == [["k0", f"4,321 ± {half}"], ["k1", f"900 ± {half}"], ["k2", f"-3 ± {half}"]]


def test_bars_grow_with_counts_and_never_leave_their_frame() -> None:
    root = page(counted([4321, 900, -3, 0])._repr_html_())
    body = next(root.iter("tbody"))
    bars = [float(rect.get("width", "")) for rect in body.iter("rect")]
    ends = [float(line.get(end, "")) for line in body.iter("line") for end in ("x1", "x2")]
    assert bars[0] > bars[1] > bars[2] == bars[3] == 0
    assert min(ends) >= 0
    assert max(ends) == 1000


def test_adjusted_counts_have_no_intervals_and_rows_without_a_count_no_bar() -> None:
    table = pa.table({"key": ["a", "b"], "n": pa.array([5, None], pa.int64())})
    adjusted = Answer(table, receipt(), measures=[CountColumns((1,), Fraction(4), adjusted=True)])
    root = page(adjusted._repr_html_())
    assert "±" not in words(root)
    assert "interval" not in words(root)
    assert len(list(root.iter("rect"))) == 1
    plain = cells(page(Answer(table, receipt(), measures=[CountColumns((1,), Fraction(4))])._repr_html_()))
    assert plain == [["a", "5 ± 4", ""], ["b", "NULL", ""]]


def test_a_replay_says_that_nothing_was_charged() -> None:
    answer = answer_of(["a"])
    assert "nothing was charged" not in words(page(answer._repr_html_()))
    answer.receipt = replace(receipt(), replayed=True, loss=ZCDP.nothing())
    said = words(page(answer._repr_html_()))
    assert "stored answer, nothing was charged" in said
    assert "this answer" not in said


def test_the_meter_adds_up_to_what_was_granted() -> None:
    root = page(answer_of(["a"])._repr_html_())
    assert GRANTED.rho.value == LOSS.rho.value + LEFT.rho.value
    rho, delta = (svg for svg in root.iter("svg") if svg.get("role") == "img")
    assert rho.get("aria-label") == "rho: this answer 27.25 %, 72.75 % of it left"
    assert delta.get("aria-label") == "delta: this answer 5 %, 95 % of it left"


@given(st.lists(st.fractions(0, 1), min_size=1, max_size=3), st.fractions(Fraction(1, 10**6), 10))
def test_a_meter_never_shows_more_left_than_there_is(shares: list[Fraction], granted: Fraction) -> None:
    parts = [Part(f"part {at}", share * granted) for at, share in enumerate(shares)]
    left = max(Fraction(0), granted - sum((part.amount for part in parts), Fraction(0)))
    html = meter_html(Meter("rho", granted, parts, left))
    bar = page(f"<div><style></style>{html}</div>").find("svg")
    assert bar is not None
    _, *drawn = bar.iter("rect")
    widths = sum(int(rect.get("width", "")) for rect in drawn)
    assert 1000 * (1 - left / granted) <= widths <= 1000
    said = _left(bar.get("aria-label"))
    assert said <= 100 * left / granted
    assert said > 100 * left / granted - Fraction("0.011")


def _left(label: str | None) -> Fraction:
    return Fraction((label or "").rpartition(" % of it left")[0].split()[-1])


def test_without_style_and_drawings_every_number_is_still_there() -> None:
    html = re.sub(r"<(style|svg)\b.*?</\1>", "", answer_of(["a", "b"])._repr_html_(), flags=re.DOTALL)
    assert "svg" not in html
    assert "style" not in html
    said = words(ET.fromstring(html))
    for number in ("a 0 ± 4", "b 1 ± 4", "this answer 27.25 %, 72.75 % of it left"):
        assert number in " ".join(said.split())


def test_nothing_granted_is_not_drawn() -> None:
    assert not meter_html(Meter("delta", Fraction(0), [Part("spent", Fraction(0))], Fraction(0)))


@pytest.mark.parametrize("certificate", ["zcdp", "pure", "theorem2", "optimal"])
def test_every_certificate_has_meters_in_its_own_currencies(certificate: str) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    budget = dpsql.Budget(1, "1e-6", items=20, queries=4, certificate=certificate)
    policy = dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")})
    with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
        answer = session.sql(
            "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (mechanism = limited_domain)"
        )
        labels = [svg.get("aria-label") or "" for svg in page(answer._repr_html_()).iter("svg") if svg.get("role")]
        names = answer.receipt.certificate.currencies
        assert [label.split(":")[0] for label in labels] == list(names)
        assert all("already used" not in label and "this answer" in label for label in labels)
        balance = page(session.budget._repr_html_())
        whole, *each = (_left(svg.get("aria-label")) for svg in balance.iter("svg") if svg.get("role"))
        assert each == list(map(_left, labels))
        assert whole == min(each)


def test_plans_forecasts_and_budgets_are_pages_and_words() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    sql = "SELECT article FROM reads WHERE article <> '<b>' GROUP BY article TOP 5 PRIVATE"
    with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
        for told in (session.explain(sql), session.forecast(sql, times=3), session.budget):
            bundle = told._repr_mimebundle_()
            assert bundle["text/plain"] == str(told)
            said = words(page(bundle["text/html"]))
            assert "nothing was charged" in said or "remaining" in said
        free = page(session.sql("SHOW TABLES")._repr_html_())
        assert cells(free) == [["reads", "private", "user_id", "NULL", "NULL"]]
        assert "no private row was read; nothing was charged" in words(free)


def test_who_hears_the_page_is_told_what_is_what() -> None:
    root = page(answer_of(["a", "b"])._repr_html_())
    assert root.get("role") == "group"
    assert root.get("aria-label")
    table, details = root.iter("table")
    assert table[0].tag == "caption"
    assert details in list(next(root.iter("details")).iter("table"))
    heads = [head.get("scope") for head in root.iter("th")]
    assert set(heads) == {"col", "row"}
    hidden = {id(svg) for cell in root.iter("td") if cell.get("aria-hidden") == "true" for svg in cell.iter("svg")}
    for svg in root.iter("svg"):
        assert id(svg) in hidden or svg.get("aria-hidden") == "true" or svg.get("aria-label")


def test_an_error_is_a_box_with_place_reason_and_hint() -> None:
    statement = "SELECT article\nFROM reads <b> & more"
    error = dpsql.Refusal("code", "The <reason>.", hint="Do & see.", place=Place(2, 12, "<b>"))
    root = page(box_html(Message(error, statement)))
    said = words(root)
    for part in ("Refusal: code", "The <reason>.", "Do & see.", "line 2, column 12"):
        assert part in said
    (pre,), (mark,) = root.iter("pre"), root.iter("mark")
    assert "".join(pre.itertext()) == "FROM reads <b> & more"
    assert mark.text == "<b>"


@pytest.mark.parametrize(
    "place", [Place(1, 1, "other"), Place(9, 1, "x"), Place(1, 900, "x"), Place(1, 1), "a key", None]
)
def test_a_place_that_does_not_fit_the_statement_is_told_in_words(place: Place | str | None) -> None:
    root = page(box_html(Message(dpsql.PolicyError("code", "Why.", hint="How.", place=place), "SELECT 1")))
    assert not list(root.iter("mark"))
    assert (str(place) in words(root)) == (place is not None)


def test_an_error_tells_ipython_what_it_says_and_nothing_that_does_not_print() -> None:
    error = dpsql.Refusal("code", "Why \x1b[31m.", hint="How.", place=Place(1, 2, "x"))
    assert error._render_traceback_() == [
        "Refusal: code",
        "  where  line 1, column 2 near 'x'",
        "  why    Why ?[31m.",
        "  hint   How.",
    ]


def test_a_bar_is_drawn_on_the_scale_of_the_largest() -> None:
    bars = [Bar(100, 50, 200), Bar(10, None, None), None]
    rows = [["a"], ["b"], ["c"]]
    root = page(sheet_html(Sheet("t", [SheetColumn("key", False)], rows, 3, bars=bars)))
    assert [rect.get("width") for rect in root.iter("rect")] == ["500", "50"]
    assert math.isclose(max(float(line.get("x2", "")) for line in root.iter("line")), 1000)


def test_a_page_that_lets_no_style_in_gets_the_rest_and_the_style_as_a_file() -> None:
    html = answer_of(["<style>a</style>"])._repr_html_()
    bare = remove_style(html)
    assert "<style" not in bare
    assert "&lt;style&gt;a&lt;/style&gt;" in bare
    assert html == bare.replace('">', f'"><style>{style_sheet()}</style>', 1)


def test_null_and_the_text_null_differ_wherever_they_are_shown() -> None:
    keys = pa.array(["NULL", None, "'NULL'"])
    answer = Answer(
        pa.table({"key": keys, "n": pa.array([3, 2, 1])}), receipt(), measures=[CountColumns((1,), Fraction(4))]
    )
    shown = ["'NULL'", "NULL", "'''NULL'''"]
    assert [row[0] for row in cells(page(answer._repr_html_()))] == shown
    assert [line.split(" | ")[0] for line in repr(answer).splitlines()[1:4]] == shown
    assert [line.split(",")[0] for line in (answer.to_csv() or "").splitlines()[1:]] == ['"NULL"', "", "\"'NULL'\""]


def test_half_a_width_is_explained_where_there_is_one() -> None:
    assert "± is half the width of the 95 % interval" in words(page(counted([5])._repr_html_()))
    assert repr(counted([5])).splitlines()[1] == "k0 | 5 ± 78"
    assert repr(counted([5])).splitlines()[2].endswith("; ± at 95 %")
    for without in (counted([]), Answer(pa.table({"key": ["a"]}), receipt())):
        assert "±" not in words(page(without._repr_html_()))
        assert "±" not in repr(without)


@pytest.mark.parametrize(
    ("noun", "several"),
    [("city", "cities"), ("box", "boxes"), ("class", "classes"), ("status", "statuses"), ("branch", "branches")]
    + [(several, several) for several in ("articles", "n_loans", "Seconds", "areas")],
)
def test_a_plural_is_not_made_a_plural_again(noun: str, several: str) -> None:
    assert plural(noun) == several
    assert is_plural(noun) == (noun == several)


def test_a_noun_has_the_article_of_its_sound() -> None:
    assert [*map(with_article, ["area", "hour", "user", "house"])] == ["an area", "an hour", "a user", "a house"]
