from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from support.duckdb_kit import run

from dpsql.dialects import CsvFormat
from dpsql.engines import Column, CsvFile
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError

SECRET = "VICTIM_SECRET"
TYPES = {
    "flag": "BOOLEAN",
    "t": "TINYINT",
    "s": "SMALLINT",
    "i": "INTEGER",
    "user_id": "BIGINT",
    "ut": "UTINYINT",
    "us": "USMALLINT",
    "ui": "UINTEGER",
    "share": "DOUBLE",
    "price": "DECIMAL(9,2)",
    "wide": "DECIMAL(18,18)",
    "page": "VARCHAR",
    "day": "DATE",
    "ts": "TIMESTAMP",
    "id": "UUID",
}
WRITTEN = (
    "true,-128,-32768,-2147483648,9223372036854775807,255,65535,4294967295,-1.5e300,1234567.89,0.123456789012345678,"
    "é,2026-01-31,2026-01-31 12:00:00.123456,A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11"
)
READ = (
    *(True, -128, -32768, -(2**31), 2**63 - 1, 255, 65535, 2**32 - 1, -1.5e300, Decimal("1234567.89")),
    *(Decimal("0.123456789012345678"), "é", date(2026, 1, 31), datetime(2026, 1, 31, 12, 0, 0, 123456)),  # noqa: DTZ001
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
)

Sources = dict[str, Path | CsvFile | None]
Door = Callable[[Sources], DuckDBEngine]


def csv(folder: Path, text: str | bytes, **types: str) -> CsvFile:
    """Write a file and return it with its declared columns, which are `user_id` and `page` if nothing is said."""
    file = folder / "it's [1] of *.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    declared = types or {"user_id": "BIGINT", "page": "VARCHAR"}
    return CsvFile(file, tuple(Column(name, type_) for name, type_ in declared.items()))


def rows(engine: DuckDBEngine, name: str = "visits") -> list[tuple[object, ...]]:
    relation = ".".join(f'"{part}"' for part in engine.relation(name))
    return [tuple(row.values()) for row in run(engine, f"SELECT * FROM {relation}").to_pylist()]


@pytest.fixture
def lender() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 'mine' AS page")
        yield connection


@pytest.fixture(params=["open", "borrow"])
def door(request: pytest.FixtureRequest) -> Door:
    if request.param == "open":
        return lambda sources: DuckDBEngine.open(None, sources)
    lender: duckdb.DuckDBPyConnection = request.getfixturevalue("lender")
    return lambda sources: DuckDBEngine.borrow(lender, sources)


def refused(door: Door, file: CsvFile, code: str = "source-unreadable") -> EngineError:
    with pytest.raises(EngineError) as caught:
        door({"visits": file})
    error = caught.value
    assert (error.code, error.place) == (code, "table visits")
    assert error.reason.endswith(".")
    assert error.hint
    assert error.__context__ is None
    assert error.__cause__ is None
    ours = error.__traceback__.tb_next if error.__traceback__ else None
    deep = traceback.TracebackException(type(error), error, ours, capture_locals=True)
    said = "".join([str(error), repr(error), repr(vars(error)), *deep.format()])
    for word in (SECRET, "Conversion", "Could not", "Invalid", "Arrow", "LINE 1"):
        assert word not in said
    return error


@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_types_come_out_as_declared(door: Door, tmp_path: Path, line: str) -> None:
    text = line.join([",".join(TYPES), WRITTEN, "," * (len(TYPES) - 1), ""])
    with closing(door({"visits": csv(tmp_path, text, **TYPES)})) as engine:
        assert engine.columns("visits") == tuple(Column(name, type_) for name, type_ in TYPES.items())
        assert rows(engine) == [READ, (None,) * len(TYPES)]


