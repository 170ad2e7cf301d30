"""Rows as SVG: laws on logarithmic axes, curves over columns such as "k = 10", ratios as bars."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from program.laws import laws_of, points_of
from program.row import Row
from program.tables import ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plotted"]

_PLACE = re.compile(r"(?P<axis>.+) = (?P<at>[0-9.]+)")
_BAR, _LINE = "#4c78a8", "#222222"
_FEWEST = 2
_Draw = Callable[["Axes"], object]
_Curves = Mapping[str, Sequence[tuple[float, float]]]


def plotted(table: Sequence[Row], path: Path) -> bool:
    """Draw a table, and say whether there was something to draw, and something to draw it with."""
    draw = _law(table) or _curves(table) or _bars(table)
    if draw is None:
        return False
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, max(3.5, 0.28 * len(table))), layout="constrained")
    draw(axes)
    axes.set_title(table[0].table, fontsize="small", loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)
    return True


def _law(table: Sequence[Row]) -> _Draw | None:
    """Return what draws each column against the axis that the rows stand on."""
    curves = {str(law): points_of(table, law.column) for law in laws_of(table)}

    def draw(axes: Axes) -> None:
        _lines(axes, curves)
        axes.set(xscale="log", yscale="log")

    return draw if curves else None


def _curves(table: Sequence[Row]) -> _Draw | None:
    """Return what draws each row against the places that its columns are named by."""
    places = {column: found for row in table for column in row.values if (found := _PLACE.fullmatch(column))}
    if len(places) < _FEWEST or len({place["axis"] for place in places.values()}) > 1:
        return None
    curves = {
        row.name: [
            (float(place["at"]), value)
            for column, place in places.items()
            if isinstance(value := row.values.get(column), int | float)
        ]
        for row in table
    }

    def draw(axes: Axes) -> None:
        _lines(axes, curves)
        axes.set_xlabel(next(iter(places.values()))["axis"])

    return draw


def _lines(axes: Axes, curves: _Curves) -> None:
    for name, points in curves.items():
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=name)
    axes.legend(frameon=False, fontsize=6)


def _bars(table: Sequence[Row]) -> _Draw | None:
    """Return what draws the first ratio of each row."""
    columns = dict.fromkeys(column for row in table for column in row.values)
    for column in columns:
        told = {row.name: found for row in table if (found := ratio(row, column, table=table)) is not None}
        if told:
            return lambda axes: _draw_bars(axes, told, f"{column} x {table[-1].against}")
    return None


def _draw_bars(axes: Axes, told: Mapping[str, float], label: str) -> None:
    axes.barh(range(len(told)), list(told.values()), color=_BAR, height=0.7)
    axes.set_yticks(range(len(told)), list(told), fontsize="small", parse_math=False)
    axes.invert_yaxis()
    axes.axvline(1, color=_LINE, linewidth=1)
    axes.set_xlabel(label, parse_math=False)
