"""Totals and parts of published tables: where least squares makes them agree, and that it is that."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql import curator
from dpsql.engines import open_exact
from dpsql.intervals import WeightedNoise
from dpsql.plan import Plan, Release, build_statement
from dpsql.plan.mechanisms.base import CountNoise
from dpsql.publications import _change, find_noise, fit_totals
from dpsql.session import recompute

LIST = "WITH (domain = ['DE', 'FR', 'IT'], intervals = true)"
WHERE = "WHERE country IN ('DE', 'FR', 'IT')"
CLASS = "CASE country WHEN 'DE' THEN 'DE' WHEN 'FR' THEN 'FR' ELSE 'other' END"
PARTS = "(SELECT pro, COUNT(*) AS n FROM reads GROUP BY pro ALL PRIVATE) UNION ALL "
TOTAL = "(SELECT NULL, COUNT(*) FROM reads {}PRIVATE{})"
ONE_ROW = "(SELECT user_id, min(country) AS country, sum(pages) AS pages FROM visits GROUP BY user_id) AS x"
ROLLUP = f"SELECT country, COUNT(*) AS n FROM reads {WHERE} GROUP BY ROLLUP (country) ALL PRIVATE {LIST}"
CUBE = f"SELECT country, pro, COUNT(*) AS n FROM reads {WHERE} GROUP BY CUBE (country, pro) ALL PRIVATE {LIST}"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users with 0 to 9 rows, so that bounds cut; country and pro are one for each in reads, and several in visits."""
    place = tmp_path_factory.mktemp("totals") / "events.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, ['DE', 'FR', 'IT', 'ES', NULL][1 + u % 5] AS country, "
            "[true, false, NULL][1 + u % 3] AS pro, (u * r) % 11 AS pages, CAST(r AS DECIMAL(9, 1)) / 4 AS cost, "
            "r + 0.25::DOUBLE AS dwell, DATE '2026-01-01' + CAST(u % 3 AS INTEGER) AS born "
            "FROM range(300) u(u), range(9) t(r) WHERE r < u % 10"
        )
        connection.execute(
            "CREATE TABLE visits AS SELECT * REPLACE (['DE', 'FR', 'IT'][1 + (pages % 3)] AS country) FROM reads"
        )
        connection.execute(
            "CREATE TABLE names AS SELECT * FROM (VALUES ('DE', 1), ('DE', 2), ('FR', 3)) t(country, rank)"
        )
    return place


def build_policy(folder: Path, **more: Any) -> dpsql.Policy:
    bounds = {"rows": 3, "pages": {"max": 9}, "cost": {"max": 1}, "dwell": {"max": 9}}
    single = ["country", "pro", "born"]
    days = {"born": {"first": np.datetime64("2026-01-01").item(), "last": np.datetime64("2026-01-02").item()}}
    tables = {
        "reads": dpsql.PrivateTable("user_id", one_value_per_unit=single, bounds=bounds, calendar=days),
        "visits": dpsql.PrivateTable("user_id", bounds=bounds),
        "names": dpsql.PublicTable(),
    }
    return dpsql.Policy(dpsql.Budget(100.0, 1e-6, **more), tables, ledger=folder / "ledger.sqlite")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> dpsql.Policy:
    return build_policy(tmp_path_factory.mktemp("ledger"))


def publish(policy: dpsql.Policy, database: Path, sql: str) -> tuple[pa.Table, pa.Table, str]:
    """Return a table as it was drawn, as it is published, and its comment."""
    name = f"t{abs(hash(sql))}"
    curator.publish(policy, name, sql, database=database)
    with dpsql.connect(database, policy=policy) as session:
        comment = session.catalog.find(name).comment
        return session.sql(sql).arrow(), session.sql(f"SELECT * FROM {name}").arrow(), comment


def collect(policy: dpsql.Policy, database: Path, sql: str) -> tuple[dpsql.Session, list[Plan], list[Release]]:
    """Return an open session with the plans and the releases of a statement."""
    session, found = dpsql.connect(database, policy=policy), list[Any]()
    session.sql(sql)
    recompute(session, sql, change=lambda plans, releases: found.extend([plans, releases]))
    return session, *found


