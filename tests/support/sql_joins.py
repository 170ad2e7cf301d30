"""Random queries over two private tables and a public one, tied by the privacy unit in every way that is read.

Each comes with the text by which its units are counted, and says whether DuckDB's own answer is its reference: NOT IN
differs by design, since NULL among the units is no doubt about everybody here.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import duckdb
from support.sql_reference import Row

__all__ = ["SHAPES", "UNITS", "Asked", "asked", "fill", "opened"]

UNITS = [None, 0, 1, 2]
SHAPES = ["join", "comma", "using", "three", "filter", "nested", "public"]
_TIES = ["a.unit = b.unit", "b.unit = a.unit"]
_OVER_BOTH = ["a.w = b.w", "a.n < b.n", "a.w IS NOT NULL", "b.n > 0", "(a.w = 'x' OR b.w = 'x')", "a.unit <> 1"]
_OVER_ONE = ["@.w = 'x'", "@.n > 0", "@.w IS NULL", "@.unit <> 2", "@.n % 2 = 0"]


@dataclass(frozen=True)
class Asked:
    """A query without its clause, split at the place of a count; how units are named; whether DuckDB agrees."""

    keys: str
    origin: str
    unit: str
    counted: bool
    alike: bool

    def text(self) -> str:
        """Return the private query."""
        count = f", COUNT(DISTINCT {self.unit}) AS units" if self.counted else ""
        return f"SELECT {self.keys}{count} {self.origin} GROUP BY ALL TOP 9 PRIVATE"

    def reference(self) -> str:
        """Return DuckDB's own query of the counts."""
        return f"SELECT {self.keys}, COUNT(DISTINCT {self.unit}) AS units {self.origin} GROUP BY ALL"


def opened() -> duckdb.DuckDBPyConnection:
    """Return the tables, the private ones empty."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE reads(unit BIGINT, w VARCHAR, n INTEGER);
        CREATE TABLE likes(w VARCHAR, unit BIGINT, n INTEGER);
        CREATE TABLE tags(w VARCHAR, tag VARCHAR, n INTEGER);
        INSERT INTO tags VALUES ('x', 'one', 1), ('x', 'two', 2), ('y', NULL, 1), (NULL, 'none', NULL), ('q', 'one', 0);
    """)
    return con


def fill(con: duckdb.DuckDBPyConnection, reads: list[Row], likes: list[Row]) -> None:
    """Put rows (unit, w, n) into both private tables."""
    con.execute("DELETE FROM reads; DELETE FROM likes;")
    for table, rows in (("reads(unit, w, n)", reads), ("likes(unit, w, n)", likes)):
        if rows:
            places = ", ".join(["(?, ?, ?)"] * len(rows))
            con.execute(f"INSERT INTO {table} VALUES {places}", [value for row in rows for value in row])


def asked(random: Random, shape: str) -> Asked:
    """Return a query of one shape."""
    tie, more = (
        random.choice(_TIES),
        "".join(f" AND {each}" for each in random.sample(_OVER_BOTH, random.choice([0, 1, 2]))),
    )
    first, second = _source(random, "a"), _source(random, "b")
    kind = random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "FULL JOIN", "INNER JOIN"])
    keys, unit, alike = (
        random.choice(["a.w, b.n", "b.w", "a.n AS k, b.w AS z", "coalesce(a.w, b.w) AS k"]),
        "a.unit",
        True,
    )
    where = _where(random, "a") if random.random() < 0.4 else ""
    match shape:
        case "join":
            origin = f"FROM {first} {kind} {second} ON {tie}{more}{where}"
            unit = random.choice(["a.unit", "b.unit"])
        case "comma":
            origin = f"FROM {first}{random.choice([', ', ' CROSS JOIN '])}{second} WHERE {tie}{more}"
        case "using":
            origin, unit = (
                f"FROM {first} {kind} {second} USING (unit){where}",
                random.choice(["unit", "a.unit", "b.unit"]),
            )
        case "three":
            last = random.choice(["USING (unit)", "ON c.unit = a.unit", "ON b.unit = c.unit AND a.w <> c.w"])
            join = random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            on = "USING (unit)" if "USING" in last else f"ON {tie}"
            origin = f"FROM {first} {kind} {second} {on} {join} likes AS c {last}"
            unit = random.choice([*(["unit"] if "USING" in last else []), "c.unit", "a.unit"])
            keys = random.choice([keys, "c.w, a.w AS v"])
        case "filter":
            join = random.choice(["SEMI", "ANTI"])
            right = random.choice(
                [f"{second} ON {tie}{more}", f"{second} USING (unit)", "tags AS b ON a.w = b.w AND a.n < b.n"]
            )
            origin, keys = f"FROM {first} {join} JOIN {right}{where}", random.choice(["a.w", "a.w, a.n"])
        case "nested":
            (origin, alike), keys = _nested(random, first), random.choice(["a.w", "a.n, a.w"])
        case _:
            sides = [f"{first} {{0}} tags AS g ON a.w = g.w", f"tags AS g {{0}} {first} ON a.w = g.w AND a.n >= g.n"]
            origin = f"FROM {random.choice(sides).format(kind)}"
            if random.random() < 0.5:
                origin += f" {random.choice(['JOIN', 'LEFT JOIN', 'FULL JOIN'])} likes AS b ON {tie}"
            keys = random.choice(["g.tag", "g.tag, a.w", "a.n"])
    return Asked(keys, origin, unit, random.random() < 0.8 or "FULL" in origin or "RIGHT" in origin, alike)


