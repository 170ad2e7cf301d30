"""HTML of notebooks and web pages: escaped elements, one style sheet, bars, tables of cells, and boxes of errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from string import Template
from typing import NewType

from dpsql.display.text import cut, replace_unprintable
from dpsql.errors import Error, Place

Html = NewType("Html", str)
_MAX_TEXT = 200  # characters of a cell; the answer holds the whole text
_EMPTY = frozenset(["line", "rect"])


def text(value: str, longest: int = _MAX_TEXT) -> Html:
    """Escape text of one line; make it printable, and cut it at `longest` characters."""
    return Html(escape(replace_unprintable(cut(value, longest)), quote=True))


def plain(value: str) -> Html:
    """Escape text of dpsql or of the analyst, such as a statement, without a cut and with its line breaks."""
    return Html("\n".join(escape(replace_unprintable(line.expandtabs(4)), quote=True) for line in value.split("\n")))


def element(name: str, attributes: Mapping[str, str], *content: Html) -> Html:
    """Return an element; the values of its attributes are escaped."""
    written = "".join(f' {key}="{text(value, len(value))}"' for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{written} />")
    return Html(f"<{name}{written}>{''.join(content)}</{name}>")


BAR = "#4c78a8"
ACCENT = "#c8621b"
# the class twice: notebooks style tables by rules that are more particular than one class
_STYLE = Html(
    Template("""<style>
$all { color: inherit; font-size: 13px; line-height: 1.4; max-width: 100%; overflow-x: auto; margin: 4px 0 }
$all table { border-collapse: collapse; border: 0; margin: 0; width: auto; table-layout: auto; font-size: 13px }
$all caption { caption-side: top; text-align: left; padding: 0 0 4px 0; color: inherit; font-weight: 600;
  white-space: nowrap }
$all tr { background: transparent; border: 0 }
$all th, $all td { padding: 2px 12px 2px 0; border: 0; text-align: left; vertical-align: top; color: inherit;
  white-space: nowrap; overflow: hidden }
$all td.dpsql-text { white-space: normal }
$all td.dpsql-text bdi { display: inline-block; max-width: 46em; overflow-wrap: break-word }
$all thead th { border-bottom: 1px solid $line; font-weight: 600; vertical-align: bottom }
$all tbody th { font-weight: 400; color: $quiet }
$all .dpsql-number { text-align: right; font-variant-numeric: tabular-nums }
$all .dpsql-bar svg { display: block; margin: 2px 0; width: 180px; height: 14px; overflow: visible }
$all .dpsql-meter { display: block; width: 300px; height: 10px; margin: 8px 0 0 0 }
$all .dpsql-swatch { display: inline-block; width: 9px; height: 9px; margin: 0 4px 0 0; vertical-align: baseline }
$all p { margin: 2px 0 0 0; color: $quiet; max-width: 70em }
$all details { margin: 4px 0 0 0; color: $quiet }
$all summary { cursor: pointer }
$all strong { color: inherit; font-weight: 600 }
$all .dpsql-lead { color: inherit }
$all td.dpsql-fact { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 60em }
$all pre { margin: 4px 0; padding: 4px 8px; background: $tint; color: inherit; overflow-x: auto;
  white-space: pre-wrap; font-size: 12px; font-family: var(--jp-code-font-family, monospace) }
