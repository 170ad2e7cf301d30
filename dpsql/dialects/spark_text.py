"""Forms of Spark's for text: by its bytes or its code points, as DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.dialects.letters import list_lower_cases, list_upper_cases

__all__ = ["TEXTS"]

_BLANKS = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_LENGTH = "CAST(char_length({0}) AS BIGINT)"
_START = (
    f"(CASE WHEN {{1}} > 0 THEN {{1}} - 1 WHEN {{1}} < 0 THEN {_LENGTH} + {{1}} ELSE -1 END)"  # from 0; may be before
)
_END = f"({_START} + {{2}})"
_FIRST, _LAST = (f"greatest(least({_START}, {_END}), 0)", f"greatest({_START}, {_END}, 0)")
_LEFT = f"(CASE WHEN {{1}} >= 0 THEN {{1}} ELSE greatest({_LENGTH} + {{1}}, 0) END)"
_RIGHT = f"(CASE WHEN {{1}} >= 0 THEN greatest({_LENGTH} - {{1}}, 0) ELSE -{{1}} END)"
_LETTER = "substring({0}, CAST((CASE WHEN {2} > 0 THEN {2} WHEN {2} < 0 AND {2} >= -" + _LENGTH + " THEN "
_LETTER += _LENGTH + " + {2} + 1 ELSE 10001 END) AS INT), (CASE WHEN {2} BETWEEN -10000 AND 10000 THEN 1 ELSE 0 END))"


def _other_case(function: str) -> str:
    """Return the form of LOWER or UPPER, for which Spark agrees with DuckDB only on ASCII."""
    one, other = (list_lower_cases if function == "lower" else list_upper_cases)()
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    both = (plain + one, plain.lower() + other) if function == "lower" else (plain.lower() + one, plain + other)
    mapped = f"translate({{0}}, '{both[0]}', '{both[1]}')"
    return f"(CASE WHEN octet_length({{0}}) = char_length({{0}}) THEN {function}({{0}}) ELSE {mapped} END)"


TEXTS: Mapping[str, str] = {
    "canonical TEXT": "{0}",
    "cast TEXT TEXT": "{0}",
    "md5 TEXT": "md5(CAST({0} AS BINARY))",
    "sha1 TEXT": "sha1(CAST({0} AS BINARY))",
    "sha256 TEXT": "sha2(CAST({0} AS BINARY), 256)",
    "like_backslash TEXT": "({0} LIKE {1})",
    "ilike_backslash TEXT": f"({_other_case('lower')} LIKE {_other_case('lower').replace('{0}', '{1}')})",
    "||": "concat({0}, {1})",
    "concat": "concat_ws('', {*})",
    "concat_ws": "concat_ws({*})",
    "lower TEXT": _other_case("lower"),
    "upper TEXT": _other_case("upper"),
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
    "substring TEXT INTEGER": f"substring({{0}}, CAST(greatest({_START}, 0) + 1 AS INT))",
    "substring TEXT INTEGER INTEGER": f"substring({{0}}, CAST({_FIRST} + 1 AS INT), CAST({_LAST} - {_FIRST} AS INT))",
    "left TEXT": f"substring({{0}}, 1, CAST({_LEFT} AS INT))",
    "right TEXT": f"substring({{0}}, CAST({_RIGHT} + 1 AS INT))",
    "starts_with TEXT": "startswith({0}, {1})",
    "suffix TEXT": "endswith({0}, {1})",
    "contains TEXT": "contains({0}, {1})",
    "strpos TEXT": "CAST(instr({0}, {1}) AS BIGINT)",
    "replace TEXT": "replace({0}, {1}, {2})",
    "split_part TEXT": f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{2}} = 0 THEN '' WHEN {{1}} = '' THEN {_LETTER} "
    "ELSE split_part({0}, {1}, CAST(nullif({2}, 0) AS INT)) END)",
}
