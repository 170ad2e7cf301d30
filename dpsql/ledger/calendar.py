"""When a ledger's periods begin: counted from one moment, and never backwards (`maths.md` 4.1).

A period that was begun stays begun. A clock that is set back finds it still running; one that is set forward opens a
later period early, and then nothing new is granted until real time has passed that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dpsql.accounting import Periods, describe_periods
from dpsql.errors import LedgerError

__all__ = ["Calendar", "Clock", "extended", "utc"]

Clock = Callable[[], datetime]


def utc() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The periods of a ledger, the moment of the first, and the number of the last one begun, from 0.

    `since` is the number of the event that began it: what was reserved before belongs to an earlier period.
    """

    periods: Periods
    began: datetime
    number: int = 0
    since: int = 0

    def __str__(self) -> str:
        most, next_begins = self.periods.most, f"{self.next_begins:%Y-%m-%d %H:%M:%S} UTC"
        if self.number == most:
            return "all periods are over"
        which = f"period {self.number + 1}" if most is None else f"period {self.number + 1} of {most}"
        last = most is not None and self.number + 1 == most
        return f"{which}, {'which is the last and ends' if last else 'the next begins'} {next_begins}"

    @property
    def is_over(self) -> bool:
        """Whether all periods have passed, so that nothing is granted any more."""
        return self.number == self.periods.most

    @property
    def next_begins(self) -> datetime:
        """The moment at which the present period ends."""
        try:
            return self.began + self.periods.length * (self.number + 1)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def reached(self, at: datetime) -> int:
        """Return the number of the period that a clock shows, as many as there are when all are over."""
        number = (at - self.began) // self.periods.length
        return number if self.periods.most is None else min(number, self.periods.most)

    def at(self, at: datetime) -> Calendar:
        """Return the calendar at the time of a clock; a period that has begun never becomes an earlier one."""
        return replace(self, number=max(self.number, self.reached(at)))

    def includes(self, entry: int) -> bool:
        """Say whether the reservation of this number was made in the present period."""
        return entry > self.since


def extended(calendar: Calendar | None, periods: Periods | None, *, at: datetime) -> Calendar | None:
    """Return the calendar that a grant makes: a new one from its time on, the same, or one of more periods.

    Raises `LedgerError` for other periods, or fewer.
    """
    if periods is None:
        return calendar
    if calendar is None:
        return Calendar(periods, at)
    old = calendar.periods
    fewer = periods.most is not None and (old.most is None or periods.most < old.most)
    if periods.length != old.length or fewer:
        raise LedgerError(
            "ledger-grant",
            f"The ledger grants its budget {describe_periods(old)}; a grant must have the same period, and no fewer.",
            hint="Grant the same period, and at least as many.",
        )
    return replace(calendar, periods=periods)
