"""An error as a box: what was refused, where in the statement, why, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.display.element import Html, element, plain, text
from dpsql.display.style import framed
from dpsql.errors import Error, Place

__all__ = ["Message", "box_html"]

_WIDEST = 160  # characters of the line that is shown


@dataclass(frozen=True, slots=True)
class Message:
    """An error of dpsql and, where it is known, the statement that it speaks of."""

    error: Error
    statement: str = ""


def box_html(message: Message) -> str:
    """Return the box; it holds nothing but the error's own words and the analyst's own statement."""
    error = message.error
    kind = type(error).__name__
    title = element("p", {}, element("strong", {}, text(f"{kind}: {error.code}")))
    lines = [element("p", {}, text(error.reason, 1000)), *_where(message)]
    if error.hint:
        lines.append(element("p", {}, element("strong", {}, text("Hint: ")), text(error.hint, 1000)))
    return framed(f"{kind} {error.code}", element("div", {"class": "dpsql-box", "role": "alert"}, title, *lines))


def _where(message: Message) -> Iterator[Html]:
    place = message.error.place
    if place is None:
        return
    marked = _marked(place, message.statement) if isinstance(place, Place) else None
    if marked is None or not isinstance(place, Place):
        yield element("p", {}, text(f"At {place}."))
        return
    yield element("p", {}, text(f"At line {place.line}, column {place.column}:"))
    yield marked


def _marked(place: Place, statement: str) -> Html | None:
    """Return the line of the statement with its fragment marked; None where the two do not fit together."""
    lines = statement.split("\n")
    if not 1 <= place.line <= len(lines):
        return None
    line, start = lines[place.line - 1], place.column - 1
    fragment = place.fragment.split("\n")[0]
    if not fragment or not line.startswith(fragment, start):
        return None
    before, after = line[:start], line[start + len(fragment) :]
    if len(before) > _WIDEST:
        before = f"\N{HORIZONTAL ELLIPSIS}{before[-_WIDEST:]}"
    return element("pre", {}, plain(before), element("mark", {}, text(fragment)), text(after, _WIDEST))
