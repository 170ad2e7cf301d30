"""Forms of Spark's for text: by its bytes or its code points, as DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TEXTS"]

_BLANKS = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_LENGTH = "CAST(char_length({0}) AS BIGINT)"
# from code point number {from} on, from 0, so many as {count}
_FROM = "(CASE WHEN {1} > 0 THEN least({1} - 1, " + _LENGTH + ") WHEN {1} < 0 THEN greatest(" + _LENGTH
_FROM += " + {1}, 0) ELSE 0 END)"
_COUNT = "(CASE WHEN {1} = 0 THEN greatest({2} - 1, 0) ELSE {2} END)"
_CUT = f"(CASE WHEN {_COUNT} >= 0 THEN substring({{0}}, CAST({_FROM} + 1 AS INT), CAST({_COUNT} AS INT)) "
_CUT += f"ELSE substring({{0}}, CAST(greatest({_FROM} + {_COUNT}, 0) + 1 AS INT), "
_CUT += f"CAST({_FROM} - greatest({_FROM} + {_COUNT}, 0) AS INT)) END)"
_LIKE = r"({0} LIKE replace({1}, '\\', '\\\\'))"

TEXTS: Mapping[str, str] = {
    "canonical TEXT": "{0}",
    "cast TEXT TEXT": "{0}",
    "md5 TEXT": "md5(CAST({0} AS BINARY))",
    "sha1 TEXT": "sha1(CAST({0} AS BINARY))",
    "sha256 TEXT": "sha2(CAST({0} AS BINARY), 256)",
    "like TEXT": _LIKE,
    "like_escape TEXT": "({0} LIKE regexp_replace(replace({1}, '\\\\', '\\\\\\\\'), '', ''))",
    "||": "concat({0}, {1})",
    "concat": "concat_ws('', {*})",
    "concat_ws": "concat_ws({*})",
    "length TEXT": _LENGTH,
    "strlen TEXT": "CAST(octet_length({0}) AS BIGINT)",
    "bit_length TEXT": "CAST(bit_length({0}) AS BIGINT)",
    "ascii TEXT": "ascii({0})",
    "unicode TEXT": "(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)",
    "translate TEXT": "translate({0}, {1}, {2})",
    **{
        f"{name} {words}": f"trim({side} {chars} FROM {{0}})"
        for name, side in (("trim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING"))
        for words, chars in (("TEXT", f"'{_BLANKS}'"), ("TEXT TEXT", "{1}"))
    },
    "substring TEXT INTEGER": f"substring({{0}}, CAST({_FROM} + 1 AS INT))",
    "substring TEXT INTEGER INTEGER": _CUT,
    "left TEXT": f"substring({{0}}, 1, CAST((CASE WHEN {{1}} >= 0 THEN {{1}} ELSE greatest({_LENGTH} + {{1}}, 0) END) AS INT))",
    "right TEXT": f"substring({{0}}, CAST((CASE WHEN {{1}} >= 0 THEN greatest({_LENGTH} - {{1}}, 0) ELSE -{{1}} END) + 1 AS INT))",
    "starts_with TEXT": "startswith({0}, {1})",
    "prefix TEXT": "startswith({0}, {1})",
    "suffix TEXT": "endswith({0}, {1})",
    "contains TEXT": "contains({0}, {1})",
    "strpos TEXT": "CAST(instr({0}, {1}) AS BIGINT)",
    "replace TEXT": "replace({0}, {1}, {2})",
    "split_part TEXT": "split_part({0}, {1}, CAST({2} AS INT))",
}