UNFIT = {
    "BOOLEAN": ["maybe", "2"],
    "TINYINT": ["128", "one"],
    "UTINYINT": ["-1"],
    "BIGINT": ["9223372036854775808", "1 2", '""', "NULL", "nan"],
    "DOUBLE": ['"1,5"', "1.5.5"],
    "DECIMAL(9,2)": ["12345678.9", "x"],
    "DATE": ["2026-02-30", "31/01/2026", "yesterday"],
    "TIMESTAMP": ["2026-01-31 25:00:00", "noon"],
    "UUID": ["a0eebc99", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "VARCHAR": [b"\xff", b'"\xc3\x28"'],
}


@pytest.mark.parametrize(("type_", "value"), [(type_, value) for type_, values in UNFIT.items() for value in values])
def test_one_value_that_does_not_fit_refuses_the_file(door: Door, tmp_path: Path, type_: str, value: str) -> None:
    spelled = value if isinstance(value, bytes) else value.encode()
    text = b"secret,x\n" + b"%s,\n" % SECRET.encode() * 3000 + b"%s,%s\n" % (SECRET.encode(), spelled)
    refused(door, csv(tmp_path, text, secret="VARCHAR", x=type_))


def test_a_value_is_never_told(door: Door, tmp_path: Path) -> None:
    error = refused(door, csv(tmp_path, f"user_id,page\n1,a\n{SECRET},b\n"))
    assert (
        error.reason
        == f'The file "{"it" + chr(39) + "s [1] of *.csv"}" cannot be loaded as CSV with the declared types.'
    )
    assert "reject_errors" in error.hint


@pytest.mark.parametrize("text", ["1,a\n2\n", '1,a\n2,"b'])  # test_csv_file.py has all ways
def test_one_line_that_does_not_fit_refuses_the_file(door: Door, tmp_path: Path, text: str) -> None:
    refused(door, csv(tmp_path, "user_id,page\n" + text))
    refused(door, csv(tmp_path, "user_id,page\n" + '0,"x\ny"\n' * 200_000 + text))


def test_the_hint_finds_the_line_that_does_not_fit(door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good = "1;1.234,50;31.12.2025;a\n" * 9
    (tmp_path / "visits.csv").write_text(f"id;amount;day;page\n{good}2;x;01.01.2026;b\n")
    form = CsvFormat(delim=";", decimal_separator=",", thousands=".", dateformat="%d.%m.%Y", nullstr=("", "-"))
    columns = [Column("id", "BIGINT"), Column("amount", "DECIMAL(9,2)"), Column("day", "DATE")]
    hint = refused(door, CsvFile(tmp_path / "visits.csv", tuple(columns), form)).hint
    first, second = hint.partition("break them: ")[2].split("; FROM")
    with duckdb.connect() as connection:
        assert len(connection.execute(first).fetchall()) == 9
        found = connection.execute(f"SELECT line, column_name FROM {second}").fetchall()
    assert found == [(11, "amount")]


def test_the_rows_are_all_there_in_their_order(door: Door, tmp_path: Path) -> None:
    lines = [f'{number},"page, ""{number}""\r\n{number},x"' for number in range(100_000)]
    with closing(door({"visits": csv(tmp_path, "user_id,page\n" + "\n".join(lines))})) as engine:
        relation = ".".join(engine.relation("visits"))
        wrong = run(
            engine,
            f"SELECT count(*) AS n, count(*) FILTER (user_id IS DISTINCT FROM rowid OR page IS DISTINCT FROM "
            f"format('page, \"{{0}}\"\r\n{{0}},x', rowid)) AS wrong FROM {relation}",
        )
    assert wrong.to_pylist() == [{"n": 100_000, "wrong": 0}]


def test_a_mark_a_missing_line_break_and_both_line_breaks(door: Door, tmp_path: Path) -> None:
    file = csv(tmp_path, b'\xef\xbb\xbf"user_id",page\r\n1,a\n2,"b\r\nc"\r\n3,')
    with closing(door({"visits": file})) as engine:
        assert rows(engine) == [(1, "a"), (2, "b\r\nc"), (3, None)]


def test_a_file_without_rows_is_an_empty_table(door: Door, tmp_path: Path) -> None:
    for text in ("user_id,page\n", "user_id,page"):
        with closing(door({"visits": csv(tmp_path, text)})) as engine:
            assert rows(engine) == []


def test_declared_names_are_found_without_case_and_other_columns_do_not_exist(door: Door, tmp_path: Path) -> None:
    text = 'secret,PAGE,secret,"User_Id"\nnot a number,a,"",1\n'
    with closing(door({"visits": csv(tmp_path, text)})) as engine:
        assert engine.columns("visits") == (Column("user_id", "BIGINT"), Column("page", "VARCHAR"))
        assert rows(engine) == [(1, "a")]


@pytest.mark.parametrize(
    ("first", "column"),
    [
        ("user_id,pages", "page"),
        ("user_id, page", "page"),
        ("user_id;page", "user_id"),
        ("", "user_id"),
        (f"1,{SECRET}", "user_id"),
        ("page,user_id,PAGE", "page"),
        ("USER_ID,user_id,page", "user_id"),
    ],
)
def test_a_first_line_that_does_not_name_every_column_once(door: Door, tmp_path: Path, first: str, column: str) -> None:
    error = refused(door, csv(tmp_path, f"{first}\n1,a,{SECRET}\n"), "source-columns")
    assert f'does not name the column "{column}" once' in error.reason


def test_a_file_that_is_not_there_or_cannot_be_read(door: Door, tmp_path: Path) -> None:
    columns = (Column("user_id", "BIGINT"),)
    refused(door, CsvFile(tmp_path / "nothing.csv", columns), "source-missing")
    refused(door, CsvFile(tmp_path, columns), "source-missing")
    refused(door, CsvFile(csv(tmp_path, bytes(5000)).path, columns), "source-columns")
    refused(
        door, csv(tmp_path, b'PAR1\x15\x00\x15\x08\rduckdb_schema\x15\x02\x07user_id%"\x00\x16PAR1', user_id="BIGINT")
    )


def test_odd_names(door: Door, tmp_path: Path) -> None:
    file = csv(tmp_path, '"a ""b""",ä,Ä,select\n1,2,3,4\n', **{'a "b"': "BIGINT", "Ä": "BIGINT", "SELECT": "VARCHAR"})
    with closing(door({"web.visits of": file, "dpsql": file})) as engine:
        assert rows(engine, "web.visits of") == rows(engine, "dpsql") == [(1, 3, "4")]
        assert [column.name for column in engine.columns("dpsql")] == ['a "b"', "Ä", "SELECT"]


def test_the_file_is_read_once(door: Door, tmp_path: Path) -> None:
    file = csv(tmp_path, "user_id,page\n1,a\n")
    with closing(door({"visits": file})) as engine:
        file.path.write_text("user_id,page\nrubbish\n")
        assert rows(engine) == [(1, "a")]
        file.path.unlink()
        assert rows(engine) == [(1, "a")]


def test_two_engines_load_one_file(door: Door, tmp_path: Path) -> None:
    file = csv(tmp_path, "user_id,page\n1,a\n")
    with closing(door({"visits": file})) as one, closing(door({"visits": file})) as other:
        assert rows(one) == rows(other) == [(1, "a")]


def test_a_csv_file_beside_a_database_and_a_parquet_file(database: Path, parquet: Path, tmp_path: Path) -> None:
    sources: Sources = {"reads": None, "clicks": csv(tmp_path, "user_id,page\n1,a\n"), "visits": parquet}
    with closing(DuckDBEngine.open(database, sources)) as engine:
        joined = run(
            engine,
            "SELECT c.page AS a, v.page AS b FROM memory.main.clicks AS c, memory.main.visits AS v, "
            "dpsql_data.main.reads AS r WHERE r.user_id = c.user_id",
        )
        assert joined.to_pylist() == [{"a": "a", "b": "p"}]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '{file}'",
        "FROM read_csv('{file}')",
        "FROM read_csv('{file}', columns = {{'user_id': 'BIGINT', 'page': 'VARCHAR'}}, auto_detect = false)",
        "FROM read_text('{file}')",
        "FROM sniff_csv('{file}')",
        "COPY memory.main.visits TO '{file}'",
        "COPY memory.main.visits FROM '{file}'",
        "INSERT INTO memory.main.visits VALUES (2, 'b')",
    ],
)
def test_a_sealed_instance_cannot_touch_the_file_again(tmp_path: Path, sql: str) -> None:
    file = csv(tmp_path, "user_id,page\n1,a\n")
    spelled = sql.format(file=str(file.path).replace("'", "''"))
    with closing(DuckDBEngine.open(None, {"visits": file})) as engine:
        assert engine.sealed
        with pytest.raises(EngineError):
            run(engine, spelled)
        if not spelled.startswith("INSERT"):
            with pytest.raises(duckdb.PermissionException):
                engine._connection.execute(spelled).fetchall()
        assert rows(engine) == [(1, "a")]
        assert run(engine, "SELECT view_name FROM duckdb_views() WHERE NOT internal").num_rows == 0
    assert file.path.read_text() == "user_id,page\n1,a\n"


