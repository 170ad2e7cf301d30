"""Numbers of users per bin on the engines, against their definition; one user more changes one number by one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal

import pyarrow as pa
import pytest
from support.engine_kits import KITS, kit_of

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Statement, open_exact
from dpsql.open_engine import open_engine
from dpsql.session import Session
from dpsql.suggested_bounds import BoundsPlan, BoundsRequest
from dpsql.testing.kit import create_duckdb

ENGINES = ["duckdb", *(name for name in KITS if name in {"datafusion", "mariadb", "portable", "postgres", "spark"})]
POLICY = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"visits": dpsql.PrivateTable("user_id")})
Row = tuple[int | None, int, int | None, float | None, Decimal | None]
ROWS: list[Row] = [
    *((user, at % 3, at, 0.5 * at, Decimal(at) / 100) for user in range(1, 30) for at in range(user)),
    (40, 0, -5, -2.25, Decimal("-0.07")),
    (40, 1, 7, math.nan, None),
    (41, 0, None, None, Decimal("9999999.99")),
    (41, 2, 2**31 - 1, math.inf, Decimal("-3.00")),
    (41, 2, -(2**31), -math.inf, Decimal("0.00")),
    (42, 0, 0, 0.0004, Decimal("0.29")),
    (None, 0, 100, 1.0, Decimal("1.00")),
]
WANTED = BoundsRequest("visits", ("whole", "real", "exact"), by="city", groups=1, each=True, below_zero=True)
STEPS: Mapping[str, tuple[int, float]] = {"": (0, 1), "whole": (2, 1), "real": (3, 1e-3), "exact": (4, 0.01)}


def table_of(rows: list[Row]) -> pa.Table:
    types = [pa.int64(), pa.int32(), pa.int32(), pa.float64(), pa.decimal128(9, 2)]
    names = ["user_id", "city", "whole", "real", "exact"]
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(each, type_) for name, type_, each in zip(names, types, columns, strict=True)})


@contextmanager
def session_of(name: str, rows: list[Row]) -> Iterator[Session]:
    tables = {"visits": table_of(rows)}
    if name == "duckdb":
        engine = open_engine(create_duckdb(tables), POLICY)
        with open_session(engine, POLICY, ledger=":memory:") as session:
            yield session
        return
    kit = kit_of(name)
    with open_session(kit.open({"visits": kit.fit(tables["visits"])}), POLICY, ledger=":memory:") as session:
        yield session


def read_bins(session: Session, statement: Statement) -> dict[int, int]:
    table = open_exact(session._dependencies.engine.execute(statement))
    bins, users = (column.to_pylist() for column in table.columns)
    return dict(zip(bins, users, strict=True))


def expected(rows: list[Row], name: str, column: str, ends: tuple[int, ...]) -> dict[int, int]:
    """Return the number of users per bin, from the definition in words."""
    at, step = STEPS[column]
    sign = -1 if name in {"min", "each.min"} else 1
    totals: dict[tuple[int, int], float] = {}
    is_each = name.startswith("each")
    for row in rows:
        user, city, value = row[0], 0 if is_each else row[1], 1.0 if not column else row[at]
        if user is None or value is None or math.isnan(value):
            continue
        beyond = ends[-1] + 1
        steps = math.floor(min(max(sign * float(value) / step + 1e-9, -beyond), beyond))
        if is_each:
            totals[user, city] = max(totals.get((user, city), -math.inf), steps)
        else:
            totals[user, city] = totals.get((user, city), 0) + max(steps, 0)
    largest: dict[int, float] = {}
    for (user, _), total in totals.items():
        largest[user] = max(largest.get(user, -math.inf), total)
    return dict(Counter(bisect_left(ends, each) for each in largest.values()))


@pytest.mark.parametrize("engine", ENGINES)
def test_users_are_in_the_bins_of_their_totals(engine: str) -> None:
    stored = table_of(ROWS) if engine == "duckdb" else kit_of(engine).fit(table_of(ROWS))  # as far as it can be
    rows = [tuple(row.values()) for row in stored.to_pylist()]
    with session_of(engine, ROWS) as session:
        draws = BoundsPlan(session, WANTED)._draws
        assert len(draws) == 1 + 3 * 4
        for each in draws:
            found = read_bins(session, each.release.statement)
            assert found == expected(rows, each.name, each.column, each.ends), (each.name, each.column)


def differences(one: dict[int, int], two: dict[int, int]) -> list[int]:
    return [two.get(at, 0) - one.get(at, 0) for at in one.keys() | two.keys()]


def moved_by_a_user(change: Callable[[Statement], Statement]) -> list[list[int]]:
    """Return by how much the numbers of the bins differ without each user, for each draw."""

    def read_draws(rows: list[Row]) -> list[dict[int, int]]:
        with session_of("duckdb", rows) as session:
            draws = BoundsPlan(session, WANTED)._draws
            return [read_bins(session, change(each.release.statement)) for each in draws]

    whole = read_draws(ROWS)
    return [
        differences(before, after)
        for user in (3, 29, 40, 41, 42)
        for before, after in zip(read_draws([row for row in ROWS if row[0] != user]), whole, strict=True)
    ]


def test_a_user_more_changes_one_number_by_one_or_none() -> None:
    moved = [sorted(filter(None, each)) for each in moved_by_a_user(lambda statement: statement)]
    assert all(each in ([], [1]) for each in moved)
    assert [1] in moved


@pytest.mark.mutant
def test_bins_of_rows_or_of_groups_are_caught() -> None:
    def by_group(statement: Statement) -> Statement:
        return Statement(
            statement.sql.replace("GROUP BY dpsql_unit)) GROUP BY", "GROUP BY dpsql_unit, dpsql_total)) GROUP BY"),
            statement.parameters,
            statement.types,
        )

    moved = [sorted(filter(None, each)) for each in moved_by_a_user(by_group)]
    assert any(each not in ([], [1]) for each in moved)
