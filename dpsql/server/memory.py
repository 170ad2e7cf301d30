"""What clients make the server hold: limits for each user and for all together, caches, and rows as bytes.

Rows of the catalog are counted while they are read, before they take memory. Rows of the session are counted when they
arrive, as a private answer that was charged is never refused. Rows are encoded once, as messages of PostgreSQL's
protocol in blocks of bytes, so that their size is what they hold.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
import sys
import threading
from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")


class MemoryQuota:
    """Bytes that are held for clients; threads may share it.

    `full` makes the error of what is beyond a limit. `given_back` is how many were given back since it was set to 0, or
    few less.
    """

    def __init__(self, max_bytes: int, max_bytes_of_user: int, *, full: Callable[[], Exception]) -> None:
        self._max_bytes, self.max_bytes_of_user, self._full = max_bytes, max_bytes_of_user, full
        self._lock = threading.Lock()
        self._sizes = Counter[str]()
        self._total = self.given_back = 0
        self._returned = deque[tuple[str, int]]()

    def of_user(self, user: str) -> UserQuota:
        """Return the quota of a user."""
        return UserQuota(self, user)

    def take(self, user: str, size: int, *, is_forced: bool = False) -> None:
        """Count bytes for a user; raise beyond a limit unless `is_forced`."""
        with self._lock:
            self._settle()
            own, total = self._sizes[user] + size, self._total + size
            fits = own <= self.max_bytes_of_user and total <= self._max_bytes
            if fits or is_forced:
                self._sizes[user], self._total = own, total
                self.given_back -= min(size, 0)
        if not fits and not is_forced:
            raise self._full()

    def give_back(self, user: str, size: int) -> None:
        """Count bytes no longer. It takes no lock, as the garbage collector may call it anywhere."""
        self.given_back += size
        self._returned.append((user, size))

    def measure(self, user: str) -> int:
        """Return the bytes that are held for a user."""
        with self._lock:
            self._settle()
            return self._sizes[user]

    def _settle(self) -> None:
        while self._returned:
            user, size = self._returned.popleft()
            self._total -= size
            self._sizes[user] -= size
            if not self._sizes[user]:
                del self._sizes[user]


class UserQuota:
    """The quota of one user, over all connections."""

    def __init__(self, quota: MemoryQuota, user: str) -> None:
        self._quota, self._user = quota, user

    def check(self) -> None:
        """Raise if nothing more may be held."""
        self._quota.take(self._user, 0)

    @property
    def max_answer(self) -> int:
        """The most bytes of a free answer of the session, which has arrived before it can be counted."""
        return 2 * self._quota.max_bytes_of_user

    @property
    def has_room(self) -> bool:
        """Whether the user holds less than a quarter of the quota."""
        return self._quota.measure(self._user) < self._quota.max_bytes_of_user // 4

    def hold(self, size: int = 0, *, is_forced: bool = False) -> Holding:
        """Count bytes until the returned object is no longer referred to; raise beyond a limit unless `is_forced`."""
        holding = Holding(self._quota, self._user)
        holding.grow(size, is_forced=is_forced)
        return holding


class Holding:
    """Bytes that are counted for a user, for as long as something refers to this object."""

    __slots__ = ("_quota", "_user", "size")

    def __init__(self, quota: MemoryQuota, user: str) -> None:
        self._quota, self._user = quota, user
        self.size = 0

    def grow(self, size: int, *, is_forced: bool = False) -> None:
        """Count more bytes, or fewer if `size` is negative; raise beyond a limit unless `is_forced`."""
        self._quota.take(self._user, size, is_forced=is_forced or size < 0)
        self.size += size

    def resize(self, size: int, *, is_forced: bool = False) -> None:
        """Count `size` bytes from now on; raise beyond a limit unless `is_forced`."""
        self.grow(size - self.size, is_forced=is_forced)

    def __del__(self) -> None:
        self._quota.give_back(self._user, self.size)


class BoundedCache(Generic[Value]):
    """Values of at most `max_size` together; the one that was not used for longest is dropped first."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def find(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: Hashable, value: Value, *, size: int) -> None:
        """Add a value, unless it alone would take a quarter of all."""
        if size > self._max_size // 4:
            return
        with self._lock:
            former = self._values.pop(key, None)
            self._size += size - (former[1] if former is not None else 0)
            self._values[key] = value, size
            while self._size > self._max_size:
                _, (_, dropped) = self._values.popitem(last=False)
                self._size -= dropped


_PERIOD = 1.0  # seconds
_WORTHWHILE = 8 << 20  # bytes that were given back
_THRESHOLD, _LARGE = -3, 256 * 1024  # the option of glibc, and bytes of an allocation that is returned once it is freed


async def trim_memory(quota: MemoryQuota) -> None:
    """Return freed memory to the system, in a thread, whenever clients have given back much of it.

    The C library would keep much of it for later. Only glibc has these functions; elsewhere nothing is done.
    """
    try:
        library = ctypes.CDLL(None)
        trim = library.malloc_trim
        library.mallopt(_THRESHOLD, _LARGE)
    except (OSError, AttributeError, TypeError):
        return
    while True:
        await asyncio.sleep(_PERIOD)
        if quota.given_back >= _WORTHWHILE:
            quota.given_back = 0
            await asyncio.to_thread(trim, 0)


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
                values, at = list[bytes | None](), first + _HEAD.size
                while at < last:
                    (size,) = _LENGTH.unpack_from(data, at)
                    at += _LENGTH.size
                    values.append(None if size < 0 else data[at : at + size])
                    at += max(size, 0)
                yield tuple(values)

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
    """Encoder of rows."""

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
            for part in split_row(row):
                data += part
        else:
            data += b"".join(split_row(row))
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


def split_pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Yield messages in pieces of at most `PIECE` bytes, which together are the same."""
    for message in messages:
        for at in range(0, len(message), PIECE):
            yield message[at : at + PIECE]


def split_row(row: Values) -> Iterator[bytes]:
    """Yield the length of each value, and the value."""
    short = len(_LENGTHS)
    for value in row:
        if value is None:
            yield _NULL
        else:
            size = len(value)
            yield _LENGTHS[size] if size < short else _LENGTH.pack(size)
            yield value