AGREE = {
    "rollup": (ROLLUP, ["n"]),
    "cube": (
        (
            f"SELECT country, pro, COUNT(*) AS n, 2 * COUNT(*) AS twice, AVG(pages) AS mean, "
            f"GROUPING(country, pro) AS g FROM reads {WHERE} GROUP BY CUBE (country, pro) "
            f"ALL PRIVATE {LIST} ORDER BY n DESC"
        ),
        ["n"],
    ),
    "types": (
        (
            f"SELECT {CLASS} AS c, SUM(pages) AS s, SUM(cost) AS d, SUM(dwell) AS f, COUNT(DISTINCT user_id) AS u, "
            f"COUNT(DISTINCT pages) AS v FROM reads GROUP BY ROLLUP ({CLASS}) ALL PRIVATE WITH (intervals = 0.9)"
        ),
        ["s", "d", "f"],
    ),
    "nested": (
        (
            "SELECT pro, born, COUNT(pages) FILTER (WHERE pages > 2) AS n FROM reads WHERE born >= DATE '2026-01-01' "
            "AND born <= DATE '2026-01-03' GROUP BY ROLLUP (pro, born) ALL PRIVATE"
        ),
        ["n"],
    ),
    "no total": (
        f"SELECT country, pro, COUNT(*) AS n FROM reads {WHERE} GROUP BY GROUPING SETS (1, 2) ALL PRIVATE {LIST}",
        ["n"],
    ),
    "by hand": (
        PARTS + TOTAL.format("", ""),
        ["n"],
    ),
    "one row of each": (
        f"SELECT country, SUM(pages) AS s FROM {ONE_ROW} {WHERE} GROUP BY ROLLUP (country) ALL PRIVATE {LIST}",
        ["s"],
    ),
    "no bound cuts": (
        (
            "SELECT kind, COUNT(*, contribution_bounds_per_group => (0, 2)) AS n FROM (SELECT user_id, "
            "CASE WHEN min(pages) > 0 THEN 'a' ELSE 'b' END AS kind FROM visits GROUP BY user_id UNION ALL "
            "SELECT user_id, 'c' AS kind FROM visits "
            "GROUP BY user_id) AS x GROUP BY ROLLUP (kind) ALL PRIVATE"
        ),
        ["n"],
    ),
}
DIFFER = {
    "several groups of a user": ROLLUP.replace("reads", "visits"),
    "rows outside the domain": ROLLUP.replace(WHERE, ""),
    "fewer in the domain than in WHERE": ROLLUP.replace("IT')", "IT', 'ES')"),
    "days of the policy": "SELECT born, COUNT(*) AS n FROM reads GROUP BY ROLLUP (born) ALL PRIVATE",
    "an outer join": (
        "SELECT reads.pro AS pro, COUNT(*) AS n FROM visits LEFT JOIN reads USING (user_id, pages) "
        "GROUP BY ROLLUP (reads.pro) ALL PRIVATE"
    ),
    "public rows multiply": (
        f"SELECT rank, COUNT(*) AS n FROM {ONE_ROW} JOIN names USING (country) WHERE rank IN (1, 2) "
        "GROUP BY ROLLUP (rank) ALL PRIVATE WITH (domain = ['1', '2'])"
    ),
    "users": ROLLUP.replace("COUNT(*)", "COUNT(DISTINCT user_id)"),
    "averages": ROLLUP.replace("COUNT(*)", "AVG(pages)"),
    "quotients": ROLLUP.replace("COUNT(*)", "SUM(pages) / COUNT(*)"),
    "one weight for two measures": (
        f"SELECT country, n, s / n AS mean FROM ({ROLLUP.replace('AS n', 'AS n, SUM(pages) AS s')}) AS x"
    ),
    "a total beside the parts": (
        "SELECT pro, n, total FROM (SELECT pro, COUNT(*) AS n FROM reads GROUP BY pro ALL PRIVATE) AS x, "
        "(SELECT COUNT(*) AS total FROM reads PRIVATE) AS y"
    ),
    "a ranking": ROLLUP.replace("ALL PRIVATE", "TOP 2 PRIVATE").replace("domain = ['DE', 'FR', 'IT'], ", ""),
    "left out by HAVING": ROLLUP.replace("ALL PRIVATE", "HAVING n > 0 ALL PRIVATE"),
    "other rows": PARTS + TOTAL.format("WHERE pages > 2 ", ""),
    "other bounds": PARTS + TOTAL.format("", " WITH (max_rows_contributed = 2)"),
    "two draws": PARTS + TOTAL.format("", "") + " UNION ALL " + TOTAL.format("", " WITH (epsilon = 0.01)"),
    "parts alone": PARTS + "(SELECT pro, COUNT(*) FROM reads GROUP BY pro ALL PRIVATE)",
}


