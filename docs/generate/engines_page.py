"""What each engine can be asked, from the forms of its dialect and the gaps that the tests of conformance write."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import import_module

from pages import ROOT, code, head, table

from dpsql.dialects import Dialect
from dpsql.dialects.datafusion import DATAFUSION
from dpsql.dialects.mysql import MARIADB, MYSQL
from dpsql.dialects.postgres import POSTGRES
from dpsql.dialects.spark import DATABRICKS, SPARK
from dpsql.dialects.warehouses import BIGQUERY, REDSHIFT, SNOWFLAKE, TRINO
from dpsql.testing.queries import load_queries

_GAPS = ROOT / "tests" / "engines" / "conformance" / "gaps"
_EXAMPLES = ROOT / "examples" / "engines"
_OWN = frozenset(
    "column collated literal order canonical md5 keyed_hash mix draw digested gather lookup divide_wide in in_query "
    "list list_field list_length list_positions list_rows".split()
)  # not called by name
_FAMILIES = "BOOLEAN INTEGER DECIMAL DOUBLE TEXT DATE TIMESTAMP INTERVAL".split()


_WAREHOUSES = {
    "snowflake": SNOWFLAKE,
    "bigquery": BIGQUERY,
    "trino": TRINO,
    "databricks": DATABRICKS,
    "redshift": REDSHIFT,
}


def page() -> str:
    """Return the page."""
    dialects = {"postgres": POSTGRES, "spark": SPARK, "datafusion": DATAFUSION, "mariadb": MARIADB, **_examples()}
    suite = {**dialects, "mysql": MYSQL, **_WAREHOUSES}
    missing = {file.stem for file in _GAPS.glob("*.toml")} - suite.keys() - {"portable"}
    if missing:
        raise SystemExit(f"docs/generate/engines_page.py: name the dialects of {sorted(missing)} in page().")
    return "\n".join(
        [
            head("What each engine answers", "the dialects and tests/engines/conformance/gaps"),
            "DuckDB answers all of the language, which is its own. Of the others this is what gives exactly what",
            "DuckDB's gives, for every value that can be stored; what is not here is refused (`engine-lacks`).",
            "[Engines](../how-to/engines.md) says why.\n",
            "## The suite\n",
            "Of the queries that every engine is compared by:\n",
            table(["engine", "answered", "refused"], _suite(suite)),
            "## Functions and operators\n",
            "By the family of the first operand, where not all are taken. A point stands before what a word tells,",
            "as in `date_part('year', day)`. `lacks` are joins, set operations and the like. MySQL is as MariaDB,",
            "without `md5`.\n",
            _called(dialects),
            "## Warehouses\n",
            "[None of them was run against the real service](../how-to/warehouses.md#what-was-tested).",
            "Athena is as Trino.\n",
            _called(_WAREHOUSES),
        ]
    )


def _called(dialects: Mapping[str, Dialect]) -> str:
    """Return the table of what can be called on each engine."""
    names = sorted({_name(key) for dialect in dialects.values() for key in dialect.forms} - _OWN)
    rows = [_row(name, dialects.values()) for name in names]
    header = ["called", *(dialect.name for dialect in dialects.values())]
    return table(header, [*rows, ["`lacks`", *(code(sorted(each.lacks)) for each in dialects.values())]])


def _examples() -> dict[str, Dialect]:
    sys.path.insert(0, str(_EXAMPLES))
    return {"clickhouse": import_module("clickhouse").CLICKHOUSE, "sqlite": import_module("sqlite").SQLITE}


def _row(name: str, dialects: Iterable[Dialect]) -> list[str]:
    return [f"`{name}`".replace("|", "\\|"), *(_taken(dialect, name) for dialect in dialects)]


def _name(key: str) -> str:
    return key.partition(" ")[0]


def _taken(dialect: Dialect, name: str) -> str:
    """Return of which families the first operand of a call may be: all, some by name, or none."""
    found = [key.split()[1:] for key in dialect.forms if _name(key) == name]
    if [] in found:
        return "yes"
    first = {words[0] for words in found}
    return ", ".join([*(each for each in _FAMILIES if each in first), *sorted(first - set(_FAMILIES))])


def _suite(dialects: Mapping[str, Dialect]) -> Iterable[list[str]]:
    for name, dialect in dialects.items():
        if not (_GAPS / f"{name}.toml").exists():  # it was not compared
            continue
        lacking = len(tomllib.loads((_GAPS / f"{name}.toml").read_text(encoding="utf-8"))["refused"])
        yield [dialect.name, str(len(load_queries()) - lacking), str(lacking)]
