"""Output of answers and plans: on the terminal, as CSV, as JSON and as an Arrow stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from dpsql.display import replace_controls, replace_unprintable, write_csv
from dpsql.errors import UsageError
from dpsql.report.tables import describe_plans

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsql.answer import Answer
    from dpsql.plan import Plan
    from dpsql.report import Balance

__all__ = ["check_output", "open_console", "write_answer", "write_json", "write_pairs", "write_plans"]

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
