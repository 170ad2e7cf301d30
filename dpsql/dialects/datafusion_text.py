"""Forms of DataFusion's for text: by its bytes or its code points, as DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.dialects.letters import list_lower_cases, list_upper_cases

__all__ = ["TEXTS"]

_BLANKS = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_LENGTH = "CAST(character_length({0}) AS BIGINT)"
_START = f"(CASE WHEN {{1}} > 0 THEN {{1}} - 1 WHEN {{1}} < 0 THEN {_LENGTH} + {{1}} ELSE -1 END)"  # from 0
_END = f"({_START} + {{2}})"
_FIRST, _LAST = f"greatest(least({_START}, {_END}), 0)", f"greatest({_START}, {_END}, 0)"
_LEFT = f"(CASE WHEN {{1}} >= 0 THEN {{1}} ELSE greatest({_LENGTH} + {{1}}, 0) END)"
_RIGHT = f"(CASE WHEN {{1}} >= 0 THEN greatest({_LENGTH} - {{1}}, 0) ELSE 0 - {{1}} END)"
_AT = f"(CASE WHEN {{2}} > 0 THEN {{2}} WHEN {{2}} < 0 THEN {_LENGTH} + {{2}} + 1 ELSE 0 END)"
_LETTER = f"(CASE WHEN {_AT} > 0 THEN substr({{0}}, greatest({_AT}, 1), 1) ELSE '' END)"


def _other_case(function: str) -> str:
    """Return the form of LOWER or UPPER, for which DataFusion agrees with DuckDB only on ASCII."""
    one, other = (list_lower_cases if function == "lower" else list_upper_cases)()
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    both = (plain + one, plain.lower() + other) if function == "lower" else (plain.lower() + one, plain + other)
    mapped = f"translate({{0}}, '{both[0]}', '{both[1]}')"
    return f"(CASE WHEN octet_length({{0}}) = character_length({{0}}) THEN {function}({{0}}) ELSE {mapped} END)"


TEXTS: Mapping[str, str] = {
    "cast TEXT TEXT": "{0}",
    "keyed_hash TEXT": "xxhash64({1}, {0})",  # one of DataFusion's functions for Spark, which the engine registers
    "mix": "xxhash64({0}, {1})",
    "md5 TEXT": "md5({0})",
    "sha256 TEXT": "encode(sha256({0}), 'hex')",
    "like_backslash TEXT": "({0} LIKE {1})",
    "ilike_backslash TEXT": f"({_other_case('lower')} LIKE {_other_case('lower').replace('{0}', '{1}')})",
    "||": "({0} || {1})",
    "concat": "concat({*})",
    "concat_ws": "concat_ws({*})",
    "lower TEXT": _other_case("lower"),
    "upper TEXT": _other_case("upper"),
    "length TEXT": _LENGTH,
    "strlen TEXT": "CAST(octet_length({0}) AS BIGINT)",
    "bit_length TEXT": "CAST(octet_length({0}) AS BIGINT) * 8",
    "ascii TEXT": "ascii({0})",
    "unicode TEXT": "(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)",
    "translate TEXT": "translate({0}, {1}, {2})",
    **{
        f"{name} {words}": f"{function}({{0}}, {chars})"
        for name, function in (("trim", "btrim"), ("ltrim", "ltrim"), ("rtrim", "rtrim"))
        for words, chars in (("TEXT", f"'{_BLANKS}'"), ("TEXT TEXT", "{1}"))
    },
    "substring TEXT INTEGER": f"substr({{0}}, greatest({_START}, 0) + 1)",
    "substring TEXT INTEGER INTEGER": f"substr({{0}}, {_FIRST} + 1, {_LAST} - {_FIRST})",
    "left TEXT": f"substr({{0}}, 1, {_LEFT})",
    "right TEXT": f"substr({{0}}, {_RIGHT} + 1)",
    "starts_with TEXT": "starts_with({0}, {1})",
    "suffix TEXT": "ends_with({0}, {1})",
    "contains TEXT": "(strpos({0}, {1}) > 0)",
    "strpos TEXT": "CAST(strpos({0}, {1}) AS BIGINT)",
    "replace TEXT": "replace({0}, {1}, {2})",
    "split_part TEXT": f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{2}} = 0 THEN '' WHEN {{1}} = '' THEN {_LETTER} "
    "ELSE split_part({0}, {1}, COALESCE(NULLIF({2}, 0), 1)) END)",
}
