"""By how much each query of a ledger raised the used share of its budget, as their receipts said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from dpsql.accounting import (
    NO_RISE,
    BudgetState,
    BudgetVector,
    Rise,
    add_largest,
    add_worst_case,
    compute_used_share,
    fold_values,
    measure_rise,
)
from dpsql.ledger.record import Entry


@dataclass(slots=True)
class _Period:
    """What was charged in a period: to all units, and to units of each value in the present epoch."""

    common: BudgetState = field(default_factory=BudgetState)
    values: dict[str, BudgetState] = field(default_factory=dict)
    epoch: int = 0

    def begin_epoch(self, epoch: int, limit: BudgetVector) -> Rise:
        """Charge the most of a value to all units if an epoch ended; what is open for values is then spent."""
        if epoch == self.epoch or not self.values:
            self.epoch = max(epoch, self.epoch)
            return NO_RISE
        before = compute_used_share(add_largest(self.common, self.values.values()), limit)
        self.common = fold_values(self.common, self.values.values())
        self.values, self.epoch = {}, epoch
        return Rise.between(before, compute_used_share(self.common, limit))

    def charge(self, entry: Entry, limit: BudgetVector, *, settles: bool, by_value: bool) -> Rise:
        """Reserve or settle an entry, and return by how much that raised the used share."""
        change = partial(_settle if settles else _reserve, entry)
        states = self.values if by_value else None
        rise = measure_rise(limit, self.common, change=change, states=states, values=entry.values)
        if entry.values:
            self.values |= {value: change(self.values.get(value, BudgetState())) for value in entry.values}
        else:
            self.common = change(self.common)
        return rise


def _reserve(entry: Entry, state: BudgetState) -> BudgetState:
    return add_worst_case(state, entry.worst_case)


def _settle(entry: Entry, state: BudgetState) -> BudgetState:
    freed = entry.worst_case.permanent - entry.permanent
    reserved = state.reserved - entry.worst_case.refundable
    return replace(state, spent=state.spent + entry.charged, reserved=reserved, permanent=state.permanent - freed)


def trace_rises(entries: Iterable[Entry], limit: BudgetVector, *, account: str | None = None) -> Mapping[int, Rise]:
    """Return by how much each entry raised the used share of the total or of an account, by the entry's number.

    Shares are of the present `limit`: those of a period add up to its used share, also where less was granted before.
    An entry that repeats another one changed nothing in the end: it has no rise, and no other has one of it.
    """
    every = [entry for entry in entries if account in {None, entry.account}]
    known = [entry for entry in every if not _changes_nothing(entry)]
    events = [(entry.number, entry.epoch, entry, False) for entry in known]
    events += [(each.settlement.number, each.settlement.epoch, each, True) for each in known if each.settlement]
    by_value = any(entry.values for entry in known)
    rises = {entry.number: NO_RISE for entry in every}
    periods, open_ = dict[int, _Period](), dict[int, Entry]()

    def fold(entry: Entry, epoch: int) -> None:
        folded = periods[entry.period].begin_epoch(epoch, limit)
        if folded.share:  # only what was open for values raises the share when it is charged to all
            first = next(each for each in open_.values() if each.values and each.period == entry.period)
            rises[first.number] += folded

    for _, epoch, entry, settles in sorted(events, key=lambda event: event[0]):
        period = periods.setdefault(entry.period, _Period())
        fold(entry, epoch)
        was_folded = settles and entry.values and epoch != entry.epoch
        rise = NO_RISE if was_folded else period.charge(entry, limit, settles=settles, by_value=by_value)
        rises[entry.number] += rise
        if settles:
            del open_[entry.number]
        else:
            open_[entry.number] = entry
    for entry in open_.values():
        if entry.is_outdated:
            fold(entry, entry.epoch + 1)
    return rises


def _changes_nothing(entry: Entry) -> bool:
    """Return whether an entry repeats another one, and its reservation was not charged to all units in between."""
    repeats = entry.settlement is not None and entry.settlement.repeats is not None
    return repeats and not entry.charged and not entry.permanent
