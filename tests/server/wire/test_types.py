"""Values in text and in binary, to the client and from it, at the ends of their ranges."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import asyncpg
import duckdb
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.server_kit import ACCOUNTS, Served, serving
from support.surfaces_kit import POLICY

from dpsql.server.wire.codec import Malformed, WireError
from dpsql.server.wire.parameters import decode_value
from dpsql.server.wire.rows import (
    OIDS,
    describe_columns,
    encode_column,
    encode_numeric,
    expand_formats,
    format_day,
    format_timestamp,
)

NOON = datetime.fromisoformat("2026-01-31 12:00:00.000500")

ROWS = """
SELECT 1 AS id, true AS bool,
 (-128)::TINYINT AS i1, 255::UTINYINT AS u1, (-32768)::SMALLINT AS i2, 65535::USMALLINT AS u2,
 (-2147483648)::INTEGER AS i4, 4294967295::UINTEGER AS u4, (-9223372036854775808)::BIGINT AS i8,
 1.5::FLOAT AS f4, 1e300::DOUBLE AS f8, (-12345678.0009)::DECIMAL(18, 4) AS n, 'ü''"\\\t, ' AS t,
 DATE '1789-07-14' AS d, TIMESTAMP '2026-01-31 12:34:56.000789' AS ts
UNION ALL SELECT 2, false, 127, 0, 32767, 0, 2147483647, 0, 9223372036854775807, 'nan', 'inf', 0, '',
 DATE '9999-12-30', TIMESTAMP '1969-12-31 23:59:59.999999'
UNION ALL SELECT 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("types")
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(f"CREATE TABLE every AS {ROWS}")
    with serving(folder, policy=f"{POLICY}[tables.every]\npublic = true\n{ACCOUNTS}") as found:
        yield found


def expected() -> list[tuple[object, ...]]:
    return duckdb.sql(f"SELECT * FROM ({ROWS}) ORDER BY id").fetchall()


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_arrives_as_it_is_stored(binary: bool, served: Served) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        found = connection.execute("SELECT * FROM every ORDER BY id", binary=binary).fetchall()
    assert repr(found) == repr(expected())  # NaN is not itself


def test_asyncpg_reads_them_in_binary_and_binds_what_it_read(served: Served) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(served.url())
        rows = await connection.fetch("SELECT * FROM every ORDER BY id")
        assert repr([tuple(row) for row in rows]) == repr(expected())
        for name in ("bool", "i1", "i2", "u2", "i4", "u4", "i8", "n", "t", "d", "ts"):
            for at in (0, 1):
                found = await connection.fetch(f"SELECT id FROM every WHERE {name} = $1", rows[at][name])
                assert [row["id"] for row in found] == [at + 1], name
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("value", [True, 7, 2**40, 1.5, Decimal("1.50"), "a'b", date(2026, 1, 31), NOON])
def test_psycopg_binds_in_text_and_in_binary(value: object, served: Served) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        kind = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", Decimal: "DECIMAL(9, 2)", str: "VARCHAR"}
        name = kind.get(type(value), "TIMESTAMP" if isinstance(value, datetime) else "DATE")
        for mark in ("%t", "%b"):
            found = connection.execute(f"SELECT CAST({mark} AS {name}) AS x", [value])
            assert found.fetchone() == (value,)