@pytest.mark.parametrize("name", AGREE)
def test_totals_agree_with_their_parts(policy: dpsql.Policy, database: Path, name: str) -> None:
    sql, columns = AGREE[name]
    drawn, table, comment = publish(policy, database, sql)
    assert f"{', '.join(columns)}: totals are the sums of their parts, by least squares." in comment.splitlines()
    assert table.column_names == drawn.column_names
    session, plans, releases = collect(policy, database, sql)
    with session:
        changed = _change(plans, releases, catalog=session.catalog, terms=session.terms, shown=[])
        assert changed is not None
        for number, column in enumerate(columns):
            parts = [read_cells(*each, number) for each in zip(plans, releases, changed, strict=True)]
            shown, exact = (
                [cells for cells, _ in parts],
                [read_exact(session, plan)[measure] for plan, (_, measure) in zip(plans, parts, strict=True)],
            )
            assert (
                check_sums(exact) == check_sums(shown, most=1e-9 if column == "f" else 0.0) > 0
            )  # the exact numbers agree, and those that are published
            known = sorted(value for cells in shown for value in cells.values())
            assert sorted(map(Fraction, table.column(column).to_pylist())) == known
    for column in columns:
        if f"{column}_low" in table.column_names:
            assert np.mean(list(list_widths(table, column))) <= np.mean(list(list_widths(drawn, column))) + 1
    for column in {"g", "mean", "u", "v"} & set(drawn.column_names):  # not what has other noise, or does not add up
        assert sorted(map(str, table.column(column).to_pylist())) == sorted(map(str, drawn.column(column).to_pylist()))
    if "twice" in table.column_names:  # what the statement computes is computed from what agrees, and ordered by it
        assert [2 * each for each in table.column("n").to_pylist()] == table.column("twice").to_pylist()
        assert table.column("n").to_pylist() == sorted(table.column("n").to_pylist(), reverse=True)


Cells = dict[frozenset[tuple[object, object]], Fraction]  # by the keys of a group, each with its value


def read_cells(plan: Plan, released: Release, table: pa.Table, number: int) -> tuple[Cells, int]:
    """Return the shown values of the measure in a column, by group, and its number; columns are those of measures."""
    outputs = [at for at, each in enumerate(plan.query.outputs) if each.is_measure and each.end is each.divisor is None]
    keys = [released.canonical.column(at).take(released.rows).to_pylist() for at in range(len(plan.query.keys))]
    values = table.column(outputs[number]).to_pylist()
    cells = {
        frozenset(zip(plan.query.keys, labels, strict=True)): Fraction(value)
        for *labels, value in zip(*keys, values, strict=True)
    }
    return cells, plan.query.outputs[outputs[number]].measure


def read_exact(session: dpsql.Session, plan: Plan) -> list[Cells]:
    """Return the exact numbers of each measure by group, in steps."""
    table = open_exact(session._dependencies.engine.execute(build_statement(plan.counting)))
    keys = len(plan.query.keys)
    rows = [tuple(column[row] for column in table.to_pydict().values()) for row in range(table.num_rows)]
    return [
        {frozenset(zip(plan.query.keys, row, strict=False)): Fraction(int(row[keys + at])) for row in rows}
        for at in range(len(plan.query.measures))
    ]


