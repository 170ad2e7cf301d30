"""What can be wrong when a session is opened: each with a code, a place, a sentence and a hint; and nothing leaks."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.child_kit import Child

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.ledger import MemoryLedger, SQLiteLedger

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6

[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads (user_id BIGINT, article VARCHAR, share DOUBLE, moment TIMESTAMPTZ, tags VARCHAR[], "
            "kind ENUM('a', 'b'), id UUID, amount DECIMAL(9, 2), day DATE)"
        )
        connection.execute("INSERT INTO reads (user_id, article) SELECT i, 'a' FROM range(1000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DuckDBEngine]]:
    """Every engine that was opened; a test that ends with one open has leaked it."""
    opened: list[DuckDBEngine] = []
    for door in ("open", "borrow"):
        original = getattr(DuckDBEngine, door)

        def keep(*arguments: object, original: object = original, **settings: object) -> DuckDBEngine:
            opened.append(original(*arguments, **settings))  # type: ignore[operator]
            return opened[-1]

        monkeypatch.setattr(DuckDBEngine, door, keep)
    yield opened
    assert [engine for engine in opened if engine._release.alive] == []


def failing(kind: type[dpsql.Error], **arguments: object) -> dpsql.Error:
    database = arguments.pop("database", None)
    with pytest.raises(kind) as caught:
        dpsql.connect(database, **arguments)  # type: ignore[arg-type]
    error = caught.value
    assert type(error) is kind
    assert error.reason.endswith(".")
    assert error.hint
    assert str(error).startswith(f"[{error.code}]")
    return error


def test_without_a_policy(folder: Path) -> None:
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb")
    assert error.code == "policy-missing"
    assert "policy=" in error.hint


def test_a_policy_file_that_is_not_there(folder: Path) -> None:
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=folder / "nothing.toml")
    assert error.code == "policy-missing"
    assert "nothing.toml" in str(error.place)


@pytest.mark.parametrize("policy", [5, ["policy.toml"], object()])
def test_a_policy_of_a_wrong_type(policy: object) -> None:
    assert failing(dpsql.PolicyError, policy=policy).code == "policy-type"


def test_a_database_file_that_is_not_there(folder: Path) -> None:
    error = failing(dpsql.EngineError, database=folder / "nothing.duckdb", policy=folder / "policy.toml")
    assert error.code == "database-missing"
    assert "nothing.duckdb" in str(error.place)
    assert not (folder / "nothing.duckdb").exists()
    assert not (folder / "ledger.sqlite").exists()


def test_a_file_that_is_no_database(folder: Path) -> None:
    (folder / "wrong.duckdb").write_text("not a database, but long enough to have a header " * 200)
    error = failing(dpsql.EngineError, database=folder / "wrong.duckdb", policy=folder / "policy.toml")
    assert error.code == "database-unreadable"


def test_a_folder_is_no_database(folder: Path) -> None:
    assert failing(dpsql.EngineError, database=folder, policy=folder / "policy.toml").code == "database-unreadable"


WRITER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_database_that_someone_writes(folder: Path) -> None:
    database = folder / "events.duckdb"
    command = [sys.executable, "-c", WRITER, str(database)]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        error = failing(dpsql.EngineError, database=database, policy=folder / "policy.toml")
        writer.communicate()
    assert error.code == "database-locked"
    assert "events.duckdb" in str(error.place)
    dpsql.connect(database, policy=folder / "policy.toml").close()


@pytest.mark.parametrize("database", [5, b"events.duckdb", ["events.duckdb"], object()])
def test_a_database_of_a_wrong_type(folder: Path, database: object) -> None:
    assert failing(dpsql.UsageError, database=database, policy=folder / "policy.toml").code == "not-a-connection"


@pytest.mark.parametrize("database", [":memory:", Path(":memory:")])
def test_a_new_database_in_memory_holds_nothing(folder: Path, database: object) -> None:
    assert failing(dpsql.UsageError, database=database, policy=folder / "policy.toml").code == "database"


def test_no_database_for_a_table_that_needs_one(folder: Path) -> None:
    error = failing(dpsql.EngineError, policy=folder / "policy.toml")
    assert error.code == "table-missing"
    assert error.place == "tables.reads (policy.toml, line 6)"


def test_a_closed_connection(folder: Path) -> None:
    connection = duckdb.connect(":memory:")
    connection.close()
    assert failing(dpsql.EngineError, database=connection, policy=folder / "policy.toml").code == "connection-unusable"


def with_policy(folder: Path, old: str, new: str) -> Path:
    text = POLICY.replace(old, new)
    assert text != POLICY
    (folder / "policy.toml").write_text(text)
    return folder / "policy.toml"


def test_a_table_that_the_database_does_not_have(folder: Path) -> None:
    policy = with_policy(folder, "[tables.reads]", "[tables.writes]")
    error = failing(dpsql.EngineError, database=folder / "events.duckdb", policy=policy)
    assert error.code == "table-missing"
    assert error.place == "tables.writes (policy.toml, line 6)"
    assert '"writes"' in error.reason


def test_a_parquet_file_that_is_not_there(folder: Path) -> None:
    policy = with_policy(folder, 'columns = ["user_id", "article"]', 'source = "nothing.parquet"')
    error = failing(dpsql.EngineError, policy=policy)
    assert error.code == "source-missing"
    assert error.place == "tables.reads (policy.toml, line 6)"


def test_a_file_that_is_no_parquet(folder: Path) -> None:
    policy = with_policy(folder, 'columns = ["user_id", "article"]', 'source = "wrong.parquet"')
    (folder / "wrong.parquet").write_text("nothing")
    error = failing(dpsql.EngineError, policy=policy)
    assert error.code == "source-unreadable"
    assert error.place == "tables.reads (policy.toml, line 6)"


@pytest.mark.parametrize(
    ("old", "new", "place", "named"),
    [
        ('"article"]', '"article", "nothing"]', "tables.reads.columns (policy.toml, line 8)", '"nothing"'),
        ('columns = ["user_id", "article"]', "", "tables.reads.privacy_unit (policy.toml, line 7)", '"reader"'),
    ],
)
def test_a_column_that_the_table_does_not_have(folder: Path, old: str, new: str, place: str, named: str) -> None:
    policy = with_policy(folder, old, new)
    if named == '"reader"':
        policy.write_text(policy.read_text().replace('"user_id"', '"reader"'))
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy)
    assert (error.code, error.place) == ("policy-no-column", place)
    assert named in error.reason


def test_a_column_of_one_value_per_unit_that_the_table_does_not_have(folder: Path) -> None:
    reads = dpsql.PrivateTable("user_id", one_value_per_unit=["town"])
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": reads})
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy, ledger=":memory:")
    assert (error.code, error.place) == ("policy-no-column", "tables.reads.one_value_per_unit")
    assert '"town"' in error.reason


def test_a_column_of_a_policy_made_in_python(folder: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("nobody")})
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy, ledger=":memory:")
    assert (error.code, error.place) == ("policy-no-column", "tables.reads.privacy_unit")


def python_policy(unit: str) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable(unit)})


@pytest.mark.parametrize("unit", ["share", "moment", "tags"])
def test_a_unit_that_has_no_one_spelling(folder: Path, unit: str) -> None:
    policy = python_policy(unit)
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy, ledger=":memory:")
    assert (error.code, error.place) == ("policy-unit-type", "tables.reads.privacy_unit")


@pytest.mark.parametrize("unit", ["user_id", "USER_ID", "article", "kind", "id", "amount", "day"])
def test_a_unit_that_may_be(folder: Path, unit: str) -> None:
    dpsql.connect(folder / "events.duckdb", policy=python_policy(unit), ledger=":memory:").close()


def test_a_ledger_in_a_folder_that_is_not_there(folder: Path) -> None:
    policy = with_policy(folder, "ledger.sqlite", "nowhere/ledger.sqlite")
    error = failing(dpsql.LedgerError, database=folder / "events.duckdb", policy=policy)
    assert error.code == "ledger-directory"


def test_a_ledger_of_a_larger_budget(folder: Path) -> None:
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    policy = with_policy(folder, "epsilon = 1.0", "epsilon = 0.5")
    error = failing(dpsql.LedgerError, database=folder / "events.duckdb", policy=policy)
    assert error.code == "ledger-budget"
    assert "epsilon 1 " in error.reason
    assert "epsilon 0.5 " in error.reason


def test_a_ledger_that_is_another_file(folder: Path) -> None:
    error = failing(
        dpsql.LedgerError,
        database=folder / "events.duckdb",
        policy=folder / "policy.toml",
        ledger=folder / "policy.toml",
    )
    assert error.code == "not-a-ledger"


@pytest.mark.parametrize("ledger", [5, b"x", ["ledger.sqlite"], object()])
def test_a_ledger_of_a_wrong_type(folder: Path, ledger: object) -> None:
    error = failing(dpsql.UsageError, database=folder / "events.duckdb", policy=folder / "policy.toml", ledger=ledger)
    assert error.code == "not-a-path"


def test_a_budget_that_buys_nothing(folder: Path) -> None:
    policy = with_policy(folder, "epsilon = 1.0", "epsilon = 0.001\nitems = 100000")
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy)
    assert (error.code, error.place) == ("policy-items", "budget.items (policy.toml, line 4)")


def test_a_memory_ledger_is_warned_of_once_for_every_connection(folder: Path) -> None:
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with dpsql.connect(folder / "events.duckdb", policy=python_policy("user_id")) as session:
                session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE")
                assert isinstance(session._dependencies.ledger, MemoryLedger)
        (warning,) = caught
        assert warning.category is dpsql.MemoryLedgerWarning
        assert warning.filename == __file__
        assert "lost when the session ends" in str(warning.message)


def test_a_warning_made_an_error_leaks_nothing(folder: Path) -> None:
    with pytest.raises(dpsql.MemoryLedgerWarning):
        dpsql.connect(folder / "events.duckdb", policy=python_policy("user_id"))


def test_a_memory_ledger_that_was_asked_for(folder: Path) -> None:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as session:
        assert isinstance(session._dependencies.ledger, MemoryLedger)
    assert not (folder / "ledger.sqlite").exists()


def test_the_ledger_stands_beside_the_policy(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with dpsql.connect("../events.duckdb", policy="../policy.toml") as session:
        assert isinstance(session._dependencies.ledger, SQLiteLedger)
    assert (folder / "ledger.sqlite").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_ledger_given_overrides_the_policys(folder: Path) -> None:
    given = str(folder / "other.sqlite")
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=given).close()
    assert Path(given).exists()
    assert not (folder / "ledger.sqlite").exists()


def test_closing_a_session_closes_its_engine(folder: Path, engines: list[DuckDBEngine]) -> None:
    session = dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml")
    assert [engine._release.alive for engine in engines] == [True]
    session.close()
    session.close()
    assert [engine._release.alive for engine in engines] == [False]


def test_names_are_compared_without_case(folder: Path) -> None:
    tables = {"READS": dpsql.PrivateTable("USER_ID", ["Article", "USER_id"])}
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), tables)
    with dpsql.connect(folder / "events.duckdb", policy=policy, ledger=":memory:") as session:
        answer = session.sql("SELECT ARTICLE AS a FROM Reads GROUP BY article TOP 1 PRIVATE")
        assert answer.arrow().column_names == ["a"]


def test_a_ledger_opens_again_under_other_plans_for_the_same_total(folder: Path) -> None:
    """`items` and `queries` only set defaults; what the file keeps is the total and the budget that follows from it."""
    ledger = folder / "plans.sqlite"
    for items, queries in ((100, 20), (30, 4)):
        budget = dpsql.Budget(1, "1e-6", items=items, queries=queries)
        policy = dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")})
        with dpsql.connect(folder / "events.duckdb", policy=policy, ledger=ledger) as session:
            assert session.budget.granted.delta.value == Fraction("1e-6")
    with contextlib.closing(sqlite3.connect(ledger)) as book:
        [row] = book.execute("SELECT * FROM terms").fetchall()
    assert "1/1000000" in row


def test_a_policy_file_cannot_name_the_memory(folder: Path) -> None:
    (folder / "memory.toml").write_text(
        'ledger = ":memory:"\n[budget]\nepsilon = 1.0\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'
    )
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.connect(folder / "events.duckdb", policy=folder / "memory.toml")
    assert caught.value.code == "policy-path"
    assert "line 1" in str(caught.value.place)
    assert caught.value.hint


def test_a_ledger_that_cannot_be_opened_is_named(folder: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with pytest.raises(dpsql.LedgerError) as caught:
        dpsql.connect(folder / "events.duckdb", policy=policy, ledger=folder / "none" / "l.sqlite")
    assert str(folder) in str(caught.value.place)


CSV_POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 10.0
delta = 0.1

[tables.visits]
source = "visits.csv"
privacy_unit = "user_id"
max_groups_contributed = 20
min_units = 5
columns = { user_id = "BIGINT", page = "VARCHAR", price = "DECIMAL(9, 2)", day = "DATE" }
"""


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    rows = "".join(f'2026-01-31,{number},"page ""{number % 3}""",not listed,1.50\n' for number in range(3000))
    (tmp_path / "visits.csv").write_text("DAY,User_ID,page,secret,price\n" + rows)
    (tmp_path / "visits.toml").write_text(CSV_POLICY)
    return tmp_path / "visits.csv"


