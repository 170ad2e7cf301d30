"""Forms with the same meaning in every engine, on which dialects build.

An engine whose comparisons of a type differ (text by a locale, NaN unequal to itself) gives its own form for that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["STANDARD"]

_COMPARED = {sign: f"({{0}} {sign} {{1}})" for sign in ("=", "<>", "<", "<=", ">", ">=")}
_PLAIN = ("INTEGER", "DATE", "TIMESTAMP")  # types with the same order everywhere
STANDARD: Mapping[str, str] = MappingProxyType(
    {
        **_COMPARED,
        "not": "(NOT {0})",
        "is_null": "({0} IS NULL)",
        "is_true": "COALESCE({0}, FALSE)",
        "is_false": "COALESCE(NOT {0}, FALSE)",
        "coalesce": "COALESCE({*})",
        "canonical TEXT": "{0}",
        "count_star": "COUNT(*)",
        "count": "COUNT({0})",
        "count_distinct": "COUNT(DISTINCT {0})",
        **{f"{end} {kind}": f"{end.upper()}({{0}})" for end in ("min", "max") for kind in _PLAIN},
        **{name: f"{name.upper()}()" for name in ("row_number", "rank", "dense_rank")},
    }
)
