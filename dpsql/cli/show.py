"""Output of answers, plans and budgets: on the terminal, as CSV, as JSON and as an Arrow stream."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from dpsql.answer_json import encode_spending
from dpsql.display import replace_controls, replace_unprintable, write_csv
from dpsql.errors import UsageError
from dpsql.receipt import format_share
from dpsql.report.balance import describe_outcome
from dpsql.report.forecast import describe_plans

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsql.accounting import BudgetVector
    from dpsql.answer import Answer
    from dpsql.ledger import Entry
    from dpsql.plan import Plan
    from dpsql.report import Balance
    from dpsql.report.balance import Spender, Spending

_UNBROKEN = 10_000  # characters a line: labels are not folded in a file or a pipe


def open_console() -> Console:
    """Return a console over stdout; it writes colours only to a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNBROKEN
    return Console(highlight=False, soft_wrap=True, width=width)


def write_answer(answer: Answer, layout: str, *, detailed: bool = False, quote_formulas: bool = False) -> None:
    """Write the rows to stdout; write the notes below a table, into JSON, and otherwise to stderr.

    A `detailed` answer has the details of its receipt below the notes; `quote_formulas` is for CSV.
    """
    details = list(_format_details(answer)) if detailed else []
    if layout == "table":
        screen = open_console()
        with nullcontext() if sys.stdout.isatty() else screen.capture() as captured:
            screen.print(answer)
            if details:
                screen.print("\n".join(details), style="dim", markup=False)
        if captured is not None:  # without the blanks that fill the last column
            sys.stdout.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))
        return
    if layout == "json":
        from dpsql.answer_json import encode_answer

        write_json(encode_answer(answer))
        return
    _write_table(answer.arrow(), layout, quote_formulas=quote_formulas)
    click.echo("\n".join(map(replace_unprintable, [*answer.notes(), *details])), err=True)


def _format_details(answer: Answer) -> Iterator[str]:
    pairs = answer.receipt.details()
    width = max(len(name) for name, _ in pairs)
    return (f"  {name:{width}}  {value}" for name, value in pairs)


def check_output(layout: str) -> None:
    """Refuse an Arrow stream on a terminal. Call this before the query, because a query is charged."""
    if layout == "arrow" and sys.stdout.isatty():
        raise UsageError(
            "terminal", "An Arrow stream cannot be shown on a terminal.", hint="Redirect it: > answer.arrow"
        )


def write_plans(plans: Sequence[Plan], balance: Balance, *, layout: str) -> None:
    """Write the plan of each private query of a statement, and how many such queries the budget still allows."""
    write_pairs(describe_plans(plans, balance), ("property", "value"), layout=layout)


def write_pairs(
    rows: Sequence[tuple[str | float, ...]], names: tuple[str, ...], *, layout: str, quote_formulas: bool = False
) -> None:
    """Write rows with the names of their columns; a text table has no header."""
    if layout == "table":
        width = max((len(str(name)) for name, *_ in rows), default=0)
        for name, *values in rows:
            click.echo(replace_controls(f"{name:{width}}  {'  '.join(map(str, values))}"))
    elif layout == "json":
        write_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        import pyarrow as pa

        table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        _write_table(table, layout, quote_formulas=quote_formulas)


def write_json(body: object) -> None:
    """Write JSON in UTF-8, as its standard requires, independently of the locale."""
    sys.stdout.flush()
    text = json.dumps(body, ensure_ascii=False, indent=2)
    text = "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()


def _write_table(table: pa.Table, layout: str, *, quote_formulas: bool = False) -> None:
    """Write a table to stdout as CSV or as an Arrow IPC stream."""
    import pyarrow as pa

    check_output(layout)
    sys.stdout.flush()
    if layout == "csv":
        sys.stdout.buffer.write(write_csv(table, quote_formulas=quote_formulas).encode())
    else:
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
            stream.write_table(table)
    sys.stdout.buffer.flush()


_BAR = 24
_TEXT = 96  # with its indent, 100 columns
_MEASURES = ("measure", "granted", "spent", "reserved", "remaining")
_TOTAL, _NOBODY = "(the total)", "(no name)"


