"""An ENUM is its text: every form over columns of ENUMs gives what it gives over the same texts in VARCHAR.

The labels are declared in the reverse of their order as text, with some that no row has, in another ENUM for each
column: codes and order, which may come from rows, would show.
"""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pytest
from support.fuzzing import part_of
from support.sql_reference import accepts_pattern, select_parser

import dpsql
from dpsql.engines.base import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import Error
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.analysis.domains import find_partition_query, set_partition_values
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, PublicQuery
from dpsql.sql.rewrite.engine_query import (
    Bound,
    EngineQuery,
    rewrite_all,
    rewrite_leaders,
    rewrite_unordered,
    rewrite_weighted,
)
from dpsql.sql.rewrite.public_query import rewrite_public

UNITS = "ENUM('u9', 'u7', 'u5', 'u3', 'u1')"
MARKS = "ENUM('zebra', 'plum', 'pear', 'fig', 'apple', 'Apple', '')"
OTHERS = "ENUM('pear', 'zebra', 'apple', 'kiwi', 'fig')"
TABLES = {
    "visits": "(unit {units}, e {marks}, o {others}, n INTEGER)",
    "likes": "(unit {units}, e {others}, n INTEGER)",
    "customers": "(id {others}, unit {units})",
    "lines": "(about {marks}, e {marks})",
    "known": "(e {others}, o {marks}, n INTEGER)",
}
ROWS = """
    INSERT INTO visits VALUES ('u1', 'fig', 'kiwi', 1), ('u1', 'apple', 'zebra', 1), ('u1', 'zebra', NULL, 2),
        ('u3', 'zebra', 'fig', 1), ('u3', 'fig', 'fig', 1), ('u3', 'fig', 'apple', 1), ('u7', 'plum', 'pear', 3),
        ('u7', 'apple', 'apple', 3), ('u7', NULL, 'kiwi', NULL), (NULL, 'apple', 'fig', 1), ('u9', 'pear', 'zebra', 0);
    INSERT INTO likes VALUES ('u1', 'fig', 1), ('u1', 'kiwi', 1), ('u3', 'apple', 2), ('u9', 'zebra', 2),
        ('u5', NULL, 1);
    INSERT INTO customers VALUES ('pear', 'u1'), ('zebra', 'u3'), ('kiwi', 'u9'), ('fig', NULL);
    INSERT INTO lines VALUES ('pear', 'fig'), ('zebra', 'apple'), ('zebra', 'zebra'), ('plum', 'plum'), (NULL, 'fig');
    INSERT INTO known VALUES ('fig', 'fig', 1), ('apple', 'zebra', 1), ('zebra', 'apple', 2), ('kiwi', NULL, 3),
        ('pear', 'pear', 1), (NULL, 'plum', 1), ('fig', 'apple', 1);
"""
PLAIN = dict.fromkeys(("units", "marks", "others"), "VARCHAR")
ENUMS = {"units": UNITS, "marks": MARKS, "others": OTHERS}
POLICY = dpsql.Policy(
    dpsql.Budget(epsilon=1, delta="1e-6"),
    {
        "visits": dpsql.PrivateTable("unit"),
        "likes": dpsql.PrivateTable("unit"),
        "customers": dpsql.PrivateTable("unit"),
        "lines": dpsql.PrivateTable(link="about -> customers.id"),
        "known": dpsql.PublicTable(),
    },
)
CONDITIONS = [f"{one} {sign} {other}" for sign in ("<", ">=", "=", "<>") for one, other in (("e", "o"), ("e", "'fig'"))]
CONDITIONS += ["e BETWEEN 'b' AND 'g'", "e IN ('fig', o)", "e IN (SELECT e FROM known)", "e IS DISTINCT FROM o"]
CONDITIONS += [
    "e IN (SELECT MAX(e) FROM known)",
    "e > (SELECT MIN(o) FROM known)",
    "e LIKE 'p%'",
    "o NOT IN ('fig', '')",
]
CONDITIONS += ["EXISTS (SELECT 1 FROM known AS w WHERE w.o > visits.e)", "CASE e WHEN o THEN TRUE ELSE e < 'm' END"]
VALUES = [
    "e",
    "o",
    "greatest(e, o)",
    "least(e, o, 'm')",
    "coalesce(o, e)",
    "nullif(e, o)",
    "e || o",
    "upper(e)",
    "e < o",
]
VALUES += [
    "CASE WHEN e > o THEN e ELSE o END",
    "length(e)",
    "if(e >= o, o, e)",
    "CAST(e AS VARCHAR)",
    "(e)",
    "replace(e, o, 'x')",
]
AGGREGATES = [f"{name}({what})" for name in ("MIN", "MAX") for what in ("e", "o", "e || o", "greatest(e, o)")]
AGGREGATES += ["COUNT(e)", "COUNT(DISTINCT e)", "COUNT(DISTINCT o)", "MAX(e) FILTER (WHERE o < e)", "MIN(o) > MAX(e)"]
AGGREGATES += ["MIN(e) FILTER (WHERE e IN (SELECT o FROM known))", "MIN(e) FILTER (WHERE n = 1 AND o > 'fig')"]
WINDOWS = ["row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(2)", "lag(e)", "lead(o)"]
WINDOWS += ["first_value(e)", "MIN(e)", "MAX(o)", "COUNT(e)"]
ORDERS = ["e", "e DESC, o", "n", "o NULLS FIRST", "(e < o), n", "n, greatest(e, o)"]
TOP = " TOP 9 PRIVATE"


