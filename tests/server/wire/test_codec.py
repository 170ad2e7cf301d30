"""The codec beside another one: pygwire reads what it writes, and it reads what pygwire writes, but more strictly."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pygwire import messages

from dpsql.server.catalog.system_catalog import WireColumn, encode_rows
from dpsql.server.wire import codec

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.lists(st.none() | st.binary(max_size=20), max_size=5)
CODES = st.lists(st.sampled_from([0, 1]), max_size=5)
OIDS = st.lists(st.integers(0, 2**32 - 1), max_size=5)
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the table of characters is made first


def body(framed: bytes) -> memoryview:
    """Return what a message holds, whose length fits."""
    assert int.from_bytes(framed[1:5]) == len(framed) - 1
    return memoryview(framed)[5:]


@PATIENT
@given(TEXT, TEXT, OIDS)
def test_a_parse_is_read_as_it_was_meant(name: str, text: str, oids: list[int]) -> None:
    written = messages.Parse(name, text, oids).encode()
    assert codec.parse_message(b"P", written) == codec.ParseMessage(name, text, tuple(oids))
    assert codec.parse_message(b"Q", messages.Query(text).encode()) == codec.QueryMessage(text)


@PATIENT
@given(TEXT, TEXT, CODES, VALUES, CODES)
def test_a_bind_is_read_as_it_was_meant(
    portal: str, statement: str, formats: list[int], values: list[bytes | None], results: list[int]
) -> None:
    written = messages.Bind(portal, statement, formats, values, results).encode()
    expected = codec.BindMessage(portal, statement, tuple(formats), tuple(values), tuple(results))
    assert codec.parse_message(b"B", written) == expected


@given(VALUES)
def test_a_row_is_read_as_it_was_meant(values: list[bytes | None]) -> None:
    written = b"".join(encode_rows([values]).messages(0, 1))
    assert messages.DataRow.decode(body(written)).columns == values


@given(st.lists(st.tuples(TEXT, st.integers(0, 2**32 - 1), st.sampled_from([0, 1])), max_size=5))
def test_the_description_of_a_row_is_read_as_it_was_meant(columns: list[tuple[str, int, int]]) -> None:
    described = [WireColumn(name, oid, 8, -1) for name, oid, _ in columns]
    written = codec.row_description(described, [code for *_, code in columns])
    found = messages.RowDescription.decode(body(written)).fields
    assert [(field.name, field.type_oid, field.format_code) for field in found] == columns
    assert all((field.type_size, field.type_modifier) == (8, -1) for field in found)


@PATIENT
@given(TEXT.filter(bool))
def test_an_error_and_a_tag_are_read_as_they_were_meant(text: str) -> None:
    assert messages.ErrorResponse.decode(body(codec.fields_message(b"E", {"C": "42501", "M": text}))).fields == {
        "C": "42501",
        "M": text,
    }
    assert messages.CommandComplete.decode(body(codec.text_message(b"C", text))).tag == text


@pytest.mark.parametrize(
    ("kind", "peer", "hostile"),
    [
        (b"B", messages.Bind, b"\0\0" + struct.pack("!HHi", 0, 1, -6)),  # a value that leads back
        (b"B", messages.Bind, messages.Bind(param_values=[b"a"]).encode() + b"more"),
        (b"Q", messages.Query, b"SELECT 1\0; SELECT 2\0"),
        (b"P", messages.Parse, messages.Parse("", "SELECT 1").encode() + b"more"),
    ],
    ids=["a negative length", "more than a bind", "more than a query", "more than a parse"],
)
def test_what_does_not_fit_its_lengths_is_refused_here_and_guessed_at_there(
    kind: bytes, peer: type[messages.PGMessage], hostile: bytes
) -> None:
    """Why the wire has a codec of its own."""
    peer.decode(memoryview(hostile))
    with pytest.raises(codec.Malformed):
        codec.parse_message(kind, hostile)
