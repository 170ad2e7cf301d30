"""Answers, plans and balances on the terminal, as CSV, as JSON and as an Arrow stream."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import typer

from dpsql.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dpsql.answer import Answer, Receipt
    from dpsql.plan import Balance, Plan

__all__ = ["bar_table", "console", "write_answer", "write_balance", "write_plan"]

_BAR = 36


def console() -> Console:
    """Return the terminal; colours only where it shows them."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def write_answer(answer: Answer, layout: str) -> None:
    """Write the rows to stdout, and the receipt beside them."""
    if layout == "table":
        screen = console()
        screen.print(bar_table(answer))
        screen.print(str(answer.receipt), style="dim", markup=False)
        return
    if layout == "json":
        columns, rows = answer.arrow().column_names, answer.fetchall()
        body = {
            "columns": columns,
            "rows": [list(map(_plain, row)) for row in rows],
            "receipt": _receipt(answer.receipt),
        }
        typer.echo(json.dumps(body, ensure_ascii=False, indent=2))
        return
    _write_table(answer.arrow(), layout)
    typer.echo(str(answer.receipt), err=True)


def write_plan(plan: Plan, layout: str) -> None:
    """Write a plan."""
    _write_pairs(plan.facts(), ("property", "value"), layout)


def write_balance(balance: Balance, layout: str) -> None:
    """Write a balance."""
    if layout == "table":
        typer.echo(str(balance))
        return
    _write_pairs(balance.rows(), ("measure", "granted", "spent", "reserved", "remaining"), layout)


def _write_pairs(rows: Sequence[tuple[str | float, ...]], names: tuple[str, ...], layout: str) -> None:
    if layout == "table":
        for name, *values in rows:
            typer.echo(f"{name:18} {'  '.join(map(str, values))}")
    elif layout == "json":
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], ensure_ascii=False, indent=2))
    else:
        import pyarrow as pa

        _write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), layout)


def _write_table(table: pa.Table, layout: str) -> None:
    """Write a table to stdout as CSV or as an Arrow IPC stream."""
    import pyarrow as pa
    from pyarrow import csv

    if layout == "arrow" and sys.stdout.isatty():
        raise UsageError("terminal", "An Arrow stream is not for a terminal.", hint="Redirect it: > answer.arrow")
    sys.stdout.flush()
    if layout == "csv":
        csv.write_csv(table, sys.stdout.buffer)
    else:
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
            stream.write_table(table)
    sys.stdout.buffer.flush()


def _plain(value: object) -> object:
    """Return a value that JSON has: dates and decimals as text, what is not finite as text."""
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _receipt(receipt: Receipt) -> dict[str, object]:
    return {
        "mechanism": receipt.mechanism,
        "k": receipt.k,
        "k_bar": receipt.k_bar,
        "epsilon": None if receipt.epsilon is None else float(receipt.epsilon),
        "delta": float(receipt.delta),
        "threshold_offset": float(receipt.threshold_offset),
        "items_charged": receipt.items_charged,
        "loss": {"rho": float(receipt.loss.rho), "delta": float(receipt.loss.delta)},
        "remaining": {"rho": float(receipt.remaining.rho), "delta": float(receipt.remaining.delta)},
        "stopped_at_bottom": receipt.stopped_at_bottom,
        "sealed": receipt.sealed,
        "replayed": receipt.replayed,
    }


@dataclass(frozen=True, slots=True)
class _Span:
    """A released count and its error bar."""

    count: int
    low: int
    high: int


def bar_table(answer: Answer, level: float = 0.95) -> Table:
    """Return the answer as a table for the terminal; released counts come with a bar and an error bar."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    spans = _spans(answer, level)
    table.add_column("#", justify="right", style="dim")
    for name in answer.arrow().column_names:
        table.add_column(_safe(name), overflow="fold")
    if spans:
        table.add_column(f"± at {level:.0%}", justify="right")
        table.add_column("", no_wrap=True)
    most = max((span.high for span in spans), default=1)
    for rank, row in enumerate(answer.fetchall(), start=1):
        shown: list[str | Text] = [str(rank), *(_safe("NULL" if value is None else str(value)) for value in row)]
        if spans:
            span = spans[rank - 1]
            shown += [f"± {span.high - span.count}", _bar(span, most)]
        table.add_row(*shown)
    return table


def _spans(answer: Answer, level: float) -> list[_Span]:
    counts = answer.counts
    if counts is None:
        return []
    intervals = answer.intervals(level)
    columns = answer.arrow().column(counts.names[0]), intervals.column("low"), intervals.column("high")
    return [_Span(*values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]


def _bar(span: _Span, most: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one over the interval itself."""
    solid, ending = (max(0, round(_BAR * end / max(1, most))) for end in (span.low, span.high))
    return "█" * solid + "░" * max(1, ending - solid)


def _safe(text: str) -> Text:
    """Return a cell that the terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    return Text("".join(char if char.isprintable() else "�" for char in text))
