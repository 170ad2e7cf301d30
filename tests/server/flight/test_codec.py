"""The messages of Flight SQL: golden bytes, round trips, and whatever bytes there are."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.flight_messages import TYPES, packed, varint, written

from dpsql.errors import Refusal, UsageError
from dpsql.server.flight.codec import MAX_MESSAGE_LENGTH, decode, encode, pack, unpack
from dpsql.server.flight.commands import Catalogs, ServerInfo, Statement, Tables, TypeInfo, read_command, read_ticket


def test_a_command_of_the_driver_is_read() -> None:
    sent = bytes.fromhex(
        "0a43747970652e676f6f676c65617069732e636f6d2f6172726f772e666c696768742e70726f746f636f6c2e73716c2e"
        "436f6d6d616e6453746174656d656e745175657279120a0a0873656c6563742031"
    )
    assert read_command(sent) == Statement("select 1")
    assert read_command(packed("CommandGetCatalogs")) == Catalogs()
    assert read_command(packed("CommandGetTables", (3, "r%"), (4, "TABLE"), (4, "VIEW"), (5, 1))) == Tables(
        None, None, "r%", ("TABLE", "VIEW"), with_columns=True
    )
    assert read_command(packed("CommandGetTables", (1, ""))) == Tables("", None, None, (), with_columns=False)
    assert read_command(packed("CommandGetXdbcTypeInfo", (1, 2**64 - 5))) == TypeInfo(-5)
    assert read_command(packed("CommandGetXdbcTypeInfo")) == TypeInfo(None)


def test_messages_are_written_as_protobuf_has_them() -> None:
    assert pack("TicketStatementQuery", statement_handle=b"x") == packed("TicketStatementQuery", (1, b"x"))
    assert encode("CancelFlightInfoResult", status=150).hex() == "089601"
    answer = pack("ActionCreatePreparedStatementResult", prepared_statement_handle=b"h", parameter_schema=b"p")
    assert answer == packed("ActionCreatePreparedStatementResult", (1, b"h"), (3, b"p"))


def test_fields_that_are_not_known_are_passed_over() -> None:
    extended = packed("CommandStatementQuery", (1, "SELECT 1"), (2, b"transaction"), (77, 5), (78, b"more"))
    fixed = extended + bytes.fromhex("1d00000000") + bytes.fromhex("210000000000000000")
    assert read_command(fixed) == Statement("SELECT 1")


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_repeated_numbers_are_read_in_both_forms(values: list[int]) -> None:
    alone = packed("CommandGetSqlInfo", *((1, value) for value in values))
    together = packed("CommandGetSqlInfo", (1, b"".join(map(varint, values))))
    assert read_command(alone) == read_command(together) == ServerInfo(tuple(values))


@given(st.text(max_size=50), st.binary(max_size=50))
def test_what_is_written_is_read(text: str, handle: bytes) -> None:
    assert decode(*unpack(read_ticket(handle))).statement_handle == handle
    assert decode("CommandStatementQuery", encode("CommandStatementQuery", query=text)).query == text


@pytest.mark.parametrize(
    "sent",
    [
        "08",  # a number that does not end
        "08ffffffffffffffffffff01",  # of eleven bytes
        "1205aabb",  # bytes that are not all there
        "12ffffffffffffffffff01",  # or are more than any
        "0b",  # a group that does not end
        "0e00",  # no kind of field
        "0000",  # a field without a number
        "0a03666f6f",  # no kind of message
        "0801",
        "0a02c328",  # a kind that is not UTF-8
    ],
)
def test_what_is_no_message_is_refused_in_one_way(sent: str) -> None:
    with pytest.raises(UsageError, match=r"\[flight-message\]"):
        unpack(bytes.fromhex(sent))
    with pytest.raises(UsageError, match=r"\[flight-message\]"):
        read_command(bytes.fromhex(sent))


def test_text_is_utf_8_and_a_kind_is_known() -> None:
    for sent in (packed("CommandStatementQuery", (1, b"\xc3\x28")), packed("Nothing", (1, "x"))):
        with pytest.raises(UsageError, match=r"\[flight-message\]"):
            read_command(sent)


def test_messages_are_bounded() -> None:
    longest = b"\x12\x00" * (MAX_MESSAGE_LENGTH // 2)
    assert decode("CommandGetCatalogs", longest).ByteSize() == MAX_MESSAGE_LENGTH
    for read in (unpack, lambda sent: decode("CommandGetCatalogs", sent)):
        with pytest.raises(UsageError, match=r"\[flight-message\]"):
            read(longest + b"\x12\x00")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(sent: bytes) -> None:
    for message in (sent, packed("CommandGetTables") + sent, written((1, TYPES + "CommandGetTables"), (2, sent))):
        with suppress(Refusal, UsageError):
            read_command(message)
