"""Variances, standard deviations and covariances through SQL: their values, their price, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from support.pairs import list_pairs
from support.session_kit import session_on, shared

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.plan.measures.coupled import MOST_ROWS
from dpsql.report.answer_json import encode_answer
from dpsql.session import Session
from dpsql.sql.ir.measures import SPREADS, Aggregate

CREATE = (
    "CREATE TABLE visits (id BIGINT, page VARCHAR, stars INTEGER, speed DOUBLE, cents DECIMAL(8, 2), other INTEGER)"
)
# 4,000 users with 1 to 5 visits each
ROWS = (
    "INSERT INTO visits SELECT i % 4000, if(i % 2 = 0, 'a', 'b'), 1 + i * 7919 % 5, (i * 104729 % 1000) / 100.0, "
    "(i * 31 % 800) / 100.0, i % 11 FROM range(20000) t(i) WHERE i // 4000 <= i % 5"
)
BOUNDS = {
    "rows": 5,
    "stars": {"each": {"min": 1, "max": 5}},
    "speed": {"each": {"min": 0, "max": 10}},
    "cents": {"max": 100, "each": {"min": 0, "max": 8}},
    "other": {"max": 30},
}


def session_over(*rows: str, bounds: object = BOUNDS, **table: object) -> Session:
    private = dpsql.PrivateTable("id", bounds=bounds, **table)  # type: ignore[arg-type]
    limits = dpsql.Limits(max_epsilon=100)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"visits": private}, limits=limits)
    return session_on(shared(CREATE, *(rows or (ROWS,))), policy)


def ask(sql: str, session: Session | None = None) -> dpsql.Answer:
    return (session or session_over()).sql(sql.replace("PRIVATE", "PRIVATE WITH (epsilon = 8)"))


def plain(sql: str) -> tuple[object, ...]:
    """Return what DuckDB answers."""
    row = shared(CREATE, ROWS).execute(sql).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("name", "column", "condition"),
    list_pairs(sorted(SPREADS.keys() - {"var"}), ["stars", "speed", "cents"], ["", " FILTER (WHERE page = 'a')"]),
)
def test_a_spread_is_that_of_the_rows(name: str, column: str, condition: str) -> None:
    """No user is beyond a bound, and the noise at epsilon 8 is 0.3 % of 9, the square of half of a range of 10."""
    arguments = f"{column}, stars" if name.startswith("covar") else column
    sql = f"SELECT {name}({arguments}){condition} AS v FROM visits"
    ((found,),) = ask(f"{sql} PRIVATE").fetchall()
    assert found == pytest.approx(plain(sql)[0], abs=0.1)


def test_var_is_the_variance_of_a_sample() -> None:
    session = session_over()
    first, again = (session.sql(f"SELECT {name}(stars) AS v FROM visits PRIVATE") for name in ("VAR", "VAR_SAMP"))
    assert again.receipt.replayed
    assert first.fetchall() == again.fetchall()


def test_statistics_of_one_argument_are_one_release() -> None:
    names = ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV"]
    listed = ", ".join(f"{name}(stars) AS {name.lower()}" for name in names)
    answer = ask(f"SELECT {listed}, COVAR_POP(stars, stars) AS same, COUNT(stars) AS n FROM visits PRIVATE")
    ((var, of_sample, root, root_of_sample, same, rows),) = answer.fetchall()
    assert answer.receipt.items_charged == 3
    assert root == math.sqrt(var)
    assert of_sample == pytest.approx(var * rows / (rows - 1))
    assert root_of_sample == pytest.approx(math.sqrt(of_sample))
    assert same == var


@pytest.mark.parametrize(
    ("measures", "items"),
    [
        ("VAR_POP(speed) AS v", 3),
        ("VAR_POP(speed) AS v, COUNT(speed) AS n", 3),
        ("VAR_POP(speed) AS v, AVG(speed) AS a", 3),
        ("AVG(speed) AS a, STDDEV(speed) AS v, COUNT(speed) AS n", 3),
        ("VAR_POP(speed) AS v, COUNT(*) AS n", 4),  # a speed may be NULL or NaN
        ("VAR_POP(speed) AS v, SUM(speed) AS s", 4),
        ("VAR_POP(speed) FILTER (WHERE page = 'a') AS v, COUNT(speed) AS n", 4),
        ("COVAR_POP(speed, stars) AS v", 4),
        ("COVAR_POP(speed, stars) AS v, COVAR_SAMP(stars, speed) AS w", 4),
        ("VAR_POP(speed, contribution_bounds_per_row => (0, 10)) AS v, VAR_SAMP(speed) AS w", 3),
        ("VAR_POP(speed, contribution_bounds_per_row => (0, 9)) AS v, VAR_SAMP(speed) AS w", 5),
    ],
)
def test_what_is_shared_is_paid_for_once(measures: str, items: int) -> None:
    session = session_over()
    assert session.explain(f"SELECT {measures} FROM visits PRIVATE").worst_items == items
    assert session.sql(f"SELECT {measures} FROM visits PRIVATE").receipt.items_charged == items


def test_an_average_shares_its_sum_where_it_is_around_the_middle_alone() -> None:
    """By `max = 40` one user adds 40 of cents, and by five rows 20 around the middle: a middle has less noise."""
    sql = "SELECT VAR_POP(cents) AS v, AVG(cents) AS a FROM visits PRIVATE"
    for most, items in ((40, 3), (10, 5)):
        bounds = {"rows": 5, "cents": {"max": most, "each": {"min": 0, "max": 8}}}
        assert session_over(bounds=bounds).explain(sql).worst_items == items


def test_the_order_of_a_select_list_changes_nothing() -> None:
    session = session_over()
    first = session.sql("SELECT AVG(speed) AS a, VAR_POP(speed) AS v, COVAR_POP(stars, speed) AS c FROM visits PRIVATE")
    again = session.sql("SELECT COVAR_POP(speed, stars) AS c, VAR_POP(speed) AS v, AVG(speed) AS a FROM visits PRIVATE")
    assert again.receipt.replayed
    assert again.fetchall()[0] == first.fetchall()[0][::-1]


def read(session: Session, sql: str) -> list[dict[str, Fraction]]:
    """Return the exact sums of a plan, as values."""
    plan = session.explain(sql)
    table = open_exact(session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters)))
    output = next(each for each in plan.query.outputs if each.statistic is not None)
    steps = [Fraction(1) if each.bounds is None else each.bounds.step for each in plan.query.measures]
    keys = len(plan.query.keys)
    names = ["sum", "rows", *(["other"] if len(output.places) == 4 else []), "products"]
    return [
        {name: row[keys + at] * steps[at] for name, at in zip(names, output.places, strict=True)}
        for row in zip(*table.to_pydict().values(), strict=True)
    ]


VALUES = [(1, -5.0), (1, 2.5), (1, 10.0), (1, 99.0), (2, 5.0), (3, None), (3, math.nan), (4, math.inf), (4, 7.0)]
VALUES += [(4, 7.1), *[(5, 3.0)] * 40]


def test_each_user_has_one_weight_in_all_sums() -> None:
    """At most 3 rows of a user count: the weight of one with n is min(1, 3 / n), and values are cut to 0 to 10."""
    listed = ", ".join(
        f"({unit}, 'a', 2, {'NULL' if value is None else repr(str(value))}::DOUBLE, 0, 0)" for unit, value in VALUES
    )
    session = session_over(f"INSERT INTO visits VALUES {listed}", bounds=BOUNDS | {"rows": 3})
    (found,) = read(session, "SELECT VAR_POP(speed) AS v FROM visits PRIVATE")
    (both,) = read(session, "SELECT COVAR_POP(speed, stars) AS v FROM visits PRIVATE")
    present = [(unit, min(max(v, 0), 10) - 5) for unit, v in VALUES if v is not None and not math.isnan(v)]
    units = {unit: [y for owner, y in present if owner == unit] for unit, _ in present}
    weighed = [(min(1, 3 / len(values)), y) for values in units.values() for y in values]
    assert found["rows"] == both["rows"] == 3 + 1 + 3 + 3
    assert float(found["sum"]) == pytest.approx(sum(w * y for w, y in weighed), abs=1e-3)
    assert float(found["products"]) == pytest.approx(sum(w * (y * y - 12.5) for w, y in weighed), abs=1e-3)
    assert sorted(float(both[name]) for name in ("sum", "other")) == pytest.approx(
        sorted([sum(w * y for w, y in weighed), -sum(w for w, _ in weighed)]), abs=1e-3
    )
    assert float(both["products"]) == pytest.approx(-sum(w * y for w, y in weighed), abs=1e-3)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT page, STDDEV(speed) AS s FROM visits GROUP BY page ALL PRIVATE WITH (domain = ['a', 'b'])",
        "SELECT page, COUNT(*) AS n, STDDEV(speed) AS s FROM visits GROUP BY page TOP 2 PRIVATE",
        "SELECT page, STDDEV(speed) AS s, COUNT(speed) AS n FROM visits GROUP BY page ORDER BY n DESC TOP 2 PRIVATE",
        (
            "SELECT page, COUNT(*) AS n, STDDEV(speed) AS s FROM visits GROUP BY page TOP 2 PRIVATE "
            "WITH (mechanism = gaussian_histogram, max_groups_contributed = 2)"
        ),
        (
            "SELECT x.page, x.s FROM (SELECT page, COUNT(*) AS n, STDDEV(speed) AS s FROM visits GROUP BY page "
            "TOP 2 PRIVATE) AS x WHERE x.s > 1 ORDER BY x.s DESC"
        ),
    ],
)
def test_groups_have_spreads(sql: str) -> None:
    answer = session_over().sql(sql)
    deviations = answer.column_intervals()
    at = answer.columns.index("s")
    for row, low, high in zip(answer.fetchall(), *(end.to_pylist() for end in deviations[at]), strict=True):
        assert row[at] == pytest.approx(2.88, abs=0.5)
        assert low <= row[at] <= high


def test_having_takes_a_spread() -> None:
    sql = "SELECT page, COUNT(*) AS n, STDDEV(speed) AS s FROM visits GROUP BY page HAVING s > {} TOP 2 PRIVATE"
    session = session_over()
    assert len(session.sql(sql.format(1))) == 2
    assert len(session.sql(sql.format(5))) == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT page, STDDEV(speed) AS s, COUNT(*) AS n FROM visits GROUP BY page ORDER BY n DESC LIMIT 2",
        "SELECT page, ROUND(STDDEV_POP(speed), 2) AS s FROM visits GROUP BY page ORDER BY COUNT(*) DESC LIMIT 2",
        "SELECT page, STDDEV(speed) / AVG(speed) AS s FROM visits GROUP BY page ORDER BY COUNT(*) DESC LIMIT 2",
        "SELECT VARIANCE(speed) AS s FROM visits",
        "SELECT STDDEV(speed) AS s FROM visits HAVING COUNT(*) > 10",
        (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, delta = 1e-7) "
            "VAR_POP(speed, contribution_bounds_per_row => (0, 10)) AS s FROM visits"
        ),
    ],
)
def test_standard_sql_has_spreads(sql: str) -> None:
    answer = session_over().sql(sql, implicit=True)
    assert all(0.1 < row[answer.columns.index("s")] < 12 for row in answer.fetchall())


def test_intervals_are_shown_by_every_surface() -> None:
    session = session_over()
    answer = session.sql(
        "SELECT VAR_POP(speed) AS v, value_low(v) AS low, value_high(v) AS high, STDDEV(speed) AS s, "
        "value_low(s) AS of_s FROM visits PRIVATE"
    )
    ((v, low, high, s, of_s),) = answer.fetchall()
    assert low < v < high
    assert of_s < s
    (found,) = answer.column_intervals()[0][0].to_pylist()
    assert found == low
    assert "±" in repr(answer)
    assert json.loads(json.dumps(encode_answer(answer)))["intervals"]
    assert [str(each) for each in answer.arrow().schema.types] == ["double"] * 5
    wide = session.sql("SELECT VAR_POP(speed) AS v FROM visits PRIVATE WITH (intervals = 0.999)")
    ((again, wide_low, wide_high),) = wide.fetchall()
    assert wide.receipt.replayed
    assert again == v
    assert wide_low < low
    assert wide_high > high
    with pytest.raises(dpsql.UsageError, match="no-difference"):
        answer.difference(0, 0)


def test_the_note_says_what_the_number_is() -> None:
    answer = session_over().sql(
        "SELECT STDDEV(speed) FILTER (WHERE page = 'a') AS s, COVAR_POP(stars, cents) AS c FROM visits PRIVATE"
    )
    weighs = "each user weighs as at most 5 rows, so one beyond that counts less, and"
    assert answer.bound_note == (
        f"STDDEV_SAMP(speed) FILTER (…): {weighs} values outside 0 to 10 count as its ends: the plain deviation can be "
        "higher or lower; its interval is of the weighted deviation; "
        f"COVAR_POP(stars, cents): {weighs} values of cents outside 0 to 8 and values of stars outside 1 to 5 count as "
        "the ends: the plain covariance can be higher or lower; its interval is of the weighted covariance"
    )


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("SELECT CORR(stars, speed) AS v FROM visits PRIVATE", "not-row-local", "Write COVAR_POP"),
        ("SELECT STDDEV(stars, speed) AS v FROM visits PRIVATE", "aggregate", "STDDEV has one argument"),
        ("SELECT COVAR_POP(stars) AS v FROM visits PRIVATE", "aggregate", "COVAR_POP has two arguments"),
        ("SELECT VAR_POP(DISTINCT stars) AS v FROM visits PRIVATE", "aggregate", "DISTINCT"),
        ("SELECT VAR_POP(page) AS v FROM visits PRIVATE", "aggregate", "VAR_POP is for numbers"),
        ("SELECT VAR_POP(id) AS v FROM visits PRIVATE", "aggregate", "unit"),
        ("SELECT VAR_POP(other) AS v FROM visits PRIVATE", "no-bounds", "add each = {min = 0, max = 500} to other"),
        ("SELECT VAR_POP(3) AS v FROM visits PRIVATE", "no-bounds", "the same value in every row"),
        (
            "SELECT VAR_POP(other, contribution_bounds_per_group => (0, 5)) AS v FROM visits PRIVATE",
            "option",
            "Write VAR_POP(x, contribution_bounds_per_row => (0, 500)).",
        ),
        ("SELECT VAR_POP(COUNT(*)) AS v FROM visits PRIVATE", "aggregate", "may not stand in another"),
        ("SELECT STDEV(stars) AS v FROM visits PRIVATE", "function", "stddev"),
    ],
)
def test_what_is_no_spread_of_rows_is_refused(sql: str, code: str, words: str) -> None:
    with pytest.raises(dpsql.Error) as refused:
        session_over().explain(sql)
    assert refused.value.code == code
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("call", "proposed"),
    [
        ("COVAR_POP(stars, speed > 5)", "COVAR_POP(stars, CAST(speed > 5 AS INTEGER))"),
        ("COVAR_SAMP(NOT speed > 5, stars)", "COVAR_SAMP(CAST(NOT speed > 5 AS INTEGER), stars)"),
        (
            "VAR_POP(CASE WHEN stars > 1 THEN TRUE ELSE FALSE END)",
            "VAR_POP(CAST(CASE WHEN stars > 1 THEN TRUE ELSE FALSE END AS INTEGER))",
        ),
    ],
)
def test_a_condition_is_made_a_number_by_the_hint(call: str, proposed: str) -> None:
    session = session_over()
    with pytest.raises(dpsql.Refusal, match="is for numbers, and this is BOOLEAN") as caught:
        session.sql(f"SELECT {call} AS v FROM visits PRIVATE")
    first, _, second = str(caught.value.hint).removeprefix("Write ").removesuffix(".").partition(", or ")
    assert second == proposed
    for each in (first, second):
        session.explain(f"SELECT {each} AS v FROM visits PRIVATE")


def test_the_hint_of_a_covariance_has_both_arguments() -> None:
    with pytest.raises(dpsql.Refusal, match="this is VARCHAR") as caught:
        session_over().sql("SELECT COVAR_POP(stars, page) AS v FROM visits PRIVATE")
    written = "COVAR_POP(stars, CAST(page AS DOUBLE), contribution_bounds_per_row => (0, 500))"
    assert f"Write {written}, if it is a number" in str(caught.value.hint)
    assert session_over().explain(f"SELECT {written} AS v FROM visits PRIVATE").worst_items


@pytest.mark.parametrize(
    "call", ["VAR_POP(other)", "STDDEV(other) FILTER (WHERE page = 'a')", "COVAR_POP(other, stars)"]
)
def test_the_hint_of_a_spread_without_a_range_works(call: str) -> None:
    session = session_over()
    with pytest.raises(dpsql.Refusal) as refused:
        session.explain(f"SELECT {call} AS v FROM visits PRIVATE")
    written = (refused.value.hint or "").removeprefix("Write ").partition(", with your own")[0]
    condition = call.partition(")")[2]
    assert session.sql(f"SELECT {written}{condition} AS v FROM visits PRIVATE").fetchall()


def test_rows_without_a_bound_are_refused() -> None:
    bounds = {"stars": {"each": {"min": 1, "max": 5}}}
    with pytest.raises(dpsql.Refusal, match=r"Ask the curator to add rows = 20"):
        session_over(bounds=bounds).explain("SELECT VAR_POP(stars) AS v FROM visits PRIVATE")


def test_many_rows_of_a_user_are_refused_with_a_number_that_works() -> None:
    session = session_over(bounds=BOUNDS | {"rows": 5000})
    sql = "SELECT VAR_POP(speed) AS v FROM visits PRIVATE"
    with pytest.raises(dpsql.Refusal, match=f"max_rows_contributed = {MOST_ROWS}"):
        session.explain(sql)
    assert session.sql(f"{sql} WITH (max_rows_contributed = {MOST_ROWS})").fetchall()


def test_a_range_far_from_0_loses_nothing_but_what_a_double_rounds() -> None:
    """What a user adds is within its bounds, though the values differ in their last digits alone."""
    bounds = {"rows": 1, "speed": {"each": {"min": 10**9, "max": Fraction(10**9) + Fraction(1, 10**6)}}}
    rows = "INSERT INTO visits SELECT i, 'a', 1, 1e9 + (i % 9) * 1.2e-7, 0, 0 FROM range(500) t(i)"
    session = session_over(rows, bounds=json.loads(json.dumps(bounds, default=float)))
    plan = session.explain("SELECT VAR_POP(speed) AS v FROM visits PRIVATE")
    (found,) = read(session, "SELECT VAR_POP(speed) AS v FROM visits PRIVATE")
    bounds_of_one = [each.bounds for each in plan.query.measures if each.factor is not None]
    assert all(each and abs(found["products"]) <= 500 * each.high * each.step for each in bounds_of_one)
    assert found["rows"] == 500


def test_bounds_may_be_parameters() -> None:
    sql = "SELECT VAR_POP(other, contribution_bounds_per_row => (?, ?)) AS v FROM visits PRIVATE WITH (epsilon = 8)"
    ((found,),) = session_over().sql(sql, [0, 10]).fetchall()
    assert found == pytest.approx(10, abs=0.5)
    with pytest.raises(dpsql.Refusal, match="contribution_bounds_per_row"):
        session_over().sql(sql, [10, 0])


def test_expressions_have_the_range_of_their_columns() -> None:
    session = session_over()
    for expression, range_ in (
        ("2 * stars", (2, 10)),
        ("stars + speed", (1, 15)),
        ("CASE WHEN page = 'a' THEN stars ELSE 0 END", (0, 5)),
        ("LEAST(speed, 3)", (0, 3)),
    ):
        query = session.explain(f"SELECT VAR_POP({expression}) AS v FROM visits PRIVATE").query
        assert {each.row_range for each in query.measures if each.argument} == {range_}


def draw(session: Session, sql: str, number: int, pick: Callable[[tuple[object, ...]], object]) -> list[float]:
    with pytest.warns(UserWarning, match="fresh"):
        return [float(str(pick(session.sql(sql).fetchall()[0]))) for _ in range(number)]


def test_released_spreads_have_the_noise_of_their_sums() -> None:
    """To first order of deviation 2 h^2 / (e n) / 2, for values at both ends: the mean of squares of 60 is 0.34 to 2.2.

    With a chi-square of 60 degrees that is 3e-8 from either side.
    """
    rows = "INSERT INTO visits SELECT i, 'a', if(i % 2 = 0, 2, 4), 1, 1, 1 FROM range(3000) t(i)"
    session = session_over(rows, bounds=BOUNDS | {"rows": 1})
    epsilon, users, half = 0.5, 3000, 2.0
    sql = "SELECT VAR_POP(stars) AS v FROM visits PRIVATE WITH (epsilon = 0.5, fresh = true)"
    found = draw(session, sql, 60, lambda row: row[0])
    variance = half**2 / 4
    form = [half**2 / 2 - variance, 0, 1]
    sds = [2 / epsilon, 2 * half / epsilon, half**2 / epsilon]
    expected = math.hypot(*(a * b for a, b in zip(form, sds, strict=True))) / users
    assert 0.34 < float(np.mean([((each - variance) / expected) ** 2 for each in found])) < 2.2


@pytest.mark.parametrize(
    "spread", ["VAR_POP(speed)", "COVAR_POP(speed, stars)", "STDDEV(stars) FILTER (WHERE page = 'a')"]
)
def test_different_values_beside_a_spread_change_no_sum_of_it(spread: str) -> None:
    session, found = session_over(), list[list[int]]()
    for others in ("", ", COUNT(DISTINCT other) AS d", ", COUNT(DISTINCT other) AS d, COUNT(DISTINCT page) AS e"):
        plan = session.explain(f"SELECT {spread} AS v{others} FROM visits PRIVATE")
        table = open_exact(session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters)))
        sums = zip(table.columns, plan.query.measures, strict=True)
        found.append([column[0].as_py() for column, measure in sums if measure.aggregate is not Aggregate.ITEMS])
    assert found[0] == found[1] == found[2]
