"""Error as an HTML box: the code, the reason, the place in the statement, and the hint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.display.element import Html, element, plain, text
from dpsql.display.style import frame
from dpsql.errors import Error, Place

__all__ = ["Message", "box_html"]

_MAX_WIDTH = 160  # characters shown on either side of the fragment


@dataclass(frozen=True, slots=True)
class Message:
    """Error of dpsql with the statement that caused it, if known."""

    error: Error
    statement: str = ""


def box_html(message: Message) -> str:
    """Return the box as HTML; it holds only the text of the error and the statement of the analyst."""
    error = message.error
    kind = type(error).__name__
    title = element("p", {}, element("strong", {}, text(f"{kind}: {error.code}")))
    lines = [element("p", {}, text(error.reason, 1000)), *_show_place(message)]
    if error.hint:
        lines.append(element("p", {}, element("strong", {}, text("Hint: ")), text(error.hint, 1000)))
    return frame(f"{kind} {error.code}", element("div", {"class": "dpsql-box", "role": "alert"}, title, *lines))


def _show_place(message: Message) -> Iterator[Html]:
    place = message.error.place
    if place is None:
        return
    marked = _mark_fragment(place, message.statement) if isinstance(place, Place) else None
    if marked is None or not isinstance(place, Place):
        yield element("p", {}, text(f"At {place}."))
        return
    yield element("p", {}, text(f"At line {place.line}, column {place.column}:"))
    yield marked


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
