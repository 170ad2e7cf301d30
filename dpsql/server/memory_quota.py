"""Limits on the memory that clients make the server hold: for each user, and for all together.

Rows of the catalog are counted while they are read, before they take memory. Rows of the session are counted when they
arrive, as a private answer that was charged is never refused.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class MemoryQuota:
    """Bytes that are held for clients; threads may share it.

    `full` makes the error of what is beyond a limit. `given_back` is how many were given back since it was set to 0, or
    few less.
    """

    def __init__(self, max_bytes: int, max_bytes_of_user: int, *, full: Callable[[], Exception]) -> None:
        """Limit all users together, and each user."""
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
