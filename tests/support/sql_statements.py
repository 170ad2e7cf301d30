"""Random SELECTs over `open`, a public copy of the nasty table, `void`, its empty copy, `public` and `names`."""

from __future__ import annotations

import re
from random import Random

import duckdb
from support.sql_grammar import expression, number, predicate
from support.sql_reference import NASTY_COLUMNS, nasty_tables

__all__ = ["COLUMNS", "membership", "open_tables", "public_statement", "swapped"]

COLUMNS = ["id", *(name for name in NASTY_COLUMNS if name != "iv")]
_ENUM = re.compile(r"\be\b")  # computed with as text, whose order is another
_SUMMED = ["i8", "i16", "i32", "u8", "u16", "u32", "d", "dec", "dec18", "id"]  # the sum of i64 may be no BIGINT
_SUBQUERIES = [
    "SELECT code FROM public",
    "SELECT low FROM public WHERE low > 0",
    "SELECT label FROM names WHERE label IS NOT NULL",
    "SELECT 'a' FROM names",
    "SELECT 1 FROM public WHERE FALSE",
    "SELECT 1.5 FROM names",
    "SELECT i32 + 1 FROM open",
    "SELECT lower(tn) FROM open WHERE e IN (SELECT label FROM names)",
    "SELECT i64 FROM void",
    *(f"SELECT {name} FROM open" for name in COLUMNS),
]
_SOURCES = [
    "open",
    "open",
    "open AS o",
    "void",
    "(SELECT * FROM open) AS x",
    "(SELECT *, i32 AS more FROM open WHERE b) AS y",
]
_SPELLINGS = {
    "open": ["open", "OPEN", '"open"', "main.open"],
    "nasty": ["nasty", "NASTY", '"Nasty"', 'main."nasty"'],
    "public": ["public", '"Public"'],
    "names": ["names", "main.names"],
    "void": ["void"],
}
_PRIVATE_CTES = [
    "SELECT * FROM nasty",
    "SELECT unit, t, i32 FROM nasty",
    "SELECT t FROM nasty",
    "SELECT unit, code FROM nasty, public",
]


def open_tables() -> duckdb.DuckDBPyConnection:
    """Return the nasty tables, and the public copies `open` and `void` with the same collations."""
    con = nasty_tables()
    con.execute("UPDATE nasty SET t = 'short' WHERE length(t) > 1000")  # concatenation cuts what is stored, on purpose
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in NASTY_COLUMNS.items())
    for table in ("open", "void"):
        con.execute(f"CREATE TABLE {table}(id INTEGER, unit BIGINT, {columns})")
    con.execute("INSERT INTO open SELECT * FROM nasty")
    con.execute("INSERT INTO names VALUES (0, 'a'), (7, 'AbC'), (255, ''), (-1, NULL)")
    return con


def membership(random: Random) -> str:
    """Return the text of x IN (SELECT ...)."""
    argument = random.choice(COLUMNS) if random.random() < 0.7 else f"({expression(random, 1)})"
    return f"{argument} {random.choice(['IN', 'NOT IN'])} ({random.choice(_SUBQUERIES)})"


def _condition(random: Random) -> str:
    chance = random.random()
    if chance < 0.4:
        return membership(random)
    if chance < 0.5:
        return f"({membership(random)}) {random.choice(['AND', 'OR', '='])} ({predicate(random, 1)})"
    return predicate(random, 2)


def _item(random: Random) -> str:
    chance = random.random()
    if chance < 0.45:
        return random.choice(COLUMNS)
    if chance < 0.55:
        return f"({membership(random)})"
    if chance < 0.6:
        return random.choice(["'all'", "NULL::INTEGER", "1.5", "DATE '2026-01-01'"])
    return f"({expression(random, 2)})"


def _aggregate(random: Random) -> str:
    column = random.choice(COLUMNS)
    match random.randrange(7):
        case 0:
            return random.choice(["COUNT(*)", f"COUNT({column})", f"COUNT(DISTINCT {column})"])
        case 1:
            return f"SUM({random.choice(_SUMMED)})"
        case 2:
            return f"AVG({number(random, 1)})"
        case 3:
            largest = expression(random, 1)
            return f"MAX({column if _ENUM.search(largest) else largest})"
        case _:
            return f"{random.choice(['MIN', 'MAX'])}({column})"


def _computed(random: Random, of: str) -> str:
    """Return an expression of an aggregate or of a key."""
    forms = ["({} IS NULL)", "CASE WHEN {} IS NULL THEN 'n' END", "coalesce({}, {})", "({} = {})", "({} IN ({}))"]
    forms += ["TRY_CAST({} AS INTEGER)", "TRY_CAST({} AS BOOLEAN)"]
    return random.choice([*forms, "({} IN (SELECT low FROM public))"]).replace("{}", of)