def check_sums(tables: Sequence[Cells], *, most: float = 0.0) -> int:
    """Return how many groups are the sums of groups of another set; fail for one that differs from it by more."""
    found = 0
    for total, parts in product(tables, repeat=2):
        wanted, finer = ({key for key, _ in next(iter(cells))} for cells in (total, parts))
        for labels, value in total.items() if wanted < finer else ():
            assert abs(value - sum(each for group, each in parts.items() if labels <= group)) <= most
            found += 1
    if found:
        return found
    assert abs(sum(tables[0].values()) - sum(tables[1].values())) <= most
    return 1


def list_widths(table: pa.Table, column: str) -> Iterator[float]:
    ends = (table.column(f"{column}{end}").to_pylist() for end in ("_low", "_high"))
    return (float(high - low) for low, high in zip(*ends, strict=True))


@pytest.mark.parametrize("name", DIFFER)
def test_others_are_published_as_they_were_drawn(policy: dpsql.Policy, database: Path, name: str) -> None:
    drawn, table, comment = publish(policy, database, DIFFER[name])
    assert table.select(drawn.column_names).equals(drawn)
    assert "least squares" not in comment


def test_exact_numbers_of_several_groups_of_a_user_do_not_add_up(policy: dpsql.Policy, database: Path) -> None:
    session, plans, _ = collect(policy, database, DIFFER["several groups of a user"])
    with session:
        parts, total = (sum(read_exact(session, plan)[0].values()) for plan in plans)
        assert parts > total


def test_noise_of_another_law_is_left_alone(tmp_path: Path, database: Path) -> None:
    policy = build_policy(tmp_path, certificate="pure")
    drawn, table, _ = publish(policy, database, ROLLUP)
    assert table.equals(drawn)


def test_sums_of_one_stored_answer_are_left_alone(tmp_path: Path, database: Path) -> None:
    policy = build_policy(tmp_path)
    users = "(SELECT user_id, MAX(pages) > 5 AS p, COUNT(*) > 4 AS many FROM visits GROUP BY user_id) AS u"
    sql = f"SELECT many, COUNT(*) AS n FROM {users} GROUP BY ROLLUP (many) ALL PRIVATE"
    finer = f"SELECT many, p, COUNT(*) AS n FROM {users} GROUP BY many, p ALL PRIVATE WITH (epsilon = 0.1)"
    with dpsql.connect(database, policy=policy) as session:
        session.sql(finer)
    drawn, table, _ = publish(policy, database, f"{sql} WITH (epsilon = 0.1, intervals = true, reuse = true)")
    values = drawn.column("n").to_pylist()
    assert sum(values[:-1]) == values[-1]  # the same noise: as least squares of independent noise it would be too small
    assert table.equals(drawn)


DESIGNS = [
    ((3,), [{0}, set()], [1, 1]),
    ((4,), [{0}, set()], [2, 5]),
    ((2, 3), [{0, 1}, {0}, set()], [1, 3, 2]),
    ((2, 3), [{0, 1}, {0}, {1}, set()], [1, 1, 2, 3]),
    ((2, 3), [{0}, {1}], [1, 2]),
    ((2, 3), [{0}, {1}, set()], [3, 1, 2]),
    ((2, 3, 2), [{0, 1}, {1, 2}, {2}, set()], [1, 2, 3, 4]),
    ((2, 1, 3), [{0, 1, 2}, {0, 1}, {0}, set()], [1, 1, 1, 1]),
    ((2, 2, 3), [{0, 1, 2}, {0, 1}, {0, 2}, {1, 2}, {0}, {1}, {2}, set()], [1, 2, 1, 3, 1, 2, 1, 5]),
]


