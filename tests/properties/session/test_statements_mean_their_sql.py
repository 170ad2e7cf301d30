"""Two hundred statements of measures, joins, FILTERs, CASE and ratios, beside what plain DuckDB says of the same rows.

Each measure names the rows and the bounds by which its weights are computed here, apart from the code under test: a sum
or a count adds up what each user has in a group, cut at its own bounds; measures that are divided by each other count
each user with one weight, the largest with which no part is beyond its bounds. With binding bounds users are cut, with
loose ones nobody is, and the value is that of plain SQL.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

import duckdb
import pytest
from support.session_kit import filled, seeded

import dpsql

EPSILON = 8
DOMAIN = ("a", "b", "c")
TABLES = (
    # 600 users with 1 to 60 visits each, few of them many; users with many visits stay longer
    """CREATE TABLE visits AS SELECT user AS id, ['a', 'a', 'a', 'b', 'c'][1 + (user * 7 + nth) % 5] AS k,
    CASE WHEN (user + nth) % 11 = 0 THEN NULL ELSE 1 + (user * 31 + nth * 17) % 40 + nth END AS dwell,
    CASE WHEN (user + nth) % 13 = 0 THEN 'nan'::DOUBLE WHEN (user + nth) % 17 = 0 THEN NULL
        ELSE (1 + (user * 13 + nth * 29) % 80) / 4 END AS d,
    (((user * 37 + nth * 11) % 200 - 60) / 10)::DECIMAL(9, 2) AS amount,
    (1 + (user * 5 + nth * 3) % 10)::INTEGER AS qty, (user * 3 + nth) % 4 = 0 AS flag
    FROM range(600) u(user), range(60) s(nth) WHERE nth < 1 + 60 // (1 + user % 23)""",
    "CREATE TABLE users AS SELECT user AS id, ['F', 'M', 'M'][1 + user % 3] AS gender FROM range(600) u(user)",
    "CREATE TABLE carts AS SELECT id, nth AS cart FROM range(600) u(id), range(2) s(nth) WHERE nth <= id % 2",
    "CREATE TABLE labels AS SELECT * FROM (VALUES ('a', 'one'), ('b', 'two'), ('c', 'one')) v(k, label)",
)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the policy; `least` and `most` are those of amount."""

    rows: int
    dwell: float
    d: float
    least: float
    most: float

    def policy(self) -> dpsql.Policy:
        visits: dict[str, object] = {
            "rows": self.rows,
            "dwell": {"max": self.dwell},
            "d": {"max": self.d},
            "amount": {"min": self.least, "max": self.most},
            "qty": {"each": {"min": 1, "max": 10}},
        }
        tables = {
            "visits": dpsql.PrivateTable("id", bounds=visits),
            "users": dpsql.PrivateTable("id", bounds={"rows": 1}),
            "carts": dpsql.PrivateTable("id", bounds={"rows": 2}),
            "labels": dpsql.PublicTable(),
        }
        budget = dpsql.Budget(100, "1e-2", items=24, queries=3)
        return dpsql.Policy(budget, tables, limits=dpsql.Limits(max_epsilon=EPSILON, max_delta="4e-3"))


LOOSE, BINDING = Bounds(80, 6000, 1600, -500, 1500), Bounds(3, 45, 30, -10, 20)
Range = Callable[[Bounds], tuple[float, float]]


@dataclass(frozen=True)
class Part:
    """What one user may add to one group: the sum of `value` over the rows where `where` holds, within `bounds`.

    A value of NULL or NaN is none. `rows` are cut to their range first, where one is known.
    """

    value: str
    bounds: Range
    where: str = "TRUE"
    rows: Range | None = None


@dataclass(frozen=True)
class Measure:
    """A measure as SQL has it, its parts, and how its value follows from their sums."""

    sql: str
    parts: tuple[Part, ...]
    has_one_weight: bool = False
    centre: tuple[float, float] | None = None  # the range of one row, where the average is centred
    factor: float = 1
    is_share: bool = False
    per_user: bool = False


def count(where: str = "TRUE", value: str = "1") -> Part:
    return Part(
        f"CASE WHEN ({value}) IS NOT NULL AND NOT isnan(({value})::DOUBLE) THEN 1 END", lambda b: (0, b.rows), where
    )


def total(
    value: str, high: Callable[[Bounds], float], low: Callable[[Bounds], float] = lambda _: 0, where: str = "TRUE"
) -> Part:
    return Part(value, lambda b: (low(b), high(b)), where)


def average(
    sql: str,
    value: str,
    high: Callable[[Bounds], float],
    low: Callable[[Bounds], float] = lambda _: 0,
    where: str = "TRUE",
) -> Measure:
    return Measure(sql, (total(value, high, low, where), count(where, value)), has_one_weight=True)


def ratio(sql: str, above: Part, below: Part, **facts: object) -> Measure:
    return Measure(sql, (above, below), has_one_weight=True, **facts)  # type: ignore[arg-type]


def single(sql: str, part: Part) -> Measure:
    return Measure(sql, (part,))


def stated(value: str, low: float, high: float) -> Measure:
    return single(
        f"SUM({value}, contribution_bounds_per_group => ({low}, {high}))", total(value, lambda _: high, lambda _: low)
    )


DWELL = total("dwell", lambda b: b.dwell)
MEASURES = (
    single("COUNT(*)", count()),
    single("COUNT(d)", count(value="d")),
    single("COUNT(dwell)", count(value="dwell")),
    single("COUNT(*) FILTER (WHERE flag)", count("flag")),
    single("COUNT(dwell) FILTER (WHERE dwell > 30)", count("dwell > 30", "dwell")),
    single("SUM(dwell)", DWELL),
    single("SUM(d)", total("d", lambda b: b.d)),
    single("SUM(amount)", total("amount", lambda b: b.most, lambda b: b.least)),
    single("SUM(-amount)", total("-amount", lambda b: -b.least, lambda b: -b.most)),
    single("SUM(dwell * 1000)", total("dwell * 1000", lambda b: 1000 * b.dwell)),
    single("SUM(dwell / 60.0)", total("dwell / 60.0", lambda b: b.dwell / 60)),
    single(
        "SUM(dwell - 20)", total("dwell - 20", lambda b: min(b.dwell, b.rows * (b.dwell - 20)), lambda b: -20 * b.rows)
    ),
    single("SUM(dwell + 1)", total("dwell + 1", lambda b: min(b.dwell + b.rows, b.rows * (b.dwell + 1)))),
    single("SUM(dwell + d)", total("dwell + d", lambda b: b.dwell + b.d)),
    single(
        "SUM(CASE WHEN flag THEN dwell ELSE 0 END)", total("CASE WHEN flag THEN dwell ELSE 0 END", lambda b: b.dwell)
    ),
    single(
        "SUM(CASE WHEN flag THEN dwell ELSE 2 * dwell END)",
        total("CASE WHEN flag THEN dwell ELSE 2 * dwell END", lambda b: 2 * b.dwell),
    ),
    single(
        "SUM(CASE WHEN flag THEN dwell ELSE d END)",
        total("CASE WHEN flag THEN dwell ELSE d END", lambda b: min(b.dwell + b.d, b.rows * max(b.dwell, b.d))),
    ),
    single("SUM(CASE WHEN flag THEN 1 ELSE 0 END)", total("CASE WHEN flag THEN 1 ELSE 0 END", lambda b: b.rows)),
    single("SUM(LEAST(dwell, 30))", total("LEAST(dwell, 30)", lambda b: 30 * b.rows)),
    single(
        "SUM(GREATEST(dwell, 10))",
        total("GREATEST(dwell, 10)", lambda b: min(b.dwell + 10 * b.rows, b.rows * max(b.dwell, 10))),
    ),
    single("SUM(ABS(amount))", total("ABS(amount)", lambda b: min(b.most - b.least, b.rows * max(b.most, -b.least)))),
    single("SUM(amount * qty)", total("amount * qty", lambda b: 10 * b.most, lambda b: 10 * b.least)),
    single("SUM(dwell * qty)", total("dwell * qty", lambda b: 10 * b.dwell)),
    single("SUM(dwell / qty)", total("dwell / qty", lambda b: b.dwell)),
    single(
        "SUM(COALESCE(dwell, 5))",
        total("COALESCE(dwell, 5)", lambda b: min(b.dwell + 5 * b.rows, b.rows * max(b.dwell, 5))),
    ),
    single("SUM(qty)", total("qty", lambda b: 10 * b.rows)),
    single("SUM(dwell) FILTER (WHERE flag)", total("dwell", lambda b: b.dwell, where="flag")),
    stated("dwell", 0, 500),
    stated("sqrt(dwell)", 0, 40),
    stated("amount", -20, 50),
    average("AVG(dwell)", "dwell", lambda b: b.dwell),
    average("AVG(d)", "d", lambda b: b.d),
    average("AVG(amount)", "amount", lambda b: b.most, lambda b: b.least),
    average("AVG(dwell) FILTER (WHERE flag)", "dwell", lambda b: b.dwell, where="flag"),
    average("AVG(dwell * 2)", "dwell * 2", lambda b: 2 * b.dwell),
    average("AVG(-dwell)", "-dwell", lambda _: 0, lambda b: -b.dwell),
    average("AVG(amount * qty)", "amount * qty", lambda b: 10 * b.most, lambda b: 10 * b.least),
    average("AVG(CASE WHEN flag THEN dwell END)", "CASE WHEN flag THEN dwell END", lambda b: b.dwell),
    Measure("AVG(qty)", (total("qty", lambda _: math.inf), count(value="qty")), has_one_weight=True, centre=(1, 10)),
    Measure(
        "AVG(dwell, contribution_bounds_per_group => (0, 60))",
        (
            Part("dwell", lambda _: (-math.inf, math.inf), rows=lambda _: (0, 60)),
            Part("CASE WHEN dwell IS NOT NULL THEN 1 END", lambda _: (0, 1)),
        ),
        has_one_weight=True,
        centre=(0, 60),
    ),
    ratio("SUM(dwell) / COUNT(*)", DWELL, count()),
    ratio("SUM(amount) / NULLIF(COUNT(*), 0)", total("amount", lambda b: b.most, lambda b: b.least), count()),
    ratio("SUM(dwell) / SUM(qty)", DWELL, total("qty", lambda b: 10 * b.rows)),
    ratio("COUNT(*) FILTER (WHERE flag) / COUNT(*)", count("flag"), count(), is_share=True),
    ratio("100.0 * COUNT(*) FILTER (WHERE flag) / COUNT(*)", count("flag"), count(), factor=100),
    ratio(
        "SUM(dwell) FILTER (WHERE flag) / SUM(dwell)",
        total("dwell", lambda b: b.dwell, where="flag"),
        DWELL,
        is_share=True,
    ),
    Measure("SUM(dwell) / COUNT(DISTINCT id)", (DWELL,), per_user=True),
    Measure("1.0 * COUNT(*) / COUNT(DISTINCT id)", (count(),), per_user=True),
)


@dataclass(frozen=True)
class Source:
    """A FROM and WHERE; by how much a join lets the rows of a user grow, and how private SQL names the privacy unit."""

    body: str
    times: int = 1
    unit: str = "id"


VISITS = Source("visits")
JOINS = (
    Source("visits JOIN users USING (id)"),
    Source("visits JOIN carts USING (id)", times=2),
    Source("visits v JOIN users u ON v.id = u.id JOIN carts c ON c.id = u.id", times=2, unit="v.id"),
    Source("visits WHERE id IN (SELECT id FROM users WHERE gender = 'F')"),
    Source("visits v WHERE EXISTS (SELECT 1 FROM carts c WHERE c.id = v.id)", unit="v.id"),
    Source("visits WHERE id NOT IN (SELECT id FROM carts WHERE cart = 1)"),
    Source("visits JOIN labels USING (k)"),
    Source("(SELECT id, k, dwell, d, amount, qty, flag FROM visits WHERE dwell > 10) AS late"),
)
JOINED = ("COUNT(*)", "SUM(dwell)", "AVG(dwell)", "SUM(amount)", "SUM(dwell) / COUNT(*)", "AVG(qty)")


@cache
def database() -> duckdb.DuckDBPyConnection:
    return filled(*TABLES)


def statements() -> list[tuple[str, Measure, Source, bool, Bounds]]:
    found = [
        (measure, VISITS, is_grouped, bounds)
        for measure in MEASURES
        for is_grouped in (False, True)
        for bounds in (LOOSE, BINDING)
    ]
    found += [
        (measure, source, False, bounds)
        for measure in MEASURES
        for source in JOINS
        for bounds in (LOOSE, BINDING)
        if measure.sql in JOINED
    ]
    return [
        (write(measure, source, is_grouped=grouped), measure, source, grouped, bounds)
        for measure, source, grouped, bounds in found
    ]


def write(measure: Measure, source: Source, *, is_grouped: bool) -> str:
    sql = measure.sql.replace("DISTINCT id", f"DISTINCT {source.unit}")
    if is_grouped:
        known = ", ".join(f"'{each}'" for each in DOMAIN)
        clause = f"ALL PRIVATE WITH (domain = [{known}], epsilon = {EPSILON})"
        return f"SELECT k, {sql} AS v FROM {source.body} GROUP BY k {clause}"
    return f"SELECT {sql} AS v FROM {source.body} PRIVATE WITH (epsilon = {EPSILON})"


@dataclass(frozen=True)
class Expected:
    """Value of the weighted rows, that of plain SQL, the standard deviation of the noise, and what rounding adds."""

    weighted: float
    plain: float
    deviation: float
    slack: float


@cache
def expect(measure: Measure, source: Source, bounds: Bounds, *, group: str | None) -> Expected:
    values = ", ".join(f"CASE WHEN {part.where} THEN ({part.value})::DOUBLE END" for part in measure.parts)
    prefix = source.unit.partition(".")[0] + "." if "." in source.unit else ""
    where = "" if group is None else f" WHERE {prefix}k = '{group}'"
    with closing(database().cursor()) as cursor:
        rows = cursor.execute(f"SELECT {source.unit}, {values} FROM {source.body}{where}").fetchall()
    ends = [grow(part.bounds(bounds), source.times) for part in measure.parts]
    if measure.centre is not None:  # its sums need no bounds of their own: no weight is smaller than that of rows
        ends[0] = (-math.inf, math.inf)
    users: Mapping[int, list[list[float]]] = defaultdict(lambda: [[] for _ in measure.parts])
    plain = [0.0] * len(measure.parts)
    for user, *found in rows:
        for at, (value, part) in enumerate(zip(found, measure.parts, strict=True)):
            users[user]
            if value is None or math.isnan(value):
                continue
            plain[at] += value
            least, most = part.bounds(bounds) if part.rows is None else part.rows(bounds)
            users[user][at].append(min(max(value, least), most))
    sums = [0.0] * len(measure.parts)
    for lists in users.values():
        added = [math.fsum(each) for each in lists]
        if measure.has_one_weight:
            weight = min(
                [
                    1.0,
                    *(
                        high / one if one > 0 else low / one
                        for one, (low, high) in zip(added, ends, strict=True)
                        if one
                    ),
                ]
            )
            added = [one * weight for one in added]
        else:
            added = [min(max(one, low), high) for one, (low, high) in zip(added, ends, strict=True)]
        sums = [one + another for one, another in zip(sums, added, strict=True)]
    if measure.per_user:
        return combine(measure, [*sums, len(users)], [*plain, len(users)], [*ends, (0, 1)], len(users))
    return combine(measure, sums, plain, ends, len(users))


def grow(ends: tuple[float, float], times: int) -> tuple[float, float]:
    return ends[0] * times, ends[1] * times


def combine(
    measure: Measure, sums: Sequence[float], plain: Sequence[float], ends: Sequence[tuple[float, float]], users: int
) -> Expected:
    widest = [max(high, -low) for low, high in ends]
    if measure.centre is not None:
        least, most = measure.centre
        widest[0] = ends[1][1] * (most - least) / 2
    deviations = [2 * each / EPSILON for each in widest]
    floors = [users * 2 * each / 2**20 for each in widest]
    if len(sums) == 1:
        return Expected(sums[0], plain[0], deviations[0], floors[0])
    middle = 0.0 if measure.centre is None else sum(measure.centre) / 2
    quotient, floor = sums[0] / sums[1], max(sums[1] - 4 * deviations[1], 1)
    deviation = (deviations[0] + abs(quotient - middle) * deviations[1]) / floor
    slack = (floors[0] + abs(quotient - middle) * floors[1]) / floor
    factor = measure.factor
    return Expected(factor * quotient, factor * plain[0] / plain[1], factor * deviation, factor * slack)


@cache
def session(bounds: Bounds) -> dpsql.Session:
    return dpsql.connect(database(), policy=bounds.policy(), ledger=":memory:")


STATEMENTS = statements()


def test_there_are_two_hundred_statements() -> None:
    assert len({(sql, bounds) for sql, *_, bounds in STATEMENTS}) == len(STATEMENTS) >= 200


@pytest.mark.parametrize(
    ("sql", "measure", "source", "is_grouped", "bounds"),
    STATEMENTS,
    ids=[f"{'loose' if bounds is LOOSE else 'binding'}: {sql}" for sql, *_, bounds in STATEMENTS],
)
def test_a_value_is_that_of_its_weighted_rows_and_its_note_is_true(
    sql: str, measure: Measure, source: Source, is_grouped: bool, bounds: Bounds
) -> None:
    answer = seeded(session(bounds), 11).sql(sql)  # with a whole budget
    found = {row[0] if is_grouped else None: row[-1] for row in answer.fetchall()}
    assert set(found) == (set(DOMAIN) if is_grouped else {None})
    note = answer.bound_note
    for group, value in found.items():
        expected = expect(measure, source, bounds, group=group)
        assert abs(float(value) - expected.weighted) <= 4 * expected.deviation + expected.slack + 1e-9, (
            group,
            expected,
        )
        if expected.plain > expected.weighted + expected.slack + 1e-6:
            assert "higher" in note, (note, expected)
        if expected.plain < expected.weighted - expected.slack - 1e-6:
            assert "lower" in note, (note, expected)


def test_the_bounds_called_loose_cut_nobody_and_those_called_binding_do() -> None:
    cut = {LOOSE: 0, BINDING: 0}
    for _, measure, source, is_grouped, bounds in STATEMENTS:
        expected = expect(measure, source, bounds, group="a" if is_grouped else None)
        cut[bounds] += abs(expected.plain - expected.weighted) > expected.slack + 1e-6
    assert cut[BINDING] > 100
    assert cut[LOOSE] < 20  # bounds that a statement states, and averages of one value for each user
