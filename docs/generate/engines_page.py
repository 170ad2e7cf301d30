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
_GROUPS = {  # of families, from the largest
    "all": _FAMILIES[:-1],
    "numbers": ["INTEGER", "DECIMAL", "DOUBLE"],
    "times": ["DATE", "TIMESTAMP"],
}
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
            "DuckDB answers all of the language. Of the other [engines](sources.md) this is what gives exactly",
            "DuckDB's value for every value that can be stored; what is not here is refused (`engine-lacks`).\n",
            "## The suite\n",
            "Queries that every engine is compared by:\n",
            table(["engine", "answered", "refused"], _suite(suite)),
            "## Functions and operators\n",
            "A cell has the types of the first operand. `numbers` are INTEGER, DECIMAL and DOUBLE, `times` are DATE",
            "and TIMESTAMP, and `all` are these, BOOLEAN and TEXT. In parentheses are the words that a function",
            "takes, as in `date_part('year', day)`. `lacks` are joins, set operations and the like. MySQL is as",
            "MariaDB, without `md5`.\n",
            _called(dialects),
            "## Warehouses\n",
            "[None of them was run against the real service](../how-to/warehouses.md#what-was-tested).",
            "Athena is as Trino.\n",
            _called(_WAREHOUSES),
        ]
    )


def _called(dialects: Mapping[str, Dialect]) -> str:
    """Return the table of what can be called on each engine; names with the same cells share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in sorted({_name(key) for dialect in dialects.values() for key in dialect.forms} - _OWN):
        rows.setdefault(tuple(_taken(dialect, name) for dialect in dialects.values()), []).append(name)
    called = sorted([_write_names(names), *cells] for cells, names in rows.items())
    header = ["called", *(dialect.name for dialect in dialects.values())]
    return table(header, [*called, ["`lacks`", *(code(sorted(each.lacks)) for each in dialects.values())]])


def _write_names(names: Iterable[str]) -> str:
    """Return names as code, those of one function together: `date_part` (`day` `month`)."""
    families: dict[str, list[str]] = {}
    for name in names:
        function, _, word = name.replace("|", "\\|").partition(".")
        families.setdefault(function, []).extend([word] if word else [])
    return " ".join(f"`{name}`" + (f" ({code(words)})" if words else "") for name, words in families.items())


def _examples() -> dict[str, Dialect]:
    sys.path.insert(0, str(_EXAMPLES))
    return {"clickhouse": import_module("clickhouse").CLICKHOUSE, "sqlite": import_module("sqlite").SQLITE}


def _name(key: str) -> str:
    return key.partition(" ")[0]


def _taken(dialect: Dialect, name: str) -> str:
    """Return of which families the first operand of a call may be: all, some by name, or none."""
    found = [key.split()[1:] for key in dialect.forms if _name(key) == name]
    if [] in found:
        return "yes"
    first = {words[0] for words in found}
    written = []
    for group, families in _GROUPS.items():
        if first >= set(families):
            written.append(group)
            first -= set(families)
    return ", ".join([*written, *(each for each in _FAMILIES if each in first), *sorted(first - set(_FAMILIES))])


def _suite(dialects: Mapping[str, Dialect]) -> Iterable[list[str]]:
    for name, dialect in dialects.items():
        if not (_GAPS / f"{name}.toml").exists():  # it was not compared
            continue
        lacking = len(tomllib.loads((_GAPS / f"{name}.toml").read_text(encoding="utf-8"))["refused"])
        yield [dialect.name, str(len(load_queries()) - lacking), str(lacking)]
