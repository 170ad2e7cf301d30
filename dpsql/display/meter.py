"""Budget as a bar: already used, used now, and left; rounded so that it never shows more left than there is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.display.element import Html, element, text
from dpsql.display.style import ACCENT, BAR, frame

__all__ = ["Meter", "Part", "budget_html", "meter_html"]

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


def budget_html(caption: str, meters: Sequence[Meter], *, notes: Sequence[str]) -> str:
    """Return meters under a caption, with notes below them."""
    title = element("p", {"class": "dpsql-lead"}, element("strong", {}, text(caption)))
    return frame("Budget", title, *map(meter_html, meters), *(element("p", {}, text(note, 1000)) for note in notes))


def meter_html(meter: Meter) -> Html:
    """Return a bar with a text for screen readers and a legend; empty if nothing was granted."""
    if meter.granted <= 0:
        return Html("")
    legend = [
        (part, text(f"{part.words} {_format_used(part.amount / meter.granted)}"))
        for part in meter.parts
        if part.amount > 0
    ]
    left = text(f"{_format_left(meter.remaining / meter.granted)} of it left")
    spoken = ", ".join([*(words for _, words in legend), left])
    attributes = {"class": "dpsql-meter", "viewBox": f"0 0 {_WIDTH} 10", "preserveAspectRatio": "none"}
    size = {"width": "300", "height": "10", "role": "img", "aria-label": f"{meter.name}: {spoken}"}
    bar = element("svg", {**attributes, **size}, _draw_rect(0, _WIDTH, fill="currentColor"), *_draw_parts(meter))
    swatches = (Html(f"{_draw_swatch(part)}{words}, ") for part, words in legend)
    return Html(f"{bar}{element('p', {}, Html(f'{text(meter.name)}: '), *swatches, left)}")


def _draw_parts(meter: Meter) -> Iterator[Html]:
    """Yield the used parts from the left; what exceeds the grant is not drawn."""
    start = 0
    for part in meter.parts:
        width = min(math.ceil(_WIDTH * part.amount / meter.granted), _WIDTH - start)
        if width > 0:
            yield _draw_rect(start, width, fill=_choose_colour(part))
            start += width


def _draw_rect(start: int, width: int, *, fill: str) -> Html:
    opacity = {"fill-opacity": "0.13"} if fill == "currentColor" else {}
    return element("rect", {"x": str(start), "width": str(width), "height": "10", "fill": fill, **opacity})


def _draw_swatch(part: Part) -> Html:
    attributes = {"class": "dpsql-swatch", "viewBox": "0 0 10 10", "width": "9", "height": "9", "aria-hidden": "true"}
    return element("svg", attributes, _draw_rect(0, 10, fill=_choose_colour(part)))


def _choose_colour(part: Part) -> str:
    return ACCENT if part.now else BAR


def _format_used(share: Fraction) -> str:
    return f"{math.ceil(1000 * max(Fraction(0), share)) / 10:g} %"


def _format_left(share: Fraction) -> str:
    return f"{math.floor(1000 * max(Fraction(0), share)) / 10:g} %"