@pytest.mark.parametrize(("sizes", "sets", "variances"), DESIGNS)
def test_it_is_least_squares(sizes: tuple[int, ...], sets: list[set[int]], variances: list[int]) -> None:
    # Brute force: one equation for each released number, over all combinations of values.
    chosen, whole = list(map(frozenset, sets)), math.prod(sizes)
    shapes = [[size if at in each else 1 for at, size in enumerate(sizes)] for each in chosen]
    cells = list(np.ndindex(*sizes))
    rows, weights = list[list[int]](), list[Fraction]()
    for each, shape, variance in zip(chosen, shapes, variances, strict=True):
        for place in np.ndindex(*shape):
            rows.append([all(cell[at] == place[at] for at in each) for cell in cells])
            weights.append(Fraction(1, variance))
    draws = random.Random(7)
    numbers = [Fraction(draws.randint(-50, 50)) for _ in rows]
    ends = np.cumsum([0, *map(math.prod, shapes)])
    drawn = {
        each: np.array(numbers[start:end], object).reshape(shape)
        for each, shape, start, end in zip(chosen, shapes, ends, ends[1:], strict=False)
    }
    spread = dict(zip(chosen, map(Fraction, variances), strict=True))
    fitted = fit_totals(drawn, {each: 1 / variance for each, variance in spread.items()}, sizes=sizes).reshape(whole)
    design = np.array(rows, object).astype(int)
    # The normal equations hold exactly, so that no other numbers that add up are nearer.
    rest = [weight * (number - sum(row * fitted)) for weight, number, row in zip(weights, numbers, design, strict=True)]
    assert [sum(column * rest) for column in design.T] == [0] * whole
    # The factors and variances of the noise are those of the projection.
    scaled = np.sqrt(np.array(weights, float))[:, None] * design
    project = design @ np.linalg.pinv(scaled) * np.sqrt(np.array(weights, float))
    every = np.repeat(variances, np.diff(ends)).astype(float)
    for each, start, end in zip(chosen, ends, ends[1:], strict=False):
        noise = find_noise(each, {other: float(variance) for other, variance in spread.items()}, sizes=sizes)
        for row in project[start:end]:  # the same for all groups of a set
            assert math.isclose(noise.variance, float(row**2 @ every))
            wanted = sorted(
                (round(factor, 9), variance) for factor, variance in zip(row, every, strict=True) if abs(factor) > 1e-9
            )
            found = sorted(
                (round(factor, 9), variance) for factor, variance, number in noise.parts for _ in range(number)
            )
            assert np.allclose(wanted, found)
        assert noise.variance <= float(spread[each]) + 1e-12  # at no cost, and never less certain


def list_masses(variance: float) -> np.ndarray:
    """Return the probabilities of a discrete Gaussian at -n, ..., n; beyond is less than 1e-17."""
    most = math.ceil(math.sqrt(80 * variance)) + 2
    masses = np.exp(np.arange(-most, most + 1) ** 2 / (-2 * variance))
    return masses / masses.sum()


