"""Values and names as text and HTML that no terminal or page obeys: nouns, numbers, CSV, tables, meters, errors."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from html import escape
from string import Template
from typing import TYPE_CHECKING, NewType

from dpsql.engines.arrow_types import spell_beyond_calendar
from dpsql.errors import Error, Place

if TYPE_CHECKING:
    import pyarrow as pa


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTROLS = re.compile(  # C0 and C1 but tab and line feed, and Unicode's separators and controls of direction
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_IDENTIFIER = re.compile(r"(?:_(?i:id|uid|uuid|guid|no|nr|number|key|hash)|(?<=[a-z])(?:Id|ID|No|Number|Key))$")
_PERSON = frozenset(["id", "uid", "uuid", "guid", "u"])
_LONGEST = 40  # characters of a name in a sentence


def replace_controls(text: str) -> str:
    """Replace control characters of `text` but tab and line feed, and all that change the direction of writing.

    For text of several lines and for data: letters, joiners and spaces of all scripts stay as they are.
    """
    return _CONTROLS.sub(_REPLACEMENT, text)


def replace_unprintable(text: str) -> str:
    """Replace every character of `text` that does not print, so that no terminal or page obeys it.

    These are control characters, characters that change the direction of writing, and characters without width.
    """
    return "".join(char if char.isprintable() else _REPLACEMENT for char in text)


def unit_noun(column: str) -> str:
    """Return what one value of a privacy unit's column stands for: user for user_id, device for deviceId."""
    return "user" if column.lower() in _PERSON else shorten(_IDENTIFIER.sub("", column) or column)


def key_noun(column: str) -> str:
    """Return what one value of a key is called: item for item_id, and the name itself for any other."""
    return shorten(_IDENTIFIER.sub("", column) or column)


def is_plural(noun: str) -> bool:
    """Say whether a noun is likely to be a plural: articles, n_loans; not class, status, analysis."""
    return re.search(r"[^sui]s$", noun.lower()) is not None


def plural(noun: str) -> str:
    """Return the plural of an English noun, which a plural is; of any other, the noun with an s."""
    if is_plural(noun):
        return noun
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search(r"(?:s|x|z|ch|sh)$", noun) else f"{noun}s"


def with_article(noun: str) -> str:
    """Return a noun with a or an."""
    return f"an {noun}" if noun.lower().startswith(("a", "e", "i", "o", "hour")) else f"a {noun}"


def shorten(name: str) -> str:
    """Return a name that may stand in a sentence: printable, and of at most 40 characters."""
    return replace_unprintable(cut(name, _LONGEST))


