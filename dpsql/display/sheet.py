"""An answer as a table with bars, and facts as a table of two columns; long ones are cut, and say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.display.element import Html, element, plain, text
from dpsql.display.meter import Meter, meter_html
from dpsql.display.style import BAR, framed

__all__ = ["MOST_ROWS", "Bar", "Column", "Facts", "Sheet", "facts_html", "sheet_html"]

MOST_ROWS = 50
_MOST_COLUMNS = 24
_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Bar:
    """A released count and the interval around it, cut at 0; None for the ends where there is no interval."""

    count: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Column:
    """The name of a column, and whether its values are numbers, which stand to the right."""

    name: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Sheet:
    """What is shown, all of it released or public: `rows` are the first of `total`, spelled as text.

    `bars` has one for each row, or is empty; `level` is the probability of their intervals. `lead` is a note above the
    others that the reader should not miss, and may be empty. A cell has at most `longest` characters.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    total: int
    bars: Sequence[Bar | None] = ()
    level: float = 0.95
    longest: int = 200
    meters: Sequence[Meter] = ()
    lead: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Lines of name and value; a value may have several lines."""

    caption: str
    pairs: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()


def sheet_html(sheet: Sheet) -> str:
    """Return the table, what it cost under it, and what was cut."""
    columns = sheet.columns[:_MOST_COLUMNS]
    body = [_row(sheet, at) for at in range(min(len(sheet.rows), MOST_ROWS))]
    table = element(
        "table",
        {},
        element("caption", {}, text(sheet.caption)),
        element("thead", {}, element("tr", {}, *_heads(sheet, columns))),
        element("tbody", {}, *body),
    )
    lead = [element("p", {"class": "dpsql-lead"}, element("strong", {}, text(sheet.lead, 1000)))] if sheet.lead else []
    notes = [element("p", {}, text(note, 1000)) for note in (*_cut(sheet), *sheet.notes)]
    return framed(sheet.caption, table, *lead, *map(meter_html, sheet.meters), *notes)


def facts_html(facts: Facts) -> str:
    """Return the facts as a table whose rows are named by their first cell."""
    rows = (
        element(
            "tr",
            {},
            element("th", {"scope": "row"}, text(name)),
            element("td", {"class": "dpsql-fact"}, plain(value)),
        )
        for name, value in facts.pairs
    )
    caption = element("caption", {}, text(facts.caption))
    table = element("table", {}, caption, element("tbody", {}, *rows))
    return framed(facts.caption, table, *(element("p", {}, text(note, 1000)) for note in facts.notes))


def _cut(sheet: Sheet) -> Iterator[str]:
    if sheet.total > min(len(sheet.rows), MOST_ROWS):
        yield f"The first {min(len(sheet.rows), MOST_ROWS)} of {sheet.total:,} rows are shown; all of them are there."
    if len(sheet.columns) > _MOST_COLUMNS:
        yield f"The first {_MOST_COLUMNS} of {len(sheet.columns)} columns are shown; all of them are there."


def _heads(sheet: Sheet, columns: Sequence[Column]) -> Iterator[Html]:
    yield element("th", {"scope": "col", "class": "dpsql-number"}, text("#"))
    for column in columns:
        aligned = {"class": "dpsql-number"} if column.is_number else {}
        yield element("th", {"scope": "col", **aligned}, _isolated(column.name))
    if sheet.bars:
        if _has_intervals(sheet):
            yield element("th", {"scope": "col", "class": "dpsql-number"}, text(f"{100 * sheet.level:g} % interval"))
        yield element("td", {"aria-hidden": "true"})


def _row(sheet: Sheet, at: int) -> Html:
    cells = [
        element("td", {"class": "dpsql-number" if column.is_number else "dpsql-text"}, _isolated(value, sheet.longest))
        for column, value in zip(sheet.columns[:_MOST_COLUMNS], sheet.rows[at], strict=False)
    ]
    if sheet.bars:
        bar = sheet.bars[at]
        if _has_intervals(sheet):
            span = "" if bar is None or bar.low is None else f"{bar.low:,} \N{EN DASH} {bar.high:,}"
            cells.append(element("td", {"class": "dpsql-number"}, text(span)))
        drawn = Html("") if bar is None else _drawn(bar, _most(sheet))
        cells.append(element("td", {"class": "dpsql-bar", "aria-hidden": "true"}, drawn))
    return element("tr", {}, element("th", {"scope": "row", "class": "dpsql-number"}, text(str(at + 1))), *cells)


def _isolated(value: str, longest: int = 60) -> Html:
    """Return text whose direction of writing does not reach its neighbours."""
    return element("bdi", {}, text(value, longest))


def _has_intervals(sheet: Sheet) -> bool:
    return any(bar is not None and bar.high is not None for bar in sheet.bars)


def _most(sheet: Sheet) -> int:
    """Return the count at the right end of every bar."""
    return max((max(bar.count, bar.high or 0) for bar in sheet.bars if bar is not None), default=1)


def _drawn(bar: Bar, most: int) -> Html:
    """Return the bar up to the count, and a line with ends over its interval; the cells beside it say the same."""

    def place(count: int) -> str:
        return str(round(_WIDTH * max(0, min(count, most)) / max(1, most)))

    drawn = [element("rect", {"y": "2", "width": place(bar.count), "height": "10", "fill": BAR})]
    if bar.low is not None and bar.high is not None:
        low, high = place(bar.low), place(bar.high)
        for x1, y1, x2, y2 in ((low, 7, high, 7), (low, 4, low, 10), (high, 4, high, 10)):
            ends = {"x1": x1, "y1": str(y1), "x2": x2, "y2": str(y2)}
            drawn.append(element("line", {**ends, "stroke": "currentColor", "vector-effect": "non-scaling-stroke"}))
    frame = {"viewBox": f"0 0 {_WIDTH} 14", "preserveAspectRatio": "none", "width": "180", "height": "14"}
    return element("svg", frame, *drawn)
