"""How often the engine failed an account of late.

A failure is an answer that no noise was added to: whether a query runs out of memory or of time can depend on the rows
of one unit. It is charged in full, which bounds what all of them tell; this bounds how many there are in a day.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from dpsql.errors import Refusal

__all__ = ["FAILED", "Failures", "refuse_after"]

FAILED = "failed"  # what stands in place of the digest of an answer that the engine, or the release, failed to give
_DAY = timedelta(days=1)


class Failures:
    """The failures of one ledger, by account, in the order of their times."""

    __slots__ = ("_count", "_found")

    def __init__(self) -> None:
        self._count = 0
        self._found: dict[str | None, list[datetime]] = defaultdict(list)

    def take(self, found: Sequence[tuple[str | None, datetime]]) -> None:
        """Take account and time of those that were added to `found`, which only grows, since the last time."""
        for account, when in found[self._count :]:
            insort(self._found[account], when)
        self._count = len(found)

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
