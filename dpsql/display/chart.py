"""Chart of a private answer: bars in the order of the rows, or a line over time, with intervals and notes.

Colours of text and lines are those of the style in use, so that a chart is legible on a light and on a dark ground.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Chart", "draw"]

_MAX_BARS = 50
_MAX_LABEL = 40  # characters of a label
_BAR, _QUIET = "#4c78a8", "#808080"  # both are legible on white and on black
_PER_INCH = 12  # characters of a line below the axes


@dataclass(frozen=True, slots=True)
class Chart:
    """Content of a chart, all of it released: a label, a count and an interval for each row, in their order.

    `key` is the name of the labels, "" for a total. `times` are the keys of the rows if they are dates or time stamps,
    else empty. `level` is the probability of the intervals, `threshold` a public count that every noisy count had to
    reach, and `notes` are the lines below.
    """

    labels: Sequence[str]
    counts: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    key: str
    measure: str
    level: float
    threshold: int | None
    notes: Sequence[str]
    times: Sequence[object] = ()


def draw(chart: Chart, axes: Axes | None) -> Axes:
    """Draw on `axes`, or on those of a new figure as tall as its bars need; at most 50 bars."""
    shown = min(len(chart.labels), _MAX_BARS)
    if axes is None:
        from matplotlib import pyplot as plt

        height = 4.0 if chart.times else 1.9 + 0.28 * max(shown, 3)
        _, axes = plt.subplots(figsize=(7.0, height), layout="constrained")
    (_draw_line if chart.times else _draw_bars)(chart, axes)
    notes = list(chart.notes)
    if not chart.times and len(chart.labels) > shown:
        notes.append(f"{len(chart.labels) - shown} more rows are not shown")
    width = max(20, int(axes.get_window_extent().width / axes.figure.dpi / 0.8 * _PER_INCH))
    measured = f"{_shorten(chart.measure)} ({100 * chart.level:g} % intervals)"
    below = "\n".join(line for note in notes for line in textwrap.wrap(note, width))
    if chart.times:
        axes.set_ylabel(_shorten(chart.measure), parse_math=False)
        axes.set_xlabel(f"{measured}\n{below}".rstrip(), fontsize="small", parse_math=False)
    else:
        axes.set_xlabel(f"{measured}\n{below}".rstrip(), fontsize="small", parse_math=False)
    title = _shorten(chart.measure) + (f" by {_shorten(chart.key)}" if chart.key else "")
    axes.set_title(title, loc="left", parse_math=False, pad=14)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw_bars(chart: Chart, axes: Axes) -> None:
    """Draw a bar for each row, the first on top, its interval, and the count to the right of both."""
    shown = min(len(chart.labels), _MAX_BARS)
    places, counts = range(shown), [max(0, count) for count in chart.counts[:shown]]
    low, high = chart.low[:shown], chart.high[:shown]
    axes.barh(places, counts, color=_BAR, height=0.7, zorder=2)
    ends = [[count - end for count, end in zip(counts, low, strict=True)]]
    ends.append([end - count for count, end in zip(counts, high, strict=True)])
    line = axes.xaxis.label.get_color()
    axes.errorbar(counts, places, xerr=ends, fmt="none", ecolor=line, elinewidth=1, capsize=2, zorder=3)
    for place, count, end in zip(places, chart.counts, high, strict=False):
        axes.annotate(
            f"{count:,.2f}" if isinstance(count, float) else f"{count:,}",
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_yticks(places, [_shorten(label) for label in chart.labels[:shown]], parse_math=False)
    axes.set_ylim(shown - 0.4 if shown else 0.6, -0.6)
    axes.set_xlim(0, max([*high, chart.threshold or 0, 1]) * 1.12)  # room for the counts
    if chart.threshold is not None:
        axes.axvline(chart.threshold, color=_QUIET, linestyle="--", linewidth=1, zorder=1)
        _name_threshold(chart.threshold, axes, place=(chart.threshold, 1.0), align=("center", "bottom"))


def _draw_line(chart: Chart, axes: Axes) -> None:
    """Draw the counts over time, in the order of time, with the band of their intervals."""
    rows = sorted(zip(chart.times, chart.counts, chart.low, chart.high, strict=True), key=lambda row: str(row[0]))
    times, counts, low, high = (list(column) for column in zip(*rows, strict=True))
    axes.fill_between(times, low, high, color=_BAR, alpha=0.3, linewidth=0, zorder=1)
    axes.plot(times, counts, color=_BAR, marker="o", markersize=4, zorder=2)
    axes.set_ylim(0, max([*high, chart.threshold or 0, 1]) * 1.08)
    axes.tick_params(axis="x", rotation=30)
    if chart.threshold is not None:
        axes.axhline(chart.threshold, color=_QUIET, linestyle="--", linewidth=1, zorder=0)
        _name_threshold(chart.threshold, axes, place=(1.0, chart.threshold), align=("left", "center"))


def _name_threshold(threshold: int, axes: Axes, *, place: tuple[float, float], align: tuple[str, str]) -> None:
    """Write what the dashed line is, outside of the bars: above the axes, or to their right."""
    across = axes.get_xaxis_transform() if align[0] == "center" else axes.get_yaxis_transform()
    axes.text(
        *place,
        f" threshold {threshold:,}",
        transform=across,
        ha=align[0],
        va=align[1],
        color=_QUIET,
        fontsize="small",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
