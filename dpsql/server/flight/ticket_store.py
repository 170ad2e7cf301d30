"""Store for objects of a client between its calls, under random names and for a limited time.

A name is valid for its own user only. A user who stores too much loses their own oldest objects, and those of no other.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpsql.server.random_bytes import draw_text

__all__ = ["TicketStore"]

Value = TypeVar("Value")
_NAME_BYTES = 24


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    owner: str
    until: float
    value: Value


class TicketStore(Generic[Value]):
    """Values under random names, at most `most` of each owner and each for `seconds`; thread-safe.

    Names are looked up by their digests, so that the time of a lookup reveals nothing about existing names.
    """

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._entries: OrderedDict[bytes, _Entry[Value]] = OrderedDict()  # the oldest first: all live equally long
        self._owned: dict[str, OrderedDict[bytes, None]] = {}
        self._lock = threading.Lock()

    def put(self, owner: str, value: Value) -> bytes:
        """Keep a value for an owner and return its name."""
        name = draw_text(_NAME_BYTES).encode()
        with self._lock:
            self._forget_old()
            owned = self._owned.setdefault(owner, OrderedDict())
            while len(owned) >= self._most:
                self._forget(next(iter(owned)))
            owned = self._owned.setdefault(owner, owned)  # forgetting its last entry forgets an owner
            owned[_digest(name)] = None
            self._entries[_digest(name)] = _Entry(owner, self._clock() + self._seconds, value)
        return name

    def find(self, name: bytes) -> tuple[str, Value] | None:
        """Return the value of a name and its owner; None for an unknown or expired name."""
        with self._lock:
            entry = self._entries.get(_digest(name))
            return None if entry is None or entry.until < self._clock() else (entry.owner, entry.value)

    def get(self, owner: str, name: bytes) -> Value | None:
        """Return the value of a name; None also if it belongs to another owner."""
        found = self.find(name)
        return found[1] if found is not None and found[0] == owner else None

    def drop(self, owner: str, name: bytes) -> bool:
        """Remove the value of a name of this owner; return whether there was one."""
        with self._lock:
            entry = self._entries.get(_digest(name))
            if entry is None or entry.owner != owner:
                return False
            self._forget(_digest(name))
            return True

    def __len__(self) -> int:
        return len(self._entries)

    def _forget_old(self) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest].until >= now:
                return
            self._forget(oldest)

    def _forget(self, digest: bytes) -> None:
        owner = self._entries.pop(digest).owner
        owned = self._owned[owner]
        del owned[digest]
        if not owned:
            del self._owned[owner]


def _digest(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()
