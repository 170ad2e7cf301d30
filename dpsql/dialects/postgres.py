"""PostgreSQL: text is compared by its bytes, and arithmetic that could overflow is done in numbers that cannot.

A CASE of PostgreSQL computes only the branch that it takes, except for constant branches, which the planner may compute
earlier. In every form here the condition and the branch name the same operands, so that both are constant or neither
is, and the planner evaluates the condition first. A branch with fewer operands cannot fail.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.postgres_numbers import NUMBERS
from dpsql.dialects.postgres_texts import TEXTS
from dpsql.dialects.postgres_times import TIMES

__all__ = ["POSTGRES"]

_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP")  # alike in both, NaN above all
_COMPUTED = (*_COMPARED, "TEXT")
_RANKED = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")


def _comparisons() -> dict[str, str]:
    forms = {}
    for family in _COMPARED:
        for sign in ("=", "<>", "<", "<=", ">", ">="):
            forms[f"{sign} {family} {family}"] = f"({{0}} {sign} {{1}})"
        forms[f"between {family} {family} {family}"] = "({0} BETWEEN {1} AND {2})"
        forms[f"is_distinct {family} {family}"] = "({0} IS DISTINCT FROM {1})"
        forms[f"is_not_distinct {family} {family}"] = "({0} IS NOT DISTINCT FROM {1})"
    forms["= BLOB BLOB"] = forms["= FLOAT FLOAT"] = "({0} = {1})"  # of units, and of a column with its zero
    return forms


def _choices() -> dict[str, str]:
    forms = {f"coalesce {family}": "COALESCE({*})" for family in _COMPUTED}
    for name, sign in (("greatest", "MAX"), ("least", "MIN")):
        forms |= {f"{name} {family}": f"{name.upper()}({{*}})" for family in _COMPARED}
        forms |= {f"{sign.lower()} {family}": f"{sign}({{0}})" for family in (*_COMPARED, "FLOAT")}
    return {**forms, "min BOOLEAN": "bool_and({0})", "max BOOLEAN": "bool_or({0})"}


def _windows() -> dict[str, str]:
    forms = {name: f"{name.upper()}()" for name in _RANKED}
    for name in ("lag", "lead"):
        forms |= {name: f"{name.upper()}({{0}})", f"{name}/2": f"{name.upper()}({{0}}, CAST({{1}} AS integer))"}
    return {**forms, "first_value": "FIRST_VALUE({0})", "ntile INTEGER": "NTILE(CAST({0} AS integer))"}


POSTGRES = Dialect(
    "PostgreSQL",
    "postgres",
    MappingProxyType(
        {
            **_comparisons(),
            **_choices(),
            **_windows(),
            **NUMBERS,
            **TEXTS,
            **TIMES,
            "column DECIMAL": "NULLIF({0}, 'NaN')",
            "not": "(NOT {0})",
            "is_null": "({0} IS NULL)",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            "cast NULL": "CAST({0} AS {type})",
            "count_star": "COUNT(*)",
            "count": "COUNT({0})",
            **{f"count_distinct {family}": "COUNT(DISTINCT {0})" for family in (*_COMPUTED, "BLOB")},
            "sum INTEGER": "SUM(CAST({0} AS numeric))",
            "sum DECIMAL": "SUM({0})",
            # hashint8extended folds a number to 32 bits: the upper ones are in the salt of the rest
            "keyed_hash INTEGER": "hashint8extended({0}, hashint8extended(CAST({0} AS bigint) >> 32, {1}))",
            "keyed_hash UUID": "uuid_hash_extended({0}, {1})",
            "mix": "hashint8extended({0}, hashint8extended({0} >> 32, {1}))",
            "lookup": "(ARRAY[{1*}])[{0}]",
            "divide_wide": "DIV({0}, {1})",
        }
    ),
    types=MappingProxyType({"UTINYINT": "smallint", "USMALLINT": "integer", "UINTEGER": "bigint"}),
    materialized=True,
    lacks=frozenset(["SEMI", "ANTI", "FULL unequal"]),
)
