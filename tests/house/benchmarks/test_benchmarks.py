"""The benchmarks run, say what they promise to say, and measure what they say."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from support.benchmarks_kit import FOLDER, Load

import dpsql
from dpsql.quantities import Delta, Epsilon

SEEN_TO_RUN = [
    "all_keys",
    "bounded",
    "bounds",
    "budget_by",
    "cold_start",
    "concurrency",
    "dashboard",
    "counts_total",
    "crossing",
    "engines",
    "fixed",
    "ledger",
    "memory",
    "materialized",
    "scaling",
    "statistics",
    "surfaces",
]
SEEN_BELOW = [
    "certificates",
    "cluster",
    "exp1",
    "exp2",
    "exp3",
    "hard_case",
    "histograms",
    "large",
    "overhead",
    "peers",
    "recall",
    "released",
    "reuse",
    "timing",
    "wire",
]
Quick = Callable[..., list[Any]]


@pytest.fixture
def quick(load: Load, tmp_path: Path) -> Quick:
    """Run a suite in this process, on little data, and return its rows."""

    def rows(name: str, *arguments: object) -> list[Any]:
        suites = load("program.suites")
        data = ["--data", tmp_path] if hasattr(load(name), "accuracy") else []
        given = suites.given_to(name, ["--quick", *map(str, (*data, *arguments))])
        return list(suites.suite(name).run(given))

    return rows


@pytest.fixture
def data_sets(load: Load) -> ModuleType:
    return load("data_sets")


@pytest.fixture
def accuracy(load: Load) -> ModuleType:
    return load("accuracy")


def tables(rows: Sequence[Any], ending: str) -> list[dict[str, dict[str, Any]]]:
    """Return the tables whose titles end so, each as rows by name."""
    titles = dict.fromkeys(row.table for row in rows if row.table.endswith(ending))
    return [{row.name: row.values for row in rows if row.table == title} for title in titles]


def command(*arguments: object, cwd: Path) -> str:
    words = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# the program


def test_every_suite_is_run_here(load: Load) -> None:
    assert sorted([*SEEN_TO_RUN, *SEEN_BELOW]) == sorted(load("program.suites").SUITES)


@pytest.mark.parametrize("name", SEEN_TO_RUN)
def test_a_quick_suite_yields_rows_that_can_be_written_and_read(name: str, quick: Quick, load: Load) -> None:
    rows = quick(name)
    assert rows
    for row in rows:
        assert load("program.row").Row(**json.loads(json.dumps(row.told()))).told() == json.loads(
            json.dumps(row.told())
        )
        assert row.values
    for table in load("program.row").tables_of(rows):
        shown = load("program.tables").markdown(table)
        assert all(f"\n| {row.name}" in shown for row in table)


def test_a_suite_runs_by_name_and_as_a_file_and_the_report_tells_both(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_name = command("-m", "benchmarks", "run", "exp1", "--quick", "--out", "out", cwd=tmp_path)
    as_file = command(FOLDER / "histograms.py", "--quick", "--out", "out", "--k", 5, cwd=tmp_path)
    load("program.main").main(["report", str(tmp_path / "out")])
    told = capsys.readouterr().out
    assert told == (tmp_path / "out" / "report.md").read_text()
    for printed in (by_name, as_file):
        table = printed[printed.index("### ") :].rstrip()
        assert table.partition("\n### ")[0].rstrip() in told
    assert re.search(r"x .*, [0-9.]+ GiB, load .*; Python 3.*, duckdb .*, sqlglot .*, numpy .*; dpsql .* at \w+", told)
    assert told.count("figures of --quick, which mean nothing") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "exp1.jsonl",
        "exp1-1.svg",
        "exp1-2.svg",
        "exp1-3.svg",
        "histograms.jsonl",
        "report.md",
    }


def test_what_the_program_does_not_know_it_does_not_run(load: Load) -> None:
    main = load("program.main").main
    with pytest.raises(SystemExit, match="There is no suite peer; there are overhead, "):
        main(["run", "peer"])
    with pytest.raises(SystemExit, match=r"(?s)Suites:.*\n    wire +The wire server"):
        main(["--help"])
    with pytest.raises(SystemExit, match="There are no results in nowhere"):
        main(["report", "nowhere"])


def test_quick_changes_the_defaults_and_not_what_is_said(load: Load) -> None:
    given_to = load("program.suites").given_to
    assert given_to("fixed", []).repeats == 15
    assert given_to("fixed", ["--quick"]).repeats == 2
    assert given_to("fixed", ["--quick", "--repeats", "7"]).repeats == 7


def test_times_are_taken_in_turns_after_a_warm_up_by_the_clocks_that_are_given(load: Load) -> None:
    ran: list[str] = []
    clock = [0.0, 0.0]

    def run(name: str, cpu: float, wall: float) -> Callable[[], None]:
        def act() -> None:
            ran.append(name)
            clock[:] = clock[0] + cpu, clock[1] + wall * len(ran)

        return act

    times = load("program.times").in_turns({"a": run("a", 1, 1), "b": run("b", 2, 0)}, 3, clocks=lambda: tuple(clock))
    assert "".join(ran) == "abbaabba"
    assert times["a"].cpu == (1, 1, 1)
    assert times["a"].wall == (4, 5, 8)
    assert times["b"].values("ms") == {"CPU ms": (2_000,) * 3, "wall ms": (0,) * 3}


def test_a_table_tells_medians_ranges_and_ratios_to_the_row_that_is_named(load: Load) -> None:
    row, markdown = load("program.row").Row, load("program.tables").markdown
    shown = markdown(
        [
            row("costs", "plain", {"CPU s": (1.0, 2.0, 4.0)}, note="Few."),
            row("costs", "private", {"CPU s": (9.0, 3.0, 3.0), "rows": 12_345}, "plain"),
            row("costs", "a|b", {"CPU s": (1.0,), "word": "none"}, "plain"),
        ]
    )
    title, table, note = shown.split("\n\n")
    assert (title, note) == ("### costs", "Few.")
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
    assert cells[0] == ["", "CPU s", "CPU x plain", "rows", "word"]
    assert cells[2:] == [
        ["plain", "2.00 (1.00..4.00)", "", "", ""],
        ["private", "3.00 (3.00..9.00)", "1.50", "12,345", ""],
        [r"a\|b", "1.00", "0.50", "", "none"],
    ]
    assert len({len(line) for line in table.splitlines()}) == 1


def test_what_grows_by_more_than_a_line_is_told_so(load: Load) -> None:
    row, laws_of = load("program.row").Row, load("program.laws").laws_of
    sizes = (10, 100, 1_000)
    grown = [
        row("t", str(n), {"flat": 7, "line": (n, 2 * n, 3 * n), "square": n * n, "late": max(1, n / 100) ** 2}, at=n)
        for n in sizes
    ]
    laws = {law.column: law for law in laws_of(grown)}
    assert {name: round(law.power, 6) for name, law in laws.items()} == {"flat": 0, "line": 1, "square": 2, "late": 1}
    assert laws["late"].last == pytest.approx(2)
    assert [name for name, law in laws.items() if law.is_worse_than_linear] == ["square", "late"]
    assert "* square: to the power 2.00, in the last step 2.00 - MORE THAN LINEAR" in load("program.tables").markdown(
        grown
    )
    assert laws_of([row("t", "a", {"x": 1}), row("t", "b", {"x": 2})]) == []


def test_results_hold_every_row_of_a_run_and_say_if_it_was_cut_short(load: Load, tmp_path: Path) -> None:
    results, row = load("program.results"), load("program.row").Row
    rows = [row("t", "a", {"x": [1.5, 2.5]}), row("t", "b", {"x": [3.0]}, "a", 2.0, "Why.")]
    begun = results.Result.begun("fixed", "What it is.", {"quick": False, "out": tmp_path})
    recorded = results.recorded(begun, rows, folder=tmp_path)
    next(recorded)
    recorded.close()
    cut = results.read(tmp_path / "fixed.jsonl")
    assert (list(cut.rows), cut.ended) == (rows[:1], None)
    assert list(results.recorded(begun, rows, folder=tmp_path)) == rows
    whole = results.read(tmp_path / "fixed.jsonl")
    assert list(whole.rows) == rows
    assert whole.ended is not None
    assert (whole.suite, whole.purpose, whole.machine) == ("fixed", "What it is.", begun.machine)


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([{"CPU s": (1.0,)}, {"CPU s": (2.0,)}], "CPU s x a"),
        ([{"k = 1": 0.5, "k = 20": 0.7}, {"k = 1": 0.1, "k = 20": 0.2}], ">k<"),
        ([{"word": "none"}, {"word": "some"}], None),
    ],
)
def test_ratios_and_curves_are_drawn_and_words_are_not(
    load: Load, tmp_path: Path, values: list[dict[str, Any]], drawn: str | None
) -> None:
    row = load("program.row").Row
    table = [row("a title", "a", values[0]), row("a title", "b", values[1], "a")]
    with mpl.rc_context({"svg.fonttype": "none"}):
        assert load("program.plots").plotted(table, tmp_path / "plot.svg") is (drawn is not None)
    if drawn:
        assert drawn in (tmp_path / "plot.svg").read_text()


def test_the_laws_of_a_table_are_drawn(load: Load, tmp_path: Path) -> None:
    table = [load("program.row").Row("a title", str(n), {"ms": n}, at=n) for n in (1, 10)]
    with mpl.rc_context({"svg.fonttype": "none"}):
        assert load("program.plots").plotted(table, tmp_path / "law.svg")
    assert "ms: to the power 1.00" in (tmp_path / "law.svg").read_text()


# the suites


def test_the_time_outside_the_engine_leaves_out_what_the_engine_takes(load: Load) -> None:
    workload = load("workload")

    class Slow:
        def execute(self, _: object) -> None:
            time.sleep(0.2)

    engine = workload.TimedEngine(Slow())
    before = engine.outside()
    engine.execute("statement")
    assert 0 <= engine.outside()[1] - before[1] < 0.1


def test_overhead_has_a_table_of_ratios_for_each_combination(quick: Quick) -> None:
    rows = quick("overhead", "--threads", 1, 2, "--stores", "parquet")
    titles = list(dict.fromkeys(row.table for row in rows))
    assert titles == [
        f"3,000 rows, {unit} units, parquet, threads {threads}, memory 2GB"
        for unit in ("integer", "uuid")
        for threads in (1, 2)
    ]
    items, users = "plain COUNT(DISTINCT item)", "plain COUNT(DISTINCT user_id)"
    assert {row.name for row in rows if not row.against} == {"plain", items, users}
    assert {row.against for row in rows if row.name.startswith("items, ")} == {items}
    assert {row.against for row in rows if row.name.startswith(("AVG", "MEDIAN"))} == {users}
    assert {row.against for row in rows} == {"", "plain", items, users}


def test_large_tells_of_each_form_whether_it_ended(quick: Quick) -> None:
    plain, *forms, interrupt, session = quick("large")
    assert [row.name for row in forms] == ["unbounded", "at most 5"]
    assert {row.values["ended"] for row in (plain, *forms)} == {"well"}
    assert all(row.values["peak MiB"] > 50 for row in forms)
    assert interrupt.values == {"s until it has ended": "it was over"}
    assert session.values["MiB"] > 50


def test_large_tells_a_form_that_fails_and_how_soon_an_interrupt_ends_one(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, workload = load("large"), load("workload")

    def failing() -> None:
        raise dpsql.EngineError("engine-failed", "It does not fit.", hint="")

    events = workload.Events.of(1_000)
    with workload.written(events) as data, workload.opened(data, threads=1) as (engine, _):
        assert large._once(engine, failing)["ended"] == "failed"
    monkeypatch.setattr(large, "AFTER", 0.1)
    assert 0 <= large._ended_after(lambda: time.sleep(60)) < 30


def test_what_a_start_takes_beyond_python_is_told_turn_by_turn(load: Load) -> None:
    cold, times = load("cold_start"), load("program.times").Times
    taken = {"Python alone": times((1.0, 2.0), (3.0, 4.0)), "dpsql query": times((5.0, 8.0), (9.0, 9.0))}
    last = list(cold.starts(taken))[-1]
    assert (last.name, last.values) == ("dpsql query (aim 0.6 s)", {"CPU s": (4.0, 6.0), "wall s": (6.0, 5.0)})
    clocks = [(0.0, 1.0), *[(0.1 * at, 1.0 + at) for at in range(1, len(cold.STEPS) + 2)], (5.0, 40.0)]
    rows = list(cold.steps([clocks, clocks]))
    assert [rows[0].name, rows[-1].name] == ["Python's own start", "Python's own end"]
    assert len(rows) == len(cold.STEPS) + 2
    assert rows[3].values["CPU ms"] == pytest.approx((100.0, 100.0))
    assert rows[-1].values["wall ms"] == pytest.approx((1e3 * (39 - len(cold.STEPS) - 1),) * 2)
    told = "import time: self [us] | cumulative | imported package\nimport time:  1000 |  9 |   json.decoder\n"
    told += "import time:  2500 |  9 | dpsql\nimport time:  500 |  9 |     dpsql.sql\nsomething else\n"
    assert [(row.name, row.values) for row in cold.imports(told)] == [
        ("dpsql", {"ms": 3.0, "modules": 2}),
        ("the standard library", {"ms": 1.0, "modules": 1}),
        ("all", {"ms": 4.0, "modules": 3}),
    ]


def test_recall_shows_every_mechanism_and_yields_every_cell(quick: Quick, accuracy: ModuleType) -> None:
    rows = quick("recall", "--k", 5, 10)
    recalls, returned = tables(rows, ": recall"), tables(rows, ": returned")
    assert len(recalls) == len(returned) == 3
    assert all(set(table) == set(accuracy.MECHANISMS) for table in recalls)
    for found, sizes in zip(recalls, returned, strict=True):
        for name, cells in found.items():
            assert list(cells) == ["k = 5", "k = 10"]
            for k in (5, 10):
                assert 0 <= cells[f"k = {k}"] * k <= sizes[name][f"k = {k}"] + 1e-9 <= k + 1e-9
    assert max(cell for table in recalls for cells in table.values() for cell in cells.values()) > 0.5
    [ranks] = tables(rows, "where the best has 0.1")
    assert any("of the best, of 6 cells" in row.table for row in rows)
    assert set(ranks) == {*accuracy.MECHANISMS, "by k and epsilon, in hindsight"}
    [losses] = tables(rows, "where that has 0.1")
    assert {"AUTO", "AUTO of 0.11", "limited_domain", "AUTO of 0.10", "AUTO of 0.10 with a population"} < set(losses)
    assert all(0 <= cells["mean loss"] <= 1 for cells in losses.values())


def test_recall_prints_which_share_is_charged(quick: Quick) -> None:
    [prices] = tables(quick("recall", "--k", 10, 100), "share of the worst case that is charged")
    assert set(prices) == {"AUTO", "AUTO of 0.11"}
    assert all(0 < value <= 1 for cells in prices.values() for value in cells.values())
    # `maths.md` 9.5: of 100 draws, 3.3 of 10 and 11 of 100 items on average
    assert 0.19 <= prices["AUTO"]["nothing, k = 10"] <= 0.5
    assert 0.06 < prices["AUTO"]["nothing, k = 100"] < 0.3
    assert prices["AUTO of 0.11"]["nothing, k = 100"] == 1
    assert 0.19 <= prices["AUTO of 0.11"]["nothing, k = 10"] <= 0.35


def test_recall_measures_shares_of_a_total_and_the_rules_alone(quick: Quick, load: Load) -> None:
    rows = quick("recall", "--k", 5, "--rules")
    recalls = tables(rows, ": recall")
    rules = {"AUTO", "AUTO of 0.11", "limited_domain", "weighted_gaussian most=100", "domain_discovery most=100"}
    assert [set(table) for table in recalls] == [rules] * 3
    assert set(tables(rows, "where that has 0.1")[0]) == rules
    share = load("recall").share
    whole, fifth, items = (share(budget, 20) for budget in ("1", "1/5", "items"))
    assert [whole[0].value / part[0].value for part in (fifth, items)] == [5, 5]  # 20 of 100 items
    assert [whole[1].value / part[1].value for part in (fifth, items)] == [5, 20]


def test_recall_prints_the_errors_of_the_gate(quick: Quick) -> None:
    [errors] = tables(quick("recall", "--k", 10, 100, "--only", "none"), "errors of the gate")
    assert len(errors) == 4
    looks = errors["k = 10, after the first look"]
    assert round(looks["opens on nothing"], 3) == 0.202  # `open_probability` of `TwoLooks`
    assert looks["shut, all k"] < looks["shut, k/2 at the threshold"] < looks["shut, one at twice"] < 0.8
    assert errors["k = 10, before a mechanism by name"]["opens on nothing"] > looks["opens on nothing"]


def test_recall_lists_the_gaps_of_one_mechanism(quick: Quick) -> None:
    [gaps] = tables(quick("recall", "--k", 5, "--gaps", "stable_top_k"), "where stable_top_k is more than 0.03 behind")
    assert next(iter(gaps)).startswith("tiny, k = 5, epsilon ")
    for cell in gaps.values():
        assert cell["of the best"] - cell["stable_top_k"] > 0.03


def test_recall_lists_the_gaps_of_auto_and_never_those_of_the_fixed_choices_to_it(quick: Quick) -> None:
    for gaps in tables(quick("recall", "--k", 5), "where AUTO is more than 0.03 behind"):
        assert not any(cell["best"].startswith("AUTO") for cell in gaps.values())


def test_auto_is_what_the_planner_chooses_and_returns_what_that_does(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    chosen = {
        (k, most): accuracy.planned(k, budget.rho, delta=budget.delta, most=most).mechanism
        for k in (10, 100)
        for most in (None, 1)
    }
    assert set(chosen.values()) == {"two_looks"}
    far_apart = np.array([9_000, 8_000, 7_000, *[3] * 50])
    question = accuracy.Question(accuracy.Sample(far_apart), 3, budget.rho, budget.delta)
    for name in ("AUTO", "AUTO of 0.11", "AUTO of 0.10", "AUTO of 0.10 with a population", "AUTO most=1"):
        assert list(accuracy.MECHANISMS[name](question)) == [0, 1, 2]


def test_a_plan_of_auto_has_the_parameters_of_the_fixed_choices(accuracy: ModuleType) -> None:
    budget = accuracy.terms("1", "1e-6")
    few, many = (accuracy.planned(k, budget.rho, delta=budget.delta, most=None) for k in (10, 100))
    assert (few.k_bar, many.k_bar) == (1_000, accuracy.K_BAR_PER_K * 100)
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


def test_hindsight_is_what_one_choice_for_each_k_and_epsilon_reaches(accuracy: ModuleType, load: Load) -> None:
    recall = load("recall")

    def column(**recalls: float) -> dict[str, object]:
        return {name: accuracy.Cell((recalls.get(name, 0.0),), (0.0,), (1,)) for name in accuracy.MECHANISMS}

    table = {
        recall.Place("a", 10, "1"): column(peeling=1.0, limited_domain=0.9),
        recall.Place("b", 10, "1"): column(limited_domain=0.9),
        recall.Place("c", 10, "1"): column(top_stable=0.9, limited_domain=0.86),
        recall.Place("c", 10, "0.1"): column(top_stable=0.9, AUTO=1.0),
    }
    assert recall.hindsight(table) == 3 / 4


def test_the_hard_case_asks_every_mechanism_through_sql_for_all_of_rho(quick: Quick) -> None:
    [table] = tables(quick("hard_case", "--k", 5), "; k = 5")
    plain = table.pop("plain query")
    assert min(plain["seconds"]) > 0
    assert len(table) == 13
    assert sum(name.startswith("AUTO: ") for name in table) == 1
    for row in table.values():
        least, hits, returned = (round(10 * each, 6) for each in (row["least"], row["recall"], row["returned"] / 5))
        assert 0 <= least <= hits <= returned <= 10  # of two trials with five items each: the means are not exact
        assert 0.99 < row["reserved"] <= 1
        assert len(row["seconds"]) == 2
    assert max(row["recall"] for row in table.values()) > 0.5


def test_released_names_are_known_to_the_queries_that_follow(quick: Quick) -> None:
    rows = quick("released")
    assert {*tables(rows, "beside 1,000 names that were released")[0]} == {
        "known = false",
        "known names (aim 20 ms more)",
    }
    [table] = tables(rows, "(1, 1e-6) in all")
    assert list(table) == [
        "AUTO without",
        "AUTO",
        "AUTO with all",
        "weighted_gaussian without",
        "weighted_gaussian",
        "weighted_gaussian with all",
        "domain = released",
    ]
    for row in table.values():
        assert 0 <= row["recall"] <= row["returned"] / 5 + 1e-9
    assert table["domain = released"]["mechanism"] in {"peeling", ""}  # "" where the broad list released nothing
    every = table["weighted_gaussian with all"]
    assert every["returned"] >= min(5, every["known"]) - 1e-9


def test_reuse_charges_fewer_items_where_answers_follow_from_others(quick: Quick) -> None:
    tiles, written, apart, beside = quick("reuse")
    # No tile is part of another, whatever the noise; of the questions beside them some are, in these orders.
    assert [row.values["answers from others, mean"] for row in (tiles, written, apart)] == [0, 0, 0]
    assert beside.values["answers from others, mean"] > 0
    assert apart.table == beside.table != tiles.table


def test_exp1_shows_the_baselines_and_all_mechanisms(quick: Quick, accuracy: ModuleType) -> None:
    rows = quick("exp1")
    for epsilon in ("0.4", "0.8", "1.0"):
        [table] = tables(rows, f", epsilon {epsilon}")
        assert {*accuracy.MECHANISMS, "limited_domain theorem2", "the same, public code: sign reversed"} <= set(table)


def test_exp1_shows_the_cells_of_the_paper_and_which_are_far(load: Load, accuracy: ModuleType) -> None:
    exp1 = load("exp1")
    names = exp1.PAPER["brightkite_subset"]
    cell = accuracy.Cell((0.5,), (0.0,), (1,))
    table = {exp1.OF_PAPER[name]: {(epsilon, k): cell for epsilon in exp1.EPSILONS for k in (3, 10)} for name in names}
    rows = list(exp1.told("data", table, exp1.PAPER["brightkite_subset"]))
    [paper] = [row for row in rows if row.table == "data, epsilon 0.4" and row.name == "paper: limited_domain"]
    assert paper.values == {"k = 3": 1.00, "k = 10": 0.47}
    assert paper.note == "limited_domain differs from the paper in 1 of 2 cells: k = 3: -0.50"


def test_exp2_shows_windows_and_the_gap(quick: Quick) -> None:
    rows = quick("exp2")
    [states] = tables(rows, "ten days for (0.1, 1e-6): recall")
    assert list(states["AUTO"]) == ["day 1-10", "day 11-20", "day 21-30", "day 31-40"]
    [gap], [deviation] = tables(rows, "(0.15, 1e-6): recall"), tables(rows, "(0.15, 1e-6): deviation")
    assert gap["stable_top_k"] == {"k = 10": 1.0, "k = 50": 1.0}
    assert deviation["stable_top_k"] == {"k = 10": 0.0, "k = 50": 0.0}
    assert gap["limited_domain"]["k = 10"] != 1.0
    assert gap["stable, then EM"] == {"k = 10": 1.0, "k = 50": 1.0}
    assert list(gap["paper: StableTopK, then EM and TS"]) == ["k = 10", "k = 50"]
    assert states["paper: EM, then StableTopK and TS; then LD"]["day 31-40"] in {"yes; yes", "yes; no", "no; yes"}


@pytest.mark.parametrize("stable", [0, 2, 3, 4, 9])
def test_exp2_completes_a_stable_set_to_k_from_a_public_list(load: Load, accuracy: ModuleType, stable: int) -> None:
    counts = np.array([10**6 - 10**5 * at for at in range(9)], dtype=np.int64)
    question = accuracy.Question(accuracy.Sample(counts), 3, accuracy.Rho("0.1"), accuracy.Delta("1e-6"))
    assert sorted(load("exp2").completed(question, stable=stable)) == [0, 1, 2]


def test_exp3_shows_every_method_for_both_relations(quick: Quick, load: Load) -> None:
    rows, methods = quick("exp3"), list(load("exp3").METHODS)
    learnt = tables(rows, "F1 of the student")
    assert [list(table) for table in learnt] == [[*methods, "teachers, not private"]] * 2
    assert all(0 <= value <= 1 for table in learnt for row in table.values() for value in row.values())
    for enough in tables(rows, "of the teachers"):
        assert list(enough)[:-1] == methods
        assert list(enough.values())[-1]["epsilon"] in {"yes", "no"}
    [charged] = tables(rows, "delta 1e-6")
    assert [round(row["epsilon"], 1) for row in charged.values()] == [71.3, 20.8, 3.9]  # `maths.md` 7.5


def test_exp3_without_noise_to_speak_of_gives_the_labels_of_the_teachers(load: Load) -> None:
    exp3 = load("exp3")
    task = exp3.task_of("tiny", *exp3.made_up(), teachers=30, examples=20)
    answered, labels = exp3.without_noise(task)
    assert answered.all()
    assert (exp3.majority(task, Fraction(10**9), most=task.labels)[1] == labels).all()
    votes = task.votes.sum(axis=0)
    answered, stable = exp3.stable(task, exp3.StableTopK(Epsilon(10**4), Delta("0.5"), exp3.K_BAR))
    widest = [max(range(exp3.K_BAR), key=lambda at: np.diff(-np.sort(-each))[at] * -1) + 1 for each in votes]
    assert answered.mean() > 0.9
    assert [int(each.sum()) for each in stable[answered]] == list(np.array(widest)[answered])


def test_exp3_says_which_data_are_not_there(load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = load("program.suites").given_to("exp3", ["--data", str(tmp_path)])
    assert {row.table for row in load("exp3").run(given)} == {
        "600 examples, 40 labels, deviations 50 and 60, delta 1e-6"
    }
    told = capsys.readouterr().err.splitlines()
    assert told == [f"left out: {name}.parquet is not in the --data folder" for name in load("exp3").DATA]


def test_histograms_show_recall_and_error_of_both_kinds_of_domain(quick: Quick) -> None:
    rows = quick("histograms", "--k", 5)
    for what in ("recall", "missed"):
        found = tables(rows, what)
        assert len(found) == 2
        assert all({"gaussian_histogram most=1", "peeling"} <= set(table) for table in found)


def test_certificates_ask_a_session_and_say_what_is_not_there(quick: Quick, capsys: pytest.CaptureFixture[str]) -> None:
    rows = quick("certificates")
    [sessions] = tables(rows, "queries answered for (1, 1e-6)")
    assert list(sessions) == ["msweb, 100 items"]
    assert capsys.readouterr().err == "left out: steam200k_purchases.parquet is not in the --data folder\n"
    row = sessions["msweb, 100 items"]
    assert row["pay what you get"] >= row["charging k"] == 10
    assert row["ended for want of"] in {"budget", "questions"}
    [items], [gains] = (
        tables(rows, "buys, by epsilon of an item"),
        tables(rows, "gain over theorem2, by epsilon of an item"),
    )
    assert items["0.01"]["zcdp"] == 1_948  # `maths.md` 6.3
    assert round(gains["0.01"]["zcdp"], 2) == 1.54


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


def test_timing_shows_each_statement_with_and_without_the_victim_in_every_way_to_ask(quick: Quick) -> None:
    rows = quick("timing")
    ways = list(dict.fromkeys(row.table for row in rows))
    assert ways == ["in process, 6 turns", "in a worker, 6 turns", "on a grid of 16 ms, 2 turns"]
    assert len(rows) == 3 * 6
    for row in rows:
        told = row.values
        assert min(*told["with, ms"], *told["without, ms"]) >= (16 if row.table == ways[2] else 1e-9)
        assert told["from"] <= told["differ"] <= told["to (95%)"]
        assert 0 <= told["chance"] <= 1 >= told["distance"]


def test_the_interval_of_a_median_misses_it_as_seldom_as_it_says(load: Load) -> None:
    timing = load("timing")

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


def test_the_distance_of_times_is_small_between_equals_and_large_between_others(load: Load) -> None:
    timing = load("timing")

    values = [float(value) for value in range(200)]
    assert timing.distance(values, values) == (0, 1)
    largest, chance = timing.distance(values, [value + 100 for value in values])
    assert largest == pytest.approx(0.5)
    assert chance < 1e-20


def test_the_wire_benchmark_asks_both_servers_each_kind_of_question(quick: Quick) -> None:
    rows = quick("wire")
    places = ("PostgreSQL", "dpsql", "dpsql, TLS")
    tables = [f"5,000 rows, {kind}" for kind in ("distinct", "again", "SELECT 1", "SHOW", "columns")] + ["login"]
    assert [(row.table, row.name) for row in rows] == [(table, place) for table in tables for place in places]
    for row in rows:
        first, *rates = row.values.values()
        if row.table == "login":
            assert median(first) > 0
            continue
        assert len(first) == 4
        assert median(first) > 0
        assert list(row.values)[1:] == ["a second, clients = 1", "a second, clients = 2"]
        assert min(rates) > 0


def test_systems_that_are_not_installed_are_rows_that_say_so_beside_what_runs(quick: Quick, load: Load) -> None:
    peers = load("peers")
    rows = quick("peers")
    [written], [found] = tables(rows, "what a user writes"), tables(rows, "for systems that want a bound")
    assert list(written) == [*peers.OURS, *peers.OTHERS]
    ours = [name for ways in peers.OURS.values() for name in ways]
    assert list(found) == [*ours, *peers.OTHERS]
    for name in ours:
        assert min(*found[name]["wall s"], *found[name]["wall x plain"], found[name]["start s"]) > 0
        assert 0 <= found[name]["least"] <= found[name]["recall"] <= 1
        assert found[name]["peak MiB"] > 10
    assert found["plain"]["least"] == 1
    for name in peers.OTHERS:
        assert found[name] == {"wall s": "not run"}
    notes = [row.note for row in rows]
    assert f"{name}: not installed: --environments FOLDER says where environments are, or are to be made" in notes
