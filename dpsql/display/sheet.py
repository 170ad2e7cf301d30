"""Answer as an HTML table with bars, and facts as a table of two columns; a note says what was cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.display.element import Html, element, plain, text
from dpsql.display.meter import Meter, meter_html
from dpsql.display.style import BAR, frame

__all__ = ["MAX_ROWS", "Bar", "Column", "Facts", "Sheet", "facts_html", "sheet_html"]

MAX_ROWS = 50
_MAX_COLUMNS = 24
_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Bar:
    """Released count with its interval, cut at 0; the ends are None without an interval."""

    count: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Column:
    """Name of a column, and whether it holds numbers, which are aligned to the right."""

    name: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Sheet:
    """Content of a table, all of it released or public: `rows` are the first of `total`, as text.

    `bars` has one bar for each row, or is empty. The meters and `details` are shown on demand. A cell has at most
    `longest` characters.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    total: int
    bars: Sequence[Bar | None] = ()
    longest: int = 200
    meters: Sequence[Meter] = ()
    notes: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Pairs of name and value; a value may have several lines."""

    caption: str
    pairs: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()


def sheet_html(sheet: Sheet) -> str:
    """Return the table as HTML, with its cost and a note on what was cut."""
    columns = sheet.columns[:_MAX_COLUMNS]
    body = [_make_row(sheet, at) for at in range(min(len(sheet.rows), MAX_ROWS))]
    table = element(
        "table",
        {},
        element("caption", {}, text(sheet.caption)),
        element("thead", {}, element("tr", {}, *_make_heads(sheet, columns))),
        element("tbody", {}, *body),
    )
    notes = [element("p", {}, text(note, 1000)) for note in (*_note_cuts(sheet), *sheet.notes)]
    return frame(sheet.caption, table, *notes, *_make_details(sheet))


def _make_details(sheet: Sheet) -> Iterator[Html]:
    """Yield the meters and the details of the cost, closed until somebody opens them."""
    if not sheet.details:
        yield from map(meter_html, sheet.meters)
        return
    body = _make_facts(sheet.details)
    summary = element("summary", {}, text("Details"))
    yield element("details", {}, summary, *map(meter_html, sheet.meters), element("table", {}, body))


def facts_html(facts: Facts) -> str:
    """Return the facts as a table whose rows are named by their first cell."""
    caption = element("caption", {}, text(facts.caption))
    table = element("table", {}, caption, _make_facts(facts.pairs))
    return frame(facts.caption, table, *(element("p", {}, text(note, 1000)) for note in facts.notes))


def _make_facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return a table body of two columns."""
    rows = (
        element(
            "tr",
            {},
            element("th", {"scope": "row"}, text(name)),
            element("td", {"class": "dpsql-fact"}, plain(value)),
        )
        for name, value in pairs
    )
    return element("tbody", {}, *rows)


def _note_cuts(sheet: Sheet) -> Iterator[str]:
    if sheet.total > min(len(sheet.rows), MAX_ROWS):
        yield f"The first {min(len(sheet.rows), MAX_ROWS)} of {sheet.total:,} rows are shown; the answer holds all."
    if len(sheet.columns) > _MAX_COLUMNS:
        yield f"The first {_MAX_COLUMNS} of {len(sheet.columns)} columns are shown; the answer holds all."


def _make_heads(sheet: Sheet, columns: Sequence[Column]) -> Iterator[Html]:
    yield element("th", {"scope": "col", "class": "dpsql-number"}, text("#"))
    for column in columns:
        aligned = {"class": "dpsql-number"} if column.is_number else {}
        yield element("th", {"scope": "col", **aligned}, _isolate(column.name))
    if sheet.bars:
        yield element("td", {"aria-hidden": "true"})


def _make_row(sheet: Sheet, at: int) -> Html:
    cells = [
        element("td", {"class": "dpsql-number" if column.is_number else "dpsql-text"}, _isolate(value, sheet.longest))
        for column, value in zip(sheet.columns[:_MAX_COLUMNS], sheet.rows[at], strict=False)
    ]
    if sheet.bars:
        bar = sheet.bars[at]
        drawn = Html("") if bar is None else _draw_bar(bar, _find_longest(sheet))
        cells.append(element("td", {"class": "dpsql-bar", "aria-hidden": "true"}, drawn))
    return element("tr", {}, element("th", {"scope": "row", "class": "dpsql-number"}, text(str(at + 1))), *cells)


def _isolate(value: str, longest: int = 60) -> Html:
    """Return text whose direction of writing does not affect its neighbours."""
    return element("bdi", {}, text(value, longest))


def _find_longest(sheet: Sheet) -> int:
    """Return the count at the right end of every bar."""
    return max((max(bar.count, bar.high or 0) for bar in sheet.bars if bar is not None), default=1)


def _draw_bar(bar: Bar, longest: int) -> Html:
    """Return the bar up to the count, and a line with ends over its interval; the cells beside it say the same."""

    def place(count: int) -> str:
        return str(round(_WIDTH * max(0, min(count, longest)) / max(1, longest)))

    drawn = [element("rect", {"y": "2", "width": place(bar.count), "height": "10", "fill": BAR})]
    if bar.low is not None and bar.high is not None:
        low, high = place(bar.low), place(bar.high)
        for x1, y1, x2, y2 in ((low, 7, high, 7), (low, 4, low, 10), (high, 4, high, 10)):
            ends = {"x1": x1, "y1": str(y1), "x2": x2, "y2": str(y2)}
            drawn.append(element("line", {**ends, "stroke": "currentColor", "vector-effect": "non-scaling-stroke"}))
    attributes = {"viewBox": f"0 0 {_WIDTH} 14", "preserveAspectRatio": "none", "width": "180", "height": "14"}
    return element("svg", attributes, *drawn)
