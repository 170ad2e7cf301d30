"""Random private queries with IN (SELECT ...) and with known domains: the counts are those of their own text."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random
from types import MappingProxyType

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_grammar import expression
from support.sql_reference import Row, accepts_pattern, catalog_of, private, reference_counts, same
from support.sql_statements import COLUMNS, membership, open_tables

from dpsql.errors import Error, Place, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_leaders

CON = open_tables()
CATALOG = catalog_of(CON, {"nasty": "unit"}, ["open", "void", "public", "names"])
KEYS = [name for name in COLUMNS if name not in {"day", "ts", "tn"}]  # Python folds the ends of the calendar
LISTED = "'a' 'A' 'a ' '' '1' '-1' '0' '00' '1.5' '1.50' '-0.0' '0.0' 'true' 'TRUE' 'red' '1.1' '255'".split("' '")
UUIDS = ["FFFFFFFF-ffff-4fff-bfff-ffffffffffff", "ffffffff-ffff-4fff-bfff-ffffffffffff"]
NOWHERE = Place(1, 1)


def asked(random: Random) -> tuple[str, list[tuple[str, str]]]:
    """Return a private query without its clause, and the options of one."""
    key = random.choice(KEYS)
    name = key if random.random() < 0.6 else random.choice([f"({expression(random, 1)})", f"({membership(random)})"])
    name = key if "tn" in name and " IN " not in name else name  # DuckDB would fold its groups
    source = random.choice(["nasty", "nasty AS n", f"(SELECT * FROM nasty WHERE {membership(random)}) AS n"])
    if random.random() < 0.3:
        joins = ["JOIN public AS p ON t = p.code OR", "LEFT JOIN (SELECT low FROM public) AS p ON i32 = p.low AND"]
        source += f" {random.choice(joins)} {membership(random)}"
    where = f" WHERE {membership(random)}" if random.random() < 0.6 else ""
    options: list[tuple[str, str]] = []
    if random.random() < 0.4:
        column = key if random.random() < 0.8 else random.choice(COLUMNS)
        values = random.sample([value.strip("'") for value in LISTED] + UUIDS, random.randint(1, 5))
        spelled = "[" + ", ".join(f"'{value}'" for value in values) + "]"
        domain = random.choice([f"'open.{column}'", f"'main.void.{column}'", f"'OPEN.\"{column}\"'", spelled])
        options.append(("domain", domain))
    return f"SELECT {name} AS k FROM {source}{where} GROUP BY 1", options


def read(text: str) -> PrivateQuery | str:
    """Return the query without text and places, or the code of the refusal."""
    try:
        query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    except Error as error:
        return error.code
    assert isinstance(query, PrivateQuery)
    options = {name: replace(option, place=NOWHERE) for name, option in query.clause.options.items()}
    return replace(query, text="", clause=replace(query.clause, options=MappingProxyType(options), place=NOWHERE))


def counted(query: PrivateQuery, bound: Bound | None = None) -> dict[Row, int]:
    counting = rewrite_leaders(query, None, bound=bound)
    rows = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    found = {same(row[:-1]): row[-1] for row in rows}
    assert len(found) == len({str(row[0]) for row in rows}) == len(rows), "two groups print alike"
    return found


def reference(query: PrivateQuery) -> dict[Row, int] | None:
    CON.execute("PRAGMA disable_optimizer")
    try:
        found = reference_counts(CON, query, "unit")
    except duckdb.Error:
        return None
    finally:
        CON.execute("PRAGMA enable_optimizer")
    return {
        tuple(("str", str(value)) if kind == "UUID" else (kind, value) for kind, value in key): count
        for key, count in found.items()
    }


@settings(max_examples=examples(800), deadline=None)
@given(st.integers(0, 2**63))
def test_counts_are_those_of_the_text(seed: int) -> None:
    body, options = asked(Random(seed))
    written = [f"{name} = {value}" for name, value in options]
    text = f"{body} TOP 3 PRIVATE" + (f" WITH ({', '.join(written)})" if options else "")
    query = read(text)
    if isinstance(query, str):
        return
    try:
        found, bounded = counted(query), counted(query, Bound(2, (1, 2)))
    except Unsupported:  # IN (SELECT ...) inside what can fail
        return
    assert all(bounded.get(key, 0) <= count for key, count in found.items())
    wanted = reference(replace(query, text=text))
    if query.domain is not None:
        assert same([None]) not in found
        assert bounded.keys() == found.keys()
        assert wanted is None or found == {key: wanted.get(key, 0) for key in found}
    elif wanted is not None:
        assert found == wanted, text


@pytest.mark.parametrize("domain", ["open.tn", 'MAIN."Open".tn', "view_of.tn"])
def test_candidates_of_a_collated_column_are_told_apart_by_their_bytes(domain: str) -> None:
    CON.execute("CREATE OR REPLACE VIEW view_of AS SELECT tn FROM open UNION ALL SELECT upper(tn) FROM open")
    catalog = catalog_of(CON, {"nasty": "unit"}, ["open", "view_of"])
    text = f"SELECT tn FROM nasty GROUP BY tn TOP 9 PRIVATE WITH (domain = '{domain}')"
    found = counted(private(text, catalog))
    table = "view_of" if "view" in domain else "open"
    rows = CON.execute(f"SELECT DISTINCT tn COLLATE C FROM {table} WHERE tn IS NOT NULL").fetchall()
    assert set(found) == set(map(same, rows))
    for (label,) in rows:
        units = CON.execute("SELECT COUNT(DISTINCT unit) FROM nasty WHERE tn COLLATE C = ?", [label]).fetchall()
        assert found[same([label])] == units[0][0]


@pytest.mark.parametrize(
    ("stored", "key", "labels"),
    [
        ("d DOUBLE: -0.0 0.0 nan nan -nan inf", "d", [0.0, float("nan"), float("inf")]),
        ("x FLOAT: -0.0 0.0 nan 1.1", "f", [0.0, float("nan"), 1.100000023841858]),
        ("n BIGINT: 1 70000 -1", "u16", [1]),
        ("n UINTEGER: 1 1 70000", "i16", [1]),
        ("t VARCHAR: 1 1.0 01", "CAST(i32 AS VARCHAR)", ["1", "1.0", "01"]),
        ("u UUID: FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF", "uid", ["ffffffff-ffff-4fff-bfff-ffffffffffff"]),
        ("t VARCHAR: FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF", "uid", ["FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF"]),
        ("m DECIMAL(9,2): 1.5 1.50 01.500", "dec", [Decimal("1.50")]),
    ],
)
def test_every_candidate_takes_part_once(stored: str, key: str, labels: list[object]) -> None:
    column, values = stored.split(": ")
    CON.execute(f"CREATE OR REPLACE TABLE candidates({column})")
    CON.executemany("INSERT INTO candidates VALUES (?)", [[value] for value in [*values.split(), None]])
    catalog = catalog_of(CON, {"nasty": "unit"}, ["candidates"])
    text = f"SELECT {key} AS k FROM nasty GROUP BY k TOP 9 PRIVATE WITH (domain = 'candidates.{column.split()[0]}')"
    assert set(counted(private(text, catalog))) == {same([label]) for label in labels}


@pytest.mark.parametrize(
    ("column", "key"), [("dec18", "dec"), ("dec", "i32"), ("i64", "d"), ("iv", "t"), ("b", "t"), ("day", "ts")]
)
def test_a_domain_of_another_type_than_the_key_is_refused(column: str, key: str) -> None:
    assert read(f"SELECT {key} FROM nasty GROUP BY {key} TOP 9 PRIVATE WITH (domain = 'open.{column}')") == "domain"
