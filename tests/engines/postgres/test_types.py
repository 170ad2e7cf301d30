"""Types of PostgreSQL that DuckDB has otherwise or not at all: what dpsql takes them for, and that no value fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from support.postgres_kit import fresh_schema, server

from dpsql.engines import Statement, open_exact
from dpsql.engines.postgres import PostgresEngine
from dpsql.errors import Error
from dpsql.policy import Budget, Policy, PrivateTable
from dpsql.registration import build_catalog, may_be_unit
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import has_one_form, parse_type
from dpsql.sql.rewrite.engine_query import rewrite_all

COLUMNS = {  # a column of every type: its type there, what dpsql takes it for, and values
    "c_bool": ("boolean", "BOOLEAN", ["true"]),
    "c_small": ("int2", "SMALLINT", ["-32768"]),
    "c_serial": ("bigserial", "BIGINT", ["1"]),
    "c_text": ("text", "VARCHAR", ["a", "A", ""]),
    "c_varchar": ("varchar(9)", "VARCHAR", ["a "]),
    "c_char": ("char(3)", "VARCHAR", ["a", "a  ", "b"]),
    "c_folded": ('"{0}".folded', "VARCHAR", ["a", "A"]),  # made as the extension citext makes its own
    "c_posix": ('text COLLATE "POSIX"', "VARCHAR", ["a", "A"]),
    "c_locale": ('text COLLATE "{0}".words', "VARCHAR", ["b", "B", "a b", "ab"]),
    "c_real": ("float4", "FLOAT", ["1.1", "NaN", "-0"]),
    "c_double": ("float8", "DOUBLE", ["NaN", "-Infinity", "-0"]),
    "c_decimal": ("numeric(10, 2)", "DECIMAL(10,2)", ["1.5", "NaN", "-0.01"]),
    "c_wide": ("numeric(30, 4)", "DECIMAL(30,4)", ["1.5", "NaN"]),
    "c_whole": ("numeric(5)", "DECIMAL(5,0)", ["7", "NaN"]),
    "c_free": ("numeric", "NUMERIC", ["1.0", "1.00", "1e400", "NaN", "-1e-400", "2.5"]),
    "c_tens": ("numeric(5, -2)", "NUMERIC", ["1200"]),
    "c_tiny": ("numeric(2, 5)", "NUMERIC", ["0.00012"]),
    "c_vast": ("numeric(50, 2)", "NUMERIC", ["1"]),
    "c_date": ("date", "DATE", ["infinity", "-infinity", "4713-01-01 BC", "5874897-12-31"]),
    "c_stamp": ("timestamp(3)", "TIMESTAMP", ["infinity", "294276-12-31 23:59:59", "4713-01-01 BC"]),
    "c_zone": ("timestamptz", "TIMESTAMP", ["2026-01-01 00:30+02", "infinity"]),
    "c_time": ("time", "TIME", ["24:00"]),
    "c_timetz": ("timetz", "TIME WITH TIME ZONE", ["10:00+02"]),
    "c_interval": ("interval", "INTERVAL", ["1 day", "24:00"]),
    "c_uuid": ("uuid", "UUID", ["123e4567-e89b-12d3-a456-426614174000"]),
    "c_bytes": ("bytea", "BLOB", ["\\x00ff", "\\x"]),
    "c_enum": ('"{0}".mood', "ENUM", ["sad", "it's ok"]),
    "c_domain": ('"{0}".positive', "INTEGER", ["3"]),
    "c_price": ('"{0}".dear', "DECIMAL(8,3)", ["3.5", "NaN"]),
    "c_json": ("jsonb", "jsonb", ['{{"a": 1}}']),
    "c_text_json": ("json", "json", ['{{"a":1}}']),
    "c_array": ("integer[]", "integer[]", ["{{1,2}}"]),
    "c_range": ("int4range", "int4range", ["[1,2)"]),
    "c_inet": ("inet", "inet", ["10.0.0.1/8"]),
    "c_money": ("money", "money", ["1"]),
    "c_bits": ("bit(3)", "bit", ["101"]),
    "c_name": ("name", "name", ["x"]),
    "c_oid": ("oid", "oid", ["1"]),
    "c_point": ("point", "point", ["(1,2)"]),
    "c_row": ('"{0}".pair', "{0}.pair", ["(1,2)"]),
    "c_odd": ('"{0}"."UUID"', '{0}."UUID"', ["(1)"]),
}
FOLDED = (
    "CREATE FUNCTION {0}.into(cstring) RETURNS {0}.folded AS 'textin' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE FUNCTION {0}.out({0}.folded) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE TYPE {0}.folded (INPUT = {0}.into, OUTPUT = {0}.out, LIKE = text, CATEGORY = 'S')",
)
KEYS = [name for name, (_, type_, _) in COLUMNS.items() if parse_type(type_).family.name != "OPAQUE"]
KEYS += ["c_real", "c_uuid", "c_enum"]


@pytest.fixture(scope="module")
def schema() -> str:
    name = fresh_schema()
    server().run(
        f'CREATE SCHEMA "{name}"',
        f"CREATE COLLATION \"{name}\".words (provider = libc, locale = 'C.UTF-8')",
        f"CREATE TYPE \"{name}\".mood AS ENUM ('sad', 'it''s ok')",
        f'CREATE TYPE "{name}".pair AS (a integer, b integer)',
        f'CREATE TYPE "{name}"."UUID" AS (a integer)',
        f'CREATE DOMAIN "{name}".whole AS integer',
        f'CREATE TYPE "{name}".folded',
        *(statement.format(f'"{name}"') for statement in FOLDED),
        f'CREATE CAST ("{name}".folded AS text) WITHOUT FUNCTION AS IMPLICIT',
        f'CREATE DOMAIN "{name}".positive AS "{name}".whole CHECK (VALUE > 0)',
        f'CREATE DOMAIN "{name}".dear AS numeric(8, 3)',
    )
    columns = ", ".join(f"{column} {type_.format(name)}" for column, (type_, _, _) in COLUMNS.items())
    server().run(f'CREATE TABLE "{name}".rows (user_id bigint, {columns})')
    with server().session() as connection:
        for unit in range(7):
            values = [each[2][unit % len(each[2])].format() for each in COLUMNS.values()]
            marks = ", ".join(["%s"] * len(values))
            connection.execute(f'INSERT INTO "{name}".rows VALUES ({unit}, {marks})', values)
    return name


@pytest.fixture(scope="module")
def engine(schema: str) -> Iterator[PostgresEngine]:
    with closing(
        PostgresEngine.open(server().url("").replace("&schema=", ""), {f"{schema}.rows": None}, options={})
    ) as it:
        it._tables = {"rows": it._tables[f"{schema}.rows"]}
        yield it


def ask(engine: PostgresEngine, sql: str, unit: str = "user_id") -> list[tuple[object, ...]]:
    """Return the exact groups of a private query, by key."""
    catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), {"rows": PrivateTable(unit)}))
    query = analyze(sql, catalog, accepts_pattern=lambda _: True)
    assert isinstance(query, PrivateQuery)
    counting = rewrite_all(query)
    table = open_exact(engine.execute(Statement(counting.sql, counting.parameters, counting.types)))
    columns = [_plain(column.combine_chunks()) for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(column: pa.Array) -> list[object]:
    if pa.types.is_date32(column.type):
        return list(column.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.view(pa.int64()).to_pylist())
    return list(column.to_pylist())


def key(engine: PostgresEngine, expression: str) -> list[object]:
    return [row[0] for row in ask(engine, f"SELECT {expression} AS k FROM rows GROUP BY k TOP 9 PRIVATE")]


def test_every_type_is_duckdbs_or_left_alone(engine: PostgresEngine, schema: str) -> None:
    found = {column.name: column.type for column in engine.columns("rows")}
    assert found == {"user_id": "BIGINT", **{name: type_.format(schema) for name, (_, type_, _) in COLUMNS.items()}}


def test_of_types_without_one_spelling_of_a_value_none_may_be_a_unit_or_told_apart() -> None:
    unlike = {"NUMERIC", "INTERVAL", "TIME", "TIME WITH TIME ZONE"}
    for _, type_, _ in COLUMNS.values():
        if type_ in unlike or type_.islower() or "." in type_:
            assert not may_be_unit(type_)
            assert not has_one_form(parse_type(type_))


@pytest.mark.parametrize("column", KEYS)
def test_no_stored_value_fails_as_a_key(engine: PostgresEngine, column: str) -> None:
    rows = ask(engine, f"SELECT {column} FROM rows GROUP BY {column} TOP 9 PRIVATE")
    assert sum(int(str(row[-1])) for row in rows) == 7


@pytest.mark.parametrize("unit", [name for name, (_, type_, _) in COLUMNS.items() if may_be_unit(type_)])
def test_no_stored_value_fails_as_a_unit(engine: PostgresEngine, unit: str) -> None:
    ((_, count),) = ask(engine, "SELECT 'all' AS k FROM rows GROUP BY k TOP 9 PRIVATE", unit)
    wanted = {"c_char": 2, "c_date": 4, "c_stamp": 3, "c_decimal": 2, "c_wide": 1, "c_whole": 1, "c_price": 1}
    assert count == wanted.get(unit, len(set(COLUMNS[unit][2])) if unit != "c_serial" else 1)


def test_text_is_told_apart_by_its_bytes_whatever_its_collation(engine: PostgresEngine) -> None:
    assert key(engine, "c_posix") == key(engine, "c_folded") == ["A", "a"]
    assert key(engine, "c_locale") == ["B", "a b", "ab", "b"]
    assert ask(engine, "SELECT c_posix FROM rows WHERE c_posix IN ('A') GROUP BY c_posix TOP 9 PRIVATE") == [("A", 3)]
    assert ask(engine, "SELECT c_text FROM rows WHERE c_posix = c_locale GROUP BY c_text TOP 9 PRIVATE") == []


def test_char_is_text_without_the_blanks_at_its_end(engine: PostgresEngine) -> None:
    assert key(engine, "c_char || '|'") == ["a|", "b|"]


def test_nan_of_a_decimal_is_null(engine: PostgresEngine) -> None:
    assert [str(value) for value in key(engine, "c_decimal")] == ["-0.01", "1.50", "None"]
    assert key(engine, "c_decimal > 1") == [False, True, None]


def test_a_time_with_a_zone_is_that_of_utc(engine: PostgresEngine) -> None:
    assert key(engine, "c_zone") == [1_767_220_200_000_000, 2**63 - 1]  # 2025-12-31 22:30
    assert key(engine, "CAST(c_zone AS DATE)") == [20_453, 2**31 - 1]
    assert key(engine, "hour(c_zone)") == [22, None]


def test_a_time_stamp_that_duckdb_has_not_is_null_where_it_leaves(engine: PostgresEngine) -> None:
    assert key(engine, "c_stamp") == [-210_863_520_000_000_000, None, 2**63 - 1]
    assert key(engine, "c_stamp > '2026-01-01'") == [False, True]


def test_labels_are_compared_by_their_text(engine: PostgresEngine) -> None:
    sql = "SELECT m FROM (SELECT user_id, {0}(c_enum) AS m FROM rows GROUP BY user_id) AS x GROUP BY m TOP 9 PRIVATE"
    for function in ("min", "max"):
        assert [row[0] for row in ask(engine, sql.format(function))] == ["it's ok", "sad"]
    assert key(engine, "c_enum || '!'") == ["it's ok!", "sad!"]
    assert key(engine, "c_uuid = '123e4567-e89b-12d3-a456-426614174000'") == [True]


@pytest.mark.parametrize("column", [name for name, (_, type_, _) in COLUMNS.items() if type_.islower()])
@pytest.mark.parametrize(
    "sql", ["{0} = {0}", "{0} IN ({0})", "CAST({0} AS VARCHAR)", "coalesce({0}, {0})", "{0} IS DISTINCT FROM {0}"]
)
def test_what_dpsql_does_not_compute_with_is_refused_before_it_is_asked(
    engine: PostgresEngine, column: str, sql: str
) -> None:
    with pytest.raises(Error) as caught:
        key(engine, sql.format(column))
    assert caught.value.code != "engine-failed"
