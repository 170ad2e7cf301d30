"""Sessions in which each value of a column has a budget: who is counted and charged, and that no unit loses more."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pytest
from support.values_kit import ROWS, STATEMENTS, data_file, least_values, policy_of

import dpsql
from dpsql.accounting import Certificate
from dpsql.engines import open_exact
from dpsql.errors import BudgetExceeded, LedgerError, PolicyError
from dpsql.plan import Plan, build_plan, build_statement
from dpsql.session import Session
from dpsql.sql.analysis import row_facts
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import Call, Derived, Expression, FromWhere, InQuery

NAMED = [sql for sql, names in STATEMENTS if names]
UNITS = sorted(least_values(ROWS))
SALTS = (1, 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """Return the data without one unit each, and with all under None."""
    folder = tmp_path_factory.mktemp("neighbours")
    found = {None: data_file(folder / "all.duckdb")}
    for unit in UNITS:
        rows = tuple(row for row in ROWS if row[0] != unit)
        found[unit] = data_file(folder / f"without_{unit}.duckdb", rows)
    return found


@pytest.fixture(scope="module")
def sessions(files: dict[int | None, Path]) -> Iterator[dict[int | None, Session]]:
    with ExitStack() as stack:
        yield {unit: stack.enter_context(opened(path)) for unit, path in files.items()}


@contextmanager
def opened(path: Path, certificate: str = "zcdp", **given: object) -> Iterator[Session]:
    with dpsql.connect(path, policy=policy_of(certificate), ledger=given.pop("ledger", ":memory:"), **given) as session:  # type: ignore[call-overload]
        session._plans.salts = SALTS
        yield session


def read_exactly(session: Session, query: PrivateQuery | str) -> pa.Table:
    """Return what the engine returns for a private query: the exact rows, before any noise."""
    own = session._dependencies
    plan = session.explain(query) if isinstance(query, str) else build_plan(query, own.terms, salts=SALTS)
    return open_exact(own.engine.execute(build_statement(plan.counting)))


def moving_units(sessions: dict[int | None, Session], sql: str) -> set[int]:
    """Return the units whose removal changes what the engine returns."""
    whole = read_exactly(sessions[None], sql)
    return {unit for unit in UNITS if not read_exactly(sessions[unit], sql).equals(whole)}


@pytest.fixture(scope="module")
def moving(sessions: dict[int | None, Session]) -> Callable[[str], set[int]]:
    """Return the units that move a statement, computed once for all tests."""
    return cache(partial(moving_units, sessions))


@pytest.mark.parametrize(("sql", "names"), STATEMENTS)
def test_a_query_names_values_only_where_that_is_certain(
    sessions: dict[int | None, Session], sql: str, names: tuple[str, ...]
) -> None:
    plan = sessions[None].explain(sql)
    assert plan.charged_values == names
    explained = dict(sessions[None].sql(f"EXPLAIN {sql}").fetchall())["charged to"]
    assert explained.startswith(f"reads.country {', '.join(names)}: " if names else "all values of reads.country: ")


@pytest.mark.parametrize("sql", NAMED)
def test_only_units_of_the_charged_values_move_an_answer(sessions: dict[int | None, Session], sql: str) -> None:
    values, names = least_values(ROWS), sessions[None].explain(sql).charged_values
    moving = moving_units(sessions, sql)
    assert {values[unit] for unit in moving} <= set(names)
    if "WHERE country IN ('DE', 'FR') GROUP" in sql:
        assert moving == {1, 3, 5, 7, 8}  # 2 has AT too, and 6 the empty text


def without_values(plan: Plan, session: Session, sql: str) -> PrivateQuery:
    """Return the query as it is where values have no budgets."""
    assert plan.charged_values
    query = session._analyze(sql, ())
    assert isinstance(query, PrivateQuery)
    return replace(query, charged_values=None)


@pytest.mark.parametrize("sql", NAMED)
def test_where_units_have_one_value_the_answer_is_that_of_the_query_itself(tmp_path: Path, sql: str) -> None:
    rows = tuple(row for row in ROWS if row[0] in {1, 3, 4})
    with opened(data_file(tmp_path / "single.duckdb", rows)) as session:
        plain = without_values(session.explain(sql), session, sql)
        assert read_exactly(session, plain).equals(read_exactly(session, sql))


@pytest.mark.properties
@pytest.mark.parametrize("certificate", [each.value for each in Certificate])
def test_no_unit_loses_more_than_the_total_in_any_session(
    moving: Callable[[str], set[int]], files: dict[int | None, Path], certificate: str
) -> None:
    corpus = [(sql, names) for sql, names in STATEMENTS if certificate == "zcdp" or "COUNT(" not in sql][::2]
    for seed in range(2 if certificate == "zcdp" else 1):
        with opened(files[None], certificate) as session:
            choice, asked = random.Random(seed), list[str]()
            biased = [each for each in corpus if each[1]] * 6 + [each for each in corpus if not each[1]][:4]
            for _ in range(70):
                sql, _ = choice.choice(biased)
                with suppress(BudgetExceeded):
                    session.sql(sql)
                    asked.append(sql)
            entries, budget = session._dependencies.ledger.entries(), session._dependencies.terms.budget
            assert len(entries) == len(asked)
            lost = {unit: [Fraction(0), Fraction(0)] for unit in UNITS}
            for sql, entry in zip(asked, entries, strict=True):
                for unit in moving(sql):
                    lost[unit][0] += entry.charged
                    lost[unit][1] += entry.permanent
            assert all(first <= budget.refundable and second <= budget.permanent for first, second in lost.values())
            together = sum((entry.charged for entry in entries), Fraction(0))
            assert together > budget.refundable or sum(e.permanent for e in entries) > budget.permanent


def choose_under_salts(
    table: object, units: tuple[Expression, Expression], *, value: Expression, wanted: tuple[object, ...]
) -> Expression:
    """Choose one of the values of a unit as a session's salts have it: here the greatest."""
    found = charged_values_of(table, units, value=value, wanted=wanted)
    assert isinstance(found, InQuery)
    grouped = found.source.body.source
    assert isinstance(grouped, Derived)
    greatest = Call("max", (canonicalize(value),), value.type)
    other = replace(grouped, outputs=(grouped.outputs[0], greatest))
    return replace(found, source=replace(found.source, body=replace(found.source.body, source=other)))


