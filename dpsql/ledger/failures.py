"""Queries that fail or are interrupted: what their error says of the charge, and how many an account may have in a day.

A ledger marks an error with how far the charge had come. The session adds the words, as it knows what came before and
after. An error without a mark charged nothing.

A failure of the engine is an answer without noise: whether a query runs out of memory or time can depend on the rows of
one unit. A failed query is charged in full, which bounds what all failures reveal. The limit bounds their number.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from functools import wraps
from typing import ParamSpec, TypeVar

from dpsql.accounting import NO_RISE, Rise, format_percent
from dpsql.errors import Error, LedgerError, Refusal

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def release_on_interrupt(act: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return the operation, which keeps no lock, turn or transaction alive once it was interrupted.

    An interrupt may arrive after a `with` was entered and before its block begins, or after the block and before the
    exit. The context then ends when its frame is freed, and a traceback, which a notebook stores, would keep the frame.
    """

    @wraps(act)
    def acting(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return act(*args, **kwargs)
        except KeyboardInterrupt as caught:
            interrupt = caught.with_traceback(None)
            interrupt.__context__ = None
        raise interrupt

    return acting


MAY_BE_CHARGED = "A private query may have been charged; EXPLAIN says for free whether its answer is stored."

RESERVING = "reserving"  # the reservation may be recorded
SETTLING = "settling"  # the reservation is recorded, and its settlement may be
STORED = "stored"  # the settlement is recorded, with the answer

_CLAIM = re.compile(r"[;.] nothing was charged\.?$", re.IGNORECASE)
_WORDS = {
    RESERVING: (
        "The query may have been charged in full; no row was read.",
        "SHOW BUDGET shows what is left; running it again is charged again.",
    ),
    SETTLING: (
        "The query is charged, in full unless its answer was stored.",
        "Run it again{how}: it is free if the answer was stored, and charged if not; EXPLAIN says which, for free.",
    ),
    STORED: ("The query was charged, and its answer is stored.", "Run it again{how}: it is free."),
}
_CLAIM_OF_HINT = "Nothing was charged. "
_IN_FULL = frozenset(["engine-failed", "release-failed"])  # whose own words say what is charged
_FOR_CURATORS = frozenset(["ledger-unconfirmed"])  # whose hint is on other acts than queries
_OWN_WORDS = frozenset(["wrapping-failed"])  # says itself that the answer is stored, and would fail again
_EARLIER = "What this statement asked before was charged, and is stored."


@contextmanager
def mark_charge(stage: str) -> Iterator[list[bool]]:
    """Mark an error of the body with a stage once the list that it gets is not empty."""
    begun = list[bool]()
    try:
        yield begun
    except Error as error:
        if begun and not error.charge and error.code not in _IN_FULL:
            error.charge = stage
        raise


class ChargeLog:
    """The charges of one statement, which may have several private queries."""

    __slots__ = ("answers", "is_complete", "is_fresh", "rises")

    def __init__(self) -> None:
        self.answers = 0  # that were charged and stored
        self.is_complete = False  # whether all are there
        self.is_fresh = False  # whether the query that runs has fresh = true
        self.rises: list[Rise] = []  # of the used share of the budget, by each query that was settled

    def describe(self, error: Error) -> None:
        """Say in the words of an error what was charged before it."""
        if self.answers and self.is_complete and not error.charge:
            error.charge = STORED
            if error.code in _OWN_WORDS:
                restate(error, f"{error.reason} {self._describe_sum()}".strip())
                return
        if not error.charge and not self.answers:
            if isinstance(error, LedgerError) and not _CLAIM.search(error.reason):
                restate(error, f"{error.reason} Nothing was charged.", hint=error.hint)
            return
        reason, hint = _CLAIM.sub(".", error.reason), error.hint.replace(_CLAIM_OF_HINT, "")
        if error.charge:
            words, advice = _WORDS[error.charge]
            reason = f"{reason} {words}"
            advice = advice.format(how=" without fresh = true" if self.is_fresh else "")
            hint = advice if error.code in _FOR_CURATORS else f"{advice} {hint}".strip()
        if self.answers:
            reason = f"{reason} {self._describe_sum(is_all=error.charge not in {RESERVING, SETTLING})}".strip()
        if self.answers and not self.is_complete:
            reason = f"{reason} {_EARLIER}"
            if error.code not in _IN_FULL:
                error.charge = error.charge or STORED
        restate(error, reason, hint=hint)

    def annotate(self, interrupt: BaseException) -> None:
        """Say in a note of an interrupt what the statement was charged before it."""
        if self.rises:
            interrupt.add_note(self._describe_sum())

    def _describe_sum(self, *, is_all: bool = True) -> str:
        """Return by how much all queries of the statement raised the used share, or those before the last one."""
        if not self.rises:
            return ""
        used = describe_charge(sum(self.rises, NO_RISE).percent)
        return f"In all this statement used {used}." if is_all else f"Before, this statement used {used}."


def restate(error: Error, reason: str, *, hint: str | None = None) -> None:
    """Put other words into an error."""
    error.reason, error.hint = reason, error.hint if hint is None else hint
    error.args = error.code, reason, hint, error.place


def describe_charge(percent: Decimal) -> str:
    """Return by how much a failure raised the used share of a budget."""
    return f"{format_percent(percent)}{'' if percent else ' more'} of the budget"


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
