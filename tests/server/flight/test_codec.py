"""The fields of messages: golden bytes, round trips, and whatever bytes there are."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import Refusal, UsageError
from dpsql.server.flight.codec import Fields, packed, unpacked, written
from dpsql.server.flight.commands import Catalogs, Statement, Tables, TypeInfo, read_command, read_ticket

TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
WHOLE = st.integers(0, 2**64 - 1)
NUMBER = st.integers(1, 2**29 - 1)


@pytest.mark.parametrize(
    ("fields", "golden"),
    [
        (((1, 150),), "089601"),
        (((2, "testing"),), "120774657374696e67"),
        (((1, 0), (16, b"\x00")), "080082010100"),
        (((1, 2**64 - 1),), "08ffffffffffffffffff01"),
        ((), ""),
    ],
)
def test_fields_are_written_as_protobuf_has_them(
    fields: tuple[tuple[int, int | bytes | str], ...], golden: str
) -> None:
    assert written(*fields).hex() == golden


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
    assert read_command(packed("CommandGetXdbcTypeInfo", (1, 2**64 - 5))) == TypeInfo(-5)


def test_fields_that_are_not_known_are_passed_over() -> None:
    extended = packed("CommandStatementQuery", (1, "SELECT 1"), (2, b"transaction"), (77, 5), (78, b"more"))
    fixed = extended + bytes.fromhex("1d00000000") + bytes.fromhex("210000000000000000")
    assert read_command(fixed) == Statement("SELECT 1")


@given(st.lists(st.tuples(NUMBER, st.one_of(WHOLE, st.binary(max_size=50))), max_size=20))
def test_what_is_written_is_read(fields: list[tuple[int, int | bytes]]) -> None:
    found = Fields(written(*fields))
    for number, value in dict(fields).items():
        assert (found.whole(number) if isinstance(value, int) else found.raw(number)) == value
        parts = [part for other, part in fields if other == number and isinstance(part, bytes)]
        assert list(found.parts(number)) == parts


@given(st.lists(WHOLE, max_size=20))
def test_repeated_numbers_are_read_in_both_forms(values: list[int]) -> None:
    alone = written(*((1, value) for value in values))
    together = written((1, b"".join(written((1, value))[1:] for value in values)))
    assert Fields(alone).wholes(1) == Fields(together).wholes(1) == tuple(values)


@given(st.text(max_size=50), st.binary(max_size=50))
def test_a_ticket_holds_its_handle(text: str, handle: bytes) -> None:
    kind, fields = unpacked(read_ticket(handle))
    assert (kind, fields.raw(1)) == ("TicketStatementQuery", handle)
    assert unpacked(packed("Some", (1, text)))[1].text(1) == text


@pytest.mark.parametrize(
    "sent",
    [
        "08",  # a number that does not end
        "08ffffffffffffffffff02",  # of more than 64 bits
        "08ffffffffffffffffffff01",  # and of eleven bytes
        "1205aabb",  # bytes that are not all there
        "12ffffffffffffffffff01",  # or are more than any
        "0b",  # a group
        "0e00",  # no kind of field
        "0000",  # a field without a number
        "0a03666f6f",  # no kind of message
        "0801",
    ],
)
def test_what_is_no_message_is_refused_in_one_way(sent: str) -> None:
    with pytest.raises(UsageError, match=r"\[flight-message\]"):
        unpacked(bytes.fromhex(sent))


def test_messages_are_bounded() -> None:
    with pytest.raises(UsageError):
        Fields(b"\x12\x00" * 200_000)
    with pytest.raises(UsageError):
        Fields(b"\x12\x00" * 20_000)
    with pytest.raises(UsageError):
        Fields(written((1, b"\x01" * 20_000))).wholes(1)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(sent: bytes) -> None:
    for message in (sent, packed("CommandGetTables") + sent, written((1, TYPES + "CommandGetTables"), (2, sent))):
        with suppress(Refusal, UsageError):
            read_command(message)