def choose_after_where(
    table: object, units: tuple[Expression, Expression], *, value: Expression, wanted: tuple[object, ...]
) -> Expression:
    """Choose the least of the values that the query's own WHERE leaves."""
    found = charged_values_of(table, units, value=value, wanted=wanted)
    assert isinstance(found, InQuery)
    grouped = found.source.body.source
    assert isinstance(grouped, Derived)
    where = row_facts.In(canonicalize(value), wanted)  # type: ignore[arg-type]
    other = replace(grouped, body=FromWhere(grouped.body.source, where))
    return replace(found, source=replace(found.source, body=replace(found.source.body, source=other)))


charged_values_of = row_facts._select_units


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("mutant", [choose_under_salts, choose_after_where])
def test_a_unit_whose_value_is_chosen_otherwise_pays_twice(
    sessions: dict[int | None, Session], monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Expression]
) -> None:
    queries = [
        f"SELECT article FROM reads WHERE country = '{each}' GROUP BY article TOP 2 PRIVATE" for each in ("DE", "FR")
    ]

    def count_twice(chosen: tuple[Callable[..., Expression], ...]) -> set[int]:
        found = []
        for sql, select in zip(queries, chosen, strict=True):
            monkeypatch.setattr(row_facts, "_select_units", select)
            with ExitStack() as stack:
                known = {unit: stack.enter_context(opened_like(session)) for unit, session in sessions.items()}
                found.append(moving_units(known, sql))
        return found[0] & found[1]

    assert not count_twice((charged_values_of, charged_values_of))
    salted = (charged_values_of, mutant) if mutant is choose_under_salts else (mutant, mutant)
    assert count_twice(salted)


