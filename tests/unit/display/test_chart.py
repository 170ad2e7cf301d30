"""An answer as a chart: what is drawn is what was released, and labels are never read as formulas."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pytest
from support.answer_kit import answer_of, counted, receipt

import dpsql
from dpsql.answer import Answer, CountColumns
from dpsql.display.released_table import terminal_table

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


def test_bars_and_intervals_are_the_released_ones() -> None:
    answer = counted([900, 400, -3])
    axes = answer.plot(level=0.9)
    assert [bar.get_width() for bar in axes.patches] == [900, 400, 0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["k0", "k1", "k2"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first row is on top"
    bars = next(each for each in axes.collections if hasattr(each, "get_segments"))
    ends = [tuple(segment[:, 0]) for segment in bars.get_segments()]
    assert ends == list(zip(*(column.to_pylist() for column in answer.intervals(0.9).columns[1:]), strict=True))
    assert "90 %" in axes.get_xlabel()
    assert axes.get_title(loc="left") == "n by key"
    assert "answered 10 of 10; used 27.28 % of the budget; about 2 more like this" in axes.get_xlabel()
    assert "rho" not in axes.get_xlabel() + axes.get_title(loc="left")
    assert [text.get_text() for text in axes.texts] == ["900", "400", "-3"]


@pytest.mark.parametrize("days", [[-5.5], [-5.5, 2.0], [-3.0, -8.25]])
def test_values_below_0_are_drawn_to_the_left(days: list[float]) -> None:
    noise = CountColumns((1,), Fraction(1), step=Fraction(1, 4), may_be_negative=True)
    keys = pa.array([f"k{at}" for at in range(len(days))])
    axes = answer_of({"key": keys, "days": pa.array(days)}, measures=[noise]).plot()
    assert [bar.get_width() for bar in axes.patches] == days
    assert axes.get_xlim()[0] < min(days) < 0 < axes.get_xlim()[1]
    assert all(text.xy[0] >= 0 for text in axes.texts)


def test_a_series_below_0_is_inside_of_its_axes() -> None:
    noise = CountColumns((1,), Fraction(1), may_be_negative=True)
    days = pa.array([0, 1, 2], pa.int32()).cast(pa.date32())
    axes = answer_of({"day": days, "n": pa.array([-9, 4, -7])}, measures=[noise]).plot()
    assert axes.get_ylim()[0] < -9
    assert axes.get_ylabel() == "n (95 % intervals)"
    assert axes.get_xlabel().splitlines()[0] == "day"


def test_bars_behind_another_column_are_named() -> None:
    columns = {"key": pa.array(["a"]), "n": pa.array([900]), "fee": pa.array([1.5])}
    noise = [CountColumns((1,), Fraction(1))]
    behind = answer_of(columns, measures=noise)
    assert '<td aria-hidden="true"><bdi>n</bdi></td>' in behind._repr_html_()
    assert str(terminal_table(behind._release_rows(9)).columns[-1].header) == "n"
    last = answer_of({"key": columns["key"], "n": columns["n"]}, measures=noise)
    assert '<td aria-hidden="true"></td>' in last._repr_html_()
    assert str(terminal_table(last._release_rows(9)).columns[-1].header) == ""


def test_it_draws_on_axes_that_it_is_given() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert counted([5]).plot(axes) is axes


def test_the_threshold_is_drawn_only_where_it_is_a_public_count() -> None:
    answer = counted([900])
    assert answer.receipt.mechanism == "limited_domain"
    assert not any("threshold" in text.get_text() for text in answer.plot().texts)
    answer.receipt = replace(receipt(), mechanism="gaussian_histogram", threshold_offset=Fraction(72))
    axes = answer.plot()
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [72]
    (name,) = [text for text in axes.texts if "threshold" in text.get_text()]
    assert name.get_text().strip() == "threshold 72"
    axes.figure.canvas.draw()
    frame = axes.get_window_extent()
    assert name.get_window_extent().y0 >= frame.y1 - 1, "it is above the bars"


@pytest.mark.parametrize(("size", "style"), [((4, 2.5), "default"), ((7, 4), "dark_background"), ((12, 7), "default")])
@pytest.mark.parametrize("kind", ["bars", "line"])
def test_nothing_lies_over_anything_at_any_size(size: tuple[float, float], style: str, kind: str) -> None:
    from matplotlib import pyplot as plt

    with plt.style.context(style):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        (timed() if kind == "line" else histogram()).plot(axes)
        figure.canvas.draw()
        frame = figure.bbox
        texts = [text for text in [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label] if text.get_text()]
        boxes = [text.get_window_extent() for text in texts]
        for text, box in zip(texts, boxes, strict=True):
            assert box.x0 >= frame.x0 - 2, text
            assert box.x1 <= frame.x1 + 2, text
        if kind == "bars":
            counts = [text.get_window_extent() for text in axes.texts if "threshold" not in text.get_text()]
            assert not any(one.overlaps(other) for at, one in enumerate(counts) for other in counts[:at])


def histogram() -> Answer:
    answer = counted([900, 400, 130, 90, 80])
    answer.receipt = replace(receipt(), mechanism="gaussian_histogram", threshold_offset=Fraction(67))
    return answer


def timed() -> Answer:
    days = pa.array([20000 + 7 * day for day in (3, 0, 2, 1)], pa.date32())
    return answer_of(
        {"week": days, "readers": pa.array([310, 250, 330, 280])}, measures=[CountColumns((1,), Fraction(400))]
    )


def test_times_are_a_line_over_time() -> None:
    import numpy as np

    axes = timed().plot()
    (line,) = axes.lines
    assert list(line.get_ydata()) == [250, 280, 330, 310]
    assert (np.diff(line.get_xdata()) > np.timedelta64(0)).all() if line.get_xdata().dtype.kind == "M" else True
    assert not axes.patches
    assert axes.get_title(loc="left") == "readers by week"
    beyond = pa.array([2**31 - 1, 3], pa.date32())
    assert answer_of({"d": beyond, "n": pa.array([2, 1])}, measures=[CountColumns((1,), Fraction(4))]).plot().patches


def test_labels_are_text_whatever_is_in_them(tmp_path: Path) -> None:
    labels = [r"$\frac{", "$a$ & $b$", "\x1b[2J", None, "x" * 500, "名"]
    table = pa.table({"key": labels, "more": pa.array([1, 2, 3, 4, 5, None]), "n": pa.array([9, 8, 7, 6, 5, 4])})
    axes = Answer(table, receipt(), measures=[CountColumns((2,), Fraction(4))]).plot()
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown[:2] == [r"$\frac{, 1", "$a$ & $b$, 2"]
    assert "\x1b" not in shown[2]
    assert shown[3] == "NULL, 4"
    assert len(shown[4]) == 40
    with pytest.warns(UserWarning, match="Glyph"):  # the character has no drawing in matplotlib's own font
        axes.figure.savefig(tmp_path / "labels.png")


def test_no_rows_and_many_rows_can_be_drawn(tmp_path: Path) -> None:
    counted([]).plot().figure.savefig(tmp_path / "none.png")
    axes = counted(list(range(80, 0, -1))).plot()
    assert len(axes.patches) == 50
    assert "30 more rows are not shown" in axes.get_xlabel()


def test_only_counts_can_be_drawn() -> None:
    with pytest.raises(dpsql.UsageError, match="keys alone"):
        Answer(pa.table({"key": ["a"]}), receipt()).plot()


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError\n")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pyarrow as pa, dpsql\n"
        "from dpsql.answer import Answer, CountColumns\nfrom dpsql.receipt import Receipt\n"
        "from dpsql.accounting import BudgetVector\n"
        "from fractions import Fraction\n"
        "answer = Answer(pa.table({'k': ['a'], 'n': [1]}), Receipt.free(BudgetVector(0, 0), sealed=True),"
        " measures=[CountColumns((1,), Fraction(4))])\n"
        "try: answer.plot()\n"
        "except dpsql.UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "pip install 'dpsql[plot]'" in done.stdout


def test_the_title_says_that_counts_are_bounded() -> None:
    answer = counted([300, 200])
    bounded = answer_of(
        {"key": answer.arrow().column(0), "n": answer.arrow().column(1)},
        measures=answer.measures,
        bounded_by=2,
    )
    assert "at most 2 groups: true counts can be higher" in bounded.plot().get_xlabel().replace("\n", " ")
