"""Connections whose client has not logged in, limited for each surface and each address.

Silent clients must not lock out others. A new connection is therefore always accepted; if there is no place for it, the
connection that has been idle longest, of the address with the most connections, is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dpsql.server.throttle import find_network

__all__ = ["Pending", "PendingConnections"]


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

    def _close_one(self, *networks: str) -> None:
        """Close an idle connection of the first network that has one."""
        for network in networks:
            idle = [one for one in self._open if one.network == network and one.is_idle()]
            if idle:
                victim = min(idle, key=lambda one: one.has_spoken)  # the first of equals is the oldest
                self.remove(victim)
                victim.close()
                return