def null_has_a_name(constant: Expression, _: object) -> str | None:
    return "" if constant.value is None else str(constant.value)  # type: ignore[union-attr]


def either_side_of_or(found: object) -> object:
    united: dict[str, object] = {}
    for each in found:  # type: ignore[attr-defined]
        united |= each or {}
    return united or None


def below_not(condition: Expression, source: object, *, table: object) -> object:
    inner = condition.arguments[0] if isinstance(condition, Call) and condition.function == "not" else condition
    return read_condition(inner, source, table=table)  # type: ignore[arg-type]


read_condition = row_facts._read_condition


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("name", "mutant", "sql"),
    [
        ("_name_value", null_has_a_name, "country IN ('DE', NULL)"),
        ("_unite", either_side_of_or, "country = 'DE' OR article = 'sun'"),
        ("_read_condition", below_not, "NOT country = 'DE'"),
    ],
)
def test_what_is_not_certain_names_no_value(
    sessions: dict[int | None, Session], monkeypatch: pytest.MonkeyPatch, name: str, mutant: object, sql: str
) -> None:
    statement = f"SELECT article FROM reads WHERE {sql} GROUP BY article TOP 2 PRIVATE"
    assert sessions[None].explain(statement).charged_values == ()
    monkeypatch.setattr(row_facts, name, mutant)
    with opened_like(sessions[None]) as session:
        assert session.explain(statement).charged_values != ()


@contextmanager
def opened_like(session: Session) -> Iterator[Session]:
    """Open another session, which has analysed nothing yet, on the same engine."""
    other = Session(session._dependencies)
    other._plans.salts = SALTS
    yield other


@pytest.mark.parametrize(
    ("type_", "value", "constant", "name"),
    [
        ("BIGINT", 7, "7", "7"),
        ("TINYINT", 7, "7", "7"),
        ("BOOLEAN", True, "TRUE", "true"),
        ("DATE", "2026-01-31", "'2026-01-31'", "2026-01-31"),
        ("ENUM('de', 'fr')", "fr", "'fr'", "fr"),
    ],
)
def test_a_value_is_named_by_the_constant_in_the_type_of_its_column(
    tmp_path: Path, type_: str, value: object, constant: str, name: str
) -> None:
    path = data_file(tmp_path / "typed.duckdb", ((1, "sun", value), (2, "moon", value), (2, "sun", None)), type_=type_)  # type: ignore[arg-type]
    sql = f"SELECT article FROM reads WHERE country = {constant} GROUP BY article TOP 2 PRIVATE"
    with opened(path) as session:
        assert session.explain(sql).charged_values == (name,)
        assert read_exactly(session, sql).num_rows == 2


def test_a_constant_that_is_none_of_the_type_names_no_value(tmp_path: Path) -> None:
    path = data_file(tmp_path / "typed.duckdb", ((1, "sun", 7),), type_="TINYINT")  # type: ignore[arg-type]
    with opened(path) as session:
        for constant in ("300", "7.5"):
            sql = f"SELECT article FROM reads WHERE country = {constant} GROUP BY article TOP 2 PRIVATE"
            with suppress(dpsql.Refusal):
                assert session.explain(sql).charged_values == ()


def test_too_many_or_too_long_values_name_none(sessions: dict[int | None, Session]) -> None:
    def named(values: list[str]) -> int:
        listed = ", ".join(f"'{value}'" for value in values)
        sql = f"SELECT article FROM reads WHERE country IN ({listed}) GROUP BY article TOP 2 PRIVATE"
        return len(sessions[None].explain(sql).charged_values)

    assert named([str(at) for at in range(row_facts.MAX_VALUES)]) == row_facts.MAX_VALUES
    assert named([str(at) for at in range(row_facts.MAX_VALUES + 1)]) == 0
    assert named(["x" * 200]) == 1
    assert named(["x" * 201]) == 0
    assert named(["a\nb"]) == 0


