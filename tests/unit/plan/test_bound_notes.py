"""Notes about the bounds of each user: they name what the analyst wrote, and say what each row counts as."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.report.bound_notes import describe_bounds
from dpsql.session import Session
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure

CREATE = (
    "CREATE TABLE t (id BIGINT, kind VARCHAR, x DOUBLE, y DOUBLE, n INTEGER, u UINTEGER, change DOUBLE, narrow DOUBLE)"
)
BOUNDS = {
    "rows": 20,
    "x": {"max": 1200},
    "y": {"max": 10},
    "n": {"max": 500},
    "u": {"max": 30},
    "change": {"min": -10, "max": 20},
    "narrow": {"max": 400, "each": {"min": 0, "max": 50}},
}
ZERO = "values below 0 count as 0"
COUNTED, WEIGHTED = "; intervals are of the values counted so", "; its interval is of the weighted average"
EITHER, PLAIN = "so the true sum can be higher or lower", "the plain average can be higher or lower"
BEYOND = "so one beyond that counts less"


def session_over(rows: str = "SELECT 0, 'a', 1, 1, 1, 1, 1, 1") -> Session:
    table = dpsql.PrivateTable("id", bounds=BOUNDS)
    limits = dpsql.Limits(max_epsilon=100)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"t": table}, limits=limits)
    return session_on(shared(CREATE, f"INSERT INTO t {rows}"), policy)


def note_of(items: str, clause: str = "", session: Session | None = None) -> str:
    return (session or session_over()).sql(f"SELECT {items} FROM t PRIVATE {clause}").bound_note


@pytest.mark.parametrize(
    ("items", "note"),
    [
        ("COUNT(*) AS m", "COUNT(*): each user counted with at most 20 rows, so the true number can be higher"),
        ("count(x) AS m", "COUNT(x): each user counted with at most 20 rows, so the true number can be higher"),
        ("SUM(x) AS m", f"SUM(x): each user counted with at most 1,200 and values below 0 as 0, {EITHER}"),
        ("SUM(u) AS m", "SUM(u): each user counted with at most 30, so the true sum can be higher"),
        ("SUM(-y) AS m", f"SUM(-y): each user counted with -10 to 0, as is each row, {EITHER}"),
        ("SUM(change) AS m", f"SUM(change): each user counted with -10 to 20, as is each row, {EITHER}"),
        ("SUM(n / 3) AS m", f"SUM(n / 3): each user counted with at most 166.67 and values below 0 as 0, {EITHER}"),
        (
            "SUM(narrow) AS m",
            f"SUM(narrow): each user counted with at most 400 and values outside 0 to 50 as its ends, {EITHER}",
        ),
        (
            "SUM(CASE WHEN x > 1 THEN 1 ELSE 0 END) AS m",
            (
                "SUM(CASE WHEN x > 1 THEN 1 ELSE 0 END): each user counted with at most 20 rows, so the true number "
                "can be higher"
            ),
        ),
        (
            "SUM( x,\n contribution_bounds_per_group => (-2, 50)) AS m",
            f"SUM(x): each user counted with -2 to 50, as is each row, {EITHER}",
        ),
        (
            "SUM(CASE WHEN kind = 'a' THEN 2 * x ELSE x END) AS m",
            (
                "SUM(CASE WHEN kind = 'a' THEN 2 * x ELSE x …): each user counted with at most 2,400 and "
                f"values below 0 as 0, {EITHER}"
            ),
        ),
    ],
)
def test_a_measure_alone_is_named_as_written_with_its_bounds(items: str, note: str) -> None:
    assert note_of(items) == note + COUNTED


@pytest.mark.parametrize(
    ("items", "clause", "note"),
    [
        (
            "AVG(x) AS m",
            "",
            (
                f"AVG(x): each user weighs as at most 20 rows and 1,200 of x, {BEYOND}, {ZERO} and a "
                f"row above 1,200 counts as 1,200: {PLAIN}"
            ),
        ),
        (
            "AVG(u) AS m",
            "",
            (
                f"AVG(u): each user weighs as at most 20 rows and 30 of u, {BEYOND} and a row above 30 counts as 30: "
                f"{PLAIN}"
            ),
        ),
        (
            "AVG(-y) AS m",
            "",
            (
                f"AVG(-y): each user weighs as at most 20 rows and -10 to 0 of -y, {BEYOND} and values outside "
                f"-10 to 0 count as its ends: {PLAIN}"
            ),
        ),
        (
            "AVG(narrow) AS m",
            "",
            (
                f"AVG(narrow): each user weighs as at most 20 rows and 400 of narrow, {BEYOND} and values outside "
                f"0 to 50 count as its ends: {PLAIN}"
            ),
        ),
        (
            "AVG(x, contribution_bounds_per_group => (0, 5)) AS m",
            "",
            f"AVG(x): each user counts once, with the mean of its rows, each cut to 0 to 5: {PLAIN}",
        ),
        (
            "AVG(change, contribution_bounds_per_group => (2, 5)) AS m",
            "",
            f"AVG(change): each user counts once, with the mean of its rows, each cut to 2 to 5: {PLAIN}",
        ),
        (
            "AVG(x) AS m",
            "WITH (max_rows_contributed = 1)",
            f"AVG(x): each user counts once, with the mean of its rows, each cut to 0 to 1,200: {PLAIN}",
        ),
        (
            "AVG(CASE WHEN x > 1 THEN 1 ELSE 0 END) AS m",
            "",
            f"AVG(CASE WHEN x > 1 THEN 1 ELSE 0 END): each user weighs as at most 20 rows, {BEYOND}: {PLAIN}",
        ),
        (
            "AVG(x) AS m, AVG(x) FILTER (WHERE kind = 'a') AS o",
            "",
            (
                f"AVG(x) and AVG(x) FILTER (…): each user weighs as at most 20 rows and 1,200 of x, {BEYOND}, {ZERO} "
                f"and a row above 1,200 counts as 1,200: {PLAIN}"
            ),
        ),
    ],
)
def test_an_average_says_what_a_user_and_a_row_count_as(items: str, clause: str, note: str) -> None:
    assert note_of(items, clause) == note + WEIGHTED


@pytest.mark.parametrize(
    ("item", "note", "counted"),
    [
        ("AVG(x)", "a row above 1,200 counts as 1,200", 1200),
        ("AVG(narrow)", "values outside 0 to 50 count as its ends", 50),
        ("SUM(narrow) / COUNT(*)", "values outside 0 to 50 count as its ends", 50),
        ("AVG(x, contribution_bounds_per_group => (0, 5))", "each cut to 0 to 5", 5),
        ("SUM(narrow) / 4000", "values outside 0 to 50 as its ends", 50),
    ],
)
def test_a_row_counts_as_the_note_says(item: str, note: str, counted: float) -> None:
    """Of 4,000 users each has one row, of 1,300."""
    session = session_over("SELECT i, 'a', 1300, 1300, 1300, 1300, 1300, 1300 FROM range(4000) r(i)")
    answer = session.sql(f"SELECT {item} AS m FROM t PRIVATE WITH (epsilon = 8)")
    assert note in answer.bound_note
    assert answer.fetchall()[0][0] == pytest.approx(counted, rel=0.01)


def test_what_cuts_no_row_is_not_said_to() -> None:
    session = session_over()
    by_id = "(SELECT id, COUNT(*) AS c FROM t GROUP BY id)"
    for sql in (
        f"SELECT COUNT(*) FROM {by_id} PRIVATE",
        f"SELECT COUNT(*) FILTER (WHERE c > 1) / COUNT(*) AS r FROM {by_id} PRIVATE",
        f"SELECT AVG(CASE WHEN c > 1 THEN 1 ELSE 0 END) AS r FROM {by_id} PRIVATE",
        "SELECT COUNT(*) FROM (SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY id ORDER BY x) = 1) PRIVATE",
    ):
        assert session.sql(sql).bound_note == "", sql
    assert "can be higher" in session.sql("SELECT COUNT(*) FROM t PRIVATE WITH (max_rows_contributed = 1)").bound_note
    assert "can be higher" in session.sql(f"SELECT SUM(c) FROM {by_id} PRIVATE").bound_note


@pytest.mark.parametrize(
    ("item", "names"),
    [
        ("SUM(n) / COUNT(*)", "SUM(n) and COUNT(*): each user weighs as at most 20 rows and 500 of n,"),
        ("SUM(n) * 2 - SUM(u)", "SUM(n) and SUM(u): each user weighs as at most 500 of n and 30 of u,"),
        ("SUM(u) + SUM(n)", "SUM(u) and SUM(n): each user weighs as at most 30 of u and 500 of n,"),
        (
            "COUNT(*) FILTER (WHERE kind = 'a') - COUNT(*) FILTER (WHERE kind = 'b')",
            "COUNT(*) FILTER (…) and COUNT(*) FILTER (…): each user weighs as at most 20 rows,",
        ),
    ],
)
def test_measures_that_meet_are_named_and_called_no_ratio(item: str, names: str) -> None:
    note = note_of(f"{item} AS m")
    assert note.startswith(f"computed from {names} {BEYOND}")
    assert note.removesuffix("; intervals are of the weighted values").endswith(
        "the plain value can be higher or lower"
    )
    assert "ratio" not in note


def test_rows_of_each_sum_of_a_set_are_told_apart() -> None:
    note = note_of("SUM(n) / SUM(change) AS m")
    assert "values of n below 0 count as 0, a row of n above 500 counts as 500 and values of change outside" in note


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ("SUM(n) / COUNT(*) AS m", 1),
        ("SUM(n) / COUNT(*) AS m, COUNT(*) AS c", 1),
        ("SUM(n) - COUNT(*) AS m", 0),
        ("SUM(n) / COUNT(*) AS m, value_low(m) AS low", 1),
        ("2 * AVG(x) AS m", 0),
        ("AVG(x) AS m", 1),
        ("2 * AVG(x) AS m, value_low(AVG(x)) AS low", 1),
    ],
)
def test_intervals_of_weighted_values_are_told_where_there_are_some(items: str, told: int) -> None:
    assert note_of(items).count("of the weighted") == told


def test_equal_bounds_are_told_once() -> None:
    note = note_of("COUNT(*) AS m, COUNT(*) FILTER (WHERE kind = 'a') AS o, COUNT(x) AS p")
    assert note.startswith("COUNT(*), COUNT(*) FILTER (…) and COUNT(x): each user counted with at most 20 rows,")
    assert note.count("20 rows") == 1


def test_a_stored_answer_has_the_words_of_the_statement_at_hand() -> None:
    session = session_over()
    items = ("AVG(x) AS m, SUM(x) AS s", "SUM( x ) AS s, AVG(x) AS m")
    answers = [session.sql(f"SELECT {each} FROM t PRIVATE") for each in items]
    assert answers[1].receipt.replayed
    assert {answer.bound_note for answer in answers} == {answers[0].bound_note}
    assert answers[0].bound_note.startswith("SUM(x): each user counted with at most 1,200")
    assert "; AVG(x): each user weighs as at most 20 rows and 1,200 of x" in answers[0].bound_note
    first, other = (session.sql(f"SELECT SUM({each}) AS s FROM t PRIVATE") for each in ("x", "T.X"))
    assert other.receipt.replayed
    assert (first.bound_note[:8], other.bound_note[:10]) == ("SUM(x): ", "SUM(T.X): ")


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ("COUNT(*) AS m", "COUNT(*): "),
        ("SUM(-y) AS m", "SUM of y: each user counted with -10 to 0,"),
        ("AVG(-y) AS m", "AVG of y: each user weighs as at most 20 rows and -10 to 0 of y,"),
        ("SUM(1) AS m", "SUM of an expression: each user counted with at most 20,"),
    ],
)
def test_measures_without_words_are_named_by_their_columns(items: str, named: str) -> None:
    query = session_over().explain(f"SELECT {items} FROM t PRIVATE").query
    bare = replace(query, measures=tuple(replace(each, words=None) for each in query.measures))
    assert bare == query
    assert describe_bounds(bare, None).startswith(named)


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [
        ("-10", "20", "-10 to 20"),
        ("0", "500/3", "166.67"),
        ("0", "1234567", "1,234,567"),
        ("0", "12345.67", "12,345.67"),
        ("0", "1/7000", "0.00014286"),
        ("-1/3", "1000", "-0.333 to 1,000"),
        ("-7", "1/3", "-7 to 0.33334"),
    ],
)
def test_bounds_are_in_few_digits_and_hold_what_counts(least: str, most: str, shown: str) -> None:
    query = session_over().explain("SELECT SUM(change) AS m FROM t PRIVATE").query
    bounds = ContributionRange.of_values(Fraction(least), Fraction(most), type_=None)
    measure: Measure = replace(query.measures[0], bounds=bounds)
    note = describe_bounds(replace(query, measures=(measure,)), None)
    assert f"counted with{'' if bounds.low < 0 else ' at most'} {shown}" in note
    assert measure.aggregate is Aggregate.SUM