def private() -> list[str]:
    """Return private statements: where an ENUM is compared, put in order, grouped, made distinct, cut and joined."""
    found = [f"SELECT {value} AS k FROM visits GROUP BY ALL{TOP}" for value in VALUES]
    found += [f"SELECT n, COUNT(DISTINCT unit) AS c FROM visits WHERE {test} GROUP BY n{TOP}" for test in CONDITIONS]
    inside = [f"SELECT unit, {each} AS k FROM visits GROUP BY unit" for each in AGGREGATES]
    inside += [f"SELECT unit, e, {each} AS k FROM visits GROUP BY ALL" for each in AGGREGATES]
    inside += [f"SELECT unit, n AS k FROM visits GROUP BY ALL HAVING {each} > 'fig'" for each in AGGREGATES[:8]]
    for window, order in product(WINDOWS, ORDERS):
        over = f"{window} OVER (PARTITION BY unit ORDER BY {order})"
        inside.append(f"SELECT unit, CAST({over} AS VARCHAR) || e AS k FROM visits")
        inside.append(f"SELECT unit, e AS k FROM visits QUALIFY CAST({over} AS VARCHAR) < '2'")
    inside += [f"SELECT DISTINCT unit, {value} AS k FROM visits" for value in VALUES]
    for kind in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT"):
        inside += [f"SELECT unit, {value} AS k FROM visits {kind} SELECT unit, e FROM likes" for value in VALUES[:4]]
    for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"):
        both = kind not in {"SEMI JOIN", "ANTI JOIN"}
        other = "coalesce(b.e, '-')" if both else "'x'"
        unit = "unit" if kind == "FULL JOIN" else "a.unit"
        inside.append(f"SELECT {unit}, {other} || a.e AS k FROM visits a {kind} likes b USING (unit)")
        inside.append(
            f"SELECT a.unit, {other} || a.e AS k FROM visits a {kind} likes b ON a.unit = b.unit AND a.e >= b.e"
        )
        inside.append(f"SELECT unit, a.o AS k FROM visits a {kind} known b ON a.e < b.e AND a.n = b.n")
        inside.append(f"SELECT unit, e AS k FROM visits a {kind} (SELECT e FROM known) AS b USING (e)")
    inside += [
        f"SELECT unit, e AS k FROM visits WHERE unit {word} (SELECT unit FROM likes WHERE e < 'l')"
        for word in ("IN", "NOT IN")
    ]
    inside += [
        f"SELECT unit, e AS k FROM visits WHERE e IN (SELECT o FROM known ORDER BY {order} LIMIT 2)" for order in ORDERS
    ]
    found += [f"SELECT k, COUNT(DISTINCT unit) AS c FROM ({each}) AS x GROUP BY k{TOP}" for each in inside]
    found += [
        f"SELECT e FROM lines GROUP BY e{TOP}",
        f"SELECT v.e FROM lines AS v JOIN likes USING (unit) GROUP BY 1{TOP}",
    ]
    found += [
        f"SELECT e FROM visits GROUP BY e{TOP} WITH (domain = 'known.e')",
        f"SELECT unit FROM visits GROUP BY 1{TOP}",
    ]
    found += [
        f"SELECT e, o FROM visits GROUP BY e, o TOP 2 PRIVATE PER e WITH (partitions = '{each}')"
        for each in ("known.e", "known.o")
    ]
    found += [
        f"SELECT unit, e FROM (SELECT * FROM visits) AS x GROUP BY ALL HAVING MIN(e) < 'x'{TOP}",
        f"SELECT * FROM visits WHERE e{TOP}",
    ]
    return found


