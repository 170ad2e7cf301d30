"""`dpsql budget`: the balance, the use of every account, and the latest queries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from dpsql.answer import replace_unprintable
from dpsql.answer_json import encode_spending
from dpsql.cli.show import write_json, write_pairs
from dpsql.plan.report.tables import describe_outcome

if TYPE_CHECKING:
    from dpsql.ledger import Entry
    from dpsql.plan.report.spending import Spender, Spending

__all__ = ["write_spending"]

_BAR = 24
_TEXT = 96  # with its indent, 100 columns
_MEASURES = ("measure", "granted", "spent", "reserved", "remaining")
_TOTAL, _NOBODY = "(the total)", "(no name)"


def write_spending(spending: Spending, layout: str, *, last: int) -> None:
    """Write the spending and the `last` queries; write the balance alone as CSV or Arrow."""
    latest = spending.entries[len(spending.entries) - min(last, len(spending.entries)) :]
    if layout == "table":
        click.echo(str(spending.balance))
        click.echo("\n".join(spending.balance.details()))
        for line in (*_format_accounts(spending), *_format_queries(latest, len(spending.entries))):
            click.echo(line)
    elif layout == "json":
        write_json(encode_spending(spending, latest))
    else:
        write_pairs(spending.balance.rows(), _MEASURES, layout=layout)


def _format_accounts(spending: Spending) -> Iterator[str]:
    first, second = currencies = spending.balance.certificate.currencies
    bars = [(_name(spender.name), _format_use(spender, currencies)) for spender in spending.spenders]
    if spending.balance.analyst is None:
        total = spending.balance
        parts = (_draw_bar(part.spent, part.reserved, limit=part.granted) for part in (total.refunded, total.gone))
        bars.insert(0, (_TOTAL, "  ".join(parts)))
    width = max(len(name) for name, _ in bars)
    yield ""
    yield f"{'account':{width}}  {first:{_BAR + 8}}{second}    (\N{FULL BLOCK} spent, \N{DARK SHADE} held)"
    for name, bar in bars:
        yield f"{name:{width}}  {bar}"


def _format_use(spender: Spender, currencies: tuple[str, str]) -> str:
    """Return the bars of an account, one for each currency."""
    state, limit = spender.state, spender.limit
    if limit is None:
        first, second = currencies
        spent, permanent, reserved = map(float, (state.spent, state.permanent, state.reserved))
        used = f"spent {first} {spent:.6g}, {second} {permanent:.6g}, held {first} {reserved:.6g}"
        return f"may run no query; {used}"
    refundable = _draw_bar(state.spent, state.reserved, limit=limit.refundable)
    return f"{refundable}  {_draw_bar(state.permanent, Fraction(0), limit=limit.permanent)}"


def _draw_bar(spent: Fraction, held: Fraction, *, limit: Fraction) -> str:
    """Return a bar with the used share of the limit, rounded up: it never shows more left than there is."""
    shares = [part / limit if limit else Fraction(part > 0) for part in (spent, spent + held)]
    solid, used = (min(_BAR, math.ceil(_BAR * share)) for share in shares)
    bar = "\N{FULL BLOCK}" * solid + "\N{DARK SHADE}" * (used - solid) + "\N{MIDDLE DOT}" * (_BAR - used)
    return f"{bar} {math.ceil(100 * shares[1]):4}%"


def _format_queries(latest: Sequence[Entry], count: int) -> Iterator[str]:
    if not latest:
        return
    width = max(len(_name(entry.account)) for entry in latest)
    yield ""
    yield f"the latest {len(latest)} of {count} queries, times in UTC"
    for entry in latest:
        text = replace_unprintable(" ".join(entry.query.split()))
        amount = entry.worst_case.refundable if entry.settlement is None else entry.settlement.loss
        charged = (
            f"{'holds' if entry.settlement is None else entry.worst_case.certificate.currencies[0]} {float(amount):.4g}"
        )
        when = entry.opened_at.strftime("%Y-%m-%d %H:%M:%S")
        yield f"{when}  {_name(entry.account):{width}}  {describe_outcome(entry):11}  {charged}"
        yield "    " + (text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}\N{HORIZONTAL ELLIPSIS}")


def _name(account: str | None) -> str:
    return _NOBODY if account is None else replace_unprintable(account)
