"""What the tests of SQL share: nasty tables, the catalog over them, and the reference every answer must equal.

The reference of a private query is its own text without the clause, with COUNT(DISTINCT unit) added, run on DuckDB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from typing import TypeVar

import duckdb

from dpsql.engines.duckdb.evaluator import DuckDBEvaluator
from dpsql.errors import Refusal
from dpsql.plan import EvaluatorParser
from dpsql.plan.measures.bounds import bound_measures, bound_quantiles
from dpsql.policy import Budget, Policy, PrivateTable
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.literals import Clock
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, Statement
from dpsql.sql.ir.tree import parse_type
from dpsql.sql.rewrite.engine_query import Bound, rewrite_leaders
from dpsql.terms import Terms
from dpsql.testing.queries import NOON, accepts_pattern

__all__ = [
    "NASTY_COLUMNS",
    "NOON",
    "TOP_ARTICLES",
    "accepts_pattern",
    "analyze_unbounded",
    "as_newest",
    "catalog_of",
    "corpus_catalog",
    "corpus_tables",
    "counts",
    "drop_unit",
    "fill",
    "find_moves",
    "insert",
    "keep_unit",
    "nasty_tables",
    "outer_select",
    "private",
    "reference_counts",
    "reference_sql",
    "same",
    "select_parser",
    "strip_clause",
    "with_enums_as_text",
]

Row = tuple[object, ...]
Key = TypeVar("Key")
LONGEST = 5.0  # seconds of this thread: most take milliseconds, the longest list a third of one, a bomb minutes
TOP_ARTICLES = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 5 PRIVATE"
EVERYTHING = 1_000_000  # more groups than any test has: nothing is cut

_ALONE = "SET threads = 1"  # so few rows are never shared out, and to wake other threads takes longer than to read them
_CORPUS = """
    CREATE TABLE reads(user_id BIGINT, article VARCHAR, country VARCHAR, ts TIMESTAMP, dwell DOUBLE);
    CREATE TABLE likes(user_id BIGINT, article VARCHAR, ts TIMESTAMP);
    CREATE TABLE users(user_id BIGINT, age INTEGER, city VARCHAR);
    CREATE TABLE countries(country VARCHAR, continent VARCHAR);
    CREATE TABLE articles(article VARCHAR, topic VARCHAR);
    CREATE TABLE secret_internal(x INTEGER);
    INSERT INTO countries VALUES ('DE', 'Europe'), ('FR', 'Europe'), ('US', 'America'), ('US', 'Twice'), (NULL, 'None');
    INSERT INTO articles SELECT 'a' || i, CASE WHEN i % 2 = 0 THEN 'news' ELSE 'sport' END FROM range(15) AS t(i);
    INSERT INTO secret_internal VALUES (1);
"""
NASTY_COLUMNS = {
    "b": ("BOOLEAN", [True, False]),
    "i8": ("TINYINT", [0, 1, -1, 127, -128, 7]),
    "i16": ("SMALLINT", [0, 1, -1, 32767, -32768]),
    "i32": ("INTEGER", [0, 1, -1, 2**31 - 1, -(2**31), 10]),
    "i64": ("BIGINT", [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 999_999]),
    "u8": ("UTINYINT", [0, 1, 255, 2]),
    "u16": ("USMALLINT", [0, 1, 65535]),
    "u32": ("UINTEGER", [0, 1, 2**32 - 1, 12]),
    "dec": ("DECIMAL(9,2)", ["0", "1.50", "-1.50", "9999999.99", "-9999999.99", "2.00"]),
    "dec18": ("DECIMAL(18,4)", ["0", "0.0001", "99999999999999.9999", "-99999999999999.9999", "2.5"]),
    "f": ("FLOAT", [0.0, -0.0, 1.1, float("nan"), float("inf"), float("-inf"), 3.4e38]),
    "d": ("DOUBLE", [0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), float("-inf"), 1.7e308, 5e-324, 1e18]),
    "t": (
        "VARCHAR",
        ["", "a", "A", "ab%c_d", "a\nb", "Straße\u0301", "\U0001f642\u200d", "12", "2026-01-31", "x" * 3000],
    ),
    "tn": ("VARCHAR COLLATE NOCASE", ["AbC", "abc", "ABC", "", "z"]),
    "e": ("ENUM('red', 'Red', 'green')", ["red", "Red", "green"]),
    "uid": ("UUID", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"]),
    "day": (
        "DATE",
        ["2026-01-31", "infinity", "-infinity", "1970-01-01", "0001-01-01", "5881580-07-10", "5877642-06-25 (BC)"],
    ),
    "ts": (
        "TIMESTAMP",
        [
            "2026-01-31 23:59:59.999999",
            "infinity",
            "-infinity",
            "1970-01-01 00:00:00",
            "294247-01-10 04:00:54.775806",
            "290309-12-22 (BC) 00:00:00",
            "2024-02-29 12:00:00",
        ],
    ),
    "iv": ("INTERVAL", ["1 day", "24 hours"]),
}


def fill(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Let a table hold these rows and no others."""
    con.execute(f"DELETE FROM {table}")
    insert(con, table, rows)


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    if rows:
        places = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
        con.execute(f"INSERT INTO {table} VALUES {places}", [value for row in rows for value in row])