def write_spending(spending: Spending, layout: str, *, last: int, details: bool = False) -> None:
    """Write the spending and the `last` queries in shares of the budget, with `details` in currencies.

    As CSV or Arrow write the balance alone, in currencies.
    """
    latest = spending.entries[len(spending.entries) - min(last, len(spending.entries)) :]
    if layout == "table":
        click.echo(str(spending.balance))
        for line in spending.balance.details() if details else ():
            click.echo(line)
        accounts = (_format_currencies if details else _format_accounts)(spending)
        limit = None if details else spending.balance.limit
        for line in (*accounts, *_format_queries(latest, len(spending.entries), limit=limit)):
            click.echo(line)
    elif layout == "json":
        write_json(encode_spending(spending, latest))
    else:
        write_pairs(spending.balance.rows(), _MEASURES, layout=layout)


def _format_accounts(spending: Spending) -> Iterator[str]:
    """Yield a bar for the total and for each account: the share used of the currency of which more is used."""
    bars = []
    if spending.balance.analyst is None:
        parts = [
            (part.spent, part.reserved, part.granted) for part in (spending.balance.refunded, spending.balance.gone)
        ]
        bars.append((_TOTAL, _draw_share(parts)))
    for spender in spending.spenders:
        state, limit = spender.state, spender.limit
        bar = "may run no query"
        if limit is not None:
            refundable = (state.spent, state.reserved, limit.refundable)
            bar = _draw_share([refundable, (state.permanent, Fraction(0), limit.permanent)])
        bars.append((_name(spender.name), bar))
    width = max(len(name) for name, _ in bars)
    yield ""
    yield f"{'account':{width}}  used    (\N{FULL BLOCK} spent, \N{DARK SHADE} held by running queries)"
    for name, bar in bars:
        yield f"{name:{width}}  {bar}"


def _draw_share(parts: list[tuple[Fraction, Fraction, Fraction]]) -> str:
    """Return a bar for amounts in several currencies: spent, held and granted."""
    solid = max(_find_share(spent, granted) for spent, _, granted in parts)
    used = max(_find_share(spent + held, granted) for spent, held, granted in parts)
    return _draw_bar(solid, used - solid, limit=Fraction(1))


def _find_share(amount: Fraction, limit: Fraction) -> Fraction:
    return amount / limit if limit else Fraction(amount > 0)


def _format_currencies(spending: Spending) -> Iterator[str]:
    """Yield two bars for the total and for each account, one for each currency."""
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
    shares = [_find_share(part, limit) for part in (spent, spent + held)]
    solid, used = (min(_BAR, math.ceil(_BAR * share)) for share in shares)
    bar = "\N{FULL BLOCK}" * solid + "\N{DARK SHADE}" * (used - solid) + "\N{MIDDLE DOT}" * (_BAR - used)
    return f"{bar} {math.ceil(100 * shares[1]):4}%"


def _format_queries(latest: Sequence[Entry], count: int, *, limit: BudgetVector | None) -> Iterator[str]:
    """Yield two lines for each query: its outcome and charge, as a share of the `limit` if there is one; its text."""
    if not latest:
        return
    width = max(len(_name(entry.account)) for entry in latest)
    yield ""
    yield f"the latest {len(latest)} of {count} queries, times in UTC"
    for entry in latest:
        text = replace_unprintable(" ".join(entry.query.split()))
        charged = _format_charge(entry) if limit is None else _format_charge_share(entry, limit)
        when = entry.opened_at.strftime("%Y-%m-%d %H:%M:%S")
        named = f"  of {', '.join(entry.values)}" if entry.values else ""
        yield f"{when}  {_name(entry.account):{width}}  {describe_outcome(entry):11}  {charged}{named}"
        yield "    " + (text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}\N{HORIZONTAL ELLIPSIS}")


def _format_charge(entry: Entry) -> str:
    amount = entry.charged
    return f"{'holds' if entry.settlement is None else entry.worst_case.certificate.currencies[0]} {float(amount):.4g}"


def _format_charge_share(entry: Entry, limit: BudgetVector) -> str:
    amount = entry.worst_case
    if entry.settlement is not None:
        amount = replace(amount, refundable=entry.charged, permanent=entry.permanent)
    return f"{'holds' if entry.settlement is None else 'used'} {format_share(amount.share_of(limit))}"


def _name(account: str | None) -> str:
    return _NOBODY if account is None else replace_unprintable(account)
