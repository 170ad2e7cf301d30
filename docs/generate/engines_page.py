"""What each engine can be asked, from the forms of its dialect and the gaps that the tests of conformance write."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
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
_GROUPS = {  # of families
    "numbers": ["INTEGER", "DECIMAL", "DOUBLE"],
    "times": ["DATE", "TIMESTAMP"],
}
_NONE = "-"
_FEW = 5  # engines that a row names as exceptions
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
    missing = {file.stem for file in _GAPS.glob("*.toml")} - {*dialects, "mysql", *_WAREHOUSES, "portable"}
    if missing:
        raise SystemExit(f"docs/generate/engines_page.py: name the dialects of {sorted(missing)} in page().")
    return "\n".join(
        [
            head("What each engine answers", "the dialects and tests/engines/conformance/gaps"),
            "DuckDB answers all of the language. Of the other [engines](sources.md) this is what gives exactly",
            "DuckDB's value for every value that can be stored; what is not here is refused (`engine-lacks`).\n",
            "## The suite\n",
            "Queries that every engine is compared by, and the joins, set operations and the like that it lacks.",
            "Athena is as Trino. No warehouse was run [as the real",
            "service](../how-to/warehouses.md#what-was-tested).\n",
            table(["engine", "answered", "refused", "lacks"], _suite({**dialects, "mysql": MYSQL, **_WAREHOUSES})),
            "## Functions and operators\n",
            "Before a colon are the engines, behind it the types of the first operand: `numbers` are INTEGER,",
            "DECIMAL and DOUBLE, `times` are DATE and TIMESTAMP. Without a type it may be any that the engine reads.",
            "In parentheses are the words that a function takes, as in `date_part('year', day)`. MySQL is as",
            "MariaDB, without `md5`.\n",
            _called([*dialects.values(), *_WAREHOUSES.values()]),
        ]
    )


def _called(dialects: Sequence[Dialect]) -> str:
    """Return the table of what can be called on which engines; names with the same cell share a row."""
    rows: dict[str, list[str]] = {}
    for name in sorted({_name(key) for dialect in dialects for key in dialect.forms} - _OWN):
        engines: dict[str, list[str]] = {}
        for dialect in dialects:
            engines.setdefault(_taken(dialect, name), []).append(dialect.name)
        none = engines.pop(_NONE, [])
        if len(engines) == 1 and len(none) <= _FEW:
            engines = {taken: ["all but " + ", ".join(none) if none else "all"] for taken in engines}
        cell = "; ".join(", ".join(names) + (f": {taken}" if taken else "") for taken, names in engines.items())
        rows.setdefault(cell, []).append(name)
    return table(["called", "on"], sorted([_write_names(names), cell] for cell, names in rows.items()))


def _write_names(names: Iterable[str]) -> str:
    """Return names as code, those of one function together: `date_part` (`day` `month`)."""
    families: dict[str, list[str]] = {}
    for name in names:
        function, _, word = name.replace("|", "\\|").partition(".")
        families.setdefault(function, []).extend([word] if word else [])
    return " ".join(f"`{name}`" + (f" ({_write_words(words)})" if words else "") for name, words in families.items())


def _write_words(words: Sequence[str]) -> str:
    """Return words as code, and whole numbers that follow each other as their ends."""
    numbers = sorted(int(word) for word in words if word.removeprefix("-").isdecimal())
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(words))):
        return f"`{numbers[0]}` to `{numbers[-1]}`"
    return code(words)


def _examples() -> dict[str, Dialect]:
    sys.path.insert(0, str(_EXAMPLES))
    return {"clickhouse": import_module("clickhouse").CLICKHOUSE, "sqlite": import_module("sqlite").SQLITE}


def _name(key: str) -> str:
    return key.partition(" ")[0]


def _taken(dialect: Dialect, name: str) -> str:
    """Return of which families the first operand of a call may be: all, which is "", or some by name; or `_NONE`."""
    found = [key.split()[1:] for key in dialect.forms if _name(key) == name]
    first = {words[0] for words in found if words}
    if [] in found or first >= set(_FAMILIES[:-1]):
        return ""
    written = []
    for group, families in _GROUPS.items():
        if first >= set(families):
            written.append(group)
            first -= set(families)
    others = [*(each for each in _FAMILIES if each in first), *sorted(first - set(_FAMILIES))]
    return ", ".join([*written, *others]) or _NONE


def _suite(dialects: Mapping[str, Dialect]) -> Iterable[list[str]]:
    for name, dialect in dialects.items():
        gaps, counts = _GAPS / f"{name}.toml", ["", ""]
        if gaps.exists():  # it was compared
            lacking = len(tomllib.loads(gaps.read_text(encoding="utf-8"))["refused"])
            counts = [str(len(load_queries()) - lacking), str(lacking)]
        yield [dialect.name, *counts, code(sorted(dialect.lacks))]