def cut(text: str, longest: int) -> str:
    """Return a text, the end of one that is longer than so many characters replaced by an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


Number = int | float | Decimal | Fraction
Ends = tuple[Number, Number] | None  # of the interval of a released value; None for NULL
_SIGNIFICANT = 2  # digits of half an interval
_SKEW = Fraction(5, 4)  # of the longer side of an interval to the shorter one, up to which one number stands for both
_NOISE = Fraction(1, 10**6)  # of the last digit: what a DOUBLE is beyond a decimal number makes no further one
_MOST_DIGITS = 6  # of a DOUBLE without an interval


def format_value(value: object) -> str:
    """Return a value as one line of text: NULL as the bare word, and a text that reads like it in quotes, as in SQL."""
    if value is None:
        return "NULL"
    text = replace_unprintable(str(value))
    if isinstance(value, str) and text.strip("' ") == "NULL":
        return "'" + text.replace("'", "''") + "'"
    return text


def format_date(value: object) -> str:
    """Return a key that is worked out from a date; NULL is the group of rows that have none."""
    return "(no date)" if value is None else format_value(value)


def format_number(value: object, *, grouped: bool) -> str:
    """Return a number without an interval; where it is `grouped`, with separators, and a DOUBLE with 6 digits."""
    if not grouped or not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return format_value(value)
    if not isinstance(value, float):
        return f"{value:,}"
    if not value or not math.isfinite(value):
        return str(value)
    digits = _MOST_DIGITS - 1 - math.floor(math.log10(abs(value)))
    if digits > 2 * _MOST_DIGITS:
        return f"{value:.{_MOST_DIGITS}g}"
    return _write(Fraction(value), max(0, digits), grouped=True)


def format_released(value: object, ends: Ends, *, grouped: bool = False) -> tuple[str, str]:
    """Return a released number and half of the width of its interval, such as 828, ± 41 or 25.13, ± 0.16.

    It has as many decimals as two digits of that half have, and no digit before the point is left out. Half the width
    is rounded up, so that the interval is always within what is shown. Where one side is much longer than the other
    the ends are shown: 3.1, (0.0 to 9.4). Without an interval nothing is behind it.
    """
    if ends is None or not isinstance(value, int | float | Decimal) or not all(map(math.isfinite, (value, *ends))):
        return format_number(value, grouped=grouped), ""
    exact, low, high = (Fraction(each) for each in (value, *ends))
    half = max(high - exact, exact - low)
    digits = _SIGNIFICANT - 1 - math.floor(math.log10(half)) if half > 0 else _SIGNIFICANT
    if not isinstance(value, float):  # a whole number or a DECIMAL shows no decimals that it does not have
        digits = min(digits, 0 if isinstance(value, int) else -int(value.as_tuple().exponent))
    digits = max(0, digits)
    unit = Fraction(1, 10**digits)
    shown = round(exact / unit) * unit
    # From the number that is shown, which was rounded, so that the shown interval contains the true one.
    sides = [math.ceil(side / unit - _NOISE) * unit for side in (shown - low, high - shown)]
    text = _write(shown, digits, grouped=grouped)
    if max(sides) <= max(_SKEW * min(sides), min(sides) + unit):
        return text, f"± {_write(max(sides), digits, grouped=grouped)}"
    least, most = (_write(end, digits, grouped=grouped) for end in (shown - sides[0], shown + sides[1]))
    return text, f"({least} to {most})"


def _write(value: Fraction, digits: int, *, grouped: bool) -> str:
    """Return a number with so many decimals, to the nearest."""
    whole, part = divmod(abs(round(value * 10**digits)), 10**digits)
    written = f"{whole:,}" if grouped else str(whole)
    written += f".{part:0{digits}}" if digits else ""
    # -0.004 with two decimals is 0.00, not -0.00.
    return f"-{written}" if value < 0 and (whole or part) else written


# Beginnings of a formula, also in the wide signs of East Asian keyboards, and after signs that some locales split at.
_FORMULA = re.compile("(?:\\A|(?<=[;\t\n]))(?=[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")


def write_csv(table: pa.Table, *, quote_formulas: bool = False) -> str:
    """Return a table as CSV with a header: text in double quotes, NULL as an empty field.

    Control characters are replaced, as `replace_controls` says. With `quote_formulas` an apostrophe is put before each
    text, and each name of a column, that a spreadsheet would compute.
    """
    import pyarrow as pa
    from pyarrow import csv

    table = spell_beyond_calendar(table)
    if quote_formulas:
        for at, field in enumerate(table.schema):
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                values = [None if value is None else _FORMULA.sub("'", value) for value in table.column(at).to_pylist()]
                table = table.set_column(at, field.name, pa.array(values, field.type))
        table = table.rename_columns([_FORMULA.sub("'", name) for name in table.column_names])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return replace_controls(bytes(sink.getvalue()).decode())


Html = NewType("Html", str)
_MAX_TEXT = 200  # characters of a cell; the answer holds the whole text
_EMPTY = frozenset(["line", "rect"])


def escape_line(value: str, longest: int = _MAX_TEXT) -> Html:
    """Escape text of one line; make it printable, and cut it at `longest` characters."""
    return Html(escape(replace_unprintable(cut(value, longest)), quote=True))


def plain(value: str) -> Html:
    """Escape text of dpsql or of the analyst, such as a statement, without a cut and with its line breaks."""
    return Html("\n".join(escape(replace_unprintable(line.expandtabs(4)), quote=True) for line in value.split("\n")))


def element(name: str, attributes: Mapping[str, str], *content: Html) -> Html:
    """Return an element; the values of its attributes are escaped."""
    written = "".join(f' {key}="{escape_line(value, len(value))}"' for key, value in attributes.items())
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
    title = element("p", {"class": "dpsql-lead"}, element("strong", {}, escape_line(caption)))
    hidden = [*map(meter_html, details[0]), *_paragraphs(details[1])]
    folded = [element("details", {}, element("summary", {}, escape_line("Details")), *hidden)] if hidden else []
    return frame("Budget", title, *map(meter_html, meters), *_paragraphs(notes), *folded)


def _paragraphs(notes: Sequence[str]) -> list[Html]:
    return [element("p", {}, escape_line(note, 1000)) for note in notes]


def meter_html(meter: Meter) -> Html:
    """Return a bar with a text for screen readers and a legend; empty if nothing was granted."""
    if meter.granted <= 0:
        return Html("")
    start, bars, legend, spoken = 0, [_draw_rect(0, _WIDTH, fill="currentColor")], [], []
    for part in meter.parts:
        fill = ACCENT if part.now else BAR
        # Used parts are rounded up, and what is left is rounded down: a meter never shows less use than there is.
        width = min(math.ceil(_WIDTH * part.amount / meter.granted), _WIDTH - start)
        if width > 0:  # what exceeds the grant is not drawn
            bars.append(_draw_rect(start, width, fill=fill))
            start += width
        if part.amount > 0:
            used = escape_line(f"{part.words} {math.ceil(10_000 * part.amount / meter.granted) / 100:g} %")
            size = {"viewBox": "0 0 10 10", "width": "9", "height": "9"}
            swatch = {"class": "dpsql-swatch", **size, "aria-hidden": "true"}
            legend.append(Html(f"{element('svg', swatch, _draw_rect(0, 10, fill=fill))}{used}, "))
            spoken.append(used)
    left = escape_line(f"{math.floor(10_000 * max(Fraction(0), meter.remaining / meter.granted)) / 100:g} % of it left")
    attributes = {"class": "dpsql-meter", "viewBox": f"0 0 {_WIDTH} 10", "preserveAspectRatio": "none"}
    attributes |= {"width": "300", "height": "10", "role": "img"}
    attributes["aria-label"] = f"{meter.name}: {', '.join([*spoken, left])}"
    bar = element("svg", attributes, *bars)
    return Html(f"{bar}{element('p', {}, Html(f'{escape_line(meter.name)}: '), *legend, left)}")


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

    `bars` has one bar for each row, or is empty, and `bar_head` is the head of their column. The meters and `details`
    are shown on demand. A cell has at most `longest` characters.
    """

    caption: str
    columns: Sequence[SheetColumn]
    rows: Sequence[Sequence[str]]
    total: int
    bars: Sequence[Bar | None] = ()
    bar_head: str = ""
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
    heads = [element("th", {"scope": "col", "class": "dpsql-number"}, escape_line("#"))]
    for column in columns:
        aligned = {"class": "dpsql-number"} if column.is_number else {}
        heads.append(element("th", {"scope": "col", **aligned}, _isolate(column.name)))
    head_of_bars = [_isolate(sheet.bar_head)] if sheet.bar_head else []
    heads += [element("td", {"aria-hidden": "true"}, *head_of_bars)] if sheet.bars else []
    body = []
    longest = max((max(bar.count, bar.high or 0) for bar in sheet.bars if bar is not None), default=1)
    for at, row in enumerate(rows):
        cells = [element("th", {"scope": "row", "class": "dpsql-number"}, escape_line(str(at + 1)))]
        for column, value in zip(columns, row, strict=False):
            kind = "dpsql-number" if column.is_number else "dpsql-text"
            cells.append(element("td", {"class": kind}, _isolate(value, sheet.longest)))
        if sheet.bars:
            bar = sheet.bars[at]
            drawn = Html("") if bar is None else _draw_bar(bar, longest)
            cells.append(element("td", {"class": "dpsql-bar", "aria-hidden": "true"}, drawn))
        body.append(element("tr", {}, *cells))
    caption, head = element("caption", {}, escape_line(sheet.caption)), element("thead", {}, element("tr", {}, *heads))
    table = element("table", {}, caption, head, element("tbody", {}, *body))
    cuts = []
    if sheet.total > len(rows):
        cuts.append(f"The first {len(rows)} of {sheet.total:,} rows are shown; the answer holds all.")
    if len(sheet.columns) > _MAX_COLUMNS:
        cuts.append(f"The first {_MAX_COLUMNS} of {len(sheet.columns)} columns are shown; the answer holds all.")
    notes = [element("p", {}, escape_line(note, 1000)) for note in (*cuts, *sheet.notes)]
    cost = list(map(meter_html, sheet.meters))
    if sheet.details:
        facts = element("table", {}, _make_facts(sheet.details))
        cost = [element("details", {}, element("summary", {}, escape_line("Details")), *cost, facts)]
    return frame(sheet.caption, table, *notes, *cost)