PAGES = "SELECT page, day, price FROM visits WHERE price > 1 GROUP BY ALL TOP 3 PRIVATE"


def test_a_csv_file_is_asked_like_any_other_table(visits: Path) -> None:
    with dpsql.connect(policy=visits.with_name("visits.toml")) as session:
        visits.unlink()
        answer = session.sql(PAGES)
        assert {row[0] for row in answer.fetchall()} == {'page "0"', 'page "1"', 'page "2"'}
        assert answer.receipt.sealed
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql("SELECT secret FROM visits GROUP BY secret TOP 1 PRIVATE")
        assert caught.value.code == "unknown-column"


def test_a_csv_file_beside_a_database_and_in_two_sessions(folder: Path, visits: Path) -> None:
    policy = visits.with_name("visits.toml")
    policy.write_text(CSV_POLICY + '[tables.reads]\nprivacy_unit = "user_id"\n')
    with (
        duckdb.connect(str(folder / "events.duckdb"), read_only=True) as connection,
        dpsql.connect(connection, policy=policy) as borrowed,
        dpsql.connect(policy=visits.with_name("visits.toml"), database=connection.cursor()) as other,
    ):
        for session in (borrowed, other):
            assert len(session.sql(f"{PAGES} WITH (fresh = true)").fetchall()) == 3
            again = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (fresh = true)"
            assert session.sql(again).fetchall() == [("a",)]
    dpsql.connect(folder / "events.duckdb", policy=policy).close()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("1.50\n", "1.50,\n", "source-unreadable"),
        ("1.50\n", "a price\n", "source-unreadable"),
        ("price\n", "prices\n", "source-columns"),
        ("secret", "page", "source-columns"),
    ],
)
def test_a_csv_file_that_does_not_fit(visits: Path, old: str, new: str, code: str) -> None:
    visits.write_text(visits.read_text().replace(old, new, 1))
    error = failing(dpsql.EngineError, policy=visits.with_name("visits.toml"))
    assert (error.code, error.place) == (code, "tables.visits (visits.toml, line 6)")
    assert not visits.with_name("ledger.sqlite").exists()