def test_parameters_name_values(sessions: dict[int | None, Session]) -> None:
    sql = "SELECT article FROM reads WHERE country = ? GROUP BY article TOP 2 PRIVATE"
    assert sessions[None].explain(sql, ("FR",)).charged_values == ("FR",)
    assert sessions[None].explain(sql, (None,)).charged_values == ()


def test_the_question_of_a_charged_query_is_another(sessions: dict[int | None, Session]) -> None:
    session, sql = sessions[None], NAMED[0]
    plan = session.explain(sql)
    other = build_plan(without_values(plan, session, sql), session._dependencies.terms, salts=SALTS)
    assert plan.key != other.key
    assert plan.release_key != other.release_key
    assert not {plan.key, *plan.similar_keys, *plan.named_keys} & {other.key, *other.similar_keys, *other.named_keys}


def test_surfaces_say_which_values_were_charged(files: dict[int | None, Path]) -> None:
    with opened(files[None]) as session:
        sql = "SELECT article FROM reads WHERE country IN ('FR', 'DE') GROUP BY article TOP 2 PRIVATE"
        first = session.forecast(sql).at_worst
        receipt = session.sql(sql).receipt
        assert receipt.charged_to == "reads.country DE, FR: only units of these values are counted"
        assert dict(receipt.details())["charged to"] == receipt.charged_to
        session.sql("SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.01)")
        assert session.forecast(sql).at_worst < first
        other = "SELECT article FROM reads WHERE country = 'IT' GROUP BY article TOP 2 PRIVATE"
        assert session.forecast(other).at_worst > session.forecast(sql).at_worst
        shown = session.sql("SHOW BUDGET").arrow()
        assert shown.column_names[-1] == "reads.country"
        assert shown["reads.country"].to_pylist() == [*([None] * 4 + ["DE"] * 4 + ["FR"] * 4) * 2, None]
        assert "of each value that queries named: DE " in str(session.budget)
        assert "for any one of these about all values of reads.country:" in str(session.budget)
        assert session.history["reads.country"].to_pylist() == [["DE", "FR"], None]
        replayed = session.sql(sql).receipt
        assert replayed.replayed
        assert len(session.history) == 2


def test_values_that_do_not_exist_look_like_others(files: dict[int | None, Path]) -> None:
    with opened(files[None]) as session:
        for value in ("DE", "nowhere"):
            session.sql(f"SELECT article FROM reads WHERE country = '{value}' GROUP BY article TOP 1 PRIVATE")
        shown = session.sql("SHOW BUDGET").arrow()
        by_value = {value: [] for value in ("DE", "nowhere")}
        for row in shown.to_pylist():
            if row["reads.country"] is not None:
                by_value[row["reads.country"]].append((row["measure"], row["granted"]))
        assert by_value["DE"] == by_value["nowhere"]


def test_private_queries_of_one_statement_must_fit_together_for_each_value(files: dict[int | None, Path]) -> None:
    with opened(files[None]) as session:
        each = "(SELECT COUNT(DISTINCT user_id) FROM reads WHERE country = '{}' PRIVATE WITH (epsilon = 0.7))"
        apart = session.sql(f"SELECT {each.format('DE')} + {each.format('FR')} + {each.format('IT')}")
        assert len(apart.receipt.parts) == 3
        with pytest.raises(BudgetExceeded):
            session.sql(f"SELECT {each.format('AT')} + {each.format('AT').replace('0.7', '0.65')}")
        assert "AT" not in session.budget.values


