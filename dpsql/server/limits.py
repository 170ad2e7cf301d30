"""Limits on clients: failed logins, statements a minute, connections before a login, and bytes that the server holds.

Each further failed login doubles the wait. A name together with an address waits after the fewest failures, then an
address with any names, then a name from any addresses. From an address where a name has logged in before, failures
elsewhere do not delay it. Silent clients must not lock out others: a new connection is always accepted, and where there
is no place for it, the one that has been idle longest, of the address with the most connections, is closed.

Rows of the catalog are counted while they are read, before they take memory. Rows of the session are counted when they
arrive, as a private answer that was charged is never refused.
"""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

_MAX_ENTRIES = 10_000
_FAILURES_EXPIRE = 900.0  # seconds without a failure
_MINUTE = 60.0
_IPV6_NETWORK = 64  # bits
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Rule:
    """Wait after failures: none for the first `free`, then 1, 2, 4 ... seconds, at most `max_wait`."""

    free: int
    max_wait: float


_PAIR, _ADDRESS, _NAME = _Rule(5, 300.0), _Rule(30, 300.0), _Rule(50, 10.0)


@dataclass(slots=True)
class _Failures:
    count: int
    until: float
    last: float


class Throttle:
    """Record of failed logins and of statements; threads may share it."""

    def __init__(self, statements_per_minute: int = 600, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = statements_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[Hashable, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._statements: OrderedDict[str, tuple[float, float]] = OrderedDict()  # statements left, and the time of that

    def admit(self, name: str, address: str) -> bool:
        """Return whether a login may be tried now; if not, its password is not even checked."""
        return self.count_seconds(name, address) == 0

    def count_seconds(self, name: str, address: str) -> int:
        """Return in how many whole seconds a login may be tried."""
        now = self._clock()
        with self._lock:
            failures = [self._failures.get(key) for key, _ in self._list_keys(name, find_network(address))]
            return max(0, *(math.ceil(found.until - now) for found in failures if found is not None), 0)

    def record_failure(self, name: str, address: str) -> None:
        """Record a failed login."""
        now = self._clock()
        with self._lock:
            for key, rule in self._list_keys(name, find_network(address)):
                # Popped and added again, so that the oldest failure stays first and is dropped first.
                found = self._failures.pop(key, None)
                count = 1 if found is None or now - found.last > _FAILURES_EXPIRE else found.count + 1
                over = count - rule.free
                # 2.0 ** 1024 would overflow.
                wait = 0.0 if over <= 0 else min(rule.max_wait, 2.0 ** min(over - 1, 30))
                self._failures[key] = _Failures(count, now + wait, now)
            _drop_oldest(self._failures)

    def record_login(self, name: str, address: str) -> None:
        """Record a login of a name from an address, and delete its failures there."""
        network = find_network(address)
        with self._lock:
            self._failures.pop((name, network), None)
            self._known.pop((name, network), None)
            self._known[name, network] = None
            _drop_oldest(self._known)

    def may_ask(self, name: str) -> bool:
        """Count a statement of an analyst, and return whether it is within the limit of a minute."""
        now = self._clock()
        with self._lock:
            left, since = self._statements.pop(name, (float(self._per_minute), now))
            # A token bucket: it fills by the limit in a minute, and each statement takes one.
            left = min(float(self._per_minute), left + (now - since) * self._per_minute / _MINUTE)
            is_allowed = left >= 1.0
            self._statements[name] = left - is_allowed, now
            _drop_oldest(self._statements)
            return is_allowed

    def set_limit(self, statements_per_minute: int) -> None:
        """Set another limit on statements, as the policy was reloaded."""
        with self._lock:
            self._per_minute = statements_per_minute
            self._statements.clear()

    def _list_keys(self, name: str, network: str) -> Iterator[tuple[Hashable, _Rule]]:
        yield (name, network), _PAIR
        yield ("address", "", network), _ADDRESS
        if (name, network) not in self._known:
            yield ("name", "", name), _NAME


def find_network(address: str) -> str:
    """Return the network of an address: of IPv6 its first 64 bits, as one host may have all addresses of it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, _IPV6_NETWORK), strict=False))


def _drop_oldest(entries: OrderedDict[Key, Value]) -> None:
    """Delete the oldest entries; a client that displaces them with invented names is still limited by its address."""
    while len(entries) > _MAX_ENTRIES:
        entries.popitem(last=False)


class Pending:
    """One connection: its network, the call that closes it, and whether it is idle and may be closed."""

    __slots__ = ("close", "has_spoken", "is_idle", "network")

    def __init__(self, address: str, close: Callable[[], None], *, is_idle: Callable[[], bool]) -> None:
        self.network = find_network(address)
        self.close = close
        self.is_idle = is_idle
        self.has_spoken = False


class PendingConnections:
    """The connections of one surface before their login; only the event loop uses it.

    One address has at most half of the places. When it has them all, or when all are taken, an idle connection is
    closed: one whose client has sent nothing before any other, and the oldest of equals.
    """

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._open: dict[Pending, None] = {}  # the oldest first
        self._of_network = Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, address: str, close: Callable[[], None], *, is_idle: Callable[[], bool] = lambda: True) -> Pending:
        """Add a new connection, and close another if there is no place; `close` is called at most once."""
        added = Pending(address, close, is_idle=is_idle)
        if self._of_network[added.network] >= max(1, self._max_count // 2):
            self._close_one(added.network)
        elif len(self._open) >= self._max_count:
            self._close_one(*(name for name, _ in self._of_network.most_common()))
        self._open[added] = None
        self._of_network[added.network] += 1
        return added

    def remove(self, pending: Pending) -> None:
        """Remove a connection that has ended or whose client has logged in; safe to repeat."""
        if pending in self._open:
            del self._open[pending]
            self._of_network[pending.network] -= 1
            if not self._of_network[pending.network]:
                del self._of_network[pending.network]

    def close_all(self) -> None:
        """Close every connection, as the surface does when it stops: none of them has a statement to end."""
        for one in list(self._open):
            self.remove(one)
            one.close()

    def _close_one(self, *networks: str) -> None:
        """Close an idle connection of the first network that has one."""
        for network in networks:
            idle = [one for one in self._open if one.network == network and one.is_idle()]
            if idle:
                victim = min(idle, key=lambda one: one.has_spoken)  # the first of equals is the oldest
                self.remove(victim)
                victim.close()
                return


Cached = TypeVar("Cached")


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
                # A negative size is what `Holding.grow` gives back.
                self.given_back -= min(size, 0)
        if not fits and not is_forced:
            raise self._full()

    def give_back(self, user: str, size: int) -> None:
        """Count bytes no longer. It takes no lock, as the garbage collector may call it anywhere."""
        self.given_back += size
        # Appending to a deque is atomic. With the lock, a collection within `take` would wait for its own thread.
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
        self._quota.take(self._user, size, is_forced=is_forced)
        return Holding(self._quota, self._user, size=size)


class Holding:
    """Bytes that are counted for a user, for as long as something refers to this object."""

    __slots__ = ("_quota", "_user", "size")

    def __init__(self, quota: MemoryQuota, user: str, *, size: int) -> None:
        self._quota, self._user, self.size = quota, user, size

    def grow(self, size: int, *, is_forced: bool = False) -> None:
        """Count more bytes, or fewer if `size` is negative; raise beyond a limit unless `is_forced`."""
        self._quota.take(self._user, size, is_forced=is_forced or size < 0)
        self.size += size

    def resize(self, size: int, *, is_forced: bool = False) -> None:
        """Count `size` bytes from now on; raise beyond a limit unless `is_forced`."""
        self.grow(size - self.size, is_forced=is_forced)

    def __del__(self) -> None:
        self._quota.give_back(self._user, self.size)


class BoundedCache(Generic[Cached]):
    """Values of at most `max_size` together; the one that was not used for longest is dropped first."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Cached, int]] = OrderedDict()

    def find(self, key: Hashable) -> Cached | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: Hashable, value: Cached, *, size: int) -> None:
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
_THRESHOLD, _RETURNED = (
    -3,
    256 * 1024,
)  # the option of glibc, and bytes of an allocation that is returned once it is freed


async def trim_memory(quota: MemoryQuota) -> None:
    """Return freed memory to the system, in a thread, whenever clients have given back much of it.

    The C library would keep much of it for later. Only glibc has these functions; elsewhere nothing is done.
    """
    try:
        library = ctypes.CDLL(None)
        trim = library.malloc_trim
        library.mallopt(_THRESHOLD, _RETURNED)
    except (OSError, AttributeError, TypeError):
        return
    while True:
        await asyncio.sleep(_PERIOD)
        if quota.given_back >= _WORTHWHILE:
            quota.given_back = 0
            await asyncio.to_thread(trim, 0)
