"""Connections whose client has not logged in: so many of a surface, and of them a share for each address.

Silent clients must not lock out others, from other addresses or from their own. So a new connection always gets in, and
where there is no place for it the longest idle one of the address that has most is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dpsql.server.throttle import network_of

__all__ = ["Pending", "PendingConnections"]


class Pending:
    """One connection: where it comes from, how it is closed, and whether it is idle, so that it may be."""

    __slots__ = ("close", "has_spoken", "is_idle", "network")

    def __init__(self, address: str, close: Callable[[], None], *, is_idle: Callable[[], bool]) -> None:
        self.network = network_of(address)
        self.close = close
        self.is_idle = is_idle
        self.has_spoken = False


class PendingConnections:
    """The connections of one surface that are not a user's yet; used from the event loop alone.

    An address has at most half of the places. Where it has them all, or all are taken, an idle connection is closed:
    one whose client has sent nothing before one whose client has, and of these the oldest.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[Pending, None] = {}  # in the order of coming
        self._of_network = Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, address: str, close: Callable[[], None], *, is_idle: Callable[[], bool] = lambda: True) -> Pending:
        """Count a new connection, having closed another where there was no place; `close` may be called once."""
        added = Pending(address, close, is_idle=is_idle)
        if self._of_network[added.network] >= max(1, self._most // 2):
            self._close_one(added.network)
        elif len(self._open) >= self._most:
            self._close_one(*(name for name, _ in self._of_network.most_common()))
        self._open[added] = None
        self._of_network[added.network] += 1
        return added

    def remove(self, pending: Pending) -> None:
        """Count a connection no more: it has ended, or its client has logged in. Again is no harm."""
        if pending in self._open:
            del self._open[pending]
            self._of_network[pending.network] -= 1
            if not self._of_network[pending.network]:
                del self._of_network[pending.network]

    def _close_one(self, *networks: str) -> None:
        """Close an idle connection of the first of these networks that has one."""
        for network in networks:
            idle = [one for one in self._open if one.network == network and one.is_idle()]
            if idle:
                victim = min(idle, key=lambda one: one.has_spoken)  # the first of equals is the oldest
                self.remove(victim)
                victim.close()
                return