@pytest.mark.parametrize("outside", [0.025, 0.005, 1e-6])
@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0, 4.0, 60.0])
@pytest.mark.parametrize("factors", [(3, 1, 1, 1), (3, 1, -1, -1), (1,), (7, 7, -2), (12, 5, 5, 4, -3, -3, -2, 1)])
def test_the_reach_is_that_of_the_exact_law(factors: tuple[int, ...], variance: float, outside: float) -> None:
    masses, shared = list_masses(variance), sum(map(abs, factors))
    law = np.ones(1)
    for factor in factors:
        spread = np.zeros(abs(factor) * (len(masses) - 1) + 1)
        spread[:: abs(factor)] = masses
        law = np.convolve(law, spread)
    points = (np.arange(len(law)) - len(law) // 2) / shared
    noise = WeightedNoise(
        tuple((factor / shared, variance, factors.count(factor)) for factor in dict.fromkeys(factors))
    )
    reach = noise.find_reach(outside)
    assert law[points > reach].sum() <= outside
    # One that is shorter by 2 % of a deviation, or by a step, would not cover.
    assert law[points > reach - 0.021 * math.sqrt(noise.variance) - 1e-9].sum() > outside - 3e-8


def change_noise(
    session: dpsql.Session,
    plans: Sequence[Plan],
    releases: Sequence[Release],
    values: Sequence[Sequence[int]],
    variance: Fraction,
) -> list[pa.Table]:
    """Return what is published of releases that had other numbers drawn, with noise of a variance."""
    made = []
    for released, each in zip(releases, values, strict=True):
        at = released.canonical.column_names.index("count")
        canonical = released.canonical.set_column(at, "count", pa.array(each, pa.int64()))
        made.append(replace(released, canonical=canonical, terms=replace(released.terms, counts=CountNoise(variance))))
    tables = _change(plans, made, catalog=session.catalog, terms=session.terms, shown=[])
    assert tables is not None
    return tables


def count_covered(tables: Sequence[pa.Table], exact: Sequence[Sequence[int]]) -> Iterator[bool]:
    for table, values in zip(tables, exact, strict=True):
        low, high = (
            next(table.column(at) for at, name in enumerate(table.column_names) if name.endswith(end))
            for end in ("_low", "_high")
        )
        for least, value, most in zip(low.to_pylist(), values, high.to_pylist(), strict=True):
            yield least <= value <= most


@pytest.mark.properties
def test_intervals_cover_by_the_exact_law(policy: dpsql.Policy, database: Path) -> None:
    # All draws of two parts and their total, each with its probability.
    sql = f"SELECT country = 'DE' AS c, COUNT(*) AS n FROM reads {WHERE} GROUP BY ROLLUP (1) ALL PRIVATE"
    session, plans, releases = collect(policy, database, f"{sql} WITH (intervals = true)")
    variance = Fraction(3, 4)
    masses = list_masses(float(variance))
    points = [(at - len(masses) // 2, mass) for at, mass in enumerate(masses) if mass > 1e-8]
    exact, covered = [[20, 30], [50]], np.zeros(3)
    with session:
        for (one, first), (other, second), (both, third) in product(points, repeat=3):
            tables = change_noise(session, plans, releases, [[20 + one, 30 + other], [50 + both]], variance)
            covered += first * second * third * np.array(list(count_covered(tables, exact)))
    assert covered.min() >= 0.95
    assert covered.max() <= 1.0


def draw_exact(variance: Fraction, draws: random.Random) -> int:
    """Return a discrete Gaussian number: a discrete Laplace one that is accepted by exact coins (arXiv:2004.00010)."""

    def toss(exponent: Fraction) -> bool:  # with probability exp(-exponent), for exponents up to 1
        number = 1
        while draws.randrange(exponent.denominator * number) < exponent.numerator:
            number += 1
        return number % 2 == 1

    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        within = draws.randrange(scale)
        if not toss(Fraction(within, scale)):
            continue
        turns = 0
        while toss(Fraction(1)):
            turns += 1
        size, is_below = within + scale * turns, draws.randrange(2)
        if is_below and not size:
            continue
        exponent = (size - variance / scale) ** 2 / (2 * variance)
        if all(toss(Fraction(1)) for _ in range(math.floor(exponent))) and toss(exponent - math.floor(exponent)):
            return -size if is_below else size


@pytest.mark.properties
@pytest.mark.parametrize("variance", [Fraction(2), Fraction(40)])
def test_intervals_cover_what_an_exact_sampler_draws(policy: dpsql.Policy, database: Path, variance: Fraction) -> None:
    session, plans, releases = collect(policy, database, CUBE)
    sizes = [released.canonical.num_rows for released in releases]
    exact = [[100 * max(sizes) // size] * size for size in sizes]
    draws, covered, times = random.Random(11), list[list[bool]](), 400
    with session:
        for _ in range(times):
            values = [[value + draw_exact(variance, draws) for value in each] for each in exact]
            covered.append(list(count_covered(change_noise(session, plans, releases, values, variance), exact)))
    shares = np.array(covered).mean(axis=0)
    assert len(shares) == sum(sizes)
    # Of each group five deviations below the level at most: 3e-7 for all that are tried here.
    assert shares.min() >= 0.95 - 5.5 * math.sqrt(0.05 * 0.95 / times)
    assert shares.mean() >= 0.95 - 5.5 * math.sqrt(0.05 * 0.95 / times)
