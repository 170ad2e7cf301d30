"""What the guard measures of HTTP/2, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.server.flight.frames import LARGEST_MESSAGE, Frame, Hostile, Watchman

DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
LITERAL = b"\x00\x04name\x05value"


def watchman() -> Watchman:
    found = Watchman((b"name", b"value"))
    found.passed(Frame(HEADERS, END_HEADERS, 1, b"block"))
    return found


def message(content: bytes, compressed: int = 0) -> bytes:
    return bytes([compressed]) + len(content).to_bytes(4) + content


def test_a_header_is_written_behind_those_of_a_call() -> None:
    found = Watchman((b"name", b"value"))
    assert found.passed(Frame(HEADERS, END_HEADERS, 1, b"ab")) == Frame(HEADERS, END_HEADERS, 1, b"ab" + LITERAL).bytes
    split = Frame(HEADERS, END_STREAM, 3, b"cd")
    assert found.passed(split) == split.bytes
    last = found.passed(Frame(CONTINUATION, END_HEADERS, 3, b"ef"))
    assert last == Frame(CONTINUATION, END_HEADERS, 3, b"ef" + LITERAL).bytes


def test_frames_are_read_as_they_are_written() -> None:
    frame = Frame(DATA, END_STREAM, 7, b"abc")
    assert frame.bytes.hex() == "000003000100000007616263"
    assert Frame.headed(frame.bytes[:9], b"abc") == frame


@given(
    st.lists(st.binary(max_size=300).map(lambda content: b"x" + content.replace(b"\xfd", b"").replace(b"\x4d", b""))),
    st.lists(st.integers(1, 50), min_size=1),
)
def test_messages_pass_unchanged_in_any_pieces(contents: list[bytes], sizes: list[int]) -> None:
    found, sent = watchman(), b"".join(map(message, contents))
    at = turn = 0
    while at < len(sent):
        size = sizes[turn % len(sizes)]
        frame = Frame(DATA, 0, 1, sent[at : at + size])
        assert found.passed(frame) == frame.bytes
        at, turn = at + size, turn + 1
    assert found.under_way == 0


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize(
    "sent",
    [
        message(b"", compressed=1),
        b"\x00" + (LARGEST_MESSAGE + 1).to_bytes(4),
        message(b"ab") + b"\x00\xff\xff\xff\xff",
        message(b"x" * 20 + bytes.fromhex("28b52ffd") + b"y"),
        message(b"x" * 20 + bytes.fromhex("25b52ffd") + b"y"),
        message(b"x" * 20 + bytes.fromhex("04224d18") + b"y"),
    ],
)
def test_what_is_compressed_or_too_large_ends_the_connection(sent: bytes, pieces: int) -> None:
    found, step = watchman(), -(-len(sent) // pieces)
    with pytest.raises(Hostile):  # noqa: PT012 - in one of the pieces
        for at in range(0, len(sent), step):
            found.passed(Frame(DATA, 0, 1, sent[at : at + step]))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(DATA, PADDED, 1, b"\x00"),
        Frame(DATA, 0, 3, b"x"),  # of a call that did not begin
        Frame(HEADERS, END_HEADERS | PADDED, 3, b"\x00"),
        Frame(HEADERS, END_HEADERS, 1, b"again"),
        Frame(HEADERS, END_HEADERS, 0, b"of no call"),
        Frame(CONTINUATION, END_HEADERS, 1, b"of nothing"),
        Frame(HEADERS, END_HEADERS, 3, b"x" * 70_000),
    ],
)
def test_what_no_client_sends_ends_the_connection(frame: Frame) -> None:
    with pytest.raises(Hostile):
        watchman().passed(frame)


def test_nothing_stands_between_the_headers_of_a_call() -> None:
    for other in (Frame(SETTINGS, 0, 0, b""), Frame(CONTINUATION, END_HEADERS, 5, b"")):
        found = watchman()
        found.passed(Frame(HEADERS, 0, 3, b"begun"))
        with pytest.raises(Hostile):
            found.passed(other)


def test_many_messages_that_never_end_are_bounded() -> None:
    found, half = watchman(), b"\x00" + LARGEST_MESSAGE.to_bytes(4) + b"x" * (LARGEST_MESSAGE // 2)
    with pytest.raises(Hostile):  # noqa: PT012 - in one of the calls
        for number in range(3, 3 + 2 * 10, 2):
            found.passed(Frame(HEADERS, END_HEADERS, number, b""))
            found.passed(Frame(DATA, 0, number, half))


def test_calls_that_never_end_are_forgotten_and_send_nothing_more() -> None:
    found = watchman()
    for number in range(3, 3 + 2 * 600, 2):
        found.passed(Frame(HEADERS, END_HEADERS, number, b""))
    assert len(found._streams) <= 256
    with pytest.raises(Hostile):
        found.passed(Frame(DATA, 0, 1, b"x"))
