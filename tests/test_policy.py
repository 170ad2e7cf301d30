from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import PolicyError
from dpsql.policy import Budget, Limits, Policy, PrivateTable, PublicTable
from dpsql.quantities import Delta, Epsilon


def refused(act: Callable[[], object]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        act()
    error = caught.value
    assert error.code.startswith("policy-")
    assert error.reason.endswith(".")
    assert error.hint
    assert error.place
    return error


def test_where_without_a_file_is_the_key_path() -> None:
    policy = Policy(Budget(1, 0.1), {"reads": PrivateTable("u")})
    assert policy.where("tables.reads.privacy_unit") == "tables.reads.privacy_unit"


def test_numbers_are_exact() -> None:
    assert Budget(0.1, 1e-6).epsilon.value == Fraction(1, 10)
    assert Budget("0.1", Decimal("1e-6")).delta.value == Fraction(1, 10**6)
    assert Budget(Epsilon(2), Delta("0.5")) == Budget(Fraction(2), Fraction(1, 2))


def test_a_policy_does_not_change() -> None:
    given_tables = {"reads": PrivateTable("user_id")}
    policy = Policy(Budget(1, 1e-6), given_tables)
    given_tables["more"] = PrivateTable("user_id")
    assert list(policy.tables) == ["reads"]
    with pytest.raises(TypeError):
        policy.tables["more"] = PublicTable()  # type: ignore[index]
    for value in (policy, policy.budget, policy.limits, policy.tables["reads"]):
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            value.epsilon = 2  # type: ignore[union-attr]


# --- values that mean nothing


NO_NUMBERS = [float("nan"), float("inf"), "nan", "-inf", "", "one", True, None, [1], Decimal("NaN"), 1j]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused(value: object) -> None:
    for act, place in (
        (lambda: Budget(value, 1e-6), "budget.epsilon"),
        (lambda: Budget(1, value), "budget.delta"),
        (lambda: Limits(max_epsilon=value), "limits.max_epsilon"),
        (lambda: Limits(min_epsilon=value), "limits.min_epsilon"),
    ):
        error = refused(act)
        assert (error.code, error.place) == ("policy-number", place)


@pytest.mark.parametrize(
    ("act", "place"),
    [
        (lambda: Budget(0, 1e-6), "budget.epsilon"),
        (lambda: Budget(-1, 1e-6), "budget.epsilon"),
        (lambda: Budget("100.001", 1e-6), "budget.epsilon"),
        (lambda: Budget(Epsilon(101), 1e-6), "budget.epsilon"),
        (lambda: Budget(1, 0), "budget.delta"),
        (lambda: Budget(1, 1), "budget.delta"),
        (lambda: Budget(1, -1e-6), "budget.delta"),
        (lambda: Budget(1, Delta(0)), "budget.delta"),
        (lambda: Budget(1, 1e-6, items=0), "budget.items"),
        (lambda: Budget(1, 1e-6, items=10**6 + 1), "budget.items"),
        (lambda: Budget(1, 1e-6, queries=-1), "budget.queries"),
        (lambda: Limits(max_k=0), "limits.max_k"),
        (lambda: Limits(max_k_bar=10**7), "limits.max_k_bar"),
        (lambda: Limits(max_delta=1), "limits.max_delta"),
        (lambda: Limits(max_epsilon=101), "limits.max_epsilon"),
        (lambda: Limits(max_epsilon=0.1, min_epsilon=0.2), "limits"),
        (lambda: Limits(max_k=100, max_k_bar=99), "limits"),
    ],
)
def test_what_is_out_of_range_is_refused(act: Callable[[], object], place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == ("policy-range", place)


def test_the_ends_of_the_ranges_are_in() -> None:
    Budget(100, Fraction(10**12 - 1, 10**12), items=1, queries=10**6)
    Limits(max_epsilon=0.2, min_epsilon=0.2, max_k=7, max_k_bar=7)


@pytest.mark.parametrize(
    ("act", "place"),
    [
        (lambda: Budget(1, 1e-6, items=1.5), "budget.items"),  # type: ignore[arg-type]
        (lambda: Budget(1, 1e-6, queries=True), "budget.queries"),
        (lambda: Limits(max_k="10"), "limits.max_k"),  # type: ignore[arg-type]
        (lambda: PrivateTable(3), "privacy_unit"),  # type: ignore[arg-type]
        (lambda: PrivateTable("u", "u"), "columns"),
        (lambda: PublicTable({"u"}), "columns"),  # type: ignore[arg-type]
        (lambda: PublicTable(["a", 1]), "columns"),  # type: ignore[list-item]
        (lambda: PublicTable(source=3), "source"),  # type: ignore[arg-type]
        (lambda: Policy(1, {"a": PublicTable()}), "budget"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), ["a"]), "tables"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), {"a": "user_id"}), "tables.a"),  # type: ignore[dict-item]
        (lambda: Policy(Budget(1, 0.1), {3: PublicTable()}), "tables"),  # type: ignore[dict-item]
        (lambda: Policy(Budget(1, 0.1), {"a": PublicTable()}, ledger=3), "ledger"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), {"a": PublicTable()}, limits=3), "limits"),  # type: ignore[arg-type]
        (lambda: Policy.from_toml(3), "policy"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_refused(act: Callable[[], object], place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == ("policy-type", place)


@pytest.mark.parametrize(
    ("act", "code", "place"),
    [
        (lambda: PrivateTable(""), "policy-name", "privacy_unit"),
        (lambda: PrivateTable("u\0"), "policy-name", "privacy_unit"),
        (lambda: PrivateTable("u", ["u", ""]), "policy-name", "columns"),
        (lambda: PrivateTable("u", []), "policy-columns", "columns"),
        (lambda: PrivateTable("u", ["a"]), "policy-columns", "columns"),
        (lambda: PrivateTable("u", ["u", "a", "A"]), "policy-columns", "columns"),
        (lambda: PublicTable([]), "policy-columns", "columns"),
        (lambda: PublicTable(source="data.csv"), "policy-source", "source"),
        (lambda: PublicTable(source=""), "policy-path", "source"),
        (lambda: PublicTable(source="a\0.parquet"), "policy-path", "source"),
        (lambda: Policy(Budget(1, 0.1), {}), "policy-tables", "tables"),
        (lambda: Policy(Budget(1, 0.1), {"": PublicTable()}), "policy-name", "tables"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(act: Callable[[], object], code: str, place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == (code, place)


def test_names_are_compared_by_ascii_case_alone() -> None:
    assert PrivateTable("User_ID", ["user_id"]).privacy_unit == "User_ID"
    PublicTable(["ä", "Ä", "\u017f", "s"])
    Policy(Budget(1, 0.1), {"ä": PublicTable(), "Ä": PublicTable()})


@pytest.mark.parametrize(
    "tables",
    [
        {"reads": PrivateTable("u"), "READS": PublicTable()},
        {"reads": PrivateTable("u"), "Main.Reads": PublicTable()},
        {"a": PrivateTable("u", source="x.parquet"), "b": PublicTable(source=Path("./x.parquet"))},
        {"main.a": PrivateTable("u", source="x.parquet"), "a": PublicTable()},
    ],
)
def test_no_data_is_declared_twice(tables: dict[str, PrivateTable | PublicTable]) -> None:
    error = refused(lambda: Policy(Budget(1, 0.1), tables))
    assert (error.code, error.place) == ("policy-duplicate-table", f"tables.{list(tables)[1]}")