def public() -> list[str]:
    """Return public statements, those that come in an order with all of it."""
    found = [f"SELECT {value} AS k FROM known ORDER BY {order}, 1 LIMIT 3" for value in VALUES for order in ORDERS]
    found += [f"SELECT DISTINCT {value} AS k FROM known ORDER BY 1 DESC" for value in VALUES]
    found += [f"SELECT {value} AS k, COUNT(*) AS c FROM known GROUP BY 1 ORDER BY 1" for value in VALUES]
    found += [f"SELECT e, o, n FROM known WHERE {test} ORDER BY ALL" for test in CONDITIONS if "visits" not in test]
    found += [f"SELECT {each} FROM known" for each in AGGREGATES]
    found += [f"SELECT n, {each} AS k FROM known GROUP BY n HAVING MIN(e) < 'm' ORDER BY 2, 1" for each in AGGREGATES]
    found += [f"SELECT e, {each} AS k FROM known GROUP BY ALL HAVING e < 'm' ORDER BY MAX(o), e" for each in AGGREGATES]
    for window, order in product(WINDOWS, ORDERS):
        over = f"{window} OVER (PARTITION BY n ORDER BY {order})"
        found.append(f"SELECT e, o, k FROM (SELECT e, o, {over} AS k FROM known) AS x ORDER BY e, o, k")
    found += [f"SELECT e FROM (SELECT * FROM known ORDER BY {order} LIMIT 2) AS x ORDER BY 1" for order in ORDERS]
    for kind in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT"):
        found.append(f"SELECT k FROM (SELECT e AS k FROM known {kind} SELECT o FROM known) AS x ORDER BY k")
    found += [
        f"SELECT a.e, b.o FROM known a {kind} known b ON a.e < b.o ORDER BY 1, 2" for kind in ("JOIN", "FULL JOIN")
    ]
    found += [
        "SELECT e, o FROM known a JOIN (SELECT o AS e FROM known) AS b USING (e) ORDER BY ALL",
        "SELECT * FROM known LIMIT 0",
    ]
    return found


def around() -> list[str]:
    """Return statements around a private query, whose answer would be put in order by the labels' codes."""
    inner = "(SELECT e, o FROM visits GROUP BY ALL TOP 9 PRIVATE) AS x"
    return [
        f"SELECT MIN(e), MAX(o), MAX(greatest(e, o)) FROM {inner}",
        f"SELECT e, o FROM {inner} WHERE e < o ORDER BY e DESC, o",
        f"SELECT e FROM {inner} WHERE e IN (SELECT CAST(e AS VARCHAR) FROM known) ORDER BY 1",
    ]


class Data:
    """The tables, of texts or of ENUMs, in an engine."""

    def __init__(self, types: dict[str, str]) -> None:
        connection = duckdb.connect()
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name}{columns.format(**types)}")
        connection.execute(ROWS)
        self.engine = DuckDBEngine.borrow(connection, dict.fromkeys(TABLES))
        self.catalog = build_catalog(self.engine, POLICY)

    def outcome(self, text: str) -> object:
        """Return all that an engine answers to a statement, in each form; the code where it is refused."""
        try:
            query = analyze(text, self.catalog, accepts_pattern=accepts_pattern, parser=select_parser())
            if isinstance(query, PrivateQuery) and (asked := find_partition_query(query)) is not None:
                query = set_partition_values(query, self.run(rewrite_public(asked, 1_000)).column(0).to_pylist())
            match query:
                case PublicQuery():
                    written = [rewrite_public(query, 1_000)]
                case OuterSelect():
                    written = [rewrite_public(table, 1_000) for _, table in query.beside]
                case PrivateQuery():
                    bounds = [Bound(groups, (3, 5)) for groups in (1, 2, 20)]
                    rows = None if query.domain is not None else 5
                    written = [
                        rewrite_leaders(query, rows),
                        *(rewrite_leaders(query, rows, bound=bound) for bound in bounds),
                    ]
                    if query.domain is None:
                        written += [rewrite_all(query), rewrite_unordered(query, 3)]
                        written.append(rewrite_weighted(query, bound=bounds[1], weights=[2, 1]))
        except Error as error:
            return error.code
        found = list(map(self.run, written))
        return [(table.schema, repr(table.to_pylist())) for table in found]

    def run(self, counting: EngineQuery) -> pa.Table:
        return open_exact(self.engine.execute(Statement(counting.sql, counting.parameters, counting.types)))


@pytest.fixture(scope="module")
def both() -> tuple[Data, Data]:
    return Data(ENUMS), Data(PLAIN)


@pytest.mark.parametrize("statements", [private, public, around], ids=lambda each: each.__name__)
def test_an_enum_is_its_text(both: tuple[Data, Data], statements: object) -> None:
    texts = part_of(statements(), every=2 if statements is private else 1)  # type: ignore[operator]
    outcomes = {text: [data.outcome(text) for data in both] for text in texts}
    answered = [text for text, (_, plain) in outcomes.items() if not isinstance(plain, str)]
    assert {text: found for text, found in outcomes.items() if found[0] != found[1]} == {}
    assert len(answered) > 0.9 * len(texts)
