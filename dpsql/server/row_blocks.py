"""Rows encoded once as messages of PostgreSQL's protocol, in blocks of bytes, so that their size is what they hold."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

Values = Sequence[bytes | None]
PIECE = 64 * 1024  # bytes that are sent together
_FEW, _LARGE = 8, 1 << 20  # values of a row, and bytes of a value
_BLOCK = 256 * 1024  # bytes, after which the next block begins
_OF_BLOCK = 400  # bytes that Python needs for a block beside its data
_HEAD = struct.Struct("!ciH")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)
_COLUMN_SIZE = 160  # bytes that Python needs for a column beside its name
_LENGTHS = tuple(_LENGTH.pack(length) for length in range(1024))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class WireColumn:
    """Description of a column: its name, the OID of its type, and the size and modifier of the type."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1


def measure_columns(columns: Sequence[_Named]) -> int:
    """Return the bytes that descriptions of columns hold."""
    return sum(_COLUMN_SIZE + sys.getsizeof(column.name) for column in columns)


class RowBlocks:
    """Encoded rows, which can be read repeatedly, from any position; `size` is the number of bytes that they hold."""

    __slots__ = ("_blocks", "_starts", "size")

    def __init__(self, blocks: Sequence[tuple[bytes, array[int]]]) -> None:
        """Take blocks, each of its messages and the position in it behind each message."""
        self._blocks = tuple(blocks)
        self._starts = [0]
        for _, ends in self._blocks:
            self._starts.append(self._starts[-1] + len(ends))
        self.size = sum(_OF_BLOCK + len(data) + ends.itemsize * len(ends) for data, ends in self._blocks)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the values of each row."""
        return self.read(0, len(self))

    def read(self, start: int, stop: int) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the values of the rows from `start` up to `stop`."""
        for data, ends in self._find(start, stop):
            for first, last in pairwise(ends):
                yield _decode_row(data, start=first, stop=last)

    def messages(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`, in pieces of at most `PIECE` bytes."""
        for data, ends in self._find(start, stop):
            for at in range(ends[0], ends[-1], PIECE):
                yield data[at : min(at + PIECE, ends[-1])]

    def _find(self, start: int, stop: int) -> Iterator[tuple[bytes, array[int]]]:
        """Yield the blocks of rows, each with the positions between its rows, from the first start to the last end."""
        at = bisect_right(self._starts, start) - 1
        while start < stop:
            data, ends = self._blocks[at]
            first, last = start - self._starts[at], min(stop - self._starts[at], len(ends))
            yield data, array("I", [ends[first - 1] if first else 0]) + ends[first:last]
            at += 1
            start = self._starts[at]


class RowWriter:
    """Encoder of rows; `size` is the number of bytes that what it has encoded holds."""

    def __init__(self) -> None:
        self._blocks: list[tuple[bytes, array[int]]] = []
        self._data, self._ends = bytearray(), array("I")
        self._full_size = 0

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        return self._full_size + _OF_BLOCK + len(self._data) + self._ends.itemsize * len(self._ends)

    def add(self, row: Values) -> None:
        """Encode a row."""
        data = self._data
        start = len(data)
        data += _HEAD.pack(b"D", 0, len(row))
        if len(row) <= _FEW and any(len(value or b"") > _LARGE for value in row):  # it is not copied once more
            for part in _split_row(row):
                data += part
        else:
            data += b"".join(_split_row(row))
        _LENGTH.pack_into(data, start + 1, len(data) - start - 1)
        self._ends.append(len(data))
        if len(data) >= _BLOCK:
            self._end_block()

    def extend(self, messages: memoryview, ends: Sequence[int]) -> None:
        """Add messages of rows, and the position in them behind each."""
        if len(messages) >= _BLOCK:  # they are not copied once more
            if self._ends:
                self._end_block()
            self._full_size = self.size + len(messages) + self._ends.itemsize * len(ends)
            self._blocks.append((bytes(messages), array("I", ends)))
            return
        start = len(self._data)
        self._data += messages
        self._ends.extend(start + end for end in ends)
        if len(self._data) >= _BLOCK:
            self._end_block()

    def _end_block(self) -> None:
        self._full_size = self.size
        self._blocks.append((bytes(self._data), self._ends))
        self._data, self._ends = bytearray(), array("I")

    def finish(self) -> RowBlocks:
        """Return all rows."""
        if self._ends:
            self._end_block()
        return RowBlocks(self._blocks)


def encode_rows(rows: Iterable[Values]) -> RowBlocks:
    """Encode rows."""
    writer = RowWriter()
    for row in rows:
        writer.add(row)
    return writer.finish()


def encode_row(row: Values) -> bytes:
    """Return values behind their count, each behind its length; None is NULL."""
    return b"".join((struct.pack("!H", len(row)), *_split_row(row)))


def split_pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Yield messages in pieces of at most `PIECE` bytes, which together are the same."""
    for message in messages:
        if len(message) <= PIECE:
            yield message
        else:
            for at in range(0, len(message), PIECE):
                yield message[at : at + PIECE]


def _split_row(row: Values) -> Iterator[bytes]:
    """Yield the length of each value, and the value."""
    short = len(_LENGTHS)
    for value in row:
        if value is None:
            yield _NULL
        else:
            size = len(value)
            yield _LENGTHS[size] if size < short else _LENGTH.pack(size)
            yield value


def _decode_row(data: bytes, *, start: int, stop: int) -> tuple[bytes | None, ...]:
    """Return the values of the message from `start` up to `stop`."""
    values, at = list[bytes | None](), start + _HEAD.size
    while at < stop:
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        values.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    return tuple(values)
