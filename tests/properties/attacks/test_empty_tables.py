"""Every accepted form is run on empty tables, where nothing may fail: what fails there fails whatever the data is.

Forms are listed systematically: functions by the kinds of arguments that they take, operations on two texts by all
pairs of collations, aggregates and windows by column, FILTER and subquery. Many of a kind stand in one statement, which
is taken apart where it fails or is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

import duckdb
import pytest
from support.fuzzing import part_of
from support.sql_reference import NOON, accepts_pattern

import dpsql
from dpsql.engines.base import Statement
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError, Error, Place
from dpsql.registration import build_catalog
from dpsql.sql.allow_list import FUNCTIONS, Site
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    ColumnRef,
    Expression,
    Literal,
    decimal,
)
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery, rewrite_all, rewrite_leaders, rewrite_weighted
from dpsql.sql.rewrite.public_query import rewrite_public

TEXTS = {"p": "", "n": "COLLATE NOCASE", "k": "COLLATE nocase", "a": "COLLATE NOACCENT", "c": "COLLATE C"}
COLUMNS = {
    **{name: f"VARCHAR {collation}" for name, collation in TEXTS.items()},
    "e": "ENUM('z', 'a')",
    "o": "ENUM('y', 'x')",
    "b": "BOOLEAN",
    "i": "INTEGER",
    "l": "BIGINT",
    "u": "UTINYINT",
    "m": "DECIMAL(9,2)",
    "f": "FLOAT",
    "d": "DOUBLE",
    "g": "UUID",
    "y": "DATE",
    "t": "TIMESTAMP",
}
OPAQUE = {"h": "HUGEINT", "z": "BLOB", "v": "INTERVAL", "s": "STRUCT(x INTEGER)", "r": "VARCHAR[]"}
OF_TEXT = ["n", "k", "a", "c", "p", "e", "o", "g", "lower(n)", "(a || 'x')", "coalesce(a, 'x')", "CAST(i AS VARCHAR)"]
OF_TEXT += ["(CASE WHEN b THEN n ELSE p END)", "(SELECT MIN(n) FROM known)", "'x'"]
ON_TWO = [f"({{0}} {sign} {{1}})" for sign in ("=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "||")]
ON_TWO += ["({0} IN ({1}, 'x'))", "({0} NOT IN ('y', {1}))", "({0} BETWEEN {1} AND 'x')", "({1} BETWEEN 'a' AND {0})"]
ON_TWO += ["(CASE WHEN b THEN {0} ELSE {1} END)", "(CASE {0} WHEN {1} THEN 1 END)", "(coalesce({0}, {1}) = p)"]
ON_TWO += ["({0} IN (SELECT {1} FROM known))", "greatest({0}, 'x', {1})", "(lower({0}) = upper({1}))"]
FILTERS = ["b", "n = 'x'", "n = a", "p IN ('x', 'y')", "p IN (SELECT p FROM known)", "n NOT IN (SELECT a FROM known)"]
FILTERS += ["i IN (SELECT i FROM known WHERE b)", "(SELECT MIN(n) FROM known) = a", "EXISTS (SELECT 1 FROM known)"]
FILTERS += ["EXISTS (SELECT 1 FROM known AS o WHERE o.n = a)", "i > (SELECT COUNT(*) FROM known)", "NOT (a < n)"]
AGGREGATES = ["COUNT({})", "COUNT(DISTINCT {})", "SUM({})", "AVG({})", "MIN({})", "MAX({})"]
OVER = [
    "row_number()",
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
    "ntile(3)",
    "COUNT(*)",
    *(form.format("{0}") for form in AGGREGATES if "DISTINCT" not in form),
    "lag({0})",
    "lead({0}, 2)",
    "first_value({0})",
]
KINDS: dict[str, Expression] = {
    "b": ColumnRef(1, "b", BOOLEAN),
    "l": ColumnRef(1, "l", BIGINT),
    "m": ColumnRef(1, "m", decimal(9, 2)),
    "d": ColumnRef(1, "d", DOUBLE),
    "n": ColumnRef(1, "n", TEXT),
    "y": ColumnRef(1, "y", DATE),
    "t": ColumnRef(1, "t", TIMESTAMP),
    "'day'": Literal("day", TEXT, 3),
    "'s'": Literal("s", TEXT, 1),
    "1": Literal(1, BIGINT),
    "INTERVAL '1 day'": Literal("1 day", INTERVAL),
}
POLICY = dpsql.Policy(
    dpsql.Budget(epsilon=1, delta="1e-6"),
    {**{name: dpsql.PrivateTable("unit") for name in ("visits", "likes", "named")}, "known": dpsql.PublicTable()},
)
ANY_NUMBER = frozenset("concat concat_ws greatest least coalesce".split())  # of arguments: two tell what more would
MANY = 12  # keys of one private query


class Empty:
    """Empty tables in an engine, and what of the statements over them was run."""

    def __init__(self, engine: DuckDBEngine, catalog: Catalog) -> None:
        self.engine = engine
        self.catalog = catalog
        self.ran = 0

    def fails(self, text: str) -> bool | None:
        """Say whether an accepted statement fails; None for one that is refused."""
        try:
            query = analyze(text, self.catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
            counting = written(query, self.ran)
        except Error:
            return None
        self.ran += 1
        try:
            self.engine.execute(Statement(counting.sql, counting.parameters, counting.types))
        except EngineError:
            return True
        return False

    def failures(self, frame: str, items: Sequence[str], *, count: int = MANY) -> list[str]:
        """Return the statements that fail when items are put into a frame, many at once, and apart where they fail.

        Where the frame says {select} they are selected under names, which {names} lists; where it says {any} they are
        conditions, of which one holds.
        """
        items = part_of(items, every=7)
        parts = (items[start : start + count] for start in range(0, len(items), count))
        return [text for part in parts for text in self._apart(frame, part)]

    def _apart(self, frame: str, items: Sequence[str]) -> Iterator[str]:
        names = [f"k{at}" for at, _ in enumerate(items)]
        selected = (f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        tests = (f"({item} IS NULL)" for item in items)
        text = frame.format(select=", ".join(selected), names=", ".join(names), any=" OR ".join(tests))
        failed = self.fails(text)
        if failed and len(items) == 1:
            yield text
        if failed is not False and len(items) > 1:
            half = len(items) // 2
            yield from self._apart(frame, items[:half])
            yield from self._apart(frame, items[half:])


def written(query: object, turn: int) -> EngineQuery:
    """Return what an engine is given for a query; a private one takes one form after the other."""
    if isinstance(query, PublicQuery):
        return rewrite_public(query, 100)
    assert isinstance(query, PrivateQuery)
    match turn % 3:
        case 0:
            return rewrite_leaders(query, 10)
        case 1:
            return rewrite_all(query, bound=Bound(1, (1, 2)))
    return rewrite_weighted(query, bound=Bound(2, (1, 2)), weights=[2, 1])


@pytest.fixture(scope="module")
def empty() -> Iterator[Empty]:
    with duckdb.connect(config={"threads": 1}) as connection:
        columns = ", ".join(f"{name} {type_}" for name, type_ in {**COLUMNS, **OPAQUE}.items())
        connection.execute(f"""
            CREATE TABLE visits(unit VARCHAR COLLATE NOCASE, {columns});
            CREATE TABLE likes(unit VARCHAR COLLATE NOACCENT, {columns.replace("COLLATE NOCASE", "")});
            CREATE TABLE named(unit ENUM('b', 'a'), p VARCHAR COLLATE NOCASE, n VARCHAR COLLATE NOACCENT, e VARCHAR);
            CREATE TABLE known({columns});
        """)
        engine = DuckDBEngine.borrow(connection, dict.fromkeys(POLICY.tables))
        yield Empty(engine, build_catalog(engine, POLICY))
        engine.close()


class Wrapped(Empty):
    """A session over empty tables, whose statements wrap one private query, which is paid for once."""

    def __init__(self, session: dpsql.Session) -> None:
        self.session = session

    def fails(self, text: str) -> bool | None:
        """Say whether an accepted statement fails; None for one that is refused."""
        try:
            self.session.sql(text).arrow()
        except EngineError:
            return True
        except Error:
            return None
        return False


PRIVATE = " GROUP BY ALL TOP 9 PRIVATE"
ROWS = [  # functions are tried in every second of them
    "SELECT {select} FROM known",
    "SELECT DISTINCT {select} FROM (SELECT * FROM known UNION ALL SELECT * FROM known) AS x",
    "SELECT i FROM visits WHERE {any}" + PRIVATE,
    "SELECT i FROM known WHERE {any} ORDER BY 1",
    "SELECT {names} FROM (SELECT DISTINCT unit, {select} FROM visits) AS s" + PRIVATE,
    "SELECT {select} FROM visits" + PRIVATE,
]
GROUPS = [
    "SELECT {select} FROM known",
    "SELECT n, a, {select} FROM known GROUP BY n, a",
    "SELECT e FROM known GROUP BY e HAVING {any} ORDER BY MAX(o), e",
    "SELECT {names} FROM (SELECT unit, {select} FROM visits GROUP BY unit) AS s" + PRIVATE,
    "SELECT n FROM (SELECT unit, n FROM visits GROUP BY unit, n HAVING {any}) AS s" + PRIVATE,
    "SELECT {names} FROM (SELECT unit, {select} FROM (SELECT v.* FROM visits v JOIN likes l USING (unit, n, a)) AS x "
    "GROUP BY ALL) AS s" + PRIVATE,
]
WINDOWS = [
    "SELECT * FROM (SELECT {select} FROM known) AS s",
    "SELECT i FROM (SELECT i FROM known QUALIFY {any}) AS s",
    "SELECT {names} FROM (SELECT unit, {select} FROM visits) AS s" + PRIVATE,
    "SELECT i FROM (SELECT unit, i FROM likes QUALIFY {any}) AS s" + PRIVATE,
]


@cache
def calls() -> list[str]:
    """Return a call of every function, with each combination of up to three arguments that it takes."""
    found = []
    for name, rule in FUNCTIONS.items():
        for count in range(3 if name in ANY_NUMBER else 4):
            for kinds in product(KINDS, repeat=count):
                site = Site(name, tuple(map(KINDS.__getitem__, kinds)), Place(1, 1), lambda _: True, lambda: NOON)
                try:
                    rule(site)
                except (Error, IndexError, KeyError):
                    continue
                others = iter("nakcp" * 3)  # text meets text of another collation
                found.append(f"{name}({', '.join(next(others) if kind == 'n' else kind for kind in kinds)})")
    return found


@pytest.mark.parametrize("frame", ROWS[::2])
def test_no_function_fails(empty: Empty, frame: str) -> None:
    assert empty.failures(frame, calls()) == []


@pytest.mark.parametrize("frame", ROWS)
def test_no_two_texts_fail_together(empty: Empty, frame: str) -> None:
    pairs = [(one, other) for one, other in product(OF_TEXT, OF_TEXT[:6]) if one != other]
    assert empty.failures(frame, [form.format(*two) for form in ON_TWO for two in pairs]) == []


@pytest.mark.parametrize("frame", GROUPS)
def test_no_aggregate_fails(empty: Empty, frame: str) -> None:
    computed = ["lower(n)", "(n || a)", "(n IN (SELECT a FROM known))", "coalesce(a, n)"]
    forms = [form.format(each) for form in AGGREGATES for each in (*COLUMNS, *OPAQUE, *computed, "i + 1")]
    some = ["COUNT(*)", *(form.format(each) for form in AGGREGATES for each in ("n", "e", "i", "d", *computed))]
    filtered = [f"{form} FILTER (WHERE {test})" for form in some for test in FILTERS]
    assert empty.failures(frame, [*forms, *filtered]) == []


@pytest.mark.parametrize("frame", WINDOWS)
def test_no_window_fails(empty: Empty, frame: str) -> None:
    computed = ["(n || a)", "(n IN (SELECT a FROM known))", "(CASE WHEN p IN (SELECT p FROM known) THEN n ELSE a END)"]
    calls = dict.fromkeys(form.format(each) for form in OVER for each in (*COLUMNS, *computed))
    orders = ["", "ORDER BY n, a DESC", "ORDER BY e, o", "ORDER BY lower(n) NULLS FIRST", f"ORDER BY {computed[2]}"]
    some = [form.format(each) for form in OVER for each in ("n", computed[2])]
    windows = [f"{call} OVER (PARTITION BY unit)" for call in calls]
    windows += [f"{call} OVER (PARTITION BY unit, a {order})" for call in dict.fromkeys(some) for order in orders]
    windows += [f"{call} OVER (PARTITION BY unit, n || a, e ORDER BY (a < n), b)" for call in dict.fromkeys(some)]
    if "known" in frame:
        windows = [window.replace("unit, ", "").replace("unit", "a") for window in windows]
    assert empty.failures(frame, windows) == []


def test_no_join_or_set_operation_fails(empty: Empty) -> None:
    kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
    signs = ["=", "<"]
    found = []
    for kind, sign, one, other in product(kinds, signs, "npe", "nace"):
        on = f"a.{one} {sign} b.{other}"
        found += [
            f"SELECT a.i FROM known a {kind} known b ON {on}",
            f"SELECT a.e FROM visits a {kind} likes b ON a.unit = b.unit AND {on}" + PRIVATE,
            f"SELECT a.e FROM visits a {kind} known b ON {on}" + PRIVATE,
        ]
    for kind, using in product(kinds, ("unit, p", "unit, n", "unit, e", "unit, p, n, e")):
        found.append(f"SELECT e FROM visits {kind} named USING ({using})" + PRIVATE)
        found.append(f"SELECT e, n FROM (SELECT * FROM known) AS a {kind} named USING ({using[6:]})" + PRIVATE)
    for kind, (one, other) in product(
        ("UNION", "UNION ALL", "INTERSECT", "EXCEPT"), product(["n", "k", "p", "e", "o", "lower(a)", "'x'", "z"], "nae")
    ):
        inside = f"(SELECT unit, {one} AS k FROM visits {kind} SELECT unit, {other} FROM likes) AS x"
        found.append(f"SELECT k FROM {inside} WHERE k < 'x'" + PRIVATE)
        found.append(
            f"SELECT x.k = n, x.k FROM (SELECT {one} AS k FROM known {kind} SELECT {other} FROM known) x, known"
        )
    for one, other in product(("visits", "likes", "named"), repeat=2):
        among = f"SELECT unit FROM {other} WHERE p < n"
        found.append(f"SELECT e FROM {one} WHERE unit IN ({among})" + PRIVATE)
        found.append(f"SELECT e FROM {one} AS x WHERE EXISTS ({among} AND {other}.unit = x.unit AND x.n > p)" + PRIVATE)
    assert [text for text in part_of(found, every=5) if empty.fails(text)] == []


@pytest.mark.parametrize("frame", ["SELECT {select}", "SELECT n WHERE {any}", "SELECT {select} GROUP BY ALL"])
def test_nothing_fails_around_a_private_query(frame: str) -> None:
    around = "FROM (SELECT n, a, k, c, p, e, b, l, i, m, d, y, t FROM visits GROUP BY ALL TOP 9 PRIVATE) AS x"
    select, word, rest = frame.partition(" WHERE") if "WHERE" in frame else frame.partition(" GROUP")
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        connection.execute(f"CREATE TABLE visits(unit INTEGER, {columns})")
        policy = dpsql.Policy(dpsql.Budget(epsilon=1, delta="1e-6"), {"visits": dpsql.PrivateTable("unit")})
        with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
            wrapped = Wrapped(session)
            two = [form.format(*pair) for form in ON_TWO for pair in product("nae", repeat=2) if "known" not in form]
            forms = [f"{form.format(each)} FILTER (WHERE n = a)" for form in AGGREGATES for each in COLUMNS]
            items = forms if "GROUP" in frame else two if "WHERE" in frame else calls()
            assert wrapped.failures(f"{select} {around}{word}{rest}", items, count=MANY) == []
            assert session.history.num_rows == 1