$all mark { background: transparent; color: inherit; border-bottom: 2px solid $accent }
$all .dpsql-box { border-left: 4px solid $accent; padding: 2px 0 4px 10px }
$all .dpsql-box p { color: inherit }
</style>""").substitute(
        all=".dpsql-sheet.dpsql-sheet",
        accent=ACCENT,
        line="color-mix(in srgb, currentColor 22%, transparent)",
        tint="color-mix(in srgb, currentColor 7%, transparent)",
        quiet="var(--jp-ui-font-color2, var(--vscode-descriptionForeground, inherit))",
    )
)


def frame(label: str, *content: Html) -> Html:
    """Wrap content in an element with the style, and a label for screen readers."""
    return element("div", {"class": "dpsql-sheet", "role": "group", "aria-label": label}, _STYLE, *content)


def remove_style(html: str) -> str:
    """Remove the style from HTML of dpsql, for a page whose policy allows only style sheets from files."""
    return html.replace(_STYLE, "")


def style_sheet() -> str:
    """Return the style as the text of a style sheet."""
    return _STYLE.removeprefix("<style>").removesuffix("</style>")


_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """Used part of a budget, in the currency of its meter; `now` marks the latest charge."""

    words: str
    amount: Fraction
    now: bool = False


@dataclass(frozen=True, slots=True)
class Meter:
    """One currency of a budget: name, amount granted, parts used, and amount left. All of it is public."""

    name: str
    granted: Fraction
    parts: Sequence[Part]
    remaining: Fraction


def budget_html(
    caption: str,
    meters: Sequence[Meter],
    *,
    notes: Sequence[str],
    details: tuple[Sequence[Meter], Sequence[str]] = ((), ()),
) -> str:
    """Return meters under a caption, with notes below them, and other meters and notes behind "Details"."""
    title = element("p", {"class": "dpsql-lead"}, element("strong", {}, text(caption)))
    hidden = [*map(meter_html, details[0]), *_paragraphs(details[1])]
    folded = [element("details", {}, element("summary", {}, text("Details")), *hidden)] if hidden else []
    return frame("Budget", title, *map(meter_html, meters), *_paragraphs(notes), *folded)


def _paragraphs(notes: Sequence[str]) -> list[Html]:
    return [element("p", {}, text(note, 1000)) for note in notes]


def meter_html(meter: Meter) -> Html:
    """Return a bar with a text for screen readers and a legend; empty if nothing was granted."""
    if meter.granted <= 0:
        return Html("")
    start, bars, legend, spoken = 0, [_draw_rect(0, _WIDTH, fill="currentColor")], [], []
    for part in meter.parts:
        fill = ACCENT if part.now else BAR
        width = min(math.ceil(_WIDTH * part.amount / meter.granted), _WIDTH - start)
        if width > 0:  # what exceeds the grant is not drawn
            bars.append(_draw_rect(start, width, fill=fill))
            start += width
        if part.amount > 0:
            used = text(f"{part.words} {math.ceil(10_000 * part.amount / meter.granted) / 100:g} %")
            size = {"viewBox": "0 0 10 10", "width": "9", "height": "9"}
            swatch = {"class": "dpsql-swatch", **size, "aria-hidden": "true"}
            legend.append(Html(f"{element('svg', swatch, _draw_rect(0, 10, fill=fill))}{used}, "))
            spoken.append(used)
    left = text(f"{math.floor(10_000 * max(Fraction(0), meter.remaining / meter.granted)) / 100:g} % of it left")
    attributes = {"class": "dpsql-meter", "viewBox": f"0 0 {_WIDTH} 10", "preserveAspectRatio": "none"}
    attributes |= {"width": "300", "height": "10", "role": "img"}
    attributes["aria-label"] = f"{meter.name}: {', '.join([*spoken, left])}"
    bar = element("svg", attributes, *bars)
    return Html(f"{bar}{element('p', {}, Html(f'{text(meter.name)}: '), *legend, left)}")


def _draw_rect(start: int, width: int, *, fill: str) -> Html:
    opacity = {"fill-opacity": "0.13"} if fill == "currentColor" else {}
    return element("rect", {"x": str(start), "width": str(width), "height": "10", "fill": fill, **opacity})


MAX_ROWS = 50
_MAX_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Bar:
    """Released count with its interval, cut at 0; the ends are None without an interval."""

    count: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class SheetColumn:
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
    columns: Sequence[SheetColumn]
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
    """Return the table as HTML, with its cost, which is closed until it is opened, and a note on what was cut."""
    columns, rows = sheet.columns[:_MAX_COLUMNS], sheet.rows[:MAX_ROWS]
    heads = [element("th", {"scope": "col", "class": "dpsql-number"}, text("#"))]
    for column in columns:
        aligned = {"class": "dpsql-number"} if column.is_number else {}
        heads.append(element("th", {"scope": "col", **aligned}, _isolate(column.name)))
    heads += [element("td", {"aria-hidden": "true"})] if sheet.bars else []
    body = []
    longest = max((max(bar.count, bar.high or 0) for bar in sheet.bars if bar is not None), default=1)
    for at, row in enumerate(rows):
        cells = [element("th", {"scope": "row", "class": "dpsql-number"}, text(str(at + 1)))]
        for column, value in zip(columns, row, strict=False):
            kind = "dpsql-number" if column.is_number else "dpsql-text"
            cells.append(element("td", {"class": kind}, _isolate(value, sheet.longest)))
        if sheet.bars:
            bar = sheet.bars[at]
            drawn = Html("") if bar is None else _draw_bar(bar, longest)
            cells.append(element("td", {"class": "dpsql-bar", "aria-hidden": "true"}, drawn))
        body.append(element("tr", {}, *cells))
    caption, head = element("caption", {}, text(sheet.caption)), element("thead", {}, element("tr", {}, *heads))
    table = element("table", {}, caption, head, element("tbody", {}, *body))
    cuts = []
    if sheet.total > len(rows):
        cuts.append(f"The first {len(rows)} of {sheet.total:,} rows are shown; the answer holds all.")
    if len(sheet.columns) > _MAX_COLUMNS:
        cuts.append(f"The first {_MAX_COLUMNS} of {len(sheet.columns)} columns are shown; the answer holds all.")
    notes = [element("p", {}, text(note, 1000)) for note in (*cuts, *sheet.notes)]
    cost = list(map(meter_html, sheet.meters))
    if sheet.details:
        facts = element("table", {}, _make_facts(sheet.details))
        cost = [element("details", {}, element("summary", {}, text("Details")), *cost, facts)]
    return frame(sheet.caption, table, *notes, *cost)


def facts_html(facts: Facts) -> str:
    """Return the facts as a table whose rows are named by their first cell."""
    caption = element("caption", {}, text(facts.caption))
    table = element("table", {}, caption, _make_facts(facts.pairs))
    return frame(facts.caption, table, *(element("p", {}, text(note, 1000)) for note in facts.notes))


def _make_facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return a table body of two columns."""
    rows = []
    for name, value in pairs:
        cell = element("td", {"class": "dpsql-fact"}, plain(value))
        rows.append(element("tr", {}, element("th", {"scope": "row"}, text(name)), cell))
    return element("tbody", {}, *rows)


