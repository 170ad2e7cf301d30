"""Released table and its cost as a sheet: text cells, bars, and a meter for each currency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting import ZCDP, BudgetVector, Loss, Steps
from dpsql.display.meter import Meter, Part
from dpsql.display.sheet import Bar, Column, Sheet, sheet_html

__all__ = ["Cost", "Released", "released_html"]

_PRIVATE, _PUBLIC = 200, 2000  # characters of a cell


@dataclass(frozen=True, slots=True)
class Released:
    """First rows of an answer of `total` rows, column by column.

    `counts` are the positions of the columns of released counts, and `reach` is half the width of their 95 % intervals,
    of the first of them; None if they have no intervals.
    """

    columns: Sequence[Column]
    values: Sequence[Sequence[object]]
    total: int
    counts: Sequence[int]
    reach: int | float | None


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of an answer, as text and in the currencies of its certificate; without a loss it read no private row.

    `details` are pairs of name and value, shown on demand.

    `granted` is the grant of the account if it is known; without it there are no meters.
    """

    notes: Sequence[str]
    details: Sequence[tuple[str, str]]
    loss: Loss | None
    remaining: BudgetVector
    granted: BudgetVector | None


def released_html(released: Released, cost: Cost) -> str:
    """Return the answer as HTML."""
    rows = [
        [_format_value(value, grouped=at in released.counts) for at, value in enumerate(row)]
        for row in zip(*released.values, strict=True)
    ]
    return sheet_html(
        Sheet(
            caption="Answer" if cost.loss is None else "Private answer",
            columns=released.columns,
            rows=rows,
            total=released.total,
            longest=_PUBLIC if cost.loss is None else _PRIVATE,
            bars=[_make_bar(count, released.reach) for count in released.values[released.counts[0]]]
            if released.counts
            else (),
            meters=_make_meters(cost),
            notes=cost.notes,
            details=cost.details,
        )
    )


def _make_bar(count: object, reach: float | None) -> Bar | None:
    """Return the bar of a released count, in whole numbers; None for a row that an outer SELECT added."""
    if not isinstance(count, int | float | Decimal):
        return None
    value = round(count)
    if reach is None:
        return Bar(value, None, None)
    return Bar(value, max(0, value - math.ceil(reach)), max(0, value + math.ceil(reach)))


def _format_value(value: object, *, grouped: bool) -> str:
    if value is None:
        return "NULL"
    if grouped and isinstance(value, int | Decimal):
        return f"{value:,}"
    return f"{value:,.2f}" if grouped and isinstance(value, float) else str(value)


def _make_meters(cost: Cost) -> list[Meter]:
    """Return a meter for each currency of the account: already used, used by this answer, and left."""
    if cost.granted is None or cost.loss is None:
        return []
    currencies = cost.granted.certificate.currencies
    granted, left = ((amount.refundable, amount.permanent) for amount in (cost.granted, cost.remaining))
    took = _split_loss(cost.loss, currencies)
    return [
        Meter(
            name,
            granted[at],
            [
                Part("already used", max(Fraction(0), granted[at] - left[at] - took[at])),
                Part("this answer", took[at], now=True),
            ],
            left[at],
        )
        for at, name in enumerate(currencies)
    ]


def _split_loss(loss: Loss, currencies: tuple[str, str]) -> tuple[Fraction, Fraction]:
    """Return the amounts of both currencies that a loss uses."""
    delta = loss.delta.value
    if isinstance(loss, Steps):
        return Fraction(loss.items), Fraction(delta > 0) if "queries" in currencies else delta
    return (loss.rho.value if isinstance(loss, ZCDP) else loss.epsilon), delta
