"""What an error says of the charge for the query that it ends.

A ledger marks an error with how far the charge had come. The session adds the words, as it knows what came before and
after. An error without a mark charged nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dpsql.errors import Error, LedgerError

__all__ = ["MAY_BE_CHARGED", "RESERVING", "SETTLING", "STORED", "ChargeLog", "mark_charge"]

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

    __slots__ = ("answers", "is_complete", "is_fresh")

    def __init__(self) -> None:
        self.answers = 0  # that were charged and stored
        self.is_complete = False  # whether all are there
        self.is_fresh = False  # whether the query that runs has fresh = true

    def describe(self, error: Error) -> None:
        """Say in the words of an error what was charged before it."""
        if self.answers and self.is_complete and not error.charge:
            error.charge = STORED
            if error.code in _OWN_WORDS:
                return
        if not error.charge and not self.answers:
            if isinstance(error, LedgerError) and not _CLAIM.search(error.reason):
                _restate(error, f"{error.reason} Nothing was charged.", hint=error.hint)
            return
        reason, hint = _CLAIM.sub(".", error.reason), error.hint.replace(_CLAIM_OF_HINT, "")
        if error.charge:
            words, advice = _WORDS[error.charge]
            reason = f"{reason} {words}"
            advice = advice.format(how=" without fresh = true" if self.is_fresh else "")
            hint = advice if error.code in _FOR_CURATORS else f"{advice} {hint}".strip()
        if self.answers and not self.is_complete:
            reason = f"{reason} {_EARLIER}"
            if error.code not in _IN_FULL:
                error.charge = error.charge or STORED
        _restate(error, reason, hint=hint)


def _restate(error: Error, reason: str, *, hint: str) -> None:
    error.reason, error.hint = reason, hint
    error.args = error.code, reason, hint, error.place
