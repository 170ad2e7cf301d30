"""What is counted is what is held: rows in blocks, objects of a connection, and the limits on them."""

from __future__ import annotations

import sys
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.server.catalog.system_catalog import PIECE, RowBlocks, WireColumn, encode_rows, split_pieces
from dpsql.server.limits import MemoryQuota
from dpsql.server.wire.codec import WireError, full_error
from dpsql.server.wire.connection_state import Settings, Transaction
from dpsql.server.wire.rows import ArrowRows, EncodedRows, ReversedRows, WireRows, count_rows

ROWS = st.integers(0, 4).flatmap(
    lambda width: st.lists(st.lists(st.none() | st.binary(max_size=9), min_size=width, max_size=width), max_size=9)
)


@given(ROWS, st.integers(0, 9), st.integers(0, 9))
def test_rows_are_read_as_they_were_encoded(rows: list[list[bytes | None]], start: int, stop: int) -> None:
    start, stop = min(start, len(rows)), min(max(start, stop), len(rows))
    blocks = encode_rows(rows)
    assert [list(row) for row in blocks] == rows
    assert [list(row) for row in blocks.read(start, stop)] == rows[start:stop]
    expected = [b"".join(blocks.messages(at, at + 1)) for at in range(start, stop)]
    assert b"".join(blocks.messages(start, stop)) == b"".join(expected)


def test_rows_of_several_blocks_are_read_from_any_position() -> None:
    rows = [(b"%d" % at, None, b"x" * (at % 700)) for at in range(3_000)]
    rows[1_500] = (b"x" * 2_000_000, None, b"")
    blocks = encode_rows(rows)
    assert list(blocks) == rows
    for start, stop in ((0, 1), (740, 2_200), (1_500, 1_501), (1_501, 3_000), (2_999, 3_000), (3_000, 3_000)):
        assert list(blocks.read(start, stop)) == rows[start:stop]
    pieces = list(blocks.messages(0, 3_000))
    assert max(map(len, pieces)) <= PIECE
    assert list(split_pieces([b"x" * 100, b"y" * (2 * PIECE + 1)])) == [b"x" * 100, b"y" * PIECE, b"y" * PIECE, b"y"]


@pytest.mark.parametrize("row", [(None,) * 1600, (b"ab",) * 20, (b"x" * 1000,), (b"x" * 300_000, None)])
def test_the_size_of_rows_is_what_they_hold(row: tuple[bytes | None, ...]) -> None:
    count = 2_000_000 // sum(len(value or b"") + 4 for value in row)
    tracemalloc.start()
    try:
        blocks = encode_rows(row for _ in range(count))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.8 * blocks.size < held < 1.2 * blocks.size


def test_rows_can_be_read_backwards() -> None:
    table = pa.table({"a": list(range(1_000)), "b": [None, "x"] * 500})
    columns = (WireColumn("a", 20), WireColumn("b", 25))
    of_arrow = ArrowRows(table)
    expected = list(of_arrow.read(0, 1_000, formats=(0, 0)))
    of_catalog = EncodedRows(columns, encode_rows(expected))
    whole: WireRows
    for whole in (of_arrow, of_catalog):
        backwards = ReversedRows(whole, 100, 900)
        assert len(backwards) == 800
        assert list(backwards.read(0, 800, formats=(0, 0))) == expected[100:900][::-1]
        assert list(backwards.read(3, 203, formats=(0, 0))) == expected[100:900][::-1][3:203]
        sent = b"".join(backwards.messages(0, 800, formats=(0, 0)))
        assert sent == b"".join(encode_rows(expected[100:900][::-1]).messages(0, 800))


def test_an_answer_of_the_session_is_sent_in_small_pieces() -> None:
    table = pa.table({f"c{at}": ["x" * 1_000] * 300 for at in range(40)})
    rows = ArrowRows(table)
    pieces = list(rows.messages(0, 300, formats=(0,) * 40))
    assert max(map(len, pieces)) <= PIECE
    assert len(b"".join(pieces)) == 300 * (7 + 40 * 1_004)
    assert rows.size >= 300 * 40 * 1_000


def test_a_row_has_a_most_length() -> None:
    rows = ArrowRows(pa.table({"a": ["x", "y" * 17_000_000, "z"]}))
    sent = rows.messages(0, 3, formats=(0,))
    assert next(sent).endswith(b"x")
    with pytest.raises(WireError) as caught:
        next(sent)
    assert caught.value.sqlstate == "54000"


def test_a_user_and_all_users_have_limits_and_what_ends_is_given_back() -> None:
    quota = MemoryQuota(100, 60, full=full_error)
    ana, ben = quota.of_user("ana"), quota.of_user("ben")
    first = ana.hold(50)
    with pytest.raises(WireError) as caught:
        ana.hold(11)
    assert (caught.value.sqlstate, bool(caught.value.hint)) == ("53200", True)
    with pytest.raises(WireError):
        ben.hold(51)
    second = ben.hold(50)
    with pytest.raises(WireError):
        first.grow(1)
    first.resize(10)
    second.grow(10)
    del second
    ana.hold(50)  # which nothing refers to
    first.grow(50)
    assert (quota.measure("ana"), quota.measure("ben")) == (60, 0)
    del first
    assert quota.measure("ana") == 0


def test_a_charged_answer_is_never_refused_and_a_free_one_only_beside_others() -> None:
    quota = MemoryQuota(100_000, 5_000, full=full_error)
    ana, rows = quota.of_user("ana"), ArrowRows(pa.table({"a": range(1_000)}))
    first = count_rows(rows, ana, is_free=True)
    with pytest.raises(WireError):
        ana.check()
    with pytest.raises(WireError):
        count_rows(rows, ana, is_free=True)
    second = count_rows(rows, ana)
    assert quota.measure("ana") == 2 * rows.size
    assert count_rows(second, ana) is second
    del first, second
    assert quota.measure("ana") == 0
    with pytest.raises(WireError, match="too large"):
        count_rows(ArrowRows(pa.table({"a": range(2_000)})), ana, is_free=True)


def test_settings_and_savepoints_are_counted_until_they_end() -> None:
    quota = MemoryQuota(1_000_000, 100_000, full=full_error)
    transaction = Transaction(Settings(), quota.of_user("ana"))
    idle = quota.measure("ana")
    transaction.begin()
    for at in range(10):
        transaction.change(lambda settings, at=at: settings.with_value(f"a.b{at}", "x" * 900))  # type: ignore[misc]
    changed = quota.measure("ana")
    assert changed > idle + 2 * 9_000
    transaction.add_savepoint("s")
    transaction.change(lambda settings: settings.without_value(""))
    transaction.rollback_to("s")
    assert quota.measure("ana") > changed + 2 * 9_000
    transaction.release_savepoint("s")
    assert quota.measure("ana") == changed
    for at in range(3):
        transaction.add_savepoint(f"s{at}")
    with pytest.raises(WireError):
        transaction.add_savepoint("one too many")
    transaction.rollback()
    assert quota.measure("ana") == idle


def test_sizes_are_of_what_python_holds() -> None:
    blocks = encode_rows([(b"x" * 100,)] * 10)
    assert isinstance(blocks, RowBlocks)
    assert blocks.size >= 10 * 111 + 10 * 4
    name = "a" * 40
    rows = EncodedRows((WireColumn(name, 99_999, 7, 1),), blocks)
    assert rows.size > blocks.size + sys.getsizeof(name)
