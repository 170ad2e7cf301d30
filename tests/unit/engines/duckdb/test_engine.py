from __future__ import annotations

import gc
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.duckdb_kit import run

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '{folder}/other.csv'",
        "SELECT * FROM read_parquet('{folder}/other.parquet')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_csv('https://example.invalid/x.csv')",
        "SELECT * FROM sniff_csv('{folder}/other.csv')",
        "ATTACH '{folder}/other.duckdb' AS other",
        "ATTACH 'https://example.invalid/x.duckdb' AS other",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY dpsql_data.main.reads TO '{folder}/out.parquet'",
        "EXPORT DATABASE '{folder}/out'",
        "LOAD httpfs",
        "INSERT INTO dpsql_data.main.reads VALUES (1, 'x')",
        "CREATE TABLE dpsql_data.main.more (x INTEGER)",
        "DROP TABLE dpsql_data.main.reads",
        "SET threads = 1",
        "RESET threads",
        "SET GLOBAL memory_limit = '1GB'",
        "SET GLOBAL enable_external_access = true",
        "SET GLOBAL lock_configuration = false",
        "SET GLOBAL allowed_paths = ['/etc/hostname']",
        "SET TimeZone = 'Asia/Tokyo'",
        *(["CALL enable_logging()", "PRAGMA enable_profiling"] if duckdb.__version__ >= "2" else []),
    ],
)
def test_duckdb_itself_refuses_after_the_lock(sealed: DuckDBEngine, tmp_path: Path, sql: str) -> None:
    (tmp_path / "other.csv").write_text("x\n1\n")
    duckdb.execute(f"COPY (SELECT 1 AS x) TO '{tmp_path / 'other.parquet'}'")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(duckdb.Error):
        sealed._connection.execute(sql.format(folder=tmp_path)).fetchall()
    with pytest.raises(EngineError):
        run(sealed, sql.format(folder=tmp_path))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["events.duckdb", "country=DE/it''s [1] of *.parquet"])
def test_a_file_that_may_be_read_cannot_be_overwritten(sealed: DuckDBEngine, tmp_path: Path, name: str) -> None:
    """DuckDB's own lock would let this happen: it allows the files by name, for reading and writing alike."""
    file = tmp_path / name.replace("''", "'")
    before = file.read_bytes()
    with pytest.raises(EngineError):
        run(sealed, f"COPY (SELECT 1 AS x) TO '{tmp_path / name}' (FORMAT csv, USE_TMP_FILE false)")
    assert file.read_bytes() == before


def test_the_settings_of_a_sealed_engine(sealed: DuckDBEngine) -> None:
    expected = {
        "TimeZone": "UTC",
        "Calendar": "gregorian",
        "enable_external_access": "false",
        "lock_configuration": "true",
        "enable_logging": "0",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",
    }
    rows = run(sealed, "SELECT name, value FROM duckdb_settings()").to_pylist()
    found = {row["name"]: row["value"] for row in rows}
    assert {name: found[name] for name in expected} == expected
    assert sealed.sealed


def test_python_variables_are_no_tables(sealed: DuckDBEngine) -> None:
    frame = pa.table({"x": [1]})
    with pytest.raises(EngineError):
        run(sealed, "SELECT * FROM frame")
    assert frame.num_rows == 1


def test_macros_of_the_file_do_not_change_the_meaning_of_sql(tmp_path: Path) -> None:
    with closing(duckdb.connect(tmp_path / "macros.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT 1 AS user_id, 'A' AS article")
        for macro in ('"+"(a, b)', '"~~"(a, b)', "date_part(a, b)", "like_escape(a, b, c)"):
            connection.execute(f"CREATE MACRO {macro} AS 42")
        connection.execute("CREATE MACRO lower(a) AS 'shadow'")
    with closing(DuckDBEngine.open(tmp_path / "macros.duckdb", {"reads": None})) as engine:
        row = run(
            engine,
            "SELECT user_id + 1 AS a, article LIKE 'x' AS b, article LIKE 'x' ESCAPE '#' AS c, "
            "extract(year FROM DATE '2026-01-01') AS d, lower(article) AS e FROM dpsql_data.main.reads",
        ).to_pylist()
    assert row == [{"a": 2, "b": False, "c": False, "d": 2026, "e": "a"}]


def test_spill_goes_to_a_private_folder_that_is_removed(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    engine = DuckDBEngine.open(database, {"reads": None}, memory_limit="80MB", threads=2)
    (folder,) = spill.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    rows = "SELECT DISTINCT range * 7 AS a, range::VARCHAR AS b FROM range(3000000)"
    assert run(engine, f"SELECT count(*) AS n FROM ({rows})").to_pylist() == [{"n": 3_000_000}]
    assert list(folder.iterdir()) or duckdb.__version__ < "2"  # which remove it with the statement
    engine.close()
    assert list(spill.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == before


def test_an_engine_that_is_forgotten_removes_its_folder(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    engine = DuckDBEngine.open(database, {"reads": None})
    assert list(spill.iterdir())
    del engine
    gc.collect()
    assert list(spill.iterdir()) == []
    with pytest.raises(EngineError):
        DuckDBEngine.open(database, {"nothing": None})
    assert list(spill.iterdir()) == []


def test_a_source_is_one_file_and_nothing_is_read_out_of_its_path(sealed: DuckDBEngine, parquet: Path) -> None:
    assert [column.name for column in sealed.columns("visits")] == ["user_id", "page"]
    with closing(DuckDBEngine.open(None, {"web.visits": parquet})) as engine:
        assert engine.relation("web.visits") == ("memory", "main", "web.visits")
        assert run(engine, 'SELECT * FROM memory.main."web.visits"').to_pylist() == [{"user_id": 7, "page": "p"}]


def test_a_relative_source_survives_a_change_of_folder(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parquet.parent)
    with closing(DuckDBEngine.open(None, {"visits": Path(parquet.name)})) as engine:
        monkeypatch.chdir("/")
        assert run(engine, "SELECT * FROM memory.main.visits").num_rows == 1
