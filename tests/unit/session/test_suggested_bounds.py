"""Suggested bounds through a session: what is found, charged once, stored, refused; what fails and what is lost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
from support.laws import SeededNoise
from support.session_kit import filled

import dpsql
from dpsql.accounting import ZCDP, PureLoss, Steps
from dpsql.curator import suggest_bounds
from dpsql.errors import BudgetExceeded, EngineError, Error, LedgerError, PolicyError, Refusal, UsageError
from dpsql.mechanisms.quantiles import RankFromTop
from dpsql.policy.tables import check_bounds
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.suggested_bounds import BoundsRequest, BoundsSuggestion, FoundBound, collect_bounds, widen_bounds

# 2,000 users: user u has 1 + u % 10 rows of 5 each, in 2 cities; 1 user in 10 is heavy
ROWS = (
    "CREATE TABLE visits (user_id INTEGER, city VARCHAR, dwell INTEGER, delta DOUBLE, name VARCHAR)",
    (
        "INSERT INTO visits SELECT u, 'SECRET' || (r % 2), 5, CASE WHEN u % 2 = 0 THEN -0.5 ELSE 0.25 END, 'x' "
        "FROM range(2000) a(u), range(10) b(r) WHERE r <= u % 10"
    ),
    "CREATE TABLE users (id INTEGER PRIMARY KEY, age INTEGER)",
    "INSERT INTO users SELECT u, 18 + u % 60 FROM range(2000) a(u)",
    "CREATE TABLE orders (user_id INTEGER, price DECIMAL(9, 2))",
    "INSERT INTO orders SELECT u, 2.50 FROM range(2000) a(u), range(4) b(r)",
    "CREATE TABLE public AS SELECT 1 AS x",
)
TABLES = {
    "visits": dpsql.PrivateTable("user_id"),
    "users": dpsql.PrivateTable("id"),
    "orders": dpsql.PrivateTable(link="user_id -> users.id"),
    "public": dpsql.PublicTable(),
}


@pytest.fixture(scope="module")
def data() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = filled(*ROWS)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def _noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the noise: 1 draw in 1,000 may be far off."""
    monkeypatch.setattr("dpsql.mechanisms.OperatingSystemNoise", lambda: SeededNoise(5))


def policy_of(ledger: Path, epsilon: float = 5, **budget: str) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(epsilon, "1e-6", **budget), TABLES, ledger=ledger)


def spent(policy: dpsql.Policy, data: duckdb.DuckDBPyConnection) -> Fraction:
    with dpsql.connect(data, policy=policy) as session:
        return session.budget.limit.refundable - session.budget.remaining.refundable


