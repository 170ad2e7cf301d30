"""PostgreSQL: text is compared by its bytes, and arithmetic that could overflow is done in numbers that cannot."""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.standard import STANDARD

__all__ = ["POSTGRES"]

_BY_BYTES = {f"{sign} TEXT": f'({{0}} {sign} {{1}} COLLATE "C")' for sign in ("=", "<>", "<", "<=", ">", ">=")}

POSTGRES = Dialect(
    "PostgreSQL",
    "postgres",
    MappingProxyType(
        {
            **STANDARD,
            **_BY_BYTES,
            "canonical TEXT": '({0} COLLATE "C")',
            "md5 TEXT": "md5({0})",
            "lookup": "(ARRAY[{1*}])[{0}]",
            "isnan DOUBLE": "({0} = 'NaN'::double precision)",
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
        }
    ),
    materialized=True,
)