def _corpus_rows() -> list[Row]:
    """Rows with every odd value; unit 1 is heavy, some rows have no unit, no article or no country."""
    articles = [None, "", *(f"a{i}" for i in range(15))]
    countries = [None, "DE", "FR", "de", "US"]
    dwells = [None, 0.0, -0.0, float("nan"), float("inf"), 5.0, 31.5, 70.0, 1e300, -3.25]
    start = datetime(2026, 1, 1)  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone
    rows: list[Row] = []
    for at in range(400):
        unit = None if at % 17 == 0 else 1 if at % 3 == 0 else at % 23
        when = None if at % 19 == 0 else start + timedelta(hours=(at * 31) % 3000)
        rows.append((unit, articles[(at * 7) % 17], countries[(at * 3) % 5], when, dwells[(at * 11) % 10]))
    return rows


def corpus_tables() -> duckdb.DuckDBPyConnection:
    """Return an in-memory database with the schema of the corpus of hostile statements."""
    con = duckdb.connect()
    con.execute(_ALONE)
    con.execute(_CORPUS)
    insert(con, "reads", _corpus_rows())
    insert(con, "likes", [(unit, f"a{unit % 4}", None) for unit in range(10)])
    insert(con, "users", [(u, None if u % 9 == 0 else 10 + u * 2, ["Berlin", "Paris", None][u % 3]) for u in range(30)])
    return con


