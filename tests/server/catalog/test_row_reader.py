"""Rows are read from the socket as libpq reads them, within limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from dpsql.server.catalog.shadow import MAX_BYTES, Shadow, connect, read_rows
from dpsql.server.catalog.system_catalog import CatalogError, Hold, Parameter, RowBlocks, encode_rows

Read = Callable[..., tuple[RowBlocks, str]]
SEVERAL = (
    "SELECT a.attname, a.attnum, NULL, repeat('x', a.attnum * 20) FROM pg_attribute a WHERE a.attnum > $1 ORDER BY 1, 2"
)
LONG = "SELECT repeat('x', i * 400000), i FROM generate_series(1, 7) i WHERE i > $1"
NONE = "SELECT 1, 2 FROM pg_class WHERE oid < $1"


def run(
    shadow: Shadow, read: Read, sql: str, *, formats: Sequence[int], hold: Hold | None = None
) -> tuple[RowBlocks, str]:
    def act(connection: PGconn) -> tuple[RowBlocks, str]:
        connection.prepare(b"", sql.encode(), [23])
        return read(connection, [Parameter(b"\0\0\0\0", 23, is_binary=True)], formats=formats, hold=hold)

    return shadow._asked("ana", act)


def read_by_libpq(
    connection: PGconn, parameters: Sequence[Parameter], *, formats: Sequence[int], hold: Hold | None
) -> tuple[RowBlocks, str]:
    """Return what `read_rows` returns; libpq has one format for all columns, so the statement is run in each."""
    assert hold is None
    values, shapes = [each.value for each in parameters], [int(each.is_binary) for each in parameters]
    results = [connection.exec_prepared(b"", values, shapes, code) for code in (0, 1)]
    rows = [
        [results[code].get_value(row, column) for column, code in enumerate(formats)]
        for row in range(results[0].ntuples)
    ]
    return encode_rows(rows), (results[0].command_status or b"").decode()


@pytest.mark.parametrize(("sql", "width"), [(SEVERAL, 4), (LONG, 2), (NONE, 2)])
@pytest.mark.parametrize("codes", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_rows_are_read_as_by_libpq(shadow: Shadow, sql: str, width: int, codes: tuple[int, int]) -> None:
    formats = (codes * 2)[:width]
    rows, tag = run(shadow, read_rows, sql, formats=formats)
    others, same = run(shadow, read_by_libpq, sql, formats=formats)
    assert (list(rows), tag) == (list(others), same)
    assert tag == f"SELECT {len(rows)}"
    assert b"".join(rows.messages(0, len(rows))) == b"".join(others.messages(0, len(others)))


def test_what_rows_hold_is_counted_while_they_are_read(shadow: Shadow) -> None:
    held = list[int]()

    def hold(size: int) -> None:
        held.append(size)
        if sum(held) > limit:
            raise MemoryError

    limit = MAX_BYTES
    rows, _ = run(shadow, read_rows, SEVERAL, formats=(0, 1, 0, 1), hold=hold)
    assert sum(held) == rows.size
    limit = 200_000
    held.clear()
    with pytest.raises(MemoryError):
        run(shadow, read_rows, SEVERAL, formats=(0, 0, 0, 0), hold=hold)
    assert sum(held) < 2 * limit


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT 1 / (i - 2000 + $1), i FROM generate_series(1, 3000) i", "22012"),
        ("SELECT repeat('x', 17000000), $1", "54000"),
        ("SELECT repeat('x', 1000), $1 FROM generate_series(1, 30000)", "54000"),
        ("SELECT i, $1 FROM generate_series(1, 50001) i", "54000"),
        ("SELECT ARRAY(SELECT repeat('x', 1000) FROM generate_series(1, 1000000)), $1", "54000"),
    ],
)
def test_a_statement_that_fails_or_returns_too_much_ends(shadow: Shadow, sql: str, sqlstate: str) -> None:
    with pytest.raises(CatalogError) as caught:
        run(shadow, read_rows, sql, formats=(0, 0))
    assert caught.value.sqlstate == sqlstate
    assert all(one.transaction_status == TransactionStatus.IDLE for one in shadow._idle)
    assert len(run(shadow, read_rows, LONG, formats=(0, 0))[0]) == 7


def test_a_connection_that_ends_is_an_error(shadow: Shadow) -> None:
    def act(connection: PGconn) -> tuple[RowBlocks, str]:
        connection.prepare(b"", LONG.encode(), [23])
        other = connect(shadow._conninfo)
        assert other.exec_(b"SELECT pg_terminate_backend(%d)" % connection.backend_pid).ntuples == 1
        other.finish()
        return read_rows(connection, [Parameter(b"1", 23)], formats=(0, 0), hold=None)

    with pytest.raises(CatalogError) as caught:
        shadow._asked("ana", act)
    assert caught.value.sqlstate == "58000"
    assert len(run(shadow, read_rows, LONG, formats=(0, 0))[0]) == 7
