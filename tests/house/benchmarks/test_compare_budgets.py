"""`benchmarks/compare_budgets.py`: tables, JSON and a plot, by its command; the points of its figure."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from support.benchmarks_kit import FOLDER, Load

from dpsql.accounting.certificates import durfee_rogers
from dpsql.quantities import Delta, Epsilon

DELTA = Delta("1e-6")
ONE = ("--item-epsilon", "0.1", "--items", "10")


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "compare_budgets.py"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def test_tables_and_a_plot(tmp_path: Path) -> None:
    done = compare(*ONE, "--item-epsilon", "0.5", "--plot", str(tmp_path / "plot.png"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["0.1", "10", "12", "19", "22"] in lines
    assert ["0.1", "10", "1.00000", "0.88113", "0.70021", "0.63488", "0.62864", "0.99937"] in lines
    assert ["0.5", "10", "5.00000", "5.00000", "4.01028", "3.58398", "3.56908", "4.99989"] in lines
    assert "(1, 1e-06)-differential privacy" in done.stdout
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_json() -> None:
    done = compare(*ONE, "--epsilon", "2", "--delta", "1e-5", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    assert body["total"] == {"epsilon": 2.0, "delta": 1e-5}
    (counts,), (costs,) = body["items"], body["totals"]
    assert list(counts) == ["epsilon", "pure", "theorem2", "zcdp", "optimal"]
    assert counts["pure"] == 20 < counts["theorem2"] < counts["zcdp"] < counts["optimal"]
    assert costs["fixed"] < costs["optimal"] < costs["zcdp"] < costs["older_zcdp"] < costs["theorem2"]


@pytest.mark.parametrize(("name", "value"), [("--epsilon", "0"), ("--items", "5001"), ("--item-epsilon", "9")])
def test_wrong_numbers(name: str, value: str) -> None:
    done = compare(name, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert "-range]" in done.stderr


def test_figure_one(load: Load) -> None:
    """Few items need the plain sum, whatever they are; then bounded range wins, the less so the larger epsilon."""
    figure_one = load("compare_budgets").figure_one
    assert figure_one(4, Epsilon("0.1"), delta=DELTA).theorem2 == 1.0
    assert figure_one(4, Epsilon("0.1"), delta=DELTA).zcdp is None
    small, large = (figure_one(200, Epsilon(each), delta=DELTA) for each in ("0.1", "0.5"))
    assert 1.0 < large.theorem2 < small.theorem2 < 2.0
    assert large.zcdp is not None
    assert large.zcdp > 2.0


def test_a_point_of_figure_one_by_the_lemma(load: Load) -> None:
    """Lemma 4.5 spelled out for k = 40, epsilon = 0.1: the largest i whose delta_i is at most 1e-6."""
    k, step = 40, 0.1
    figure_one = load("compare_budgets").figure_one

    def delta(i: int) -> float:
        terms = (math.comb(k, j) * (math.exp((k - j) * step) - math.exp((k - 2 * i + j) * step)) for j in range(i))
        return math.fsum(terms) / (1 + math.exp(step)) ** k

    best = max(i for i in range(k // 2 + 1) if delta(i) <= 1e-6)
    total = (k - 2 * best) * step
    bound = durfee_rogers(k, Epsilon("0.1"), delta=Delta(delta(best))).best
    assert figure_one(k, Epsilon("0.1"), delta=DELTA).theorem2 == pytest.approx(total / bound, rel=1e-6)


def test_totals_hold_what_the_table_holds(load: Load) -> None:
    row = load("compare_budgets").totals(50, Epsilon("0.1"), delta=DELTA)
    entries = [row.pure, row.advanced, row.bounded_range, row.theorem2, row.older_zcdp, row.zcdp, row.optimal]
    table = FOLDER.parent / "tests/properties/accounting/composition.txt"
    lines = (line.split() for line in table.read_text().splitlines())
    published = next(list(map(float, line[2:])) for line in lines if line[:2] == ["0.1", "50"])
    assert entries == pytest.approx(published[:7], rel=1.5e-3)
    assert [row.fixed, row.general] == pytest.approx(published[7:], abs=5.1e-6)
