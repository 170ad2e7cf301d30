"""DataFusion: text and whole numbers compare as in DuckDB; NaN and -0.0 do not, and whole numbers wrap.

Arrow orders NaN by its sign and its bits, and a Parquet file's least and greatest values leave it out. Comparisons of
DOUBLE therefore make every NaN one and -0.0 zero first, and blocks of files are not skipped for them.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.datafusion_numbers import EVEN_NAN, NUMBERS
from dpsql.dialects.datafusion_text import TEXTS
from dpsql.dialects.datafusion_time import TIMES
from dpsql.dialects.standard import STANDARD

__all__ = ["DATAFUSION"]

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DATE", "TIMESTAMP", "TEXT")
_OTHER = EVEN_NAN.replace("{0}", "{1}")
_RANKED = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")


def _windows() -> dict[str, str]:
    forms = {name: f"{name.upper()}()" for name in _RANKED}
    for name in ("lag", "lead"):
        forms |= {name: f"{name.upper()}({{0}})", f"{name}/2": f"{name.upper()}({{0}}, {{1}})"}
    return {**forms, "first_value": "FIRST_VALUE({0})", "ntile": "CAST(NTILE({0}) AS BIGINT)"}


def _choices() -> dict[str, str]:
    forms = {}
    for name, word in (("greatest", "max"), ("least", "min")):
        forms |= {f"{name} {family}": f"{name}({{*}})" for family in _COMPARED}
        forms |= {f"{word} {family}": f"{word.upper()}({{0}})" for family in _COMPARED}
        forms |= {f"{word} {family}": f"{word.upper()}({EVEN_NAN})" for family in ("DOUBLE", "FLOAT")}
    return forms


DATAFUSION = Dialect(
    "DataFusion",
    "duckdb",
    MappingProxyType(
        {
            **STANDARD,
            **{f"{sign} DOUBLE": f"({EVEN_NAN} {sign} {_OTHER})" for sign in _SIGNS},
            **{f"{sign} FLOAT": f"({EVEN_NAN} {sign} {_OTHER})" for sign in _SIGNS},
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_distinct DOUBLE": f"({EVEN_NAN} IS DISTINCT FROM {_OTHER})",
            "is_not_distinct DOUBLE": f"({EVEN_NAN} IS NOT DISTINCT FROM {_OTHER})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            "order DOUBLE": EVEN_NAN,
            "lookup": "array_element(make_array({1*}), {0})",
            **_choices(),
            **_windows(),
            **NUMBERS,
            **TEXTS,
            **TIMES,
        }
    ),
    parameter="$p{n}",
    lacks=frozenset(["SEMI", "ANTI"]),
    types=MappingProxyType(
        {
            "TIMESTAMP": "TIMESTAMP(6)",
            "UTINYINT": "TINYINT UNSIGNED",
            "USMALLINT": "SMALLINT UNSIGNED",
            "UINTEGER": "INT UNSIGNED",
        }
    ),
)
