"""What can be wrong when a session is opened: each with a code, a place, a sentence and a hint; and nothing leaks."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
import warnings
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

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


def with_policy(folder: Path, old: str, new: str) -> Path:
    text = POLICY.replace(old, new)
    assert text != POLICY
    (folder / "policy.toml").write_text(text)
    return folder / "policy.toml"


WRONG_ARGUMENTS: dict[str, tuple[dict[str, object], type[dpsql.Error], str, str]] = {
    "no policy file": ({"policy": "nothing.toml"}, dpsql.PolicyError, "policy-missing", "nothing.toml"),
    "a number as policy": ({"policy": 5}, dpsql.PolicyError, "policy-type", ""),
    "a list as policy": ({"policy": ["policy.toml"]}, dpsql.PolicyError, "policy-type", ""),
    "no database file": ({"database": "nothing.duckdb"}, dpsql.EngineError, "database-missing", "nothing.duckdb"),
    "another file as database": ({"database": "wrong.duckdb"}, dpsql.EngineError, "database-unreadable", "wrong"),
    "a folder as database": ({"database": "folder"}, dpsql.EngineError, "database-unreadable", "folder"),
    "a number as database": ({"database": 5}, dpsql.UsageError, "not-a-connection", ""),
    "bytes as database": ({"database": b"events.duckdb"}, dpsql.UsageError, "not-a-connection", ""),
    "the memory as database": ({"database": ":memory:"}, dpsql.UsageError, "database", ""),
    "the memory as path": ({"database": Path(":memory:")}, dpsql.UsageError, "database", ""),
    "no database": ({"database": None}, dpsql.EngineError, "table-missing", "tables.reads (policy.toml, line 6)"),
    "a policy as ledger": ({"ledger": "policy.toml"}, dpsql.LedgerError, "not-a-ledger", "policy.toml"),
    "a ledger in no folder": ({"ledger": "none/l.sqlite"}, dpsql.LedgerError, "ledger-directory", "none/l.sqlite"),
    "a number as ledger": ({"ledger": 5}, dpsql.UsageError, "not-a-path", ""),
    "bytes as ledger": ({"ledger": b"x"}, dpsql.UsageError, "not-a-path", ""),
}


@pytest.mark.parametrize("case", WRONG_ARGUMENTS)
def test_wrong_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    changed, kind, code, place = WRONG_ARGUMENTS[case]
    (folder / "wrong.duckdb").write_text("not a database, but long enough to have a header " * 200)
    (folder / "folder").mkdir()
    before = sorted(folder.iterdir())
    monkeypatch.chdir(folder)
    error = failing(kind, **{"database": "events.duckdb", "policy": "policy.toml", **changed})
    assert error.code == code
    assert place in str(error.place)
    assert sorted(folder.iterdir()) == before


COLUMNS, READS = 'columns = ["user_id", "article"]', "tables.reads (policy.toml, line 6)"
NO_COLUMN = ('privacy_unit = "user_id"\n' + COLUMNS, 'privacy_unit = "reader"')
WRONG_LINES: dict[str, tuple[str, str, type[dpsql.Error], str, str]] = {
    "[tables.writes]": ("[tables.reads]", "[tables.writes]", dpsql.EngineError, "table-missing", "tables.writes"),
    "no Parquet file": (COLUMNS, 'source = "nothing.parquet"', dpsql.EngineError, "source-missing", READS),
    "another file as Parquet": (COLUMNS, 'source = "policy.parquet"', dpsql.EngineError, "source-unreadable", READS),
    '"nothing" in columns': (
        '"article"]',
        '"article", "nothing"]',
        dpsql.PolicyError,
        "policy-no-column",
        "tables.reads.columns (policy.toml, line 8)",
    ),
    '"reader" as unit': (
        *NO_COLUMN,
        dpsql.PolicyError,
        "policy-no-column",
        "tables.reads.privacy_unit (policy.toml, line 7)",
    ),
    "items of nothing": (
        "epsilon = 1.0",
        "epsilon = 0.001\nitems = 100000",
        dpsql.PolicyError,
        "policy-items",
        "budget.items (policy.toml, line 4)",
    ),
    "the memory as ledger": ("ledger.sqlite", ":memory:", dpsql.PolicyError, "policy-path", "line 1"),
}


@pytest.mark.parametrize("case", WRONG_LINES)
def test_wrong_lines_of_the_policy(folder: Path, case: str) -> None:
    old, new, kind, code, place = WRONG_LINES[case]
    (folder / "policy.parquet").write_text("nothing")
    database = None if "source" in new else folder / "events.duckdb"
    error = failing(kind, database=database, policy=with_policy(folder, old, new))
    assert error.code == code
    assert place in str(error.place)
    named = case.partition(" ")[0].removeprefix("[tables.").removesuffix("]")
    assert code not in {"table-missing", "policy-no-column"} or named.strip('"') in error.reason


WRONG_TABLES = {
    "nobody": (dpsql.PrivateTable("nobody"), "policy-no-column", "privacy_unit"),
    "town": (dpsql.PrivateTable("user_id", one_value_per_unit=["town"]), "policy-no-column", "one_value_per_unit"),
    # a unit that has no one spelling
    **{unit: (dpsql.PrivateTable(unit), "policy-unit-type", "privacy_unit") for unit in ("share", "moment", "tags")},
}


@pytest.mark.parametrize("column", WRONG_TABLES)
def test_wrong_columns_of_a_policy_made_in_python(folder: Path, column: str) -> None:
    table, code, key = WRONG_TABLES[column]
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table})
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb", policy=policy, ledger=":memory:")
    assert (error.code, error.place) == (code, f"tables.reads.{key}")
    assert code == "policy-unit-type" or f'"{column}"' in error.reason


def test_without_a_policy(folder: Path) -> None:
    error = failing(dpsql.PolicyError, database=folder / "events.duckdb")
    assert error.code == "policy-missing"
    assert "policy=" in error.hint


def test_a_closed_connection(folder: Path) -> None:
    connection = duckdb.connect(":memory:")
    connection.close()
    assert failing(dpsql.EngineError, database=connection, policy=folder / "policy.toml").code == "connection-unusable"


def python_policy(unit: str) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable(unit)})


@pytest.mark.parametrize("unit", ["user_id", "USER_ID", "article", "kind", "id", "amount", "day"])
def test_a_unit_that_may_be(folder: Path, unit: str) -> None:
    dpsql.connect(folder / "events.duckdb", policy=python_policy(unit), ledger=":memory:").close()


def test_a_ledger_of_a_larger_budget(folder: Path) -> None:
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    policy = with_policy(folder, "epsilon = 1.0", "epsilon = 0.5")
    error = failing(dpsql.LedgerError, database=folder / "events.duckdb", policy=policy)
    assert error.code == "ledger-budget"
    assert "epsilon 1 " in error.reason
    assert "epsilon 0.5 " in error.reason


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


WRONG_CSV: dict[str, tuple[str, str, type[dpsql.Error], str, str]] = {  # and what of the file or the policy is wrong
    "no file": ("", "", dpsql.EngineError, "source-missing", "tables.visits (visits.toml, line 6)"),
    "a field": ("1.50\n", "1.50,\n", dpsql.EngineError, "source-unreadable", "tables.visits (visits.toml, line 6)"),
    "a column": ("price\n", "prices\n", dpsql.EngineError, "source-columns", "tables.visits (visits.toml, line 6)"),
    "a unit": (
        '"BIGINT"',
        '"DOUBLE"',
        dpsql.PolicyError,
        "policy-unit-type",
        "tables.visits.privacy_unit (visits.toml, line 8)",
    ),
}


@pytest.mark.parametrize("case", WRONG_CSV)
def test_a_csv_file_that_does_not_fit_its_policy(visits: Path, case: str) -> None:
    old, new, kind, code, place = WRONG_CSV[case]
    policy = visits.with_name("visits.toml")
    if not old:
        visits.unlink()
    else:
        file = policy if case == "a unit" else visits
        file.write_text(file.read_text().replace(old, new, 1))
    error = failing(kind, policy=policy)
    assert (error.code, error.place) == (code, place)
    assert not visits.with_name("ledger.sqlite").exists()


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


@pytest.mark.parametrize(
    "step", [("dpsql.registration", "find_division"), ("dpsql.connect", "open_evaluator")], ids=lambda step: step[1]
)
def test_a_step_that_fails_after_the_ledger_was_opened_closes_it(
    step: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def fail(*_arguments: object, **_named: object) -> None:
        raise dpsql.EngineError("engine-failed", "The step failed.")

    with monkeypatch.context() as patched:
        patched.setattr(import_module(step[0]), step[1], fail)  # `dpsql.connect` is the function
        patched.setattr(
            SQLiteLedger, "close", lambda ledger, close=SQLiteLedger.close: (close(ledger), closed.append(1))
        )
        with pytest.raises(dpsql.EngineError):
            dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml")
    assert closed
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
