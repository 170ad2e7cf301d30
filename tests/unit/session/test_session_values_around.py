"""Budgets of values beside materialized tables, workers, servers, links, policies in TOML and curators."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from support.session_kit import rebuilt
from support.values_kit import ROWS, STATEMENTS, data_file, policy_of

import dpsql
from dpsql.accounting import ZCDP
from dpsql.cli import app
from dpsql.curator import materialize, read_spending
from dpsql.engines import Exact, RecordingEngine, Statement, find_data_version, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import LedgerError, UsageError
from dpsql.ledger.base import ChargeLog
from dpsql.plan import build_statement
from dpsql.policy import EngineSettings
from dpsql.server.queues import EngineQueue, QueuedEngine
from dpsql.session import Session

SQL = "SELECT article FROM reads WHERE country = 'FR' GROUP BY article TOP 2 PRIVATE"


def read_rows(session: Session, sql: str) -> tuple[str, list[dict[str, object]]]:
    """Return what the engine reads in place of rows for a query, and the exact rows that it returns."""
    plan, own = session.explain(sql), session._dependencies
    return plan.counting.reads, open_exact(own.engine.execute(build_statement(plan.counting))).to_pylist()


def test_materialized_tables_change_no_charged_answer(tmp_path: Path) -> None:
    path, plain = data_file(tmp_path / "data.duckdb"), policy_of()
    table = dpsql.PrivateTable(
        "user_id", budget_by="country", materialized=[["article"], ["article", "country"], ["country"], []]
    )
    stored = replace(
        plain, tables={**plain.tables, "reads": table}, ledger=tmp_path / "l.ledger", materialized=tmp_path / "stored"
    )
    materialize(stored, database=path)
    read = set()
    with (
        dpsql.connect(path, policy=stored) as fast,
        dpsql.connect(path, policy=plain, ledger=":memory:") as slow,
    ):
        fast._plans.salts = slow._plans.salts = (1, 2)
        for sql, names in STATEMENTS:
            (reads, found), (nothing, expected) = read_rows(fast, sql), read_rows(slow, sql)
            assert found == expected, sql
            assert not nothing
            if names:
                read.add(reads)
                assert "counts" not in reads
                assert "ranks" not in reads
    assert any("pairs" in each for each in read)


def test_tables_of_the_same_units_are_confined_too(tmp_path: Path) -> None:
    def written(without: int | None) -> Path:
        path = data_file(tmp_path / f"{without}.duckdb", tuple(row for row in ROWS if row[0] != without))
        with duckdb.connect(str(path)) as connection:
            connection.execute("ALTER TABLE reads RENAME TO people")
            kept = [unit for unit in range(1, 9) if unit != without]
            connection.execute("CREATE TABLE visits (person BIGINT, page VARCHAR)")
            connection.executemany("INSERT INTO visits VALUES (?, ?)", [(unit, f"p{unit % 2}") for unit in kept])
            connection.execute("CREATE TABLE keys AS SELECT user_id AS id, user_id FROM people WHERE user_id > 0")
            connection.execute("CREATE OR REPLACE TABLE keys AS SELECT DISTINCT id, user_id FROM keys")
        return path

    tables = {
        "people": dpsql.PrivateTable("user_id", budget_by="country"),
        "keys": dpsql.PrivateTable("user_id"),
        "visits": dpsql.PrivateTable(link="person -> keys.id"),
    }
    sql = (
        "SELECT v.page, COUNT(DISTINCT v.user_id) FROM visits AS v JOIN people AS p ON v.user_id = p.user_id "
        "WHERE p.country = 'FR' GROUP BY v.page TOP 2 PRIVATE"
    )
    alone = "SELECT page FROM visits WHERE page = 'FR' GROUP BY page TOP 2 PRIVATE"
    found = {}
    for without in (None, 2, 3, 7, 8):
        policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), tables)
        with dpsql.connect(written(without), policy=policy, ledger=":memory:") as session:
            assert session.explain(sql).charged_values == ("FR",)
            assert session.explain(alone).charged_values == ()
            found[without] = read_rows(session, sql)[1]
    assert found[2] == found[8] == found[None]  # of AT, and of DE
    assert found[3] != found[None]
    assert found[7] != found[None]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system does not fork")
def test_a_worker_that_replaces_another_reads_the_same_file_or_none(tmp_path: Path) -> None:
    path = data_file(tmp_path / "data.duckdb")
    policy = replace(policy_of(), ledger=tmp_path / "l.ledger")
    with dpsql.connect(path, policy=policy, isolation="process") as session:
        session.sql(SQL)
        engine = session._dependencies.engine
        engine._drop()  # type: ignore[attr-defined] # as after a failure
        session.sql(SQL.replace("'FR'", "'DE'"))
        data_file(tmp_path / "new.duckdb", ROWS[:3]).replace(path)
        engine._drop()  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="closed"):
            session.sql(SQL.replace("'FR'", "'IT'"))
        assert len(session.history) == 2


def test_engines_around_others_know_the_version_of_their_files(tmp_path: Path) -> None:
    path = data_file(tmp_path / "data.duckdb")
    engine = DuckDBEngine.open(path, {"reads": None})
    version = find_data_version(engine, "reads")
    assert version is not None
    assert find_data_version(RecordingEngine(engine), "reads") == version
    assert (
        find_data_version(
            QueuedEngine(engine, EngineQueue(1, max_waiting=1), settings=EngineSettings(), analyst=""), "reads"
        )
        == version
    )
    engine.close()
    with duckdb.connect(str(path)) as connection:
        assert find_data_version(DuckDBEngine.borrow(connection, {"reads": None}), "reads") is None
        connection.execute("INSERT INTO reads VALUES (9, 'sun', 'DE')")
    changed = DuckDBEngine.open(path, {"reads": None})
    assert find_data_version(changed, "reads") not in {None, version}
    changed.close()


POLICY = """\
ledger = "spent.ledger"
[budget]
epsilon = 2.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
budget_by = "COUNTRY"
[tables.names]
public = true
"""


def test_curators_see_what_is_left_of_each_value(tmp_path: Path) -> None:
    path, policy = data_file(tmp_path / "data.duckdb"), tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with dpsql.connect(path, policy=policy, analyst="ada") as session:
        session.sql(SQL)
        session.sql("SELECT article FROM reads GROUP BY article TOP 2 PRIVATE")
    spending = read_spending(policy)
    assert spending.balance.by == "reads.COUNTRY"
    assert list(spending.balance.values) == ["FR"]
    assert spending.spenders[0].state.spent == spending.balance.refunded.spent
    shown = CliRunner().invoke(app, ["budget", "--policy", str(policy)])
    assert "of each value that queries named: FR " in shown.output
    assert "  of FR\n" in shown.output
    told = json.loads(CliRunner().invoke(app, ["budget", "--policy", str(policy), "--format", "json"]).output)
    assert told["by"] == "reads.COUNTRY"
    assert [row["measure"] for row in told["values"]["FR"]][:2] == ["rho", "delta"]
    assert "each value has the whole budget" in CliRunner().invoke(app, ["check", "--policy", str(policy)]).output


def test_a_policy_that_gives_other_values_charges_the_most_to_all(tmp_path: Path) -> None:
    path, ledger = data_file(tmp_path / "data.duckdb"), tmp_path / "l.ledger"
    with dpsql.connect(path, policy=policy_of(), ledger=ledger) as session:
        spent = session.sql(SQL).receipt.loss
        assert session.budget.of(("DE",)).refunded.spent == 0
    other = replace(policy_of(), tables={"reads": dpsql.PrivateTable("user_id", budget_by="article")})
    with dpsql.connect(path, policy=other, ledger=ledger) as session:
        assert session.budget.of(("sun",)).refunded.spent == spent.rho.value  # type: ignore[union-attr]
    plain = replace(policy_of(), tables={"reads": dpsql.PrivateTable("user_id")})
    with dpsql.connect(path, policy=plain, ledger=ledger) as session:
        assert session.explain(SQL).charged_values == ()
        assert session.sql(SQL.replace("'FR'", "'DE'")).receipt.charged_to == ""
        assert session.budget.by is None


def test_a_query_whose_values_change_in_flight_is_not_charged(tmp_path: Path) -> None:
    path, ledger = data_file(tmp_path / "data.duckdb"), tmp_path / "l.ledger"
    with dpsql.connect(path, policy=policy_of(), ledger=ledger) as session:
        own = session._dependencies
        plan = session.explain(SQL)
        own.ledger.bump("between plan and reservation")
        with pytest.raises(LedgerError) as caught:
            session._release_query(plan, None, log=ChargeLog())
        assert caught.value.code == "ledger-divided"
        assert own.ledger.entries() == ()


def test_a_failure_is_charged_in_full_to_the_values_that_were_named(tmp_path: Path) -> None:
    """Units of other values may make a query fail, but no charge would hide that: it is no output of a mechanism."""

    def fail(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
        raise MemoryError

    path = data_file(tmp_path / "data.duckdb")
    with dpsql.connect(path, policy=policy_of(), ledger=":memory:") as session:
        failing = rebuilt(session, engine=fail)
        worst = failing.explain(SQL).worst_case
        with pytest.raises(dpsql.EngineError) as caught:
            failing.sql(SQL)
        assert caught.value.code == "engine-failed"
        named, other = (failing.budget.of((value,)) for value in ("FR", "DE"))
        assert isinstance(worst, ZCDP)
        assert (named.refunded.spent, named.refunded.reserved) == (worst.rho.value, 0)
        assert named.gone.spent == worst.delta.value
        assert (other.refunded.spent, other.gone.spent) == (0, 0)
