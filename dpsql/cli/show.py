"""Output of answers and plans: on the terminal, as CSV, as JSON and as an Arrow stream."""

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

__all__ = ["bar_table", "check_output", "open_console", "write_answer", "write_json", "write_pairs", "write_plan"]

_BAR = 36
_UNBROKEN = 10_000  # characters a line: labels are not folded in a file or a pipe


def open_console() -> Console:
    """Return a console over stdout; it writes colours only to a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNBROKEN
    return Console(highlight=False, soft_wrap=True, width=width)


def write_answer(answer: Answer, layout: str, *, detailed: bool = False) -> None:
    """Write the rows to stdout; write the notes below a table, into JSON, and otherwise to stderr.

    A `detailed` answer has the details of its receipt below the notes.
    """
    notes = answer.notes()
    if detailed:
        width = max(len(name) for name, _ in answer.receipt.details())
        notes += [f"  {name:{width}}  {value}" for name, value in answer.receipt.details()]
    if layout == "table":
        screen = open_console()
        screen.print(bar_table(answer))
        screen.print("\n".join(notes), style="dim", markup=False)
        return
    if layout == "json":
        from dpsql.answer_json import encode_answer

        write_json(encode_answer(answer))
        return
    _write_table(_convert_out_of_range_dates(answer) if layout == "csv" else answer.arrow(), layout)
    click.echo("\n".join(notes), err=True)


def check_output(layout: str) -> None:
    """Refuse an Arrow stream on a terminal. Call this before the query, because a query is charged."""
    if layout == "arrow" and sys.stdout.isatty():
        raise UsageError(
            "terminal", "An Arrow stream cannot be shown on a terminal.", hint="Redirect it: > answer.arrow"
        )


def write_plan(plan: Plan, forecast: Forecast, *, layout: str) -> None:
    """Write a plan, and the number of such queries that the budget still allows."""
    write_pairs([*plan.facts(), *forecast.facts()], ("property", "value"), layout=layout)


def write_pairs(rows: Sequence[tuple[str | float, ...]], names: tuple[str, ...], *, layout: str) -> None:
    """Write rows with the names of their columns; a text table has no header."""
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
    """Write JSON in UTF-8, as its standard requires, independently of the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json.dumps(body, ensure_ascii=False, indent=2).encode() + b"\n")
    sys.stdout.buffer.flush()


def _convert_out_of_range_dates(answer: Answer) -> pa.Table:
    """Return the table with dates outside Python's calendar as text, because Arrow cannot write them as CSV."""
    import pyarrow as pa

    table = answer.arrow()
    for position, values in enumerate(zip(*answer.fetchall(), strict=True)):
        field = table.schema.field(position)
        if pa.types.is_temporal(field.type) and any(isinstance(value, str) for value in values):
            texts = [None if value is None else str(value) for value in values]
            table = table.set_column(position, field.name, pa.array(texts, pa.string()))
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
class _Interval:
    """Confidence interval of a released count, cut at 0."""

    low: int
    high: int


def bar_table(answer: Answer, level: float = 0.95) -> Table:
    """Return the answer as a table for the terminal; released counts have a bar with an error bar."""
    import pyarrow as pa
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    counts: Sequence[int] = ()
    half_width, intervals = 0, []
    if answer.counts is not None:
        counts, half_width = answer.counts.columns, answer.counts.reach(level)
        released = answer.arrow().column(counts[0]).to_pylist()
        intervals = [_Interval(max(0, count - half_width), max(0, count + half_width)) for count in released]
    table.add_column("#", justify="right", style="dim")
    for field in answer.arrow().schema:
        kind = field.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        table.add_column(_escape(field.name), overflow="fold", justify="right" if is_number else "left")
    if answer.counts is not None:
        table.add_column(f"± at {level:.0%}", justify="right")
        table.add_column("", no_wrap=True)
    longest = max((interval.high for interval in intervals), default=1)
    for rank, row in enumerate(answer.fetchall(), start=1):
        cells: list[str | Text] = [str(rank)]
        for position, value in enumerate(row):  # no separators in the digits of a key: it may be a year or a code
            text = f"{value:,}" if position in counts else "NULL" if value is None else str(value)
            cells.append(_escape(text))
        if intervals:
            cells += [f"± {half_width:,}", _draw_bar(intervals[rank - 1], longest)]
        table.add_row(*cells)
    return table


def _draw_bar(interval: _Interval, longest: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one, at least one cell, over the interval."""
    ending = max(round(_BAR * interval.high / max(1, longest)), 1 if interval.high else 0)
    solid = max(0, min(round(_BAR * interval.low / max(1, longest)), ending - 1))
    return "█" * solid + "░" * (ending - solid)


def _escape(text: str) -> Text:
    """Return a cell that the terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    from dpsql.answer import replace_unprintable

    return Text(replace_unprintable(text))