def test_bounds_are_found_charged_once_and_stored(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    found = suggest_bounds(policy, "visits", ["dwell"], database=data)
    assert found.new == {"rows": 10, "dwell": {"max": 50}}
    assert found.lines == ("rows = 10", "dwell = { max = 50 }")
    assert found.bounds == check_bounds({"rows": 10, "dwell": {"max": 50}})
    assert found.loss == ZCDP(Rho(found.epsilon.value**2 / 4), Delta(0))
    assert spent(policy, data) == found.loss.rho.value
    again = suggest_bounds(policy, "visits", ["dwell"], database=data)
    assert (again.found, again.loss) == (found.found, ZCDP.nothing())
    more = suggest_bounds(policy, "visits", ["DWELL", "delta"], database=data, below_zero=True)
    assert more.new["delta"] == {"min": Fraction(-5), "max": Fraction("2.5")}
    assert more.loss.rho.value == 3 * found.epsilon.value**2 / 8  # of 5 draws 2 are stored
    assert "rows = 10: at most about" in str(found)


def test_the_other_bounds_of_a_policy_stay(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    """A bound that is lost here is noticed only when the draws are charged."""
    kept = {"delta": {"distinct": 3}, "dwell": {"max": 7, "each": {"min": 0, "max": 5}, "distinct": 4}}
    tables = {"visits": dpsql.PrivateTable("user_id", bounds=kept)}
    policy = dpsql.Policy(dpsql.Budget(5, "1e-6"), tables, ledger=tmp_path / "ledger.sqlite")
    found = suggest_bounds(policy, "visits", ["dwell"], database=data, rows=False)
    assert found.bounds == check_bounds({**kept, "dwell": {**kept["dwell"], "max": 50}})


def test_the_case_of_names_changes_no_draw(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    first = suggest_bounds(policy, "visits", ["dwell"], database=data, by="city")
    again = suggest_bounds(policy, "VISITS", ["DWELL"], database=data, by="CITY")
    assert (again.found, again.loss, again.scope) == (first.found, ZCDP.nothing(), first.scope)


def test_a_column_of_the_name_rows_is_not_mixed_up_with_rows(tmp_path: Path) -> None:
    connection = filled("CREATE TABLE visits AS SELECT u AS user_id, 2 AS Rows, 5 AS dwell FROM range(2000) a(u)")

    def suggest(columns: list[str], bounds: dict[str, object], *, rows: bool) -> BoundsSuggestion:
        tables = {"visits": dpsql.PrivateTable("user_id", bounds=bounds)}
        policy = dpsql.Policy(dpsql.Budget(5, "1e-6"), tables, ledger=tmp_path / "ledger.sqlite")
        return suggest_bounds(policy, "visits", columns, database=connection, rows=rows)

    for columns, bounds, rows in (
        (["rows"], {}, True),
        (["Rows"], {"rows": 3}, False),
        ([], {"Rows": {"max": 3}}, True),
    ):
        with pytest.raises(UsageError, match="--no-rows") as caught:
            suggest(columns, bounds, rows=rows)
        assert caught.value.code == "bounds-column"
    assert suggest(["rows"], {}, rows=False).new == {"Rows": {"max": 2}}
    assert suggest(["dwell"], {"Rows": {"max": 3}}, rows=False).new == {"dwell": {"max": 5}}


def test_the_epsilon_that_is_proposed_fits(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    """A draw that is stored has another epsilon, so at the one that is proposed it is charged again."""
    policy = policy_of(tmp_path / "ledger.sqlite", epsilon=1)
    suggest_bounds(policy, "visits", database=data, epsilon="0.4")
    with pytest.raises(BudgetExceeded) as caught:
        suggest_bounds(policy, "visits", ["dwell"], database=data, epsilon="0.4")
    fits = str(caught.value.hint).partition("--epsilon ")[2].partition(",")[0]
    assert suggest_bounds(policy, "visits", ["dwell"], database=data, epsilon=fits).epsilon == Epsilon(fits)


def test_sixteen_items_are_the_default_price(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    with dpsql.connect(data, policy=policy) as session:
        item = session.terms.epsilon
    found = suggest_bounds(policy, "visits", database=data)
    assert found.epsilon.value == 4 * item.value
    assert found.loss.rho.value == 16 * item.value**2 / 8
    assert suggest_bounds(policy, "visits", epsilon="0.7", database=data).epsilon == Epsilon("0.7")


def test_both_ends_of_each_and_links_and_groups(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    ages = suggest_bounds(policy, "users", ["age"], database=data, each=True, rows=False)
    assert ages.new["age"]["each"] == {"min": 16, "max": 80}
    assert ages.new["age"]["max"] == 80
    policy = policy_of(tmp_path / "second.sqlite")
    linked = suggest_bounds(policy, "orders", ["price"], database=data)
    assert linked.new == {"rows": 4, "price": {"max": 10}}
    by_city = suggest_bounds(policy, "visits", ["dwell"], by="city", groups=2, database=data)
    assert by_city.new == {"rows": 5, "dwell": {"max": 25}}
    assert "# for groups by city, 2 of them in one query; each for all rows, at epsilon" in str(by_city)


def test_of_too_few_users_nothing_is_said(tmp_path: Path) -> None:
    connection = filled(ROWS[0], "INSERT INTO visits VALUES (1, 'a', 5, 1, 'x')", *ROWS[2:])
    found = suggest_bounds(policy_of(tmp_path / "ledger.sqlite"), "visits", ["dwell"], database=connection)
    assert found.new == {}
    assert found.bounds == check_bounds({})
    mechanism = RankFromTop.for_sums(found.epsilon, bins=128, item=Epsilon(found.epsilon.value / 4))
    assert [each.value for each in found.found] == [None, None]
    assert f"too few users to tell: it takes about {mechanism.units_needed}" in str(found)


@pytest.mark.parametrize("certificate", ["pure", "optimal", "theorem2"])
def test_every_certificate_charges_one_draw(certificate: str, tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite", certificate=certificate)
    found = suggest_bounds(policy, "visits", database=data)
    assert found.new == {"rows": 10}
    if certificate == "pure":
        assert found.loss == PureLoss(found.epsilon.value, Delta(0))
        assert spent(policy, data) == found.epsilon.value
    else:
        assert isinstance(found.loss, Steps)
        assert (found.loss.items, found.loss.delta.value, spent(policy, data)) == (1, 0, 1)
        with pytest.raises(Refusal, match="each draw is an item"):
            suggest_bounds(policy, "visits", epsilon=2, database=data)


def test_what_cannot_be_is_refused_and_free(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    wrong: list[tuple[type[Error], str, dict[str, object]]] = [
        (UsageError, "bounds-table", {"table": "nowhere"}),
        (UsageError, "bounds-table", {"table": "public"}),
        (UsageError, "bounds-column", {"columns": ["dwel"]}),
        (UsageError, "bounds-column", {"columns": ["name"]}),
        (UsageError, "bounds-column", {"columns": ["user_id"]}),
        (UsageError, "bounds-groups", {"groups": 5}),
        (UsageError, "bounds-groups", {"by": "city", "groups": 0}),
        (UsageError, "bounds-nothing", {"rows": False}),
        (Refusal, "unknown-column", {"by": "nothing"}),
        (Refusal, "option-range", {"epsilon": 1000}),
    ]
    for kind, code, given in wrong:
        with pytest.raises(kind) as caught:
            suggest_bounds(policy, **{"table": "visits", "database": data, **given})  # type: ignore[arg-type]
        assert caught.value.code == code
        assert "SECRET" not in str(caught.value)
    assert spent(policy, data) == 0
    with pytest.raises(PolicyError) as caught_policy:
        suggest_bounds(dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES), "visits", database=data)
    assert caught_policy.value.code == "policy-ledger"


def test_a_budget_that_is_too_small_for_all_pays_for_none(tmp_path: Path, data: duckdb.DuckDBPyConnection) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        suggest_bounds(policy, "visits", ["dwell", "delta"], database=data, each=True, below_zero=True)
    assert spent(policy, data) == 0


def test_an_account_is_charged_and_one_that_may_not_ask_is_told(
    tmp_path: Path, data: duckdb.DuckDBPyConnection
) -> None:
    analysts = {"default": dpsql.Analyst(enabled=False), "ann": dpsql.Analyst(epsilon=3)}
    policy = dpsql.Policy(dpsql.Budget(5, "1e-6"), TABLES, ledger=tmp_path / "ledger.sqlite", analysts=analysts)
    with pytest.raises(Refusal, match="--account NAME"):
        suggest_bounds(policy, "visits", database=data)
    found = suggest_bounds(policy, "visits", database=data, account="ann")
    with dpsql.connect(data, policy=policy, analyst="ann") as session:
        assert session.budget.limit.refundable - session.budget.remaining.refundable == found.loss.rho.value


def test_a_failure_between_draws_loses_none_of_those_before(
    tmp_path: Path, data: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    select, calls = RankFromTop.select, itertools.count()

    def fail_second(self: RankFromTop, counts: list[int], noise: object) -> int | None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return select(self, counts, noise)  # type: ignore[arg-type]

    monkeypatch.setattr(RankFromTop, "select", fail_second)
    with pytest.raises(KeyboardInterrupt):
        suggest_bounds(policy, "visits", ["dwell"], database=data)
    each = spent(policy, data) / 2  # the second is charged in full, too
    found = suggest_bounds(policy, "visits", ["dwell"], database=data)
    assert found.new == {"rows": 10, "dwell": {"max": 50}}
    assert found.loss.rho.value == each
    assert spent(policy, data) == 3 * each


def test_a_failure_says_nothing_of_the_rows(
    tmp_path: Path, data: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RankFromTop, "select", lambda _, counts, __: [][sum(counts)])
    with pytest.raises(EngineError) as caught:
        suggest_bounds(policy_of(tmp_path / "ledger.sqlite"), "visits", database=data)
    assert caught.value.code == "release-failed"
    assert "2000" not in f"{caught.value} {caught.value.__context__}"


def test_damaged_stored_bounds_are_refused(
    tmp_path: Path, data: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(tmp_path / "ledger.sqlite")
    suggest_bounds(policy, "visits", database=data)
    monkeypatch.setattr("dpsql.suggested_bounds.json", SimpleNamespace(loads=lambda _: {}, dumps=json.dumps))
    with pytest.raises(LedgerError, match="stored bound is damaged"):
        suggest_bounds(policy, "visits", database=data)


def found_of(**values: Fraction | int | None) -> list[FoundBound]:
    return [
        FoundBound(name.replace("_", "."), "x", None if value is None else Fraction(value), 9)
        for name, value in values.items()
    ]


def test_lines_are_such_that_a_policy_takes_them() -> None:
    cases: list[tuple[list[FoundBound], dict[str, object]]] = [
        (found_of(max=0), {}),
        (found_of(max=0, min=-4), {"x": {"min": -4, "max": 0}}),
        (found_of(max=None, min=-4), {}),
        (found_of(max=5, min=None), {"x": {"max": 5}}),
        (found_of(max=5, each_min=3, each_max=3), {"x": {"max": 5, "each": {"min": 0, "max": 3}}}),
        (found_of(max=0, each_min=0, each_max=0), {}),
        (found_of(max=2, each_min=3, each_max=8), {"x": {"max": 8, "each": {"min": 3, "max": 8}}}),
        (found_of(max=5, each_min=9, each_max=8), {"x": {"max": 9, "each": {"min": 8, "max": 9}}}),
    ]
    for found, wanted in cases:
        new = collect_bounds(found)
        widened = widen_bounds(new, new)
        assert widened == wanted
        check_bounds(widened)


def test_a_suggestion_and_a_request_are_values() -> None:
    assert BoundsRequest("visits", ("dwell",)) == BoundsRequest("visits", ("dwell",))
    assert BoundsSuggestion.__dataclass_params__.frozen  # type: ignore[attr-defined]