def _isolate(value: str, longest: int = 60) -> Html:
    """Return text whose direction of writing does not affect its neighbours."""
    return element("bdi", {}, text(value, longest))


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


_MAX_WIDTH = 160  # characters shown on either side of the fragment


@dataclass(frozen=True, slots=True)
class Message:
    """Error of dpsql with the statement that caused it, if known."""

    error: Error
    statement: str = ""


def box_html(message: Message) -> str:
    """Return the box as HTML; it holds only the text of the error and the statement of the analyst."""
    error = message.error
    kind, place = type(error).__name__, error.place
    lines = [element("p", {}, element("strong", {}, text(f"{kind}: {error.code}")))]
    lines.append(element("p", {}, text(error.reason, 1000)))
    marked = _mark_fragment(place, message.statement) if isinstance(place, Place) else None
    if isinstance(place, Place) and marked is not None:
        lines += [element("p", {}, text(f"At line {place.line}, column {place.column}:")), marked]
    elif place is not None:
        lines.append(element("p", {}, text(f"At {place}.")))
    if error.hint:
        lines.append(element("p", {}, element("strong", {}, text("Hint: ")), text(error.hint, 1000)))
    return frame(f"{kind} {error.code}", element("div", {"class": "dpsql-box", "role": "alert"}, *lines))


def _mark_fragment(place: Place, statement: str) -> Html | None:
    """Return the line of the statement with the fragment marked; None if the line does not contain it."""
    lines = statement.split("\n")
    if not 1 <= place.line <= len(lines):
        return None
    line, start = lines[place.line - 1], place.column - 1
    fragment = place.fragment.split("\n")[0]
    if not fragment or not line.startswith(fragment, start):
        return None
    before, after = line[:start], line[start + len(fragment) :]
    if len(before) > _MAX_WIDTH:
        before = f"\N{HORIZONTAL ELLIPSIS}{before[-_MAX_WIDTH:]}"
    return element("pre", {}, plain(before), element("mark", {}, text(fragment)), text(after, _MAX_WIDTH))


class NotebookRepr:
    """Value that a notebook shows as HTML, or as its `str` where HTML is not available."""

    __slots__ = ()

    @abstractmethod
    def _repr_html_(self) -> str:
        """Return the value as HTML."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the value as text and as HTML, for IPython."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}
