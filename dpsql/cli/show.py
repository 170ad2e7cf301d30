"""Answers and plans on the terminal, as CSV, as JSON and as an Arrow stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dpsql.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dpsql.answer import Answer
    from dpsql.plan import Forecast, Plan

__all__ = ["bar_table", "check_output", "console", "write_answer", "write_json", "write_pairs", "write_plan"]

_BAR = 36
_UNBROKEN = 10_000  # characters a line: into a file or a pipe no label is folded


def console() -> Console:
    """Return the terminal; colours only where it shows them."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNBROKEN
    return Console(highlight=False, soft_wrap=True, width=width)


def write_answer(answer: Answer, layout: str) -> None:
    """Write the rows to stdout, and the receipt beside them."""
    if layout == "table":
        screen = console()
        screen.print(bar_table(answer))
        screen.print(str(answer.receipt), style="dim", markup=False)
        return
    if layout == "json":
        from dpsql.answer_json import plain_answer

        write_json(plain_answer(answer))
        return
    _write_table(_in_calendar(answer) if layout == "csv" else answer.arrow(), layout)
    click.echo(str(answer.receipt), err=True)


def check_output(layout: str) -> None:
    """Refuse what would garble a terminal; to be asked before anything is charged."""
    if layout == "arrow" and sys.stdout.isatty():
        raise UsageError("terminal", "An Arrow stream is not for a terminal.", hint="Redirect it: > answer.arrow")


def write_plan(plan: Plan, forecast: Forecast, *, layout: str) -> None:
    """Write a plan, and how many such queries the budget still buys."""
    write_pairs([*plan.facts(), *forecast.facts()], ("property", "value"), layout=layout)


def write_pairs(rows: Sequence[tuple[str | float, ...]], names: tuple[str, ...], *, layout: str) -> None:
    """Write rows under their names."""
    if layout == "table":
        width = max((len(str(name)) for name, *_ in rows), default=0)
        for name, *values in rows:
            click.echo(f"{name:{width}}  {'  '.join(map(str, values))}")
    elif layout == "json":
        write_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        import pyarrow as pa

        _write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), layout)


def write_json(body: object) -> None:
    """Write JSON in UTF-8, as its standard wants, whatever the terminal speaks."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json.dumps(body, ensure_ascii=False, indent=2).encode() + b"\n")
    sys.stdout.buffer.flush()


def _in_calendar(answer: Answer) -> pa.Table:
    """Return the table with dates outside Python's calendar as text; Arrow's CSV cannot spell them."""
    import pyarrow as pa

    table = answer.arrow()
    for position, values in enumerate(zip(*answer.fetchall(), strict=True)):
        field = table.schema.field(position)
        if pa.types.is_temporal(field.type) and any(isinstance(value, str) for value in values):
            spelled = [None if value is None else str(value) for value in values]
            table = table.set_column(position, field.name, pa.array(spelled, pa.string()))
    return table


def _write_table(table: pa.Table, layout: str) -> None:
    """Write a table to stdout as CSV or as an Arrow IPC stream."""
    import pyarrow as pa
    from pyarrow import csv

    check_output(layout)
    sys.stdout.flush()
    if layout == "csv":
        csv.write_csv(table, sys.stdout.buffer)
    else:
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
            stream.write_table(table)
    sys.stdout.buffer.flush()


@dataclass(frozen=True, slots=True)
class _Span:
    """The interval of a released count, cut at 0, and the reach of its noise, which is not."""

    low: int
    high: int
    reach: int


def bar_table(answer: Answer, level: float = 0.95) -> Table:
    """Return the answer as a table for the terminal; released counts come with a bar and an error bar."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    counts = () if answer.counts is None else answer.counts.columns
    spans = _spans(answer, level)
    table.add_column("#", justify="right", style="dim")
    for field in answer.arrow().schema:
        table.add_column(_safe(field.name), overflow="fold", justify="right" if _is_number(field.type) else "left")
    if answer.counts is not None:
        table.add_column(f"± at {level:.0%}", justify="right")
        table.add_column("", no_wrap=True)
    most = max((span.high for span in spans), default=1)
    for rank, row in enumerate(answer.fetchall(), start=1):
        cells = (f"{value:,}" if position in counts else _spelled(value) for position, value in enumerate(row))
        shown: list[str | Text] = [str(rank), *map(_safe, cells)]
        if spans:
            span = spans[rank - 1]
            shown += [f"± {span.reach:,}", _bar(span, most)]
        table.add_row(*shown)
    return table


def _spans(answer: Answer, level: float) -> list[_Span]:
    if answer.counts is None:
        return []
    reach = answer.counts.reach(level)
    released = answer.arrow().column(answer.counts.columns[0]).to_pylist()
    return [_Span(max(0, count - reach), max(0, count + reach), reach) for count in released]


def _bar(span: _Span, most: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one, at least one cell, over the interval."""
    ending = max(round(_BAR * span.high / max(1, most)), 1 if span.high else 0)
    solid = max(0, min(round(_BAR * span.low / max(1, most)), ending - 1))
    return "█" * solid + "░" * (ending - solid)


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _spelled(value: object) -> str:
    """Return a key's text; no separators in its digits, since it may be a year or a code."""
    return "NULL" if value is None else str(value)


def _safe(text: str) -> Text:
    """Return a cell that the terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    from dpsql.answer import printable

    return Text(printable(text))
