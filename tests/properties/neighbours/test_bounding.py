"""The three forms of bounding on tables of their own: one order of a unit's groups, total, even, not to be steered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import duckdb
import pytest
from support.sql_reference import NASTY_COLUMNS, catalog_of, nasty_tables, private, same

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite import bounding
from dpsql.sql.rewrite.bounding import MIN_GROUPS_SORTED_APART, UNIT, Bound, UnitRows, bound_contributions
from dpsql.sql.rewrite.engine_query import rewrite_leaders

SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
FORMS = {"least": 1, "window": 5, "split": MIN_GROUPS_SORTED_APART}
BASE = f"SELECT item AS dpsql_key_1, who AS {UNIT} FROM seen"
UNMIXED = f"hash('salt', {UNIT}, dpsql_key_1)"
Row = tuple[object, ...]


def kept_sql(groups: int, *, base: str = BASE, keys: int = 1) -> tuple[str, list[object]]:
    """Return the SQL of the kept groups and their units, and its parameters."""
    writer = Writer()
    names = [f"dpsql_key_{at}" for at in range(1, keys + 1)]
    kept = bound_contributions(writer, UnitRows(base, names), bound=Bound(groups, SALTS))
    opening = f"WITH {', '.join(kept.ctes)} " if kept.ctes else ""
    return f"{opening}SELECT {', '.join(names)}, {UNIT} FROM ({kept.source})", writer.parameters


def kept(con: duckdb.DuckDBPyConnection, groups: int, *, base: str = BASE, keys: int = 1) -> dict[object, set[Row]]:
    """Return the kept groups of each unit, with one spelling for equal values; no group comes twice."""
    sql, parameters = kept_sql(groups, base=base, keys=keys)
    rows = con.execute(sql, parameters).fetchall()
    found: dict[object, set[Row]] = {}
    for *group, unit in rows:
        found.setdefault(unit, set()).add(same(group))
    assert sum(map(len, found.values())) == len(rows)
    return found


def seen(rows: Sequence[Row], *, types: str = "who BIGINT, item VARCHAR") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE seen({types})")
    con.execute(
        f"INSERT INTO seen VALUES {', '.join(['(?, ?)'] * len(rows))}", [value for row in rows for value in row]
    )
    return con


@pytest.fixture(params=[MIN_GROUPS_SORTED_APART, 2], ids=["forms", "split"])
def _many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The constant as it is, and one that sends every bound above 1 to the split form."""
    monkeypatch.setattr(bounding, "MIN_GROUPS_SORTED_APART", request.param)
    return int(request.param)


@pytest.fixture
def ladder() -> Iterator[duckdb.DuckDBPyConnection]:
    """Unit n has n groups, one of them NULL, each several times, in an order of no meaning."""
    rows = [(unit, f"item {at}" if at else None) for unit in range(1, 41) for at in range(unit)] * 3
    Random(1).shuffle(rows)
    with seen(rows) as con:
        yield con


@pytest.mark.usefixtures("_many")
def test_each_unit_keeps_its_bound_or_all(ladder: duckdb.DuckDBPyConnection) -> None:
    for groups in (1, 2, 5, MIN_GROUPS_SORTED_APART - 1, MIN_GROUPS_SORTED_APART, 20, 40, 10**9):
        assert {unit: len(own) for unit, own in kept(ladder, groups).items()} == {
            unit: min(unit, groups) for unit in range(1, 41)
        }


@pytest.mark.usefixtures("_many")
def test_a_smaller_bound_keeps_some_of_what_a_larger_one_keeps(ladder: duckdb.DuckDBPyConnection) -> None:
    """So the forms take the groups of a unit in one and the same order."""
    bounds = (1, 2, 3, MIN_GROUPS_SORTED_APART - 1, MIN_GROUPS_SORTED_APART, 30, 40)
    for smaller, larger in pairwise(bounds):
        few, many = kept(ladder, smaller), kept(ladder, larger)
        assert all(few[unit] <= many[unit] for unit in many)


