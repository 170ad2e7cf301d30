"""The SQL that engines are sent, word by word: what another sqlglot, or another form, would write shows here.

The statements that a dialect refuses follow from it alone: those of engines without a kit here are checked, too.

DPSQL_REGENERATE=1 pytest -n0 tests/engines/conformance/test_written.py writes all of it again; read the difference.
"""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from sqlglot import exp, parse_one

from dpsql.dialects import Dialect
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.tree import BIGINT, DOUBLE, TEXT
from dpsql.testing import DUCKDB, kit
from dpsql.testing.queries import load_queries, open_kit, rewrite_query

sys.path.append(str(Path(__file__).parents[3] / "examples" / "engines"))
DIALECTS = {
    "athena": "dpsql.dialects.warehouses:ATHENA",
    "bigquery": "dpsql.dialects.warehouses:BIGQUERY",
    "clickhouse": "clickhouse:CLICKHOUSE",
    "databricks": "dpsql.dialects.spark:DATABRICKS",
    "datafusion": "dpsql.dialects.datafusion:DATAFUSION",
    "mariadb": "dpsql.dialects.mysql:MARIADB",
    "mysql": "dpsql.dialects.mysql:MYSQL",
    "portable": "dpsql.testing.kit:PORTABLE",
    "postgres": "dpsql.dialects.postgres:POSTGRES",
    "redshift": "dpsql.dialects.warehouses:REDSHIFT",
    "snowflake": "dpsql.dialects.warehouses:SNOWFLAKE",
    "spark": "dpsql.dialects.spark:SPARK",
    "trino": "dpsql.dialects.warehouses:TRINO",
}
SAME = {"athena": "trino"}  # the golden text of Athena, whose engine is a Trino, is that of Trino
WIDE = {  # how warehouses return the types that they do not have
    **dict.fromkeys("TINYINT SMALLINT INTEGER UTINYINT USMALLINT UINTEGER".split(), BIGINT),
    "FLOAT": DOUBLE,
}
NAMES = """
    leading_country ties_at_the_cut filter_text_in filter_is_not_distinct_double filter_and_or_not filter_date key_case
    sum_of_integers text_like join_public_left join_public_full join_private_semi join_private_with_itself link
    not_in_private exists_private union except unnest unit_and_key unit_sum_of_decimals window_first window_sums
    domain_listed domain_stored per per_one_each bound_one bound_five bound_twenty_by_label weighted weighted_of_all
    public_order public_groups measure_ranked_by_sum measure_weighted measure_weighted_of_all
    measure_averages_of_decimals measure_averages_of_groups measure_quantile_of_groups measure_quantile_bounded
    measure_per_one_each
"""


def dialect_of(engine: str) -> Dialect:
    module, _, name = DIALECTS[engine].partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, Dialect)
    return found


def golden_file(engine: str) -> Path:
    return Path(__file__).parent / "written" / f"{SAME.get(engine, engine)}.sql"


def catalog_for(dialect: Dialect) -> Catalog:
    """Return the tables of the suite as if they were in a schema of an engine of this dialect."""
    tables = []
    for table in open_kit(DUCKDB).catalog.tables:
        link = None if table.link is None else replace(table.link, path=("shop", table.link.path[-1]))
        tables.append(replace(table, path=("shop", table.name), link=link))
    return Catalog(tuple(tables), dialect)


def test_the_dialect_of_every_kit_is_written() -> None:
    missing = kit._KITS.keys() - DIALECTS.keys()
    assert not missing, f"Name the dialects of {sorted(missing)} in DIALECTS of conformance/test_written.py."


@pytest.mark.parametrize("engine", DIALECTS)
def test_the_sql_of_a_dialect_is_the_golden_text(engine: str) -> None:
    file, catalog = golden_file(engine), catalog_for(dialect_of(engine))
    asked = {each.name: each for each in load_queries()}
    found = {name: rewrite_query(asked[name], catalog) for name in NAMES.split()}
    blocks = [
        f"# {name}\n" + ("lacking" if each is None else f"{each.sql}\n-- {list(each.parameters)!r}") + "\n"
        for name, each in found.items()
    ]
    if os.environ.get("DPSQL_REGENERATE") and engine not in SAME:
        file.write_text("\n".join(blocks))
    todo = f"DPSQL_REGENERATE=1 writes tests/engines/conformance/written/{file.name}; read the difference."
    assert file.exists(), todo
    assert "\n".join(blocks) == file.read_text(), todo


@pytest.mark.parametrize("engine", ["bigquery", "mysql", "snowflake"])
def test_the_gaps_of_an_engine_that_may_not_be_here_follow_from_its_dialect(engine: str) -> None:
    catalog, types = catalog_for(dialect_of(engine)), {} if engine == "mysql" else WIDE
    tables = [
        replace(table, columns=tuple((name, types.get(type_.name, type_)) for name, type_ in table.columns))
        for table in catalog.tables
    ]
    refused = [
        each.name for each in load_queries() if rewrite_query(each, replace(catalog, tables=tuple(tables))) is None
    ]
    file = Path(__file__).parent / "gaps" / f"{engine}.toml"
    if os.environ.get("DPSQL_REGENERATE"):
        file.write_text("".join(["refused = [\n", *(f'    "{name}",\n' for name in refused), "]\n"]))
    todo = f"DPSQL_REGENERATE=1 writes tests/engines/conformance/gaps/{file.name}; read the difference."
    assert refused == tomllib.loads(file.read_text())["refused"], todo


def parse_golden(engine: str) -> list[exp.Expression]:
    """Return the golden statements of an engine, parsed in its dialect."""
    blocks = golden_file(engine).read_text().split("\n\n")
    statements = [sql for block in blocks if (sql := block.partition("\n")[2].partition("\n-- ")[0]) != "lacking"]
    return [parse_one(sql, read=dialect_of(engine).sqlglot) for sql in statements]


@pytest.mark.parametrize("engine", ["athena", "bigquery", "databricks", "redshift", "snowflake", "trino"])
def test_the_golden_text_of_a_warehouse_is_read_in_its_own_dialect(engine: str) -> None:
    statements = parse_golden(engine)
    assert len(statements) > 20
    assert all(isinstance(each, exp.Query) for each in statements)


@pytest.mark.parametrize("engine", ["redshift", "snowflake"])
def test_no_text_of_a_stored_column_is_read_with_the_collation_of_the_column(engine: str) -> None:
    tables = open_kit(DUCKDB).catalog.tables
    texts = {name for table in tables for name, type_ in table.columns if type_ == TEXT}
    read = [column for each in parse_golden(engine) for column in each.find_all(exp.Column) if column.name in texts]
    assert len(read) > 30
    assert all(column.find_ancestor(exp.Collate) for column in read)


def test_what_a_warehouse_sorts_otherwise_is_refused() -> None:
    (asked,) = (each for each in load_queries() if each.name == "public_order_by_double")
    assert rewrite_query(asked, catalog_for(dialect_of("bigquery"))) is None
    assert rewrite_query(asked, catalog_for(dialect_of("snowflake"))) is not None
