"""Drop one unit: the weights of bins fall by what the unit weighs alone, which is at most its rows' share of a group.

The generated SQL is run on random tables and compared with a reference in Python; statements that are wrong in the ways
one could get them wrong are caught.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

import duckdb
import pytest
from support.session_kit import session_on
from support.sql_reference import drop_unit, keep_unit

import dpsql
from dpsql.plan.mechanisms.quantiles import QuantilesPlan
from dpsql.plan.plan import Plan
from dpsql.sql.ir.measures import Bins, build_bins
from dpsql.sql.ir.tree import BIGINT, DOUBLE

Row = tuple[int | None, str | None, float | None, bool | None]
Weights = Counter[tuple[object, ...]]  # by key and bin
ROWS, SHIFT = 3, 10
BOUNDS = {"rows": ROWS, "x": {"each": {"min": 0, "max": 10}}}
CON = duckdb.connect()
FILL = "INSERT INTO reads SELECT unnest(?::BIGINT[]), unnest(?::VARCHAR[]), unnest(?::DOUBLE[]), unnest(?::BOOLEAN[])"
KNOWN = "GROUP BY k ALL PRIVATE WITH (domain = ['a', 'b', 'zz'], epsilon = 1"
STATEMENTS = {
    "total": "SELECT MEDIAN(x) AS m FROM reads PRIVATE WITH (epsilon = 1)",
    "filter": "SELECT MEDIAN(x) FILTER (WHERE flag) AS m FROM reads PRIVATE WITH (epsilon = 1)",
    "wide": "SELECT MEDIAN(x, contribution_bounds_per_row => (0.1, 50)) AS m FROM reads PRIVATE WITH (epsilon = 1)",
    "known": f"SELECT k, MEDIAN(x) AS m FROM reads {KNOWN})",
    "bounded": f"SELECT k, MEDIAN(x) AS m FROM reads {KNOWN}, max_groups_contributed = 1)",
}


def build_plan(text: str) -> Plan:
    CON.execute("CREATE TABLE IF NOT EXISTS reads (unit BIGINT, k VARCHAR, x DOUBLE, flag BOOLEAN)")
    table = dpsql.PrivateTable("unit", bounds=BOUNDS)
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": table}, limits=dpsql.Limits(max_epsilon=10))
    with session_on(CON, policy) as session:
        return session.explain(text)


PLANS = {name: build_plan(text) for name, text in STATEMENTS.items()}


def read(plan: Plan, rows: list[Row], *, change: Callable[[str], str] = str) -> Weights:
    """Return the weights that the statement of a plan finds in a table, by key and bin."""
    CON.execute("DELETE FROM reads")
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    CON.execute(FILL, columns)
    (counting,) = plan.spec.further
    found: Weights = Counter()
    for *group, weight in CON.execute(change(counting.sql), list(counting.parameters)).fetchall():
        found[tuple(group)] += weight
    return +found


def draw_rows(seed: int) -> list[Row]:
    """Return rows of few units: one in a dozen rows has no unit, or no value; some values are beyond the range."""
    rng = random.Random(seed)
    values = [None, math.nan, math.inf, -math.inf, -3.0, 0.0, 0.1, 0.2, 0.4, 2.5, 5.0, 9.999, 10.0, 49.0, 50.0, 77.0]
    return [
        (
            rng.choice([None, 1, 1, 1, 2, 3, 4]),
            rng.choice([None, "a", "b", "c"]),
            rng.choice(values),
            rng.choice([True, False, None]),
        )
        for _ in range(rng.randrange(40))
    ]


def find_bin(bins: Bins, value: float) -> int:
    """Return the bin whose ends a value is between; the first or the last for one beyond."""
    for number in range(bins.count):
        if Fraction(value) < bins.find_ends(number)[1]:
            return number
    return bins.count - 1


def weigh(name: str, rows: list[Row]) -> Weights:
    """Return the weights of units that are in all their groups."""
    own = PLANS[name].mechanism_plan
    assert isinstance(own, QuantilesPlan)
    bins, counted, found = own.drawn[0].bins, defaultdict[tuple[object, ...], Counter[int]](Counter), Weights()
    for unit, key, value, flag in rows:
        keyed = name in {"known", "bounded"}
        is_known = not keyed or key in {"a", "b", "zz"}
        if unit is None or value is None or math.isnan(value) or not is_known or (name == "filter" and not flag):
            continue
        place = 0 if value == -math.inf else bins.count - 1 if value == math.inf else find_bin(bins, value)
        counted[(*([key] if keyed else []), unit)][place] += 1
    for (*group, _), numbers in counted.items():
        total = numbers.total()
        for place, number in numbers.items():
            weight = number << SHIFT if total <= ROWS else (number * ROWS << SHIFT) // total
            found[(*group, place)] += weight
    return +found


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name != "bounded"])
def test_the_statement_weighs_as_the_reference_does(name: str) -> None:
    for seed in range(40):
        rows = draw_rows(seed)
        assert read(PLANS[name], rows) == weigh(name, rows), seed


def find_faults(name: str, change: Callable[[str], str] = str) -> Iterator[str]:
    """Yield what a dropped unit changes beyond what it has alone, and where that is more than it may be."""
    for seed in range(25):
        rows = draw_rows(seed)
        together = read(PLANS[name], rows, change=change)
        for unit in (1, 2):
            without = read(PLANS[name], drop_unit(rows, unit), change=change)
            alone = read(PLANS[name], keep_unit(rows, unit), change=change)
            if together != without + alone:
                yield f"{seed}: unit {unit} changes others"
            groups = Counter[tuple[object, ...]]()
            for (*group, _), weight in alone.items():
                groups[tuple(group)] += weight
            if max(groups.values(), default=0) > ROWS << SHIFT:
                yield f"{seed}: unit {unit} weighs {max(groups.values())}"
            if name == "bounded" and len(groups) > 1:
                yield f"{seed}: unit {unit} is in {len(groups)} groups"


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_unit_changes_weights_by_what_it_has_alone(name: str) -> None:
    assert not list(find_faults(name))


WRONG = {
    "rows not capped": ("total", lambda sql: sql.replace("count() > 3", "count() > 3000000")),
    "rows not capped in groups": ("bounded", lambda sql: sql.replace("dpsql_number <= 3", "dpsql_number <= 3000000")),
    "rounded up": ("total", lambda sql: sql.replace("// system.main.min(dpsql_number)", "// min(dpsql_number) + 1")),
    "rounded up in groups": ("bounded", lambda sql: sql.replace("// dpsql_number)", "// dpsql_number + 1)")),
    "units in bins together": ("total", lambda sql: sql.replace(", dpsql_binned.dpsql_unit)", ")")),
    "rows of all units": ("bounded", lambda sql: sql.replace("OVER (PARTITION BY dpsql_key_1, dpsql_unit)", "OVER ()")),
    "no bound on groups": ("bounded", lambda sql: sql.replace("dpsql_rank <= 1", "dpsql_rank <= 9")),
    "draws by other units": ("bounded", lambda sql: sql.replace("OVER (PARTITION BY dpsql_unit ORDER", "OVER (ORDER")),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", WRONG)
def test_every_known_mistake_is_caught(mistake: str) -> None:
    name, change = WRONG[mistake]
    (counting,) = PLANS[name].spec.further
    assert change(counting.sql) != counting.sql
    assert next(find_faults(name, change), None) is not None


@pytest.mark.mutant
def test_a_filter_behind_the_weights() -> None:
    # the weight of a row of a unit is then that of rows that do not pass, too
    rows: list[Row] = [(1, "a", 5.0, True), *[(1, "a", 5.0, False)] * 5]
    whole = read(PLANS["total"], rows)
    assert read(PLANS["filter"], rows).total() == 1 << SHIFT
    assert whole.total() * 1 // 6 != 1 << SHIFT


@pytest.mark.parametrize(
    ("low", "high", "type_", "most"),
    [
        ("0", "600", BIGINT, 1024),
        ("0", "600", BIGINT, 100),
        ("-5", "5", DOUBLE, 7),
        ("0.1", "50", DOUBLE, 64),
        ("1", "1e9", BIGINT, 1024),
    ],
)
def test_bins_follow_each_other_from_end_to_end(low: str, high: str, type_: object, most: int) -> None:
    bins = build_bins(Fraction(low), Fraction(high), type_=type_, most=most)  # type: ignore[arg-type]
    ends = [bins.find_ends(number) for number in range(bins.count)]
    assert ends[0][0] == Fraction(low)
    assert ends[-1][1] == Fraction(high)
    if bins.whole:
        assert [one for one, _ in ends] == list(range(int(low), int(high) + 1))
        return
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    assert all(one < other for one, other in ends)
    values = [bins.read_value(number, type_) for number in range(bins.count)]  # type: ignore[arg-type]
    slack = 1 if type_ == BIGINT else 0
    assert all(one - slack <= value <= other for value, (one, other) in zip(values, ends, strict=True))
    if Fraction(low) > 0:  # each doubling has as many bins
        assert max((other - one) / one for one, other in ends) < Fraction(8, most) * 20
    with pytest.raises(IndexError):
        bins.find_ends(bins.count)
