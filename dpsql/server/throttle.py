"""How often somebody may try: passwords by name and address, statements by analyst; in a memory that is bounded.

Whoever fails waits twice as long each time. A name together with an address waits soonest, then an address, whatever
names it tries, and last a name, whatever address it is tried from; from an address from which a name has logged in, it
never waits for what others try elsewhere.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Throttle", "network_of"]

_MOST_REMEMBERED = 10_000
_FORGOTTEN_AFTER = 900.0  # seconds without a failure
_MINUTE = 60.0
_IPV6_NETWORK = 64  # bits
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Rule:
    """So many failures are free; then the wait is 1, 2, 4 ... seconds, up to the longest."""

    free: int
    longest: float


_PAIR, _ADDRESS, _NAME = _Rule(5, 300.0), _Rule(30, 300.0), _Rule(50, 10.0)


@dataclass(slots=True)
class _Failures:
    count: int
    until: float
    last: float


class Throttle:
    """Who may try now; threads may share it."""

    def __init__(self, statements_per_minute: int = 600, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = statements_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[Hashable, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._asked: OrderedDict[str, tuple[float, float]] = OrderedDict()  # statements that are left, and when

    def admit(self, name: str, address: str) -> bool:
        """Return whether a password may be looked at now; one that may not is not even computed."""
        now = self._clock()
        with self._lock:
            known = [self._failures.get(key) for key, _ in self._keys(name, network_of(address))]
            return all(found is None or found.until <= now for found in known)

    def failed(self, name: str, address: str) -> None:
        """Remember a password that was wrong."""
        now = self._clock()
        with self._lock:
            for key, rule in self._keys(name, network_of(address)):
                found = self._failures.pop(key, None)
                count = 1 if found is None or now - found.last > _FORGOTTEN_AFTER else found.count + 1
                over = count - rule.free
                wait = 0.0 if over <= 0 else min(rule.longest, 2.0 ** min(over - 1, 30))
                self._failures[key] = _Failures(count, now + wait, now)
            _forget(self._failures)

    def passed(self, name: str, address: str) -> None:
        """Remember that a name has logged in from an address, and forget what it got wrong there."""
        network = network_of(address)
        with self._lock:
            self._failures.pop((name, network), None)
            self._known.pop((name, network), None)
            self._known[name, network] = None
            _forget(self._known)

    def may_ask(self, name: str) -> bool:
        """Count a statement of an analyst, and return whether it is within those of a minute."""
        now = self._clock()
        with self._lock:
            left, since = self._asked.pop(name, (float(self._per_minute), now))
            left = min(float(self._per_minute), left + (now - since) * self._per_minute / _MINUTE)
            may = left >= 1.0
            self._asked[name] = left - may, now
            _forget(self._asked)
            return may

    def allow(self, statements_per_minute: int) -> None:
        """Allow another number of statements from now on, since the policy was read again."""
        with self._lock:
            self._per_minute = statements_per_minute
            self._asked.clear()

    def _keys(self, name: str, network: str) -> Iterator[tuple[Hashable, _Rule]]:
        yield (name, network), _PAIR
        yield ("address", "", network), _ADDRESS
        if (name, network) not in self._known:
            yield ("name", "", name), _NAME


def network_of(address: str) -> str:
    """Return what stands for everybody behind an address: of IPv6 the first half, since one host may have all of it."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known, _IPV6_NETWORK), strict=False))


def _forget(remembered: OrderedDict[Key, Value]) -> None:
    """Forget what is oldest; whoever makes many names up to be forgotten is remembered by the address."""
    while len(remembered) > _MOST_REMEMBERED:
        remembered.popitem(last=False)
