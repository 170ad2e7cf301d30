"""Bars and cells of the terminal's table, for counts that no real data would have."""

from __future__ import annotations

import io
import json
from fractions import Fraction

import pyarrow as pa
import pytest
from rich.console import Console
from support.answer_kit import answer_of

from dpsql.accounting import BudgetVector
from dpsql.answer import Answer, CountColumns
from dpsql.cli.show import write_answer, write_json
from dpsql.receipt import Receipt


def shown(counts: list[int], variance: int = 400, **columns: list[object]) -> list[str]:
    table = pa.table({**columns, "n": pa.array(counts, pa.int64())})
    receipt = Receipt.free(BudgetVector(0, 0), sealed=True)
    answer = Answer(table, receipt, measures=[CountColumns((table.num_columns - 1,), Fraction(variance))])
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(answer)
    return console.export_text().splitlines()[1:-1]


def cells(line: str) -> tuple[int, int]:
    return line.count("█"), line.count("░")


def test_bars_grow_with_counts_and_end_at_the_width() -> None:
    lines = shown([100_000, 50_000, 1_000, 45, 0, -30, -1_000])
    widths = [sum(cells(line)) for line in lines]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 36
    assert cells(lines[0]) == (35, 1)
    assert cells(lines[4]) == (0, 1)  # 0 ± 39 may still be 39
    assert cells(lines[6]) == (0, 0)  # -1000 ± 39 is not above 0
    assert all("± 39" in line for line in lines)
    assert "-1,000" in lines[6]


def test_values_have_as_many_digits_as_half_of_a_width() -> None:
    table = pa.table({"article": ["a"], "s": pa.array([1234.5678], pa.float64())})
    counts = CountColumns((1,), Fraction(400), step=Fraction(600, 2**20))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(Answer(table, Receipt.free(BudgetVector(0, 0), sealed=True), measures=[counts]))
    assert "1,234.568   ± 0.023  " in console.export_text()  # 39 steps are 0.0223


@pytest.mark.parametrize("counts", [[0], [-5000], [-1, -2], [1], [2**53]])
def test_odd_counts(counts: list[int]) -> None:
    lines = shown(counts)
    assert len(lines) == len(counts)
    assert all(sum(cells(line)) <= 36 for line in lines)


def test_no_counts_no_rows() -> None:
    assert shown([]) == []


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    first, second = shown([1_234_567, 12], year=[2026, 7], share=[0.5, 12.25], key=["b", "long"])
    assert first.split()[:5] == ["1", "2026", "0.5", "b", "1,234,567"]
    assert second.split()[:5] == ["2", "7", "12.25", "long", "12"]
    assert first.index("2026") + 4 == second.index(" 7 ") + 2
    assert first.index("0.5") + 3 == second.index("12.25") + 5
    assert first.index("b ") == second.index("long")
    assert first.index("1,234,567") + 9 == second.index(" 12 ") + 3


@pytest.mark.parametrize("layout", ["table", "csv"])
def test_counts_under_a_bound_say_so(capsys: pytest.CaptureFixture[str], layout: str) -> None:
    counts = CountColumns((1,), Fraction(400))
    columns = {"key": pa.array(["a"], pa.string()), "n": pa.array([120], pa.int64())}
    write_answer(answer_of(columns, measures=[counts], bounded_by=5), layout)
    written = capsys.readouterr()
    assert "counted in at most 5 groups: true counts can be higher" in (
        written.out if layout == "table" else written.err
    ).replace("\n", " ")


def test_json_has_no_character_that_a_terminal_obeys(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    body = {"a": "é\x9b31m\u202e\U000e0001\n"}
    write_json(body)
    written = capfdbinary.readouterr().out.decode()
    assert json.loads(written) == body
    assert "é" in written
    assert all(char.isprintable() or char == "\n" for char in written)


def test_every_released_value_has_its_interval_in_a_column() -> None:
    table = pa.table({"k": ["a", "b"], "n": [5000, 40], "s": pa.array([12.34567, None], pa.float64())})
    sums = CountColumns((2,), Fraction(400), step=Fraction(1, 100))
    answer = Answer(
        table, Receipt.free(BudgetVector(0, 0), sealed=True), measures=[CountColumns((1,), Fraction(400)), sums]
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(answer)
    head, first, second, *_ = console.export_text().splitlines()
    assert head.split() == ["#", "k", "n", "±", "at", "95%", "s", "±", "n"]  # the bars of n
    assert first.split("█")[0].split() == ["1", "a", "5,000", "±", "39", "12.35", "±", "0.40"]
    assert second.split("█")[0].split("░")[0].split() == ["2", "b", "40", "±", "39", "NULL"]
