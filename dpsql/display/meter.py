"""A budget as a bar: what went before, what went now, what is left; rounded so that it never shows more left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.display.element import Html, element, text
from dpsql.display.style import ACCENT, BAR, framed

__all__ = ["Meter", "Part", "budget_html", "meter_html"]

_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """So much of a budget, in the currency of its meter; `now` for what the reader has just caused."""

    words: str
    amount: Fraction
    now: bool = False


@dataclass(frozen=True, slots=True)
class Meter:
    """One currency of a budget: its name, what was granted, where it went, and what is left. All of it is public."""

    name: str
    granted: Fraction
    parts: Sequence[Part]
    remaining: Fraction


def budget_html(caption: str, meters: Sequence[Meter], *, notes: Sequence[str]) -> str:
    """Return meters under a caption, with notes below them."""
    title = element("p", {"class": "dpsql-lead"}, element("strong", {}, text(caption)))
    return framed("Budget", title, *map(meter_html, meters), *(element("p", {}, text(note, 1000)) for note in notes))


def meter_html(meter: Meter) -> Html:
    """Return a bar, read aloud as its words, and the words below it; nothing where nothing was granted."""
    if meter.granted <= 0:
        return Html("")
    said = [
        (part, text(f"{part.words} {_gone(part.amount / meter.granted)}")) for part in meter.parts if part.amount > 0
    ]
    left = text(f"{_left(meter.remaining / meter.granted)} of it left")
    spoken = ", ".join([*(words for _, words in said), left])
    frame = {"class": "dpsql-meter", "viewBox": f"0 0 {_WIDTH} 10", "preserveAspectRatio": "none"}
    size = {"width": "300", "height": "10", "role": "img", "aria-label": f"{meter.name}: {spoken}"}
    bar = element("svg", {**frame, **size}, _rect(0, _WIDTH, fill="currentColor"), *_rects(meter))
    legend = (Html(f"{_swatch(part)}{words}, ") for part, words in said)
    return Html(f"{bar}{element('p', {}, Html(f'{text(meter.name)}: '), *legend, left)}")


def _rects(meter: Meter) -> Iterator[Html]:
    """Yield what went, from the left; what is above the grant is not drawn."""
    start = 0
    for part in meter.parts:
        width = min(math.ceil(_WIDTH * part.amount / meter.granted), _WIDTH - start)
        if width > 0:
            yield _rect(start, width, fill=_colour(part))
            start += width


def _rect(start: int, width: int, *, fill: str) -> Html:
    opacity = {"fill-opacity": "0.13"} if fill == "currentColor" else {}
    return element("rect", {"x": str(start), "width": str(width), "height": "10", "fill": fill, **opacity})


def _swatch(part: Part) -> Html:
    frame = {"class": "dpsql-swatch", "viewBox": "0 0 10 10", "width": "9", "height": "9", "aria-hidden": "true"}
    return element("svg", frame, _rect(0, 10, fill=_colour(part)))


def _colour(part: Part) -> str:
    return ACCENT if part.now else BAR


def _gone(share: Fraction) -> str:
    return f"{math.ceil(1000 * max(Fraction(0), share)) / 10:g} %"


def _left(share: Fraction) -> str:
    return f"{math.floor(1000 * max(Fraction(0), share)) / 10:g} %"