def _source(random: Random, alias: str) -> str:
    table = random.choice(["reads", "likes"])
    match random.randrange(5):
        case 0:
            return f"(SELECT unit, w, n FROM {table} WHERE n > 0) AS {alias}"
        case 1:
            return f"(SELECT unit, upper(w) AS w, n FROM {table}{_where(random, table)}) AS {alias}"
        case 2:
            kind = random.choice(["LEFT", "FULL", "RIGHT"])
            one = random.choice(["p", "q"])
            return f"(SELECT {one}.unit, p.w, q.n FROM reads p {kind} JOIN likes q ON p.unit = q.unit) AS {alias}"
    return f"{table} AS {alias}"


def _where(random: Random, alias: str) -> str:
    if random.random() < 0.4:
        return f" WHERE {random.choice(_OVER_ONE).replace('@', alias)}"
    return f" WHERE {_inside(random, alias)[0]}"


def _inside(random: Random, alias: str) -> tuple[str, bool]:
    """Return a condition with a subquery about the row's own unit, or about public tables."""
    table = random.choice(["reads", "likes"])
    more = random.choice(["", f" AND p.w = {alias}.w", f" AND p.n <= {alias}.n", " AND p.n > 0"])
    tied = f"SELECT p.w FROM {table} AS p WHERE p.unit = {alias}.unit{more}"
    deep = (
        f" AND EXISTS (SELECT 1 FROM reads AS q WHERE q.unit = {random.choice(['p', alias])}.unit AND q.n = {alias}.n)"
    )
    chosen = [
        (f"EXISTS ({tied})", True),
        (f"NOT EXISTS ({tied}{deep})", True),
        (f"EXISTS (SELECT * FROM reads p, likes q WHERE p.unit = q.unit AND {alias}.unit = q.unit{more})", True),
        (
            f"EXISTS (SELECT 1 FROM reads p FULL JOIN likes q ON p.unit = q.unit WHERE {alias}.unit = p.unit{more})",
            True,
        ),
        (f"{alias}.unit IN (SELECT p.unit FROM {table} p WHERE p.n > 0{more})", True),
        (f"{alias}.unit NOT IN (SELECT p.unit FROM {table} p WHERE p.w = 'x'{more})", False),
        (f"({alias}.unit IN (SELECT q.unit FROM reads p LEFT JOIN likes q ON p.unit = q.unit)) IS NULL", False),
        (f"{alias}.w IN ({tied})", True),
        (f"{alias}.w NOT IN ({tied})", True),
        (f"EXISTS (SELECT 1 FROM tags AS t WHERE t.w = {alias}.w)", True),
        (f"NOT EXISTS (SELECT 1 FROM tags AS t WHERE t.n > {alias}.n AND EXISTS ({tied}))", True),
        (f"{alias}.w IN (SELECT t.w FROM tags AS t WHERE t.n = {alias}.n)", True),
    ]
    return random.choice(chosen)


def _nested(random: Random, source: str) -> tuple[str, bool]:
    """Return FROM and WHERE with one or two such conditions."""
    (one, first), (two, second) = _inside(random, "a"), _inside(random, "a")
    joined = random.choice(["{0}", "{0} AND {1}", "{0} OR {1}", "NOT ({0})", "CASE WHEN {0} THEN a.n > 0 ELSE {1} END"])
    return f"FROM {source} WHERE {joined.format(one, two)}", first and second
