"""Export of a ledger as events of Google's `dp_accounting`, for other privacy accountants."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import UsageError
from dpsql.ledger.record import Entry
from dpsql.quantities import Delta

if TYPE_CHECKING:
    from dp_accounting import ComposedDpEvent

__all__ = ["Spent", "dp_events"]


@dataclass(frozen=True, slots=True)
class Spent:
    """Spent budget: the events of all entries, and `delta`, the probability that a query fails, which they leave out.

    `dp_accounting` has no event for such a mechanism. If an accountant finds epsilon at some delta for `event`, the
    guarantee is epsilon at the sum of that delta and this one (`maths.md` 2.4).
    """

    event: ComposedDpEvent
    delta: Delta


def dp_events(entries: Iterable[Entry], *, value: str | None = None) -> Spent:
    """Return one zero-concentrated event for each of the `entries`: its loss, or its worst case if it is not settled.

    Take all entries of a ledger, or those of one `period` or `account`. Where each value of a column has a budget, all
    entries together are more than any unit loses; with `value` they are those that count units of this value, which is
    what a unit loses that has had it all the time. Needs the extra dpsql[dp-accounting]; raises `UsageError` without
    it, for entries of another certificate than zcdp, which have no rho, and for a value in entries of several epochs.
    """
    spent = list(entries)
    if value is not None and len({entry.epoch for entry in spent}) > 1:
        reason = "The data version or the policy changed between these entries, and units may not have the same value."
        raise UsageError("several-epochs", reason, hint="Take the entries of one epoch, or leave value out.")
    spent = [entry for entry in spent if value is None or not entry.values or value in entry.values]
    if any("rho" not in entry.worst_case.certificate.currencies for entry in spent):
        reason = "Only a ledger with the certificate zcdp records what an accountant of rho can add up."
        raise UsageError("wrong-certificate", reason, hint="The guarantee is the total of the ledger.")
    try:
        from dp_accounting import ComposedDpEvent, ZCDpEvent
    except ImportError:
        hint = "Install it: pip install 'dpsql[dp-accounting]'."
        failure = UsageError("not-installed", "The package dp-accounting is not installed.", hint=hint)
    else:
        events = [ZCDpEvent(_rounded_up(entry.charged)) for entry in spent]
        return Spent(ComposedDpEvent(events), Delta(sum((entry.permanent for entry in spent), Fraction(0))))
    raise failure


def _rounded_up(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
