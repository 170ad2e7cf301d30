"""Recent failures of the engine, by account.

A failure is an answer without noise: whether a query runs out of memory or time can depend on the rows of one unit.
A failed query is charged in full, which bounds what all failures reveal. The limit here bounds their number in a day.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from dpsql.errors import Refusal

__all__ = ["FAILED", "Failures", "refuse_after"]

FAILED = "failed"  # digest of the outcome of a query that failed in the engine or in the release
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
    """Raise `Refusal` if at least `most` queries have failed; None means no limit."""
    if most is not None and failed >= most:
        reason = f"The engine failed {failed} of this account's queries within a day, and the policy allows {most}."
        hint = (
            "Ask again a day after the last of them, or ask the curator about memory_limit and time_limit; "
            "stored answers are there."
        )
        raise Refusal("too-many-failures", reason, hint=hint)
