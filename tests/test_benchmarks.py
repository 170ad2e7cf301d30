"""The programs of the accuracy benchmarks run, say what they promise to say, and measure what they say."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(program: str, *arguments: object, cwd: Path) -> str:
    return run_alone(program, "--data", cwd, *arguments, cwd=cwd)


def run_alone(program: str, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, "-W", "ignore", str(FOLDER / program), "--quick", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data_sets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import data_sets

    return data_sets


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import accuracy

    return accuracy


def test_recall_shows_every_mechanism_and_writes_a_line_for_each_cell(tmp_path: Path, accuracy: ModuleType) -> None:
    out = run("recall.py", "--k", 5, 10, "--json", tmp_path / "cells", "--plot", tmp_path / "recall.png", cwd=tmp_path)
    cells = [json.loads(line) for line in (tmp_path / "cells").read_text().splitlines()]
    assert len(cells) == len(accuracy.MECHANISMS) * 2 * 2
    assert {f"{cell['mechanism']} {cell['parameters']}".strip() for cell in cells} == set(accuracy.MECHANISMS)
    assert all(0 <= cell["recall"] * cell["k"] <= cell["returned"] + 0.001 <= cell["k"] + 0.001 for cell in cells)
    assert max(cell["recall"] for cell in cells) > 0.5
    assert "of the best, of 4 cells" in out
    assert (tmp_path / "recall.png").stat().st_size > 1000


def test_recall_lists_the_gaps_of_one_mechanism(tmp_path: Path) -> None:
    out = run("recall.py", "--k", 5, "--gaps", "stable_top_k", cwd=tmp_path)
    assert "where stable_top_k is more than 0.03 behind:\n  tiny, k = 5" in out


def test_recall_lists_the_gaps_of_auto_and_never_those_of_the_fixed_choices_to_it(tmp_path: Path) -> None:
    out = run("recall.py", "--k", 5, cwd=tmp_path)
    _, gaps = out.split("where AUTO is more than 0.03 behind:\n")
    assert "of AUTO" not in gaps


def test_auto_is_what_the_planner_chooses_and_returns_what_that_does(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    chosen = {
        (k, most): accuracy.planned(k, budget.rho, delta=budget.delta, most=most).mechanism
        for k in (10, 100)
        for most in (None, 1)
    }
    assert chosen[10, None] == "limited_domain"
    assert {chosen[100, None], chosen[10, 1], chosen[100, 1]} == {"weighted_gaussian"}
    far_apart = np.array([9_000, 8_000, 7_000, *[3] * 50])
    question = accuracy.Question(accuracy.Sample(far_apart), 3, budget.rho, budget.delta)
    told = {
        population: accuracy.planned(50, budget.rho, delta=budget.delta, most=None, population=population).mechanism
        for population in (1_000, 12_000, 50_000)
    }
    assert told == {1_000: "weighted_gaussian", 12_000: "domain_discovery", 50_000: "limited_domain"}
    for name in ("AUTO", "AUTO untold", "AUTO most=1"):
        assert list(accuracy.MECHANISMS[name](question)) == [0, 1, 2]


def test_a_plan_of_auto_has_the_parameters_of_the_fixed_choices(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    few, many = (accuracy.planned(k, budget.rho, delta=budget.delta, most=None) for k in (10, 100))
    assert few.k_bar == accuracy.K_BAR_PER_K * 10
    assert f"weighted_gaussian most={many.max_groups_contributed}" in accuracy.MECHANISMS
    for plan in (few, many):
        assert 0.999999 < float(plan.worst_case.rho.value / budget.rho.value) <= 1
        assert plan.delta.value == budget.delta.value


def test_auto_under_a_bound_is_compared_with_what_keeps_to_the_same(accuracy: ModuleType) -> None:
    assert accuracy.rivals("AUTO most=5") == [
        f"{name} most=5"
        for name in ("limited_domain", "laplace_limited_domain", "gaussian_histogram", "weighted_gaussian")
    ]
    assert accuracy.rivals("AUTO") == accuracy.rivals("AUTO untold") == accuracy.rivals("top_stable")
    assert not any(name.startswith("AUTO") for name in accuracy.rivals("AUTO"))


def test_hindsight_is_what_one_choice_for_each_k_and_epsilon_reaches(
    accuracy: ModuleType,
) -> None:
    import recall

    def column(**recalls: float) -> dict[str, object]:
        return {name: accuracy.Cell((recalls.get(name, 0.0),), (0.0,), (1,)) for name in accuracy.MECHANISMS}

    table = {
        recall.Place("a", 10, "1"): column(peeling=1.0, limited_domain=0.9),
        recall.Place("b", 10, "1"): column(limited_domain=0.9),
        recall.Place("c", 10, "1"): column(top_stable=0.9, limited_domain=0.86),
        recall.Place("c", 10, "0.1"): column(top_stable=0.9, AUTO=1.0),
    }
    assert recall.hindsight(table) == 3 / 4


def test_the_hard_case_asks_every_mechanism_through_sql_for_all_of_rho(tmp_path: Path) -> None:
    out = run_alone("hard_case.py", "--k", 5, cwd=tmp_path)
    rows = [line[52:].split() for line in out.splitlines() if line[52:].count(".") == 5]
    assert len(rows) == 13
    assert out.count("\nAUTO: ") == 1
    for recall, least, returned, reserved, _ in (map(float, row) for row in rows):
        assert 0 <= least <= recall <= returned / 5 <= 1
        assert 0.99 < reserved <= 1
    assert max(float(row[0]) for row in rows) > 0.5


def test_exp1_shows_the_baselines_and_all_mechanisms(tmp_path: Path, accuracy: ModuleType) -> None:
    out = run("exp1.py", cwd=tmp_path)
    for name in (*accuracy.MECHANISMS, "limited_domain theorem2", "the same, public code: sign reversed"):
        assert f"\n{name:40}" in out


def test_exp2_shows_windows_and_the_gap(tmp_path: Path) -> None:
    out = run("exp2.py", "--plot", tmp_path / "gap.png", cwd=tmp_path)
    assert "day 31-40" in out
    gap = {line.split()[0]: line.split()[1:] for line in out.split("(0.15, 1e-6)")[1].splitlines() if "|" in line}
    assert gap["stable_top_k"] == ["1.000", "|", "0.00"] * 2
    assert gap["limited_domain"][:1] != ["1.000"]
    assert (tmp_path / "gap.png").stat().st_size > 1000


def test_histograms_show_recall_and_error_of_both_kinds_of_domain(tmp_path: Path) -> None:
    out = run("histograms.py", "--k", 5, "--plot", tmp_path / "histograms.png", cwd=tmp_path)
    assert f"\n{'gaussian_histogram most=1':32}" in out
    assert f"\n{'peeling':32}" in out
    assert (tmp_path / "histograms.png").stat().st_size > 1000


def test_certificates_ask_a_session_and_say_what_is_not_there(tmp_path: Path) -> None:
    out = run("certificates.py", "--items", 100, "--plot", tmp_path / "items.png", cwd=tmp_path)
    [row] = [line for line in out.splitlines() if line.startswith("msweb")]
    answered, charging_k = row.split()[2:4]
    assert int(answered) > int(charging_k) == 10
    assert "1,948 | 1.54" in out  # `maths.md` 6.3
    assert "steam" not in out.split("TOP 10")[1]


def test_data_that_are_missing_are_left_out_with_a_word(
    data_sets: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").touch()
    assert list(data_sets.present([tmp_path / "here", tmp_path / "gone"])) == [tmp_path / "here"]
    assert capsys.readouterr().err == "left out: gone is not in the --data folder\n"


def test_ties_with_the_last_rank_are_hits_and_missing_labels_are_misses(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    question = accuracy.Question(accuracy.Sample(np.array([9, 5, 5, 1])), 2, budget.rho, budget.delta)
    assert [accuracy.recall(question, labels) for labels in ([0, 2], [1, 2], [0, 3], [1], [])] == [1, 1, 0.5, 0.5, 0]
    assert [accuracy.missed(question, labels) for labels in ([0, 2], [0, 3], [])] == [0, 1 - 10 / 14, 1]


def test_bounding_keeps_so_many_distinct_labels_of_each_unit_and_all_of_those_below(data_sets: ModuleType) -> None:
    log = data_sets.generated("tiny", 200, rows=4_000, items=100)
    before = np.bincount(log.units)
    for most in (1, 5, 1_000):
        units, labels = log.kept(most)
        assert (np.bincount(units) == np.minimum(before, most)).all()
        assert set(zip(units, labels, strict=True)) <= set(zip(log.units, log.labels, strict=True))
        assert len(set(zip(units, labels, strict=True))) == len(units)


def test_a_unit_spreads_at_most_one_weight(accuracy: ModuleType, data_sets: ModuleType) -> None:
    log = data_sets.Log.of("one", np.zeros(7, dtype=np.int64), np.array([3, 3, 4, 5, 6, 7, 8]))
    for most in (1, 2, 6, 100):
        weights = accuracy.Sample(log.counts, log).weights(most)
        kept = min(most, 6)
        assert sorted(weights)[-kept:] == [accuracy.unit_weight(kept)] * kept
        assert int((weights**2).sum()) <= accuracy.WEIGHT_STEPS**2


def test_all_of_rho_is_spent_and_no_more(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    question = accuracy.Question(accuracy.Sample(np.array([9])), 7, budget.rho, budget.delta)
    for loss in (
        accuracy.LimitedDomain(question.epsilon(7), budget.delta, 7, 140).worst_case,
        accuracy.LaplaceLimitedDomain(question.pure, budget.delta, 7, 140, 5).worst_case,
        accuracy.StableTopK(question.epsilon(2), budget.delta, 7).loss,
        accuracy.TopStable(question.pure, budget.delta, 7, 7).worst_case,
        accuracy.JointExponential(question.epsilon(1), 7).worst_case,
        accuracy.Peeling(question.epsilon(7), 7).worst_case,
    ):
        assert 0.999999 < float(loss.rho.value / budget.rho.value) <= 1
        assert loss.delta.value <= budget.delta.value


def test_timing_shows_each_statement_with_and_without_the_victim_in_every_way_to_ask(tmp_path: Path) -> None:
    lines = run_alone("timing.py", cwd=tmp_path).splitlines()
    assert len(lines) == 2 + 3 * 6
    assert [line[:10].strip() for line in lines[2::6]] == ["in process", "worker", "on a grid"]
    for line in lines[2:]:
        present, absent, differ, low, high, largest, chance = map(float, line[36:].split())
        assert min(present, absent) > 0
        assert low <= differ <= high
        assert 0 <= chance <= 1 >= largest
        assert min(present, absent) >= (16 if line.startswith("on a grid") else 0)


def test_the_interval_of_a_median_misses_it_as_seldom_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import timing

    for number in (1, 5, 6, 20, 100):
        values = [float(value) for value in range(number, 0, -1)]
        low, high = timing.interval(values)
        missed = sum(
            math.comb(number, below) * 0.5**number
            for below in range(number + 1)
            if below < sum(value <= low for value in values) or number - below < sum(value >= high for value in values)
        )
        assert missed <= 0.05
        if number < 6:
            assert (low, high) == (-math.inf, math.inf)
        else:
            assert 1 <= low < high <= number
    assert timing.interval([float(value) for value in range(1, 101)]) == (40, 61)


def test_the_distance_of_times_is_small_between_equals_and_large_between_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import timing

    values = [float(value) for value in range(200)]
    assert timing.distance(values, values) == (0, 1)
    largest, chance = timing.distance(values, [value + 100 for value in values])
    assert largest == pytest.approx(0.5)
    assert chance < 1e-20


def test_the_wire_benchmark_asks_both_servers_each_kind_of_question(tmp_path: Path) -> None:
    lines = run_alone("wire.py", "--clients", 1, 2, cwd=tmp_path).splitlines()
    assert lines[2] == "5,000 rows"
    assert [line[:34].strip() for line in lines[4:]] == [
        f"{place}, {kind}" for kind in ("distinct", "again", "SELECT 1") for place in ("PostgreSQL", "dpsql")
    ]
    for line in lines[4:]:
        first, _, *rates = line[34:].replace("/s", "").split()
        assert float(first) >= 0
        assert len(rates) == 2
        assert min(map(float, rates)) > 0