def facts_html(facts: Facts) -> str:
    """Return the facts as a table whose rows are named by their first cell."""
    caption = element("caption", {}, escape_line(facts.caption))
    table = element("table", {}, caption, _make_facts(facts.pairs))
    return frame(facts.caption, table, *(element("p", {}, escape_line(note, 1000)) for note in facts.notes))


def _make_facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return a table body of two columns."""
    rows = []
    for name, value in pairs:
        cell = element("td", {"class": "dpsql-fact"}, plain(value))
        rows.append(element("tr", {}, element("th", {"scope": "row"}, escape_line(name)), cell))
    return element("tbody", {}, *rows)


def _isolate(value: str, longest: int = 60) -> Html:
    """Return text whose direction of writing does not affect its neighbours."""
    return element("bdi", {}, escape_line(value, longest))


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
    lines = [element("p", {}, element("strong", {}, escape_line(f"{kind}: {error.code}")))]
    lines.append(element("p", {}, escape_line(error.reason, 1000)))
    marked = _mark_fragment(place, message.statement) if isinstance(place, Place) else None
    if isinstance(place, Place) and marked is not None:
        lines += [element("p", {}, escape_line(f"At line {place.line}, column {place.column}:")), marked]
    elif place is not None:
        lines.append(element("p", {}, escape_line(f"At {place}.")))
    if error.hint:
        lines.append(element("p", {}, element("strong", {}, escape_line("Hint: ")), escape_line(error.hint, 1000)))
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
    return element("pre", {}, plain(before), element("mark", {}, escape_line(fragment)), escape_line(after, _MAX_WIDTH))


class NotebookRepr:
    """Value that a notebook shows as HTML, or as its `str` where HTML is not available."""

    __slots__ = ()

    @abstractmethod
    def _repr_html_(self) -> str:
        """Return the value as HTML."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the value as text and as HTML, for IPython."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}
