"""Bounds of a policy: rows, sums and the range of a value, in Python and in TOML, and what is wrong with them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.session_kit import session_on

from dpsql import Budget, Policy, PolicyError, PrivateTable
from dpsql.policy import ColumnBounds
from dpsql.report.policy_check import CheckedTable, Exposed, lint_policy

HEAD = '[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.visits]\nprivacy_unit = "user_id"\n[tables.visits.bounds]\n'


def read(path: Path, lines: str) -> PrivateTable:
    """Return the table of a policy file with these lines of bounds."""
    file = path / "policy.toml"
    file.write_text(HEAD + lines, "utf-8")
    table = Policy.from_toml(file).tables["visits"]
    assert isinstance(table, PrivateTable)
    return table


def test_each_is_read_from_toml_and_python(tmp_path: Path) -> None:
    amount, age = "{ min = 0, max = 500, each = { min = 1, max = 10.5 } }", "{ each = {min = 0, max = 99} }"
    table = read(tmp_path, f"rows = 20\namount = {amount}\nage = {age}")
    found = table.bounds.find("AMOUNT")
    assert found == ColumnBounds(Fraction(0), Fraction(500), (Fraction(1), Fraction("10.5")))
    assert table.bounds.find("age") == ColumnBounds(None, None, (Fraction(0), Fraction(99)))
    given = {
        "amount": {"min": 0, "max": 500, "each": {"min": 1, "max": "10.5"}},
        "age": {"each": {"min": 0, "max": 99}},
    }
    assert PrivateTable("user_id", bounds={"rows": 20, **given}) == table  # type: ignore[dict-item]
    assert list(table.bounds.list_lines()) == [
        "rows = 20",
        "amount = {min = 0, max = 500, each = {min = 1, max = 10.5}}",
        "age = {each = {min = 0, max = 99}}",
    ]
    again = read(tmp_path, "\n".join(table.bounds.list_lines()))
    assert again.bounds == table.bounds


def test_distinct_stands_alone_or_beside_others_and_is_of_any_type(tmp_path: Path) -> None:
    table = read(tmp_path, "name = { distinct = 3 }\namount = { max = 500, distinct = 20 }")
    assert table.bounds.find("name") == ColumnBounds(None, None, None, 3)
    assert table.bounds.find("amount") == ColumnBounds(None, Fraction(500), None, 20)
    assert list(table.bounds.list_lines()) == ["name = {distinct = 3}", "amount = {min = 0, max = 500, distinct = 20}"]
    given = {"name": {"distinct": 3}, "amount": {"max": 500, "distinct": 20}}
    assert PrivateTable("user_id", bounds=given).bounds.find("name") == table.bounds.find("name")
    con = duckdb.connect()
    con.execute("CREATE TABLE visits (user_id BIGINT, name VARCHAR, amount INTEGER)")
    for bounds in (given, {"name": {"distinct": 3}}):
        session_on(con, Policy(Budget(1, "1e-6"), {"visits": PrivateTable("user_id", bounds=bounds)}))
    with pytest.raises(PolicyError, match="no numbers"):
        session_on(con, Policy(Budget(1, "1e-6"), {"visits": PrivateTable("user_id", bounds={"name": {"max": 3}})}))


WRONG = {
    "amount = { distinct = 0 }": ("policy", "at least 1"),
    "amount = { distinct = 1.5 }": ("policy", "whole"),
    "amount = { min = -1, distinct = 3 }": ("policy-bounds", "no max"),
    "amount = {}": ("policy", "max"),
    "amount = { min = -1 }": ("policy", "max"),
    "amount = { min = -1, each = { min = 0, max = 1 } }": ("policy-bounds", "no max"),
    "amount = { each = { min = 0 } }": ("policy", "max"),
    "amount = { each = { max = 1 } }": ("policy", "min"),
    "amount = { each = { min = 0, max = 1, mean = 2 } }": ("policy", "mean"),
    "amount = { each = { min = 1, max = 1 } }": ("policy-bounds", "below"),
    "amount = { each = { min = 2, max = 1 } }": ("policy-bounds", "below"),
    "amount = { each = { min = 0, max = inf } }": ("policy-number", "max"),
    "amount = { each = { min = 0, max = 2e15 } }": ("policy-bounds", "1,000,000,000,000,000"),
    "amount = { max = 5, each = { min = 6, max = 9 } }": ("policy-bounds", "between min and max"),
    "amount = { max = 5, each = 7 }": ("policy", "each"),
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_bounds_are_refused_where_they_are(line: str, tmp_path: Path) -> None:
    code, word = WRONG[line]
    with pytest.raises(PolicyError) as refused:
        read(tmp_path, line)
    assert refused.value.code.startswith(code)
    assert word in f"{refused.value.reason} {refused.value.hint} {refused.value.place}"
    assert "amount" in str(refused.value.place)


def test_each_is_checked_in_python_too() -> None:
    for each in ({"min": 0}, 5, {"min": 0, "max": 1, "mean": 2}):
        with pytest.raises(PolicyError, match=r"bounds\.amount\.each"):
            PrivateTable("user_id", bounds={"amount": {"max": 5, "each": each}})  # type: ignore[dict-item]


def warn(bounds: dict[str, object], type_: str = "INTEGER") -> list[str]:
    """Return the warnings of the bounds of a table, whose columns are listed."""
    table = PrivateTable("user_id", columns=("user_id", "x"), bounds=bounds)  # type: ignore[arg-type]
    policy = Policy(Budget(1, "1e-6"), {"visits": table}, ledger="ledger.sqlite")
    columns = (Exposed("user_id", "BIGINT"), Exposed("x", type_))
    checked = CheckedTable("visits", "user_id", None, columns, (), None, None, checked=True)
    return [finding.message for finding in lint_policy(policy, [checked])]


def test_bounds_that_contradict_each_other_are_named() -> None:
    (found,) = warn({"rows": 20, "x": {"min": 0, "max": 120}})
    assert "rows = 20 and max = 120 are 6 for each row" in found
    assert warn({"rows": 20, "x": {"min": 0, "max": 600}}) == []
    assert warn({"rows": 1, "x": {"min": 0, "max": 5}}) == []
    assert warn({"x": {"min": 0, "max": 5}}) == []
    assert warn({"rows": 20, "x": {"max": 100, "each": {"min": 1, "max": 5}}}) == []
    assert warn({"rows": 20, "x": {"each": {"min": 1, "max": 5}}}) == []
    (found,) = warn({"rows": 20, "x": {"max": 10, "each": {"min": 0, "max": 50}}})
    assert "one row alone is cut" in found
    (found,) = warn({"rows": 20, "x": {"max": 10, "each": {"min": 1, "max": 5}}})
    assert "a unit with all its rows is cut" in found
    (found,) = warn({"rows": 20, "x": {"max": 500, "each": {"min": 1, "max": 5}}})
    assert "add up to 100, so that max = 500 is never reached" in found
    (found,) = warn({"rows": 20, "x": {"distinct": 21}})
    assert "distinct = 21 is more than rows = 20" in found
    assert warn({"rows": 20, "x": {"distinct": 20}}) == warn({"x": {"distinct": 21}}) == []


def test_many_rows_and_values_below_0_are_named() -> None:
    (found,) = warn({"rows": 5_000})
    assert "rows = 5,000" in found
    assert warn({"rows": 1_000}) == []
    (found,) = warn({"x": {"max": 500}}, "DECIMAL(9,2)")
    assert "below 0" in found
    assert "min = 0" in found
    assert warn({"x": {"max": 500}}, "UINTEGER") == []
    assert warn({"x": {"min": -1, "max": 500}}) == []
    assert warn({"x": {"max": 500, "each": {"min": 0, "max": 50}}}) == []
