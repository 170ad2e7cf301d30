"""What SQL means alike everywhere: the least that a dialect has, to build on.

An engine whose comparisons of a type differ (text by a locale, NaN unequal to itself) gives its own form for that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["STANDARD"]

_COMPARED = {sign: f"({{0}} {sign} {{1}})" for sign in ("=", "<>", "<", "<=", ">", ">=")}
STANDARD: Mapping[str, str] = MappingProxyType(
    {
        **_COMPARED,
        "not": "(NOT {0})",
        "is_null": "({0} IS NULL)",
        "between": "({0} BETWEEN {1} AND {2})",
        "coalesce": "COALESCE({*})",
        "canonical TEXT": "{0}",
        "count_star": "COUNT(*)",
        "count": "COUNT({0})",
        "count_distinct": "COUNT(DISTINCT {0})",
        "min INTEGER": "MIN({0})",
        "max INTEGER": "MAX({0})",
        "row_number": "ROW_NUMBER()",
    }
)
