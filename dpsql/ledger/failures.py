"""How often the engine failed an account of late.

A failure is an answer that no noise was added to: whether a query runs out of memory or of time can depend on the rows
of one unit. It is charged in full, which bounds what all of them tell; this bounds how many there are in a day.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Protocol

from dpsql.errors import Refusal
from dpsql.ledger.record import Event

__all__ = ["FAILED", "Failures", "refuse_after"]

FAILED = "failed"  # what stands in place of the digest of an answer that the engine, or the release, failed to give
_DAY = timedelta(days=1)


class Read(Protocol):
    """What is read of a book."""

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        ...

    def failed(self, after: int) -> Iterator[Event]:
        """Return the settlements after event number `after` whose query failed, oldest first."""
        ...

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        ...


class Failures:
    """The failures of one ledger, read on from where they were read last: no event is ever changed or taken away."""

    __slots__ = ("_found", "_last")

    def __init__(self, found: Iterable[tuple[str | None, datetime]] = (), *, last: int = 0) -> None:
        """Begin with those of the events up to number `last`: whose each was, and when."""
        self._last = last
        self._found: dict[str | None, list[datetime]] = defaultdict(list)
        for account, when in found:
            insort(self._found[account], when)

    def read_on(self, book: Read) -> None:
        """Read what was added; in a transaction that has written nothing yet, since what it writes may be undone."""
        last, _ = book.head()
        for event in book.failed(self._last):
            (asked,) = book.events(json.loads(event.body)["entry"] - 1, 1)
            insort(self._found[json.loads(asked.body)["account"]], datetime.fromisoformat(event.at))
        self._last = last

    def of_day(self, account: str | None, *, at: str) -> int:
        """Return how many queries of an account failed in the day before `at`, and, by a clock set back, after it."""
        since = datetime.fromisoformat(at) - _DAY
        found = self._found.get(account, [])
        return len(found) - bisect_right(found, since)


def refuse_after(most: int | None, failed: int) -> None:
    """Raise `Refusal` if so many queries have failed, or more; None stands for no end."""
    if most is not None and failed >= most:
        reason = f"The engine failed {failed} of this account's queries within a day, and the policy allows {most}."
        hint = (
            "Ask again a day after the last of them, or ask the curator about memory_limit and time_limit; "
            "stored answers are there."
        )
        raise Refusal("too-many-failures", reason, hint=hint)
