"""Chart of a private answer: bars with error bars, the threshold if it is public, and a note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Chart", "draw"]

_MAX_BARS = 50
_MAX_LABEL = 40  # characters of a label
_BAR, _LINE, _QUIET = "#4c78a8", "#222222", "#767676"


@dataclass(frozen=True, slots=True)
class Chart:
    """Content of a chart, all of it released: a label, a count and an interval for each bar, from the top down.

    `level` is the probability of the intervals, `threshold` a public count that every noisy count had to reach, and
    `note` the title above the bars.
    """

    labels: Sequence[str]
    counts: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    measure: str
    level: float
    threshold: int | None
    note: str


def draw(chart: Chart, axes: Axes | None) -> Axes:
    """Draw on `axes`, or on those of a new figure as tall as its bars need; at most 50 bars."""
    shown = min(len(chart.labels), _MAX_BARS)
    if axes is None:
        from matplotlib import pyplot as plt

        _, axes = plt.subplots(figsize=(7.0, 1.6 + 0.28 * max(shown, 3)), layout="constrained")
    places, counts = range(shown), chart.counts[:shown]
    below = [max(0, count - low) for count, low in zip(counts, chart.low, strict=False)]
    above = [high - max(count, 0) for count, high in zip(counts, chart.high, strict=False)]
    axes.barh(places, [max(0, count) for count in counts], color=_BAR, height=0.7)
    axes.errorbar(
        [max(0, count) for count in counts],
        places,
        xerr=[below, above],
        fmt="none",
        ecolor=_LINE,
        elinewidth=1,
        capsize=2,
    )
    axes.set_yticks(places, [_shorten(label) for label in chart.labels[:shown]], parse_math=False)
    axes.set_ylim(shown - 0.4 if shown else 0.6, -0.6)
    axes.set_xlim(left=0)
    if chart.threshold is not None:
        axes.axvline(chart.threshold, color=_QUIET, linestyle="--", linewidth=1, label=f"threshold {chart.threshold:,}")
        axes.legend(frameon=False, loc="lower right", fontsize="small")
    axes.set_xlabel(f"{_shorten(chart.measure)} ({100 * chart.level:g} % intervals)", parse_math=False)
    left_out = len(chart.labels) - shown
    note = f"{chart.note}; {left_out} more rows are not shown" if left_out else chart.note
    axes.set_title(note, fontsize="small", color=_QUIET, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
