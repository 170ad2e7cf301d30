"""Arithmetic of summed values in DOUBLE: what is rewritten, and what stays as it is."""

from __future__ import annotations

import pytest

from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import widen, widen_presence
from dpsql.sql.ir.tree import BOOLEAN, DOUBLE, Call, Cast, Expression, parse_type, walk

COLUMNS = {"u": "INTEGER", "n": "INTEGER", "m": "DECIMAL(9,2)", "d": "DOUBLE"}
CATALOG = Catalog((Table("t", ("t",), tuple((name, parse_type(type_)) for name, type_ in COLUMNS.items()), "u"),))


def read(expression: str) -> Expression:
    query = analyze(f"SELECT SUM({expression}) AS s FROM t PRIVATE", CATALOG, accepts_pattern=lambda _: False)
    assert isinstance(query, PrivateQuery)
    (measure,) = query.measures
    assert measure.argument is not None
    return measure.argument


@pytest.mark.parametrize(
    "expression",
    [
        "n * 1000",
        "-n - 1",
        "m * m",
        "(n * n) / 3",
        "CASE WHEN n > 1 THEN n * n ELSE m END",
        "COALESCE(n * n, 1)",
        "LEAST(n + n, 5)",
        "ABS(-n)",
    ],
)
def test_no_arithmetic_is_left_in_a_type_that_overflows(expression: str) -> None:
    found = widen(read(expression))
    assert found.type == DOUBLE
    arithmetic = [
        part for part in walk(found) if isinstance(part, Call) and part.function in {"neg", "+", "-", "*", "/"}
    ]
    assert arithmetic or "LEAST" in expression
    assert all(part.type == DOUBLE for part in arithmetic)


def test_columns_and_conditions_stay_as_they_are() -> None:
    column = read("n")
    assert widen(column) == Cast(column, DOUBLE)
    assert widen(read("d")) == read("d")
    rounded = read("ROUND(n * n)")
    assert widen(rounded) == Cast(rounded, DOUBLE)
    for argument in (column, read("n * n")):
        present = Call("not", (Call("is_null", (argument,), BOOLEAN),), BOOLEAN)
        changed = widen_presence(present)
        assert (changed == present) is (argument == column)
    assert widen_presence(None) is None