def test_after_another_version_an_open_session_charges_all(files: dict[int | None, Path], tmp_path: Path) -> None:
    ledger, sql = tmp_path / "spent.ledger", NAMED[0]
    with opened(files[None], ledger=ledger) as session:
        session.sql(sql)
        session._dependencies.ledger.bump("other data")
        assert session.explain(sql).charged_values == ()
        assert session.sql(sql).receipt.charged_to.startswith("all values")
        with opened(files[None], ledger=ledger) as again:
            assert again.explain(sql).charged_values == ("DE",)
            assert session.explain(sql).charged_values == ("DE",)  # the same data, which the ledger knows again


def test_another_file_needs_another_version(tmp_path: Path) -> None:
    path, ledger, sql = tmp_path / "data.duckdb", tmp_path / "spent.ledger", NAMED[0]
    with opened(data_file(path), ledger=ledger) as session:
        session.sql(sql)
        data_file(tmp_path / "new.duckdb", tuple((unit, article, "FR") for unit, article, _ in ROWS)).replace(path)
        with pytest.raises(LedgerError) as caught, opened(path, ledger=ledger):
            pass
        assert caught.value.code == "ledger-data"
        session._dependencies.ledger.bump("other data")
        with opened(path, ledger=ledger) as again:
            again.sql(sql)
            assert session.explain(sql).charged_values == ()  # its data are those of the version before


@pytest.mark.parametrize("where", ["connection", "view", "collation", "double", "parquet", "generated"])
def test_a_table_whose_values_may_change_is_refused(tmp_path: Path, where: str) -> None:
    import duckdb

    path = data_file(tmp_path / "data.duckdb")
    given: object = path
    table = dpsql.PrivateTable("user_id", budget_by="country")
    with duckdb.connect(str(path)) as connection:
        if where == "view":
            connection.execute("ALTER TABLE reads RENAME TO stored")
            connection.execute("CREATE VIEW reads AS SELECT * FROM stored WHERE today() > DATE '2020-01-01'")
        if where == "collation":
            connection.execute(
                "CREATE OR REPLACE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR COLLATE NOCASE)"
            )
        if where == "double":
            connection.execute("CREATE OR REPLACE TABLE reads (user_id BIGINT, article VARCHAR, country DOUBLE)")
        if where == "generated":
            connection.execute(
                "CREATE OR REPLACE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR AS (article))"
            )
        if where == "parquet":
            connection.execute(f"COPY reads TO '{tmp_path}/reads.parquet'")
            table = dpsql.PrivateTable("user_id", budget_by="country", source=tmp_path / "reads.parquet")
    with ExitStack() as stack:
        if where == "connection":
            given = stack.enter_context(duckdb.connect(str(path)))
        policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table})
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(None if where == "parquet" else given, policy=policy, ledger=":memory:")  # type: ignore[arg-type]
        assert caught.value.code == "policy-budget-by"
        assert caught.value.place == "tables.reads.budget_by"


def test_a_policy_has_one_column_of_values_of_the_table_that_has_the_unit() -> None:
    own = dpsql.PrivateTable("user_id", budget_by="country")
    for make in (
        lambda: dpsql.PrivateTable("user_id", budget_by="user_id"),
        lambda: dpsql.PrivateTable("user_id", ["user_id"], budget_by="country"),
        lambda: dpsql.PrivateTable(link="user -> users.id", budget_by="country"),
        lambda: dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": own, "visits": own}),
    ):
        with pytest.raises(PolicyError) as caught:
            make()
        assert caught.value.code == "policy-budget-by"


def test_a_csv_file_is_loaded_once_and_may_have_values(tmp_path: Path) -> None:
    file = tmp_path / "reads.csv"
    file.write_text("user_id,article,country\n1,sun,DE\n2,moon,FR\n")
    table = dpsql.PrivateTable(
        "user_id", {"user_id": "BIGINT", "article": "VARCHAR", "country": "VARCHAR"}, source=file, budget_by="country"
    )
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table})
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        assert session.explain(NAMED[0]).charged_values == ("DE",)
