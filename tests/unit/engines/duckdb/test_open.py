from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.child_kit import Child
from support.duckdb_kit import run

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError, UsageError

SECRET = "VICTIM_SECRET"


def refused(database: Path | str | None, sources: dict[str, Path | None], **options: object) -> EngineError:
    with pytest.raises(EngineError) as caught:
        DuckDBEngine.open(database, sources, **options)
    error = caught.value
    assert error.reason.endswith(".")
    assert error.hint
    assert error.__context__ is None
    assert error.__cause__ is None
    for word in ("Error:", "LINE 1", "https://", "PID"):
        assert word not in str(error)
    return error


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.duckdb", str(tmp_path / "nothing.duckdb"), ":memory:", "md:events", "a\0b"):
        error = refused(path, {"reads": None})
        assert error.code == "database-missing"
        assert error.place == str(path)


@pytest.mark.parametrize("content", [b"", b"user_id,article\n" * 1000, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.duckdb").write_bytes(content)
    assert refused(tmp_path / "file.duckdb", {"reads": None}).code == "database-unreadable"


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    assert refused(tmp_path, {"reads": None}).code == "database-unreadable"


@pytest.mark.parametrize("name", ["nothing", "main.nothing", "other.reads", "a.b.c", "re ads", '"', "main.", ".reads"])
def test_a_table_that_is_not_there(database: Path, name: str) -> None:
    error = refused(database, {"reads": None, name: None})
    assert error.code == "table-missing"
    assert error.place == f"table {name}"


@pytest.mark.parametrize(("name", "near"), [("read", "reads"), ("x.main.reads", "reads"), ("zzz", "")])
def test_the_table_with_the_nearest_name_is_proposed(database: Path, name: str, near: str) -> None:
    hint = refused(database, {name: None}).hint
    assert hint.startswith(f"Did you mean {near}? Name a table" if near else "Name a table")


def test_a_table_needs_a_database_or_a_source(parquet: Path) -> None:
    assert refused(None, {"visits": parquet, "reads": None}).code == "table-missing"


def test_a_view_that_reads_a_file_outside_is_refused_at_open(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text(f"article\n{SECRET}\n")
    with closing(duckdb.connect(tmp_path / "views.duckdb")) as connection:
        connection.execute(f"CREATE VIEW outside AS FROM read_csv('{tmp_path / 'out.csv'}')")
    assert refused(tmp_path / "views.duckdb", {"outside": None}).code == "table-missing"


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    error = refused(None, {"visits": tmp_path / "nothing.parquet"})
    assert error.code == "source-missing"
    assert error.place == "table visits"
    assert refused(None, {"visits": tmp_path}).code == "source-missing"
    assert "Name the folder" in refused(None, {"visits": tmp_path / "*.parquet"}).hint


def test_a_source_that_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "junk.parquet").write_text(f"article\n{SECRET}\n" * 100)
    error = refused(None, {"visits": tmp_path / "junk.parquet"})
    assert error.code == "source-unreadable"
    assert SECRET not in str(error)


@pytest.mark.parametrize("name", ["a*.parquet", "a?.parquet", "a[b].parquet", "a[.parquet", "a].parquet"])
def test_a_source_whose_name_is_a_pattern_brings_no_neighbours_along(tmp_path: Path, name: str) -> None:
    for file in (name, "ab.parquet", "acb.parquet"):
        duckdb.sql(f"COPY (SELECT $${file}$$ AS name) TO '{tmp_path / file}'")
    sources = {"visits": tmp_path / name}
    with closing(DuckDBEngine.open(None, sources)) as engine:
        assert run(engine, "SELECT name FROM memory.main.visits").to_pylist() == [{"name": name}]
    with closing(duckdb.connect()) as connection, closing(DuckDBEngine.borrow(connection, sources)) as engine:
        assert run(engine, "SELECT name FROM temp.main.visits").to_pylist() == [{"name": name}]


def test_settings_that_duckdb_does_not_accept(database: Path) -> None:
    for options in ({"memory_limit": "plenty"}, {"threads": 0}, {"memory_limit": "0"}):
        assert refused(database, {"reads": None}, **options).code == "engine-settings"
    with pytest.raises(UsageError):
        DuckDBEngine.open(3, {})  # type: ignore[arg-type]


def test_memory_and_threads_are_taken(database: Path) -> None:
    with closing(DuckDBEngine.open(database, {"reads": None}, memory_limit="1GB", threads=1)) as engine:
        row = run(engine, "SELECT current_setting('memory_limit') AS m, current_setting('threads') AS t").to_pylist()
    assert row == [{"m": "953.6 MiB", "t": 1}]


def test_two_engines_share_a_file_in_one_process(database: Path) -> None:
    with (
        closing(DuckDBEngine.open(database, {"reads": None})) as one,
        closing(DuckDBEngine.open(database, {"reads": None})) as other,
    ):
        for engine in (one, other):
            assert run(engine, "SELECT count(*) AS n FROM dpsql_data.main.reads").to_pylist() == [{"n": 1000}]


def in_another_process(code: str, *arguments: object) -> Child:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_two_engines_share_a_file_in_two_processes(database: Path) -> None:
    code = """
        import sys
        from dpsql.engines import Statement, open_exact
        from dpsql.engines.duckdb.engine import DuckDBEngine
        engine = DuckDBEngine.open(sys.argv[1], {"reads": None})
        exact = engine.execute(Statement("SELECT count(*) AS n FROM dpsql_data.main.reads"))
        print(open_exact(exact).to_pylist(), flush=True)
        sys.stdin.read()
        engine.close()
    """
    with closing(DuckDBEngine.open(database, {"reads": None})) as engine, in_another_process(code, database) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "[{'n': 1000}]\n"
        assert run(engine, "SELECT count(*) AS n FROM dpsql_data.main.reads").to_pylist() == [{"n": 1000}]
        other.communicate()


def test_a_writer_in_another_process_is_named_as_such(database: Path) -> None:
    code = """
        import duckdb, sys
        connection = duckdb.connect(sys.argv[1])
        print("open", flush=True)
        sys.stdin.read()
        connection.close()
    """
    with in_another_process(code, database) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert refused(database, {"reads": None}).code == "database-locked"
        other.communicate()


def test_a_writer_in_this_process_is_named_as_such(database: Path) -> None:
    with closing(duckdb.connect(database)):
        assert refused(database, {"reads": None}).code == "database-locked"


def test_a_database_whose_writer_crashed_is_read_with_its_log(tmp_path: Path) -> None:
    code = """
        import duckdb, os, sys
        connection = duckdb.connect(sys.argv[1])
        connection.execute("CREATE TABLE reads AS SELECT range AS user_id FROM range(5)")
        os._exit(0)
    """
    with in_another_process(code, tmp_path / "crashed.duckdb") as other:
        other.communicate()
    assert (tmp_path / "crashed.duckdb.wal").exists()
    with closing(DuckDBEngine.open(tmp_path / "crashed.duckdb", {"reads": None})) as engine:
        assert run(engine, "SELECT count(*) AS n FROM dpsql_data.main.reads").to_pylist() == [{"n": 5}]