def nasty_tables(*, empty: bool = False, plain: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a database whose private table `nasty` holds every extreme of every type; `plain` drops collations."""
    con = duckdb.connect()
    con.execute(_ALONE)
    types = {
        name: type_.removesuffix(" COLLATE NOCASE") if plain else type_ for name, (type_, _) in NASTY_COLUMNS.items()
    }
    columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    con.execute(f"CREATE TABLE nasty(id INTEGER, unit BIGINT, {columns})")
    con.execute("CREATE TABLE public(code VARCHAR, label VARCHAR, low INTEGER)")
    con.execute("CREATE TABLE names(unit BIGINT, label VARCHAR)")
    con.execute("CREATE TABLE notes AS SELECT i % 60 AS about, ['a', 'A', 'b'][1 + i % 3] AS word FROM range(200) t(i)")
    con.execute("INSERT INTO notes VALUES (NULL, 'a'), (-1, 'b'), (3, NULL)")
    insert(
        con, "public", [("a", "first", 0), ("a", "again", 1), ("A", "upper", 5), ("", None, None), (None, "null", 7)]
    )
    insert(con, "names", [(1, "one"), (2, "two"), (None, "nobody")])
    if not empty:
        longest = max(len(values) for _, values in NASTY_COLUMNS.values())
        rows: list[Row] = []
        for at in range(longest * 5):
            unit = None if at % 11 == 10 else 1 if at % 2 == 0 else at % 5
            values = [_cycled(values, at, step) for step, (_, values) in enumerate(NASTY_COLUMNS.values())]
            rows.append((at, unit, *values))
        insert(con, "nasty", rows)
    return con


def with_enums_as_text(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return a cursor that sees the tables through views in which an ENUM is text, as dpsql reads it."""
    con.execute("ATTACH ':memory:' AS texts")
    cursor = con.cursor()
    cursor.execute("USE texts")
    known = "SELECT table_name, list(column_name), list(data_type) FROM duckdb_columns() WHERE schema_name = 'main'"
    for table, names, types in cursor.execute(f"{known} AND NOT internal GROUP BY ALL").fetchall():
        read = (
            f'"{name}"::VARCHAR AS "{name}"' if type_.startswith("ENUM") else f'"{name}"'
            for name, type_ in zip(names, types, strict=True)
        )
        cursor.execute(f'CREATE VIEW "{table}" AS SELECT {", ".join(read)} FROM memory.main."{table}"')
    return cursor


def _cycled(values: Sequence[object], at: int, step: int) -> object:
    """Go through the values, and NULL, at another phase in every column."""
    position = (at + (at // (len(values) + 1)) * step) % (len(values) + 1)
    return None if position == len(values) else values[position]


def catalog_of(con: duckdb.DuckDBPyConnection, units: dict[str, str], public: Iterable[str]) -> Catalog:
    """Return the catalog of the named tables as DuckDB describes them."""
    names = {**units, **dict.fromkeys(public)}

    def table(name: str, unit: str | None) -> Table:
        described = con.execute(f"DESCRIBE {name}").fetchall()
        return Table(name, ("memory", "main", name), tuple((row[0], parse_type(row[1])) for row in described), unit)

    return Catalog(tuple(table(name, unit) for name, unit in names.items()))


def corpus_catalog(con: duckdb.DuckDBPyConnection) -> Catalog:
    """Return the catalog of `corpus_tables`, of which three are private."""
    return catalog_of(con, dict.fromkeys(["reads", "likes", "users"], "user_id"), ["countries", "articles"])


def private(text: str, catalog: Catalog, parameters: object = ()) -> PrivateQuery:
    """Return the private query a text spells."""
    query = analyze(
        text,
        catalog,
        parameters=parameters,  # type: ignore[arg-type]
        accepts_pattern=accepts_pattern,
        clock=lambda: NOON,
    )
    assert isinstance(query, PrivateQuery)
    return query


@cache
def select_parser() -> EvaluatorParser:
    """Return DuckDB's parser of the SELECT around private queries."""
    return EvaluatorParser(DuckDBEvaluator())


def outer_select(text: str, catalog: Catalog) -> OuterSelect:
    """Return what a text around private queries means."""
    found = analyze(text, catalog, accepts_pattern=accepts_pattern, parser=select_parser())
    assert isinstance(found, OuterSelect)
    return found


def counts(con: duckdb.DuckDBPyConnection, query: PrivateQuery, bound: Bound | None = None) -> dict[Row, int]:
    """Return the exact count of every group that the generated SQL finds."""
    counting = rewrite_leaders(query, EVERYTHING, bound=bound)
    rows = con.execute(counting.sql, list(counting.parameters)).fetchall()
    width = len(query.keys)  # what follows the count is the position of the partition
    found = {same(row[:width]): row[width] for row in rows}
    assert len(found) == len(rows), "two groups print alike"
    return found


def drop_unit(rows: Sequence[Row], unit: object) -> list[Row]:
    """Return the rows of all units but one, which stands first in a row."""
    return [row for row in rows if row[0] != unit]


def keep_unit(rows: Sequence[Row], unit: object) -> list[Row]:
    """Return the rows of one unit."""
    return [row for row in rows if row[0] == unit]


def find_moves(before: Mapping[Key, int], after: Mapping[Key, int]) -> dict[Key, int]:
    """Return by how much more each group has before than after, also where that is 0."""
    return {key: before.get(key, 0) - after.get(key, 0) for key in before.keys() | after.keys()}


def same(values: Iterable[object]) -> Row:
    """Return values with one spelling for what compares equal: no -0.0, one NaN, types told apart."""
    return tuple((type(value).__name__, _spelled(value)) for value in values)


def _spelled(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return str(value) if isinstance(value, date | datetime) else value


_WORDS = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[$:]?\w+|\S", re.DOTALL
)


def _words(text: str) -> list[tuple[str, int, int]]:
    """Return (lower-case word, start, depth) of everything but comments."""
    words, depth = [], 0
    for found in _WORDS.finditer(text):
        word = found.group()
        if word.startswith(("--", "/*")):
            continue
        depth -= word == ")"
        words.append((word.lower(), found.start(), depth))
        depth += word == "("
    return words


def strip_clause(text: str) -> str:
    """Cut TOP k PRIVATE and its options out of a statement, and EXPLAIN and `;` off its ends."""
    return re.sub(r"^\s*explain\b", "", _without_clause(text).strip().rstrip(";"), flags=re.IGNORECASE)


def _without_clause(text: str) -> str:
    words = _words(text)
    at = next(
        i for i, (word, _, depth) in enumerate(words) if word == "private" and words[i - 2][0] == "top" and not depth
    )
    start, end = words[at - 2][1], words[at][1] + len("private")
    body = text[:start] + text[end:]
    for i, (word, begin, depth) in enumerate(words):
        if word == "with" and i > at - 3 and depth == 0 and words[i + 1][0] == "(":
            close = next(stop for closer, stop, level in words[i + 1 :] if closer == ")" and level == 0)
            body = body.replace(text[begin : close + 1], "")
    return body


def reference_sql(text: str, unit: str, *, counted: bool) -> str:
    """Return the reference of a private query: its own text without the clause, counting distinct units."""
    body = strip_clause(text)
    words = _words(body)
    select = next(i for i, (word, _, depth) in enumerate(words) if word == "select" and not depth)
    origin = next(
        start
        for i, (word, start, depth) in enumerate(words)
        if i > select and word == "from" and not depth and words[i - 1][0] != "distinct"
    )
    tail, distinct = body[origin:], words[select + 1][0] == "distinct"
    cuts = [start for word, start, depth in words if word in {"limit", "order"} and not depth and start > origin]
    if cuts:
        tail = body[origin : min(cuts)]
    if distinct:
        body = body[: words[select + 1][1]] + " " * len("distinct") + body[words[select + 1][1] + len("distinct") :]
        tail += " GROUP BY ALL"
    added = "" if counted else f", COUNT(DISTINCT {unit}) AS dpsql_n "
    return body[:origin] + added + tail


def reference_counts(
    con: duckdb.DuckDBPyConnection, query: PrivateQuery, unit: str, parameters: object = ()
) -> dict[Row, int]:
    """Return the count of every group by the reference, keyed by the query's keys in the query's order."""
    sql = reference_sql(query.text, unit, counted=query.releases_counts)
    rows = con.execute(as_newest(sql), parameters).fetchall()
    outputs = [output.key for output in query.outputs] + ([] if query.releases_counts else [None])
    found: dict[Row, int] = {}
    for row in rows:
        named = dict(zip(outputs, row, strict=True))
        key = same(named[position] for position in range(len(query.keys)))
        if named[None]:
            found[key] = found.get(key, 0) + int(str(named[None]))
    return found


def as_newest(text: str) -> str:
    """Return a text that means to the DuckDB that is installed what it means to the newest: 1.4 truncates to a DATE."""
    truncated = re.compile(r"(?i)date_trunc\((?:[^()]|\([^()]*\))*\)")
    return truncated.sub(r"TRY_CAST(\g<0> AS TIMESTAMP)", text) if duckdb.__version__ < "1.5" else text


@cache
def _unbounded_terms() -> Terms:
    """Return the terms of a policy for the tables of the corpus that bounds no measure."""
    tables = {name: PrivateTable("user_id") for name in ("reads", "likes", "users")}
    return Terms.of_total(Policy(Budget(1, "1e-6"), tables))


def analyze_unbounded(text: str, catalog: Catalog, *, clock: Clock | None = None) -> Statement:
    """Return the analysed statement; raise the refusal of a measure that needs bounds, which no table has.

    DuckDB parses what stands around a private query only if nothing else is wrong.
    """
    try:
        found = analyze(text, catalog, accepts_pattern=accepts_pattern, clock=clock)
    except Refusal as error:
        if "outermost" not in error.reason:
            raise
        found = analyze(text, catalog, accepts_pattern=accepts_pattern, clock=clock, parser=select_parser())
    if isinstance(found, PrivateQuery):
        bound_quantiles(bound_measures(found, _unbounded_terms()), _unbounded_terms())
    return found