@pytest.mark.parametrize(
    ("text", "values", "row"),
    [
        ("SELECT %s AS x", [7], (7,)),
        ("SELECT %s + 1 AS x", [7], (8,)),
        ("SELECT %s AS x", [None], (None,)),
        ("SELECT t FROM every WHERE id IN (%s,%s) AND n < %s", [1, 2, 0], ("ü'\"\\\t, ",)),
        ("SELECT id FROM every WHERE ts = %s", ["2026-01-31 12:34:56.000789"], (1,)),
        ("SELECT id FROM every ORDER BY id LIMIT %s", [1], (1,)),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_an_answer_has_the_types_that_were_described(
    text: str, values: list[object], row: tuple[object, ...], *, binary: bool, served: Served
) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        assert connection.execute(text, values, binary=binary, prepare=True).fetchall() == [row]


@pytest.mark.parametrize(
    ("data", "oid", "code", "value"),
    [
        (b"2026-02-03 +00", OIDS["date"], 0, date(2026, 2, 3)),
        (b"2026-02-03 04:05:06.5+01", OIDS["timestamp"], 0, datetime.fromisoformat("2026-02-03 04:05:06.5")),
        (b"2026-02-03 04:05:06.5+01", OIDS["timestamptz"], 0, datetime.fromisoformat("2026-02-03 03:05:06.5")),
        (b"t", OIDS["bool"], 0, True),
        (b"\0\1\0\0\0\0\0\0\0\7", OIDS["numeric"], 1, Decimal(7)),
        (None, OIDS["int4"], 1, None),
        (b'{a,"b c",NULL}', 1009, 0, ["a", "b c", None]),
        (b"{2026-02-03}", 1182, 0, [date(2026, 2, 3)]),
        (struct.pack("!iiIiiihi", 1, 1, 21, 2, 1, 2, 7, -1), 1005, 1, [7, None]),
        (struct.pack("!iiI", 0, 0, 25), 1009, 1, []),
    ],
)
def test_values_are_read_as_clients_send_them(data: bytes | None, oid: int, code: int, value: object) -> None:
    assert decode_value(data, oid, code=code, name="") == value


@pytest.mark.parametrize(
    ("data", "oid", "sqlstate"),
    [
        (b"\0", OIDS["int4"], "22P03"),
        (b"\xff", OIDS["text"], "22021"),
        (b"\0\1\0\0\xc0\0\0\0", OIDS["numeric"], None),
        (b"\0\1\0\0\0\0\0\0\x7f\xff", OIDS["numeric"], "22P03"),
        (b"\x7f\xff\xff\xff", OIDS["date"], None),
        (b"", 114, None),
        (b"\0\0\0\0", 1007, "22P02"),
        (struct.pack("!iiIiiii", 2, 0, 23, 1, 1, 1, 1), 1007, "22P02"),
        (struct.pack("!iiIiiii", 1, 0, 23, 2, 1, 4, 7), 1007, "22P02"),
        (struct.pack("!iiIiiih", 1, 0, 23, 1, 1, 2, 7), 1007, "22P03"),
        (struct.pack("!iiIiii", 1, 0, 25, 1, 1, 1_000_000), 1009, "22P02"),
    ],
)
def test_values_that_are_none_are_refused(data: bytes, oid: int, sqlstate: str | None) -> None:
    with pytest.raises((Malformed, WireError)) as caught:
        decode_value(data, oid, code=1, name="")
    assert sqlstate in {None, caught.value.sqlstate}


def test_a_text_that_is_no_array_is_refused() -> None:
    for data in (b"a", b"{{1}}", b"{1"):
        with pytest.raises(Malformed) as caught:
            decode_value(data, 0, code=0, name="BIGINT[]")
        assert caught.value.sqlstate == "22P02"


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28))
def test_binary_numbers_are_read_back(number: Decimal) -> None:
    found = decode_value(encode_numeric(number), OIDS["numeric"], code=1, name="")
    assert found == number


@given(st.integers(-719_162, 2_932_896))
def test_days_are_written_as_python_writes_them(days: int) -> None:
    assert format_day(days) == (date(1970, 1, 1) + timedelta(days)).isoformat()


def test_the_ends_of_the_calendar_are_written() -> None:
    assert [format_day(one) for one in (2**31 - 1, -(2**31) + 1)] == ["infinity", "-infinity"]
    assert format_timestamp(2**63 - 1) == "infinity"
    assert format_day(-719_163) == "0001-12-31 BC"
    assert format_day(2_932_897) == "10000-01-01"
    assert format_timestamp(1) == "1970-01-01 00:00:00.000001"


def test_other_arrow_types_are_written_too() -> None:
    day = datetime(2026, 1, 31, 12, tzinfo=UTC)
    cases = [
        (pa.array([2**64 - 1], pa.uint64()), 1700, b"18446744073709551615"),
        (pa.array([day], pa.timestamp("ns", "UTC")), 1184, b"2026-01-31 12:00:00+00"),
        (pa.array([day.replace(tzinfo=None)], pa.timestamp("s")), 1114, b"2026-01-31 12:00:00"),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), 1083, b"01:02:03.000004"),
        (pa.array([b"\0\xff"]), 17, rb"\x00ff"),
        (pa.array(["a"]).dictionary_encode(), 25, b"a"),
        (pa.array([[1, 2]]), 25, b"[1, 2]"),
        (pa.nulls(1), 25, None),
    ]
    for array, oid, text in cases:
        column = pa.chunked_array([array])
        (described,) = describe_columns(pa.table({"x": column}).schema)
        assert (described.oid, encode_column(column, 0)) == (oid, [text])
        encode_column(column, 1)


def test_formats_are_none_one_or_each() -> None:
    assert (expand_formats((), 2), expand_formats((1,), 2), expand_formats((0, 1), 2)) == ((0, 0), (1, 1), (0, 1))
    with pytest.raises(Malformed):
        expand_formats((0, 0), 3)
    with pytest.raises(WireError):
        expand_formats((2,), 1)