def test_what_does_not_fit_in_memory_is_spilled_into_the_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    numbers = "SELECT range AS user_id, md5(range::VARCHAR) || md5((range + 1)::VARCHAR) AS page FROM range(1500000)"
    duckdb.execute(f"COPY ({numbers}) TO '{tmp_path / 'big.csv'}' (HEADER)")
    file = CsvFile(tmp_path / "big.csv", (Column("user_id", "BIGINT"), Column("page", "VARCHAR")))
    with closing(DuckDBEngine.open(None, {"visits": file}, memory_limit="60MB", threads=2)) as engine:
        (folder,) = spill.iterdir()
        assert list(folder.iterdir())
        (found,) = run(engine, "SELECT count(*) AS n, sum(user_id)::BIGINT AS s FROM memory.main.visits").to_pylist()
        assert found == {"n": 1_500_000, "s": 1_500_000 * 1_499_999 // 2}
    assert list(spill.iterdir()) == []


def test_a_refused_file_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    refused(lambda sources: DuckDBEngine.open(None, sources), csv(tmp_path, "user_id,page\nx,y\n"))
    assert list(spill.iterdir()) == []


def state(connection: duckdb.DuckDBPyConnection) -> list[list[tuple[object, ...]]]:
    """Return the settings of a connection, and the tables and views that it sees."""
    return [
        connection.sql(sql).fetchall()
        for sql in (
            "SELECT name, value FROM duckdb_settings() ORDER BY name",
            "SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables() ORDER BY ALL",
            "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
            "FROM visits",
        )
    ]


@pytest.mark.parametrize("bad", ["x,y\n", "1\n", '1,"y\n'])
def test_the_users_schema_settings_and_cursors_stay(
    lender: duckdb.DuckDBPyConnection, tmp_path: Path, bad: str
) -> None:
    lender.execute("SET TimeZone = 'Asia/Tokyo'; SET threads = 3; CREATE SCHEMA other; USE other")
    lender.execute("CREATE TABLE visits AS SELECT 'other' AS page; CREATE TEMP TABLE visits AS SELECT 'temp' AS page")
    good = "user_id,page\n" + "1,a\n" * 300_000
    with closing(lender.cursor()) as second:
        before, beside = state(lender), second.sql("FROM memory.other.visits").fetchall()
        with closing(DuckDBEngine.borrow(lender, {"visits": csv(tmp_path, "user_id,page\n1,a\n")})) as engine:
            assert engine.relation("visits") == ("temp", "main", "visits")
            assert state(lender) == before
            assert rows(engine) == [(1, "a")]
        assert state(lender) == before
        refused(lambda sources: DuckDBEngine.borrow(lender, sources), csv(tmp_path, good + bad))
        assert state(lender) == before
        assert second.sql("FROM memory.other.visits").fetchall() == beside
        with pytest.raises(duckdb.CatalogException):
            second.sql("FROM temp.main.visits")


def test_an_offset_is_dropped_and_the_users_time_zone_changes_no_value(
    lender: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    lender.execute("SET TimeZone = 'Asia/Tokyo'")
    file = csv(tmp_path, "ts\n2026-01-31 12:00:00\n2026-01-31T12:00:00Z\n2026-01-31 12:00:00+02\n", ts="TIMESTAMP")
    expected = [(datetime(2026, 1, 31, 12),)] * 3  # noqa: DTZ001
    for engine in (DuckDBEngine.borrow(lender, {"visits": file}), DuckDBEngine.open(None, {"visits": file})):
        with closing(engine):
            assert rows(engine) == expected


def test_a_connection_without_access_to_files_is_enough(tmp_path: Path) -> None:
    config = {"enable_external_access": "false", "python_enable_replacements": "false"}
    with (
        closing(duckdb.connect(config=config)) as connection,
        closing(DuckDBEngine.borrow(connection, {"visits": csv(tmp_path, "user_id,page\n1,a\n")})) as engine,
    ):
        assert rows(engine) == [(1, "a")]


def test_a_connection_that_only_reads_is_enough(database: Path, tmp_path: Path) -> None:
    file = csv(tmp_path, "user_id,page\n1,a\n")
    with (
        closing(duckdb.connect(database, read_only=True)) as connection,
        closing(DuckDBEngine.borrow(connection, {"visits": file, "reads": None})) as engine,
    ):
        assert rows(engine) == [(1, "a")]
        assert len(rows(engine, "reads")) == 1000
