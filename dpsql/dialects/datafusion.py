"""DataFusion: text and whole numbers compare as in DuckDB; NaN and -0.0 do not, and whole numbers wrap.

Arrow orders NaN by its sign and its bits, and a Parquet file's least and greatest values leave it out. Comparisons of
DOUBLE therefore make every NaN one and -0.0 zero first, and blocks of files are not skipped for them.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.datafusion_numbers import EVEN_NAN, NAN, NUMBERS
from dpsql.dialects.datafusion_text import TEXTS
from dpsql.dialects.datafusion_time import TIMES
from dpsql.dialects.standard import STANDARD

__all__ = ["DATAFUSION"]

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DATE", "TIMESTAMP", "TEXT")
_OTHER = EVEN_NAN.replace("{0}", "{1}")
_FOUND = f"(SELECT {EVEN_NAN.replace('{0}', 'c1')} FROM {{1}} AS dpsql_found)"  # noqa: S608 - a form, of no one's text
_LENGTH = "CAST(array_length({0}) AS BIGINT)"
_RANKED = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")


def _windows() -> dict[str, str]:
    forms = {name: f"{name.upper()}()" for name in _RANKED}
    for name in ("lag", "lead"):
        forms |= {name: f"{name.upper()}({{0}})", f"{name}/2": f"{name.upper()}({{0}}, {{1}})"}
    return {**forms, "first_value": "FIRST_VALUE({0})", "ntile": "NTILE({0})"}


def _choices() -> dict[str, str]:
    forms: dict[str, str] = {}
    for name, word in (("greatest", "max"), ("least", "min")):
        forms |= {f"{name} {family}": f"{name}({{*}})" for family in _COMPARED}
        forms |= {f"{word} {family}": f"{word.upper()}({{0}})" for family in _COMPARED}
        first = f"{{1}} IS NULL OR {EVEN_NAN} {'>' if word == 'max' else '<'}= {_OTHER}"  # of equal ones the first
        forms[f"{name} DOUBLE DOUBLE"] = f"(CASE WHEN {first} THEN {{0}} ELSE {{1}} END)"
    number = "CASE WHEN NOT isnan({0}) THEN {0} + 0 END"  # MIN and MAX of DataFusion lose NaN, or what is beside it
    some = f"CASE WHEN bool_or(isnan({{0}})) THEN {NAN} END"
    for family in ("DOUBLE", "FLOAT"):
        forms[f"max {family}"] = f"CAST(COALESCE({some}, MAX({number})) AS {{type}})"
        forms[f"min {family}"] = f"CAST(COALESCE(MIN({number}), {some}) AS {{type}})"
    return forms


def _among(value: str, found: str) -> str:
    """Return the form of IN (SELECT ...): DataFusion's own gives FALSE for NULL where it is part of a condition."""
    has_null = "(SELECT COUNT(*) FROM {1} AS dpsql_found WHERE c1 IS NULL) > 0"
    has_row = "(SELECT COUNT(*) FROM {1} AS dpsql_found) > 0"
    unsure = f"{has_null} OR ({{0}} IS NULL AND {has_row})"
    return f"(CASE WHEN {value} IN {found} THEN TRUE WHEN {unsure} THEN NULL ELSE FALSE END)"


DATAFUSION = Dialect(
    "DataFusion",
    "duckdb",
    MappingProxyType(
        {
            **STANDARD,
            **{f"{sign} DOUBLE": f"({EVEN_NAN} {sign} {_OTHER})" for sign in _SIGNS},
            "= FLOAT": f"({EVEN_NAN} = {_OTHER})",
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_distinct DOUBLE": f"({EVEN_NAN} IS DISTINCT FROM {_OTHER})",
            "is_not_distinct DOUBLE": f"({EVEN_NAN} IS NOT DISTINCT FROM {_OTHER})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            **{f"in {family}": "({0} IN ({1*}))" for family in _COMPARED},
            **{f"in_query {family}": _among("{0}", "{1}") for family in _COMPARED},
            "in_query DOUBLE": _among(EVEN_NAN, _FOUND),
            "order DOUBLE": EVEN_NAN,
            "lookup": "array_element(make_array({1*}), {0})",
            "list": "array_sort(array_agg(struct({*})))",
            "list_rows": "unnest({0})",
            "list_positions": f"unnest(range(1, {_LENGTH} + 1))",
            "list_length": _LENGTH,
            "list_field": "get_field({0}, 'c{1}')",  # as struct names them
            **_choices(),
            **_windows(),
            **NUMBERS,
            **TEXTS,
            **TIMES,
        }
    ),
    parameter="$p{n}",
    lacks=frozenset(["SEMI", "ANTI", "IN", "//", "condition as value", "correlated IN", "min OVER", "max OVER"]),
    types=MappingProxyType(
        {
            "TIMESTAMP": "TIMESTAMP(6)",
            "UTINYINT": "TINYINT UNSIGNED",
            "USMALLINT": "SMALLINT UNSIGNED",
            "UINTEGER": "INT UNSIGNED",
        }
    ),
)