def _having(random: Random, keys: list[str]) -> str:
    compared = (
        f"{_aggregate(random)} {random.choice(['>', '=', '<>', '<='])} {random.choice(['0', '3', '1.5', '1.555'])}"
    )
    fixed = ["COUNT(*) IN (SELECT low FROM public)", "MAX(t) IN (SELECT code FROM public)", "MIN(i32) IS NULL", "TRUE"]
    condition = compared if random.random() < 0.6 else random.choice(fixed)
    return f"{condition} AND {random.choice(keys)} IS NOT NULL" if keys and random.random() < 0.4 else condition


def _source(random: Random) -> tuple[str, str]:
    """Return a WITH or nothing, and FROM and WHERE."""
    heading, source = "", random.choice(_SOURCES)
    if random.random() < 0.15:
        heading, source = f"WITH c AS (SELECT * FROM open WHERE {_condition(random)}) ", "c"
    if random.random() < 0.2:
        joins = [
            "CROSS JOIN (SELECT code FROM public) AS p",
            "LEFT JOIN public AS p ON t = p.code",
            f"JOIN public AS p ON t = p.code OR {membership(random)}",
            f"LEFT JOIN (SELECT low FROM public) AS p ON i32 = p.low AND {membership(random)}",
        ]
        source += f" {random.choice(joins)}"
    where = f" WHERE {_condition(random)}" if random.random() < 0.4 else ""
    return heading, f"FROM {source}{where}"


def public_statement(random: Random) -> tuple[str, bool]:
    """Return the text of a SELECT, and whether ORDER BY names all its outputs."""
    heading, source = _source(random)
    kind = random.choice(["plain", "whole", "keys", "positions", "aliases", "all"])
    keys = [_item(random) for _ in range(random.randint(1, 2))] if kind not in {"plain", "whole"} else []
    items = list(keys)
    if kind == "plain":
        items = [_item(random) for _ in range(random.randint(1, 3))]
    elif kind == "whole" or random.random() < 0.8:
        items += [_aggregate(random) for _ in range(random.randint(1, 2))]
        if random.random() < 0.4:
            items.append(_computed(random, random.choice([_aggregate(random), *keys])))
    groups = {
        "keys": keys,
        "positions": [str(at) for at, _ in enumerate(keys, start=1)],
        "aliases": [f"a{at}" for at, _ in enumerate(keys)],
        "all": ["ALL"],
    }.get(kind, [])
    text = f"{heading}SELECT {'DISTINCT ' if random.random() < 0.15 else ''}"
    text += ", ".join(f"{item} AS a{at}" for at, item in enumerate(items)) + f" {source}"
    text += f" GROUP BY {', '.join(groups)}" if groups else ""
    text += f" HAVING {_having(random, keys)}" if kind != "plain" and random.random() < 0.35 else ""
    return _ordered(random, text, width=len(items))


def _ordered(random: Random, text: str, *, width: int) -> tuple[str, bool]:
    if random.random() < 0.4 or _ENUM.search(text):
        return text, False
    terms = [
        random.choice([f"{at}", f"({at})", f"a{at - 1}"])
        + random.choice(["", " ASC", " DESC"])
        + random.choice(["", " NULLS FIRST", " NULLS LAST"])
        for at in range(1, width + 1)
    ]
    random.shuffle(terms)
    text += f" ORDER BY {', '.join(terms)}"
    text += random.choice(["", "", " LIMIT 0", " LIMIT 3", " LIMIT 100"])
    return text + random.choice(["", " OFFSET 1", " OFFSET 50"]), True


def swapped(random: Random, text: str) -> str:
    """Return the text with private tables, CTEs over them and misleading aliases put in."""

    def other(found: re.Match[str]) -> str:
        return random.choice(_SPELLINGS["nasty" if random.random() < 0.25 else found.group()])

    text = re.sub(r"(?<=FROM )(open|void|public|names)\b|(?<=JOIN )(open|void|public|names)\b", other, text)
    if random.random() < 0.4:
        name = random.choice(["open", "nasty", '"Public"', "names", "c", "x"])
        heading = f"WITH {name} AS ({random.choice(_PRIVATE_CTES)})"
        text = f"{heading}, {text[5:]}" if text.startswith("WITH ") else f"{heading} {text}"
    if random.random() < 0.2:
        text = re.sub(r"\bAS [oxyp]\b", f"AS {random.choice(['nasty', 'open', 'names'])}", text)
    if random.random() < 0.25:
        text = re.sub(r" (HAVING|ORDER BY|LIMIT|OFFSET) .*", "", text)
        text += random.choice([" TOP 3 PRIVATE", " TOP 3 PRIVATE WITH (domain = 'open.t')"])
    return text
