"""Displays of the magic other than answers: the history, the help, and an error as a box; each as HTML and text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

from IPython.display import publish_display_data

from dpsql.display import Facts, Message, Sheet, SheetColumn, box_html, facts_html, replace_unprintable, sheet_html
from dpsql.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

_LATEST = 20


@dataclass(frozen=True, slots=True)
class Listing:
    """Table of the ledger under a caption. The latest 20 rows are shown; `table` holds all."""

    caption: str
    table: pa.Table

    def _repr_html_(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST))
        columns = [
            SheetColumn(field.name, is_number=field.name.endswith(("charged", "reserved"))) for field in latest.schema
        ]
        rows = [[_format_cell(cell) for cell in row.values()] for row in latest.to_pylist()]
        left_out = self.table.num_rows - len(rows)
        notes = [f"{left_out} earlier rows are not shown."] if left_out else []
        return sheet_html(Sheet(self.caption, columns, rows, len(rows), longest=400, notes=notes))

    def __repr__(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST)).to_pylist()
        lines = (
            " | ".join(replace_unprintable(" ".join(_format_cell(cell).split())) for cell in row.values())
            for row in latest
        )
        return "\n".join([self.caption, " | ".join(self.table.column_names), *lines])


@dataclass(frozen=True, slots=True)
class Help:
    """List of the commands of the magic."""

    facts: Facts

    def _repr_html_(self) -> str:
        return facts_html(self.facts)

    def __repr__(self) -> str:
        return "\n".join([self.facts.caption, *(f"  {name:34} {value}" for name, value in self.facts.pairs)])


class Problem:
    """Error with the statement that caused it."""

    __slots__ = ("_message", "_text")

    def __init__(self, error: Error, statement: str) -> None:
        self._message = Message(error, statement)
        self._text = "\n".join(error._render_traceback_())

    def _repr_html_(self) -> str:
        return box_html(self._message)

    def __repr__(self) -> str:
        return self._text


def _format_cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    strftime = getattr(cell, "strftime", None)
    return str(strftime("%Y-%m-%d %H:%M:%S")) if callable(strftime) else " ".join(str(cell).split())


_FIRST = 1.0  # seconds without a display: most queries end within them
_EACH = 1.0  # seconds between two updates

Progress = Callable[[], float | None]


@contextmanager
def show_progress(progress: Progress, *, is_shown: bool) -> Iterator[None]:
    """Show elapsed seconds and `progress` during the block if `is_shown`, and wipe them at its end."""
    if not is_shown:
        yield
        return
    done = Event()
    # a display belongs to the running cell, which the kernel stores in the context
    thread = Thread(target=copy_context().run, args=(_update_display, progress, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _update_display(progress: Progress, done: Event) -> None:
    if done.wait(_FIRST):
        return
    place, seconds = f"dpsql-{id(done)}", _FIRST
    _publish(_format_progress(seconds, progress()), place, update=False)
    while not done.wait(_EACH):
        seconds += _EACH
        _publish(_format_progress(seconds, progress()), place, update=True)
    _publish("", place, update=True)


def _format_progress(seconds: float, share: float | None) -> str:
    percent = "" if share is None else f", {share:.0%} done"
    return f"running for {seconds:g} s{percent}; an interrupted private query is charged in full"


def _publish(text: str, place: str, *, update: bool) -> None:
    publish: Callable[..., None] = publish_display_data
    publish({"text/plain": text}, transient={"display_id": place}, update=update)
