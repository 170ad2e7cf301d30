"""Output of answers, plans and budgets: on the terminal, as CSV, as JSON and as an Arrow stream; and a progress bar."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING

import click

from dpsql.accounting import format_percent
from dpsql.display import replace_controls, replace_unprintable, write_csv
from dpsql.display.text import cut
from dpsql.errors import UsageError
from dpsql.receipt import format_share
from dpsql.report.answer_json import encode_spending
from dpsql.report.balance import describe_outcome
from dpsql.report.forecast import describe_plans

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsql.accounting import Rise
    from dpsql.answer import Answer
    from dpsql.ledger import Entry
    from dpsql.plan import Plan
    from dpsql.report.balance import Balance, Spending
    from dpsql.session import Session

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
    details = []
    if detailed:
        pairs = answer.receipt.details()
        width = max(len(name) for name, _ in pairs)
        details = [f"  {name:{width}}  {value}" for name, value in pairs]
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
        from dpsql.report.answer_json import encode_answer

        write_json(encode_answer(answer))
        return
    _write_table(answer.arrow(), layout, quote_formulas=quote_formulas)
    click.echo("\n".join(map(replace_unprintable, [*answer.notes(), *details])), err=True)


def check_output(layout: str) -> None:
    """Refuse an Arrow stream on a terminal. Call this before the query, because a query is charged."""
    if layout == "arrow" and sys.stdout.isatty():
        raise UsageError(
            "terminal", "An Arrow stream cannot be shown on a terminal.", hint="Redirect it: > answer.arrow"
        )


def write_plans(
    plans: Sequence[Plan], balance: Balance, *, layout: str, consent: bool | None = None, is_verbose: bool = False
) -> None:
    """Write the plan of each private query of a statement, and how many such queries the budget still allows."""
    write_pairs(
        describe_plans(plans, balance, consent=consent, is_verbose=is_verbose), ("property", "value"), layout=layout
    )


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
    # An escape such as "\u001b" means the same in JSON, and no terminal obeys it.
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
        accounts = _format_accounts(spending, in_currencies=details)
        rises = None if details else spending.rises
        for line in (*accounts, *_format_queries(latest, len(spending.entries), rises=rises)):
            click.echo(line)
    elif layout == "json":
        write_json(encode_spending(spending, latest))
    else:
        balance = spending.balance
        rows = [*balance.table_rows(), *balance.tile_rows(), *balance.free_rows()]
        write_pairs(rows, _MEASURES, layout=layout)


def _format_accounts(spending: Spending, *, in_currencies: bool) -> list[str]:
    """Return a line for the total and for each account: a bar for each currency, or for that which is used most."""
    first, second = spending.balance.certificate.currencies
    rows = list[tuple[str, list[tuple[Fraction, Fraction, Fraction]], str]]()  # amounts spent, held and granted
    if spending.balance.analyst is None:
        both = (spending.balance.refunded, spending.balance.gone)
        rows.append((_TOTAL, [(part.spent, part.reserved, part.granted) for part in both], ""))
    for spender in spending.spenders:
        state, limit, parts, words = spender.state, spender.limit, [], "may run no query"
        if limit is not None:
            refundable = (state.spent, state.reserved, limit.refundable)
            parts = [refundable, (state.permanent, Fraction(0), limit.permanent)]
        elif in_currencies:
            spent, permanent, held = map(float, (state.spent, state.permanent, state.reserved))
            words += f"; spent {first} {spent:.6g}, {second} {permanent:.6g}, held {first} {held:.6g}"
        rows.append((_name(spender.name), parts, words))
    width = max(len(name) for name, _, _ in rows)
    head = "used    (\N{FULL BLOCK} spent, \N{DARK SHADE} held by queries that run or never ended)"
    if in_currencies:
        head = f"{first:{_BAR + 8}}{second}    (\N{FULL BLOCK} spent, \N{DARK SHADE} held)"
    lines = ["", f"{'account':{width}}  {head}"]
    for name, parts, words in rows:
        bars = [_draw_bar(spent, held, limit=granted) for spent, held, granted in parts]
        if parts and not in_currencies:
            solid = max(_find_share(spent, granted) for spent, _, granted in parts)
            used = max(_find_share(spent + held, granted) for spent, held, granted in parts)
            bars = [_draw_bar(solid, used - solid, limit=Fraction(1))]
        lines.append(f"{name:{width}}  {'  '.join(bars) or words}")
    return lines


def _find_share(amount: Fraction, limit: Fraction) -> Fraction:
    return amount / limit if limit else Fraction(amount > 0)


def _draw_bar(spent: Fraction, held: Fraction, *, limit: Fraction) -> str:
    """Return a bar with the used share of the limit, rounded up: it never shows more left than there is."""
    shares = [_find_share(part, limit) for part in (spent, spent + held)]
    solid, used = (min(_BAR, math.ceil(_BAR * share)) for share in shares)
    bar = "\N{FULL BLOCK}" * solid + "\N{DARK SHADE}" * (used - solid) + "\N{MIDDLE DOT}" * (_BAR - used)
    return f"{bar} {format_share(min(shares[1], Fraction(1))):>7}"


def _format_queries(latest: Sequence[Entry], count: int, *, rises: Mapping[int, Rise] | None) -> Iterator[str]:
    """Yield two lines for each query: its outcome and charge, as a rise of the used share if given; and its text."""
    if not latest:
        return
    width = max(len(_name(entry.account)) for entry in latest)
    yield ""
    yield f"the latest {len(latest)} of {count} queries, times in UTC"
    for entry in latest:
        held = "" if entry.settlement else "holds "
        charged = f"{held or entry.worst_case.certificate.currencies[0] + ' '}{float(entry.charged):.4g}"
        if rises is not None:
            used = format_percent(rises[entry.number].percent)
            charged = f"used {used}{' so far' if held else ''}"
        when = entry.opened_at.strftime("%Y-%m-%d %H:%M:%S")
        named = f"  of {', '.join(entry.values)}" if entry.values else ""
        yield f"{when}  {_name(entry.account):{width}}  {describe_outcome(entry):11}  {charged}{named}"
        yield f"    {cut(replace_unprintable(' '.join(entry.query.split())), _TEXT)}"


def _name(account: str | None) -> str:
    return _NOBODY if account is None else replace_unprintable(account)


INTERRUPTED = "Interrupted. A query that had begun to read is charged in full unless its answer is stored"
_FIRST = 1.0  # seconds without a bar: most queries end within them
_EACH = 0.2  # seconds between two updates


@contextmanager
def show_progress(session: Session) -> Iterator[None]:
    """Show the progress of `session` during the block and wipe it at the end; show nothing in a pipe.

    The query stays in the main thread, so that an interrupt reaches it, and another thread draws the bar on stderr. If
    the session reports no progress, the bar shows the elapsed seconds alone.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = Event()
    thread = Thread(target=_draw_progress, args=(session, done), name="dpsql-progress")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _draw_progress(session: Session, done: Event) -> None:
    if done.wait(_FIRST):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(),
        TextColumn("{task.fields[percent]}"),
        TimeElapsedColumn(),
        TextColumn("Ctrl-C: charged in full"),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=1 / _EACH,
    ) as bar:
        bar.console.show_cursor(True)  # a killed process cannot restore it
        task, share = bar.add_task("", total=None, percent=""), 0.0
        # The seconds before the bar appeared count, too.
        bar.tasks[task].start_time = bar.get_time() - _FIRST
        # This thread is no daemon: it would keep a process alive whose main thread has ended.
        while main_thread().is_alive():
            share = max(share, session.progress or 0.0)
            if share:
                bar.update(task, total=1.0, completed=share, percent=f"{share:4.0%}")
            if done.wait(_EACH):
                return