def test_a_csv_file_that_is_not_there(visits: Path) -> None:
    visits.unlink()
    error = failing(dpsql.EngineError, policy=visits.with_name("visits.toml"))
    assert (error.code, error.place) == ("source-missing", "tables.visits (visits.toml, line 6)")


def test_a_unit_of_a_csv_file_names_units_in_one_way(visits: Path) -> None:
    policy = visits.with_name("visits.toml")
    policy.write_text(CSV_POLICY.replace('"BIGINT"', '"DOUBLE"'))
    error = failing(dpsql.PolicyError, policy=policy)
    assert (error.code, error.place) == ("policy-unit-type", "tables.visits.privacy_unit (visits.toml, line 8)")


def test_every_type_that_a_policy_may_declare_is_loaded(tmp_path: Path) -> None:
    from dpsql.policy.validation import _TYPES

    types = {"user_id": "BIGINT", **{f"c{number}": name for number, name in enumerate([*_TYPES, "DECIMAL(18,9)"])}}
    (tmp_path / "all.csv").write_text(",".join(types) + "\n1" + "," * (len(types) - 1) + "\n")
    table = dpsql.PrivateTable("user_id", types, source=tmp_path / "all.csv")
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"everything": table})
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        found = session._dependencies.engine.columns("everything")
    assert {column.name: column.type for column in found} == types


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables_are_passed_by_name(kind: str) -> None:
    import pandas as pd
    import polars as pl

    columns = {"user_id": list(range(9000)), "country": ["DE", "FR", "IT"] * 3000}
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind]
    policy = dpsql.Policy(
        dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id"), "countries": dpsql.PublicTable()}
    )
    frames = {"reads": make(columns), "countries": make({"country": ["DE"], "continent": ["Europe"]})}
    with dpsql.connect(frames, policy=policy, ledger=":memory:") as session:
        sql = "SELECT continent FROM reads JOIN countries USING (country) GROUP BY continent TOP 1 PRIVATE"
        assert session.sql(sql).fetchall() == [("Europe",)]
        assert session.sql("SELECT * FROM countries").fetchall() == [("DE", "Europe")]


@pytest.mark.parametrize("frames", [{"reads": [1, 2]}, {"reads": None}, {7: pa.table({"user_id": [1]})}])
def test_other_things_are_no_tables(frames: dict[str, object]) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with pytest.raises(dpsql.UsageError, match="A table is a frame of pandas or polars, or an Arrow table"):
        dpsql.connect(frames, policy=policy, ledger=":memory:")


def test_a_frame_that_cannot_be_read_shows_no_value() -> None:
    import pandas as pd

    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    mixed = pd.DataFrame({"user_id": [1, 2], "status": [7, "HIV positive"]})
    twins = {"reads": pa.table({"user_id": [1]}), "READS": pa.table({"user_id": [2]})}
    for frames in ({"reads": mixed}, twins):
        with pytest.raises(dpsql.UsageError, match="A table cannot be read") as refused:
            dpsql.connect(frames, policy=policy, ledger=":memory:")
        assert "HIV" not in "".join(traceback.format_exception(refused.value))
        assert refused.value.__context__ is None