@pytest.mark.parametrize("groups", FORMS.values(), ids=FORMS)
def test_other_units_row_order_and_duplicates_change_nobody(groups: int, ladder: duckdb.DuckDBPyConnection) -> None:
    before = kept(ladder, groups)
    ladder.execute("INSERT INTO seen SELECT 1000 + i % 7, 'item ' || i % 60 FROM range(500) AS t(i)")
    ladder.execute("CREATE TABLE other AS FROM (FROM seen UNION ALL FROM seen) ORDER BY hash(item, who)")
    base = BASE.replace("seen", "other")
    assert {unit: own for unit, own in kept(ladder, groups, base=base).items() if unit in before} == before


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.usefixtures("_many")
def test_groups_of_equal_draws_are_taken_by_their_keys(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """Unequal labels of one 64-bit hash can be made up on purpose: no row order may decide between them."""
    monkeypatch.setattr(Writer, "draw", lambda *_, **__: "CAST(0 AS UBIGINT)")
    items = [None, "", "B", "a", "b", "\x00", "\x00a", "\U0001f642", "Z" * 3000, "é"]
    in_order = [item for _, item in sorted((item.encode(), item) for item in items if item is not None)]
    for seed in range(20):
        rows = [(unit, item) for unit in range(5) for item in items]
        Random(seed).shuffle(rows)
        with seen(rows, types="who BIGINT, item VARCHAR COLLATE NOCASE") as con:
            chosen = kept(con, groups, base=BASE.replace("item AS", "(item COLLATE C) AS"))
            assert chosen == {unit: {same([item]) for item in in_order[:groups]} for unit in range(5)}
            everything = kept(con, len(items), base=BASE.replace("item AS", "(item COLLATE C) AS"))
            assert all(len(own) == len(items) for own in everything.values())


@pytest.mark.mutant
def test_a_cut_whose_ties_rows_decide_fails_the_same_test() -> None:
    chosen = set()
    for seed in range(20):
        items = list("abcdefgh")
        Random(seed).shuffle(items)
        with seen([(1, item) for item in items]) as con:
            chosen.add(con.execute("SELECT arg_min(item, 0) FROM seen GROUP BY who").fetchall()[0])
    assert len(chosen) > 1


def printed(con: duckdb.DuckDBPyConnection, query: PrivateQuery, bound: Bound | None = None) -> dict[Row, int]:
    """Return the counts by what DuckDB prints of the keys: Python has no words for some dates."""
    counting = rewrite_leaders(query, 1_000, bound=bound)
    rows = con.execute(
        f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({counting.sql})", list(counting.parameters)
    ).fetchall()
    return {row[:-1]: int(row[-1]) for row in rows}


@pytest.mark.parametrize("setting", ["", "NOCASE"])
@pytest.mark.usefixtures("_many")
def test_every_type_of_key_keeps_its_values_and_its_bytes(setting: str) -> None:
    """A struct and a CTE hand the keys on as they are, 16 at once too."""
    columns = [name for name in NASTY_COLUMNS if name != "iv"]
    con = nasty_tables()
    con.execute(f"SET default_collation = '{setting}'")
    units = con.execute("SELECT DISTINCT unit FROM nasty WHERE unit IS NOT NULL").fetchall()
    catalog = catalog_of(con, {"nasty": "unit"}, [])
    for keys in [*columns, ", ".join(columns[:16]), ", ".join(columns[-16:])]:
        query = private(f"SELECT {keys} FROM nasty GROUP BY ALL TOP 9 PRIVATE", catalog)
        plain = printed(con, query)
        own = [
            len(printed(con, private(query.text.replace("GROUP", f"WHERE unit = {unit} GROUP"), catalog)))
            for (unit,) in units
        ]
        assert printed(con, query, Bound(10_000, SALTS)) == plain
        for groups in (1, 2, MIN_GROUPS_SORTED_APART):
            found = printed(con, query, Bound(groups, SALTS))
            assert all(count <= plain[key] for key, count in found.items())
            assert sum(found.values()) == sum(min(groups, size) for size in own)


@pytest.mark.parametrize("setting", ["", "NOCASE"])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.usefixtures("_many")
def test_units_that_a_collation_confuses_are_bounded_apart(groups: int, setting: str) -> None:
    with seen([(who, item) for who in ("Ann", "ann") for item in "aAbB"], types="who VARCHAR, item VARCHAR") as con:
        con.execute(f"SET default_collation = '{setting}'")
        base = f"SELECT (item COLLATE C) AS dpsql_key_1, (who COLLATE C) AS {UNIT} FROM seen"
        assert {who: len(own) for who, own in kept(con, groups, base=base).items()} == {"Ann": groups, "ann": groups}


@pytest.mark.parametrize("groups", FORMS.values(), ids=FORMS)
def test_threads_and_reruns_change_nothing(groups: int) -> None:
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE seen AS
        SELECT hash(i // 3) % 9000 AS who, 'item ' || hash(hash(i // 2)) % 700 AS item FROM range(400_000) AS t(i)
    """)
    sql, parameters = kept_sql(groups)
    digest = f"SELECT count(), bit_xor(hash(hash({UNIT}, dpsql_key_1))) FROM ({sql})"
    found = set()
    for threads in (1, 2, 4, 2, 1):
        con.execute(f"SET threads = {threads}")
        found.update(con.execute(digest, parameters).fetchall())
    assert len(found) == 1


def crowd(units: int, items: int) -> duckdb.DuckDBPyConnection:
    """Return a table in which every unit has every item."""
    con = duckdb.connect()
    con.execute(f"""
        CREATE TABLE seen AS
        SELECT u AS who, 'item ' || i AS item FROM range({units}) AS a(u), range({items}) AS b(i)
    """)
    return con


def deviations(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object], chance: float) -> list[float]:
    """Return by how many standard deviations each item's inclusions differ from an even draw's."""
    ((units,),) = con.execute("SELECT count(DISTINCT who) FROM seen").fetchall()
    spread = math.sqrt(units * chance * (1 - chance))
    counted = con.execute(f"SELECT dpsql_key_1, count() FROM ({sql}) GROUP BY 1", parameters).fetchall()
    return [(count - units * chance) / spread for _, count in counted]


def is_even(scores: list[float]) -> bool:
    """Hold no score above 4.5 (7e-6 of even draws) and a mean square from 0.6 to 1.5 (about as rare over 250)."""
    mean_square = sum(score**2 for score in scores) / len(scores)
    return max(map(abs, scores)) < 4.5 and 0.6 < mean_square < 1.5


@pytest.mark.parametrize("groups", FORMS.values(), ids=FORMS)
def test_every_item_is_kept_as_often_as_every_other(groups: int) -> None:
    con = crowd(8_000, 250)
    scores = deviations(con, *kept_sql(groups), chance=groups / 250)
    assert len(scores) == 250
    assert is_even(scores)


@pytest.mark.mutant
def test_an_unmixed_hash_is_uneven() -> None:
    con = crowd(8_000, 250)
    rank = f"row_number() OVER (PARTITION BY {UNIT} ORDER BY {UNMIXED}, dpsql_key_1)"
    sql = f"SELECT * FROM (SELECT *, {rank} AS r FROM ({BASE})) WHERE r = 1"
    scores = deviations(con, sql, (), chance=1 / 250)
    assert not is_even(scores)


def draws(unit: str, item: str, draw: str, *, parameters: Sequence[object] = ()) -> tuple[int, int]:
    """Return, of 2,000 units with 50 items, the distinct draws and the distinct steps from item to item."""
    pairs = f"SELECT {unit} AS {UNIT}, {item} AS dpsql_key_1, u, i FROM range(2000) AS a(u), range(50) AS b(i)"
    step = "xor(d, lead(d) OVER (PARTITION BY u ORDER BY i))"
    drawn = f"SELECT d, {step} AS step FROM (SELECT *, {draw} AS d FROM ({pairs}))"
    sql = f"SELECT count(DISTINCT d), count(DISTINCT step) FROM ({drawn})"
    return duckdb.execute(sql, list(parameters)).fetchall()[0]


@pytest.mark.parametrize(
    ("unit", "item"), [("u", "i"), ("i", "u"), ("u * 1024", "'item ' || i"), ("'user ' || u", "u + i"), ("u", "-i / 2")]
)
def test_no_pattern_of_units_and_items_shares_draws(unit: str, item: str) -> None:
    """As many draws as pairs, and no step from one item to the next that two units share."""
    writer = Writer()
    draw = writer.draw(["dpsql_key_1"], bounding.UNIT, salts=SALTS)
    assert draws(unit, item, draw, parameters=writer.parameters) == (2000 * 50, 2000 * 49)


@pytest.mark.mutant
def test_an_unmixed_hash_takes_the_same_steps_for_all_units() -> None:
    assert draws("u", "i", UNMIXED)[1] == 49


def test_salts_are_bound_and_never_written() -> None:
    for groups in FORMS.values():
        sql, parameters = kept_sql(groups)
        assert parameters == list(SALTS)
        assert not any(str(salt) in sql for salt in SALTS)
