"""A released table and what it cost, as a sheet: spelled, with bars, and with a meter for each currency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, Amount, Certificate, Loss, Steps
from dpsql.display.meter import Meter, Part
from dpsql.display.sheet import Bar, Column, Sheet, sheet_html

__all__ = ["Cost", "Released", "released_html"]

_PRIVATE, _PUBLIC = 200, 2000  # characters of a cell


@dataclass(frozen=True, slots=True)
class Released:
    """The first rows of an answer, column by column, of `total`.

    `counts` are the columns of released counts, by position, and `reach` the whole distance that their 95 % intervals
    go to either side; None where they have none.
    """

    columns: Sequence[Column]
    values: Sequence[Sequence[object]]
    total: int
    counts: Sequence[int]
    reach: int | None


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer cost, in words and in the currencies of its certificate; without a loss it read no private row.

    `granted` is what its account was granted, where that is known; nothing is metered otherwise.
    """

    words: str
    loss: Loss | None
    remaining: ZCDP | Amount
    granted: ZCDP | Amount | None
    certificate: Certificate
    replayed: bool


def released_html(released: Released, cost: Cost) -> str:
    """Return the answer as HTML."""
    rows = [
        [_spelled(value, grouped=at in released.counts) for at, value in enumerate(row)]
        for row in zip(*released.values, strict=True)
    ]
    return sheet_html(
        Sheet(
            caption="Answer" if cost.loss is None else "Private answer",
            columns=released.columns,
            rows=rows,
            total=released.total,
            longest=_PUBLIC if cost.loss is None else _PRIVATE,
            bars=[_bar(count, released.reach) for count in released.values[released.counts[0]]]
            if released.counts
            else (),
            meters=_meters(cost),
            lead="Answered before: nothing was charged." if cost.replayed else "",
            notes=[cost.words],
        )
    )


def _bar(count: object, reach: int | None) -> Bar | None:
    """Return the bar of a released count; none for a row that a SELECT around the private query added."""
    if not isinstance(count, int):
        return None
    return Bar(count, None, None) if reach is None else Bar(count, max(0, count - reach), max(0, count + reach))


def _spelled(value: object, *, grouped: bool) -> str:
    if value is None:
        return "NULL"
    return f"{value:,}" if grouped and isinstance(value, int) else str(value)


def _meters(cost: Cost) -> list[Meter]:
    """Return both currencies of the account: what had gone before, what this answer took, and what is left."""
    if cost.granted is None or cost.loss is None:
        return []
    granted, left, took = _pair(cost.granted), _pair(cost.remaining), _took(cost.loss, cost.certificate)
    return [
        Meter(
            name,
            granted[at],
            [
                Part("gone before", max(Fraction(0), granted[at] - left[at] - took[at])),
                Part("this answer", took[at], now=True),
            ],
            left[at],
        )
        for at, name in enumerate(cost.certificate.currencies)
    ]


def _pair(amount: ZCDP | Amount) -> tuple[Fraction, Fraction]:
    return (amount.refunded, amount.gone) if isinstance(amount, Amount) else (amount.rho.value, amount.delta.value)


def _took(loss: Loss, certificate: Certificate) -> tuple[Fraction, Fraction]:
    """Return what a loss took of both currencies."""
    delta = loss.delta.value
    if isinstance(loss, Steps):
        return Fraction(loss.items), Fraction(delta > 0) if "queries" in certificate.currencies else delta
    return (loss.rho.value if isinstance(loss, ZCDP) else loss.epsilon), delta
