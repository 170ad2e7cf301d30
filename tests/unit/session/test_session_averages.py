"""AVG and ratios through SQL: each user has one weight, so that what is divided is of the same rows."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.session_kit import session_on, shared

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.intervals import widen_quotients
from dpsql.plan.measures.coupled import refine_coupled
from dpsql.plan.mechanisms.base import CountNoise
from dpsql.plan.release import describe_noise, find_place
from dpsql.session import Session
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure, Weight
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import rewrite_total

CREATE = "CREATE TABLE visits (id BIGINT, page VARCHAR, dwell INTEGER, speed DOUBLE, change INTEGER)"
# 3,000 users with 1 to 5 visits of 10 seconds, and one with 400
ROWS = (
    (
        "INSERT INTO visits SELECT i % 3000, if(i % 2 = 0, 'a', 'b'), 10, 2.5, if(i % 3 = 0, -4, 4) "
        "FROM range(15000) t(i) WHERE i // 3000 <= i % 5"
    ),
    "INSERT INTO visits SELECT 10000, 'a', 10, 'nan', 4 FROM range(400)",
)
BOUNDS = {"rows": 2, "dwell": {"max": 600}, "speed": {"max": 4}, "change": {"min": -10, "max": 10}}


def session_over(*rows: str, bounds: object = BOUNDS, **table: object) -> Session:
    private = dpsql.PrivateTable("id", bounds=bounds, **table)  # type: ignore[arg-type]
    limits = dpsql.Limits(max_epsilon=100)
    return session_on(
        shared(CREATE, *rows), dpsql.Policy(dpsql.Budget(100, "1e-6"), {"visits": private}, limits=limits)
    )


def ask(sql: str, session: Session | None = None) -> dpsql.Answer:
    return (session or session_over(*ROWS)).sql(sql.replace("PRIVATE", "PRIVATE WITH (epsilon = 8)"))


def measures_of(sql: str) -> list[tuple[str, int]]:
    """Return the measures of the private query of a statement with the numbers of their sets, 0 for none."""
    query = session_over(*ROWS).explain(sql).query
    return [
        (
            f"{each.aggregate.value}{'' if each.argument is None else ' ' + each.columns[0][1]}",
            each.weight.number if each.weight else 0,
        )
        for each in query.measures
    ]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT AVG(dwell) AS a FROM visits PRIVATE", 10),
        ("SELECT AVG(speed) AS a FROM visits PRIVATE", 2.5),
        ("SELECT AVG(dwell) FILTER (WHERE page = 'a') AS a FROM visits PRIVATE", 10),
        ("SELECT SUM(dwell) / COUNT(*) AS a FROM visits PRIVATE", 10),
        ("SELECT CAST(SUM(dwell) AS DOUBLE) / NULLIF(COUNT(*), 0) AS a FROM visits PRIVATE", 10),
        ("SELECT COALESCE(SUM(dwell), 0) / GREATEST(COUNT(dwell), 1) AS a FROM visits PRIVATE", 10),
        ("SELECT ROUND(SUM(speed) / COUNT(speed), 3) AS a FROM visits PRIVATE", 2.5),
        ("SELECT SUM(dwell) / SUM(speed) AS a FROM visits WHERE id < 10000 PRIVATE", 4),
        ("SELECT x.s / x.n AS a FROM (SELECT SUM(dwell) AS s, COUNT(*) AS n FROM visits PRIVATE) AS x", 10),
        (
            "SELECT q / n AS a FROM (SELECT s AS q, n FROM (SELECT SUM(dwell) s, COUNT(*) n FROM visits PRIVATE) x)",
            10,
        ),
        ("WITH x AS (SELECT SUM(dwell) AS s, COUNT(*) AS n FROM visits PRIVATE) SELECT s / n AS a FROM x", 10),
        (
            "WITH x(q, m) AS (SELECT SUM(dwell) AS s, COUNT(*) AS n FROM visits PRIVATE) SELECT [q / m][1] AS a FROM x",
            10,
        ),
    ],
)
def test_a_quotient_is_that_of_the_rows_whatever_the_bound_of_rows_is(sql: str, value: float) -> None:
    """With two rows a user and a bound of 600, a sum cut at 600 and a count cut at 2 make 40 and more of 10."""
    ((found,),) = ask(sql).fetchall()
    assert float(found) == pytest.approx(value, rel=0.06)


def test_each_group_has_its_own_quotient() -> None:
    sql = "SELECT page, AVG(dwell) AS a, COUNT(*) AS n FROM visits GROUP BY page ORDER BY n DESC LIMIT 2"
    for _, mean, _ in session_over(*ROWS).sql(sql, implicit=True).fetchall():
        assert mean == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("scale", [1, 100.0])
def test_a_share_is_that_of_weighted_rows_from_0_to_1(scale: float) -> None:
    factor = "" if scale == 1 else f"{scale} * "
    ((share,),) = ask(
        f"SELECT {factor}COUNT(*) FILTER (WHERE page = 'a') / COUNT(*) AS s FROM visits PRIVATE"
    ).fetchall()
    assert 0.3 * scale < share < 0.7 * scale
    session = session_over("INSERT INTO visits SELECT 1, 'a', 1, 1, 1")
    for _ in range(12):  # counts of about 1, with noise far above that
        ratio = f"{factor}COUNT(*) FILTER (WHERE page = 'a') / NULLIF(COUNT(*), 0)"
        sql = f"SELECT {ratio} AS s FROM visits PRIVATE WITH (epsilon = 0.05, fresh = true)"
        with pytest.warns(UserWarning, match="fresh"):
            ((share,),) = session.sql(sql).fetchall()
        assert share is None or 0 <= share <= scale or math.isnan(share)


@pytest.mark.parametrize(
    ("sql", "measures"),
    [
        ("SELECT AVG(dwell) AS a FROM visits PRIVATE", [("COUNT", 1), ("SUM dwell", 1)]),
        (
            "SELECT AVG(dwell) AS a, SUM(dwell) AS s, COUNT(dwell) AS n FROM visits PRIVATE",
            [("COUNT", 0), ("COUNT", 1), ("SUM dwell", 0), ("SUM dwell", 1)],
        ),
        (
            "SELECT AVG(dwell) AS a, SUM(dwell) / COUNT(dwell) AS b FROM visits PRIVATE",
            [("COUNT", 1), ("SUM dwell", 1)],
        ),
        (
            "SELECT SUM(dwell) / COUNT(*) AS a, COUNT(*) AS n FROM visits PRIVATE",
            [("COUNT", 0), ("COUNT", 1), ("SUM dwell", 1)],
        ),
        (
            "SELECT SUM(dwell) / COUNT(DISTINCT id) AS a FROM visits PRIVATE",
            [("COUNT(DISTINCT unit)", 0), ("SUM dwell", 0)],
        ),
        (
            "SELECT SUM(dwell) / COUNT(*) / COUNT(DISTINCT id) AS a FROM visits PRIVATE",
            [("COUNT", 1), ("COUNT(DISTINCT unit)", 0), ("SUM dwell", 1)],
        ),
        (
            "SELECT CASE WHEN COUNT(*) > 9 THEN SUM(dwell) END AS a FROM visits PRIVATE",
            [("COUNT", 0), ("SUM dwell", 0)],
        ),
        ("SELECT COUNT(*) || ' of ' || SUM(dwell) AS a FROM visits PRIVATE", [("COUNT", 0), ("SUM dwell", 0)]),
        (
            "SELECT x.s, x.n FROM (SELECT SUM(dwell) AS s, COUNT(*) AS n FROM visits PRIVATE) AS x WHERE x.s > 3 * x.n",
            [("COUNT", 1), ("SUM dwell", 1)],
        ),
        (
            "SELECT s, n FROM (SELECT SUM(dwell) s, COUNT(*) n FROM visits PRIVATE) AS x WHERE x.s > 3 AND x.n > 1",
            [("COUNT", 0), ("SUM dwell", 0)],
        ),
        (
            "SELECT AVG(dwell) - AVG(speed) AS a FROM visits PRIVATE",
            [("COUNT", 1), ("COUNT", 2), ("SUM dwell", 2), ("SUM speed", 1)],
        ),
    ],
)
def test_measures_that_meet_are_one_set_and_others_keep_their_own_cut(
    sql: str, measures: list[tuple[str, int]]
) -> None:
    assert sorted(measures_of(sql)) == sorted(measures)
    assert session_over(*ROWS).sql(sql).receipt.items_charged == len(measures)


def test_the_order_of_a_select_list_changes_no_set() -> None:
    session = session_over(*ROWS)
    first = session.sql("SELECT AVG(dwell) AS a, AVG(speed) AS b FROM visits PRIVATE")
    again = session.sql("SELECT AVG(speed) AS b, AVG(dwell) AS a, SUM(speed) / COUNT(speed) AS c FROM visits PRIVATE")
    assert again.receipt.replayed
    assert first.fetchall()[0] == again.fetchall()[0][1::-1]


def test_a_sum_beside_an_average_is_that_of_the_sum_alone() -> None:
    """Each keeps its own cut: of the rows of one user, 600 in the sum, and two rows in the average.

    The mean of 16 sums has a standard deviation of 37.5: it is 240 off with 1.6e-10. With the cut of the average it
    would be 20.
    """
    rows = "INSERT INTO visits SELECT 1, 'a', 10, 1, 1 FROM range(50)"
    sql = "SELECT AVG(dwell) AS a, SUM(dwell) AS s, COUNT(dwell) AS n FROM visits PRIVATE"
    drawn = [ask(sql, session_over(rows)).fetchall()[0] for _ in range(16)]
    assert abs(sum(total for _, total, _ in drawn) / 16 - 500) < 240
    assert abs(sum(count for _, _, count in drawn) / 16 - 2) < 1
    assert all(mean is None or mean < 400 for mean, _, _ in drawn)


def read(session: Session, query: PrivateQuery) -> tuple[int, ...]:
    """Return the exact steps of the measures of a total."""
    counting = rewrite_total(query)
    return shared_rows(session, counting.sql, counting.parameters)


def shared_rows(session: Session, sql: str, parameters: tuple[object, ...]) -> tuple[int, ...]:

    table = open_exact(session._dependencies.engine.execute(Statement(sql, parameters)))
    return tuple(column[0].as_py() for column in table.columns)


def center(query: PrivateQuery, least: Fraction, most: Fraction) -> PrivateQuery:
    """Return the query as if the policy said between which numbers the value of a row is."""
    plain = [
        replace(
            each,
            bounds=each.row_bounds,
            weight=each.weight and Weight(each.weight.number),
            row_range=(least, most) if each.argument else None,
        )
        for each in query.measures
    ]
    return refine_coupled(replace(query, measures=tuple(plain)))


def mean_of(session: Session, query: PrivateQuery) -> float:
    """Return the average of a query with one output, without noise."""
    exact, (output,) = read(session, query), query.outputs
    total, rows = query.measures[output.measure], query.measures[output.divisor or 0]
    assert total.bounds is not None
    assert rows.bounds is not None
    quotient = exact[output.measure] * total.bounds.step / (exact[output.divisor or 0] * rows.bounds.step)
    return float(find_place(total).put(quotient))


VALUES = st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 30)), min_size=1, max_size=25)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.sampled_from([1, 2, 5]), st.sampled_from([12, 100]), st.booleans())
def test_an_average_is_between_those_of_the_users(
    rows: list[tuple[int, int]], most_rows: int, most: int, is_centred: bool
) -> None:
    listed = ", ".join(f"({unit}, 'a', {value}, NULL, NULL)" for unit, value in rows)
    session = session_over(f"INSERT INTO visits VALUES {listed}", bounds={"rows": most_rows, "dwell": {"max": most}})
    query = session.explain("SELECT AVG(dwell) AS a FROM visits PRIVATE").query
    if is_centred:
        query = center(query, Fraction(0), Fraction(most))
        assert (query.measures[query.outputs[0].measure].weight or Weight(0)).centre == (
            Fraction(most, 2) if most * most_rows <= 2 * most else None
        )
    clamped = [(unit, min(max(value, 0), most)) for unit, value in rows]
    units = {unit: [value for owner, value in clamped if owner == unit] for unit, _ in clamped}
    means = [sum(values) / len(values) for values in units.values()]
    found = mean_of(session, query)
    assert min(means) - 0.01 <= found <= max(means) + 0.01
    if most_rows == 1 and all(sum(values) <= most * len(values) for values in units.values()):
        assert found == pytest.approx(sum(means) / len(means), abs=0.01)  # the mean of the means of users


def test_around_the_middle_of_a_range_the_count_is_that_of_rows_alone() -> None:
    session = session_over(*ROWS)
    query = session.explain("SELECT AVG(change) AS a, COUNT(change) AS n FROM visits PRIVATE").query
    assert len(query.measures) == 3
    centred = center(query, Fraction(-5), Fraction(4))
    assert len(centred.measures) == 2
    total, rows = centred.measures[centred.outputs[0].measure], centred.measures[centred.outputs[0].divisor or 0]
    assert (rows.weight, rows.bounds) == (None, ContributionRange(0, 2))
    assert centred.outputs[1].measure == centred.outputs[0].divisor
    assert total.weight is not None
    assert (total.weight.centre, total.weight.rows) == (Fraction(-1, 2), 2)
    assert total.bounds is not None
    assert total.bounds.high * total.bounds.step == 9
    assert total.bounds.width <= 2**20
    exact = read(session, centred)
    assert exact[centred.outputs[0].divisor or 0] == 2 * 2400 + 1 * 600 + 2
    expected = sum(
        float(value) * min(1, 2 / rows)
        for value, rows in fetch("SELECT sum(greatest(change, -5) + .5), count(*) FROM visits GROUP BY id")
    )
    assert exact[centred.outputs[0].measure] * float(total.bounds.step) == pytest.approx(expected, abs=0.1)


def fetch(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for statement in (CREATE, *ROWS):
            connection.execute(statement)
        return connection.execute(sql).fetchall()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("least", "most", "is_centred"),
    [(0, 600, True), (0, 620, False), (-300, 300, True), (590, 600, True), (5, 5, False), (0, 10**9, False)],
)
def test_a_centre_is_taken_where_it_has_less_noise(least: int, most: int, is_centred: bool) -> None:
    """The sum has the sensitivity 600, and around the middle that of two rows from there to an end."""
    query = center(
        session_over(*ROWS).explain("SELECT AVG(dwell) AS a FROM visits PRIVATE").query, Fraction(least), Fraction(most)
    )
    assert any(each.weight is not None and each.weight.centre is not None for each in query.measures) is is_centred


def test_nan_counts_in_neither_part_of_an_average() -> None:
    session = session_over(
        "INSERT INTO visits SELECT i, 'a', 1, if(i % 2 = 0, 'nan'::DOUBLE, 3), 1 FROM range(4000) t(i)"
    )
    ((mean, counted, rows),) = ask(
        "SELECT AVG(speed) AS a, COUNT(speed) AS n, COUNT(*) AS rows FROM visits PRIVATE", session
    ).fetchall()
    assert mean == pytest.approx(3, rel=0.02)
    assert abs(counted - 2000) < 20
    assert abs(rows - 4000) < 20


def test_an_average_of_too_few_rows_is_null() -> None:
    session = session_over("INSERT INTO visits SELECT 1, 'a', 1, 1, 1 WHERE false")
    values = []
    for _ in range(20):
        with pytest.warns(UserWarning, match="fresh"):
            answer = session.sql(
                "SELECT AVG(dwell) AS a, value_low(a) AS low FROM visits PRIVATE WITH (epsilon = 0.2, fresh = true)"
            )
        values += answer.fetchall()
    assert any(mean is None for mean, _ in values)
    assert all((mean is None) == (low is None) for mean, low in values)


def test_intervals_hold_the_average_of_the_weighted_rows() -> None:
    """Of 300 draws at 95 %, each with the noise of its release, at most 30 intervals may miss it."""
    session = session_over(*ROWS)
    query = session.explain("SELECT AVG(dwell) AS a FROM visits WHERE id < 10000 PRIVATE").query
    exact, (output,) = read(session, query), query.outputs
    places = (output.measure, output.divisor or 0)
    total, rows = (query.measures[at] for at in places)
    truth = mean_of(session, query)
    variances = [Fraction((2 * each.sensitivity) ** 2) for each in (total, rows)]
    noises = tuple(
        describe_noise(CountNoise(variance), each) for variance, each in zip(variances, (total, rows), strict=True)
    )
    generator, missed = np.random.default_rng(5), 0
    for _ in range(300):
        drawn = [
            exact[at] + round(generator.normal(0, math.sqrt(variance)))
            for at, variance in zip(places, variances, strict=True)
        ]
        (low,), (high,) = widen_quotients([(drawn[0], drawn[1])], noises=(noises[0], noises[1]), level=0.95)
        missed += not float(str(low)) <= truth <= float(str(high))
    assert missed <= 30


def test_an_average_of_0_11_is_not_shown_again() -> None:
    """Its sum and count were cut apart: the sets of measures are part of what a stored answer is known by."""
    session = session_over(*ROWS)
    average, alone = (
        session.explain(sql)
        for sql in (
            "SELECT AVG(dwell) AS a FROM visits PRIVATE",
            "SELECT SUM(dwell) AS s, COUNT(dwell) AS n FROM visits PRIVATE",
        )
    )
    first, second = ({each.key, *each.similar_keys, *each.named_keys} for each in (average, alone))
    assert first.isdisjoint(second)
    assert average.release_key != alone.release_key


def test_a_measure_may_have_a_bound_of_rows_of_its_own() -> None:
    query = session_over(*ROWS).explain("SELECT AVG(dwell) AS a FROM visits PRIVATE").query
    own = refine_coupled(
        replace(
            query,
            measures=tuple(
                replace(
                    each,
                    bounds=ContributionRange(0, 1) if each.aggregate is Aggregate.ROWS else each.row_bounds,
                    weight=Weight(1),
                )
                for each in query.measures
            ),
        )
    )
    rows: Measure = next(each for each in own.measures if each.aggregate is Aggregate.ROWS)
    assert rows.bounds == ContributionRange(0, 2**20, Fraction(1, 2**20))


@pytest.mark.parametrize(
    ("ratio", "truth"),
    [
        ("SUM(dwell) / COUNT(*)", 10),
        ("100e0 * COUNT(*) FILTER (WHERE dwell > 3) / NULLIF(COUNT(*), 0)", 100),
        ("SUM(dwell) / SUM(change)", None),
        ("SUM(dwell) / COUNT(*) FILTER (WHERE page = 'a')", None),
    ],
)
def test_a_ratio_has_the_ends_of_an_interval(ratio: str, truth: float | None) -> None:
    """By the alias or by the words; they are ends of the weighted ratio."""
    sql = f"SELECT {ratio} AS r, value_low(r) AS low, value_high({ratio}) AS high FROM visits PRIVATE"
    answer = ask(sql)
    ((value, low, high),) = answer.fetchall()
    assert answer.columns == ["r", "low", "high"]
    assert answer.receipt.items_charged == 2
    if low is not None:
        assert low <= value <= high
    if truth is not None:
        assert low <= truth <= high + 0.5


def test_an_end_is_null_where_the_divisor_may_be_0() -> None:
    session = session_over("INSERT INTO visits SELECT 1, 'a', 1, 1, 1")
    sql = "SELECT SUM(dwell) / SUM(speed) AS r, value_low(r) AS low, value_high(r) AS high FROM visits PRIVATE"
    ends = [session.sql(f"{sql} WITH (fresh = true)").fetchall()[0][1:] for _ in range(3)]
    assert (None, None) in ends  # noise is above its interval in 1 of 80
    shares = "SELECT COUNT(*) FILTER (WHERE dwell > 0) / COUNT(*) AS r, value_low(r) AS low, value_high(r) AS high "
    ((_, low, high),) = session.sql(f"{shares} FROM visits PRIVATE").fetchall()
    assert 0 <= low <= high <= 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(q) AS a, COUNT(q) AS n FROM ratings PRIVATE",
        "SELECT COUNT(q) AS n, AVG(q) AS a FROM ratings PRIVATE",
        "SELECT AVG(q) AS a, SUM(q) AS s, COUNT(q) AS n FROM ratings PRIVATE",
        "SELECT k, AVG(q) AS a, COUNT(q) AS n FROM ratings GROUP BY k ALL PRIVATE WITH (domain = ['k0', 'k1'])",
        "SELECT k, COUNT(*) AS n, AVG(q) AS a, COUNT(q) AS m FROM ratings GROUP BY k TOP 2 PRIVATE",
    ],
)
def test_a_centred_average_may_stand_beside_the_count_that_it_shares(sql: str) -> None:
    rows = "CREATE TABLE ratings AS SELECT u % 900 AS id, 1 + u % 10 AS q, 'k' || u % 3 AS k FROM range(4500) t(u)"
    with session_on(shared(rows), rating_policy()) as session:
        answer = session.sql(sql)
        assert answer.receipt.items_charged > 0
        position = answer.columns.index("a")
        low, high = answer.column_intervals()[position]
        for row, *ends in zip(answer.fetchall(), low.to_pylist(), high.to_pylist(), strict=True):
            assert ends[0] <= row[position] <= ends[1]
            assert abs(row[position] - 5.5) < 1
        assert session.sql(sql).receipt.replayed
        assert "±" in str(answer)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, AVG(q) AS a FROM ratings GROUP BY k ORDER BY COUNT(*) DESC LIMIT 3",
        "SELECT k, a FROM (SELECT k, COUNT(*) AS n, AVG(q) AS a FROM ratings GROUP BY k TOP 3 PRIVATE) AS r ORDER BY a",
        "SELECT a FROM (SELECT k, COUNT(*) AS n, AVG(q) AS a FROM ratings GROUP BY k TOP 3 PRIVATE) AS r WHERE n > 9",
    ],
)
def test_an_average_that_a_select_shows_unchanged_has_its_interval(sql: str) -> None:
    rows = "CREATE TABLE ratings AS SELECT u % 900 AS id, 1 + u % 10 AS q, 'k' || u % 3 AS k FROM range(4500) t(u)"
    with session_on(shared(rows), rating_policy(), implicit=True) as session:
        answer = session.sql(sql)
        position = answer.columns.index("a")
        low, high = answer.column_intervals()[position]
        for row, *ends in zip(answer.fetchall(), low.to_pylist(), high.to_pylist(), strict=True):
            assert ends[0] < row[position] < ends[1]


def rating_policy() -> dpsql.Policy:
    bounds = {"rows": 20, "q": {"each": {"min": 1, "max": 10}}}
    limits = dpsql.Limits(max_epsilon=100, max_delta="4e-3")
    tables = {"ratings": dpsql.PrivateTable("id", bounds=bounds)}
    return dpsql.Policy(dpsql.Budget(100, "1e-2", items=24, queries=3), tables, limits=limits)
