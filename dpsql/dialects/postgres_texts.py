"""Text in PostgreSQL, by its bytes: columns and texts have COLLATE "C" in every database."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.dialects.letters import list_lower_cases, list_upper_cases

__all__ = ["BY_BYTES", "TEXTS"]

BY_BYTES = '(CAST({0} AS text) COLLATE "C")'  # CAST takes the blanks from the end of CHAR(n), and citext's own equality
_BLANKS = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def _folded(operand: str, function: str) -> str:
    """Return the form of LOWER or UPPER: ASCII as in "C", the rest by DuckDB's own table."""
    one, other = (list_lower_cases if function == "lower" else list_upper_cases)()
    ascii_ = f'{function}({operand} COLLATE "C")'
    whole = f"translate({ascii_}, '{one}', '{other}')"
    return f"(CASE WHEN octet_length({operand}) = char_length({operand}) THEN {ascii_} ELSE {whole} END)"


def _like(escape: str) -> str:
    return f'({{0}} COLLATE "C" LIKE {{1}} ESCAPE {escape})'


def _ilike(escape: str) -> str:
    return f"({_folded('{0}', 'lower')} LIKE {_folded('{1}', 'lower')} ESCAPE {escape})"


def _part(length: str) -> str:
    """Return the form of SUBSTRING: it counts from the end where the position is negative, and back from it."""
    first = "(CASE WHEN {1} < 0 THEN char_length({0}) + 1 + {1} ELSE {1} END)"
    if not length:
        return f"substr({{0}}, CAST({first} AS integer))"
    start = f"CAST({first} + LEAST({length}, 0) AS integer)"
    return f"substr({{0}}, {start}, CAST(abs({length}) AS integer))"


_AT = "CASE WHEN {2} < 0 THEN {count} + 1 + {2} ELSE {2} END"
_SPLIT = "string_to_array({0}, {1})"
_LETTER = f"substr({{0}}, CAST({_AT.replace('{count}', 'char_length({0})')} AS integer), 1)"
_SPLIT_PART = f"COALESCE(({_SPLIT})[{_AT.replace('{count}', f'cardinality({_SPLIT})')}], '')"

TEXTS: Mapping[str, str] = {
    **{f"{sign} TEXT TEXT": f'({{0}} {sign} {{1}} COLLATE "C")' for sign in _SIGNS},
    "between TEXT TEXT TEXT": '({0} COLLATE "C" BETWEEN {1} AND {2})',
    "collated TEXT": BY_BYTES,
    "canonical TEXT": BY_BYTES,
    "is_distinct TEXT TEXT": '({0} IS DISTINCT FROM {1} COLLATE "C")',
    "is_not_distinct TEXT TEXT": '({0} IS NOT DISTINCT FROM {1} COLLATE "C")',
    "greatest TEXT": 'GREATEST({0} COLLATE "C", {1*})',
    "least TEXT": 'LEAST({0} COLLATE "C", {1*})',
    "min TEXT": 'MIN({0} COLLATE "C")',
    "max TEXT": 'MAX({0} COLLATE "C")',
    "min UUID": 'MIN(CAST({0} AS text) COLLATE "C")',
    "max UUID": 'MAX(CAST({0} AS text) COLLATE "C")',
    "like TEXT TEXT": _like("''"),
    "ilike TEXT TEXT": _ilike("''"),
    "like_escape TEXT TEXT TEXT": _like("{2}"),
    "ilike_escape TEXT TEXT TEXT": _ilike("{2}"),
    "md5 TEXT": "md5({0})",
    "keyed_hash TEXT": 'hashtextextended({0} COLLATE "C", {1})',
    "sha256 TEXT": "encode(sha256(convert_to({0}, 'UTF8')), 'hex')",
    "lower TEXT": _folded("{0}", "lower"),
    "upper TEXT": _folded("{0}", "upper"),
    "length TEXT": "CAST(char_length({0}) AS bigint)",
    "strlen TEXT": "CAST(octet_length({0}) AS bigint)",
    "bit_length TEXT": "CAST(octet_length({0}) * 8 AS bigint)",
    "ascii TEXT": "ascii({0})",
    "unicode TEXT": "(CASE WHEN {0} = '' COLLATE \"C\" THEN -1 ELSE ascii({0}) END)",
    "|| TEXT TEXT": "({0} || {1})",
    "concat": "concat({*})",
    "concat_ws": "concat_ws({*})",
    "translate TEXT TEXT TEXT": "translate({0}, {1}, {2})",
    "replace TEXT TEXT TEXT": 'replace({0} COLLATE "C", {1}, {2})',
    **{f"{name} TEXT": f"{name}({{0}}, '{_BLANKS}')" for name in ("ltrim", "rtrim")},
    **{f"{name} TEXT TEXT": f"{name}({{0}}, {{1}})" for name in ("ltrim", "rtrim")},
    "trim TEXT": f"btrim({{0}}, '{_BLANKS}')",
    "trim TEXT TEXT": "btrim({0}, {1})",
    "substring TEXT INTEGER": _part(""),
    "substring TEXT INTEGER INTEGER": _part("{2}"),
    **{f"{name} TEXT INTEGER": f"{name}({{0}}, CAST({{1}} AS integer))" for name in ("left", "right")},
    "starts_with TEXT TEXT": 'starts_with({0} COLLATE "C", {1})',
    "suffix TEXT TEXT": '(right({0}, char_length({1})) = {1} COLLATE "C")',
    "contains TEXT TEXT": '(strpos({0} COLLATE "C", {1}) > 0)',
    "strpos TEXT TEXT": 'CAST(strpos({0} COLLATE "C", {1}) AS bigint)',
    "split_part TEXT TEXT INTEGER": (
        f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{1}} = '' COLLATE \"C\" THEN {_LETTER} ELSE {_SPLIT_PART} END)"
    ),
    "cast TEXT TEXT": "{0}",
    "cast UUID TEXT": BY_BYTES,
    "cast ENUM TEXT": BY_BYTES,
    "cast INTEGER TEXT": BY_BYTES,
    "cast BOOLEAN TEXT": BY_BYTES,
    "cast DECIMAL TEXT": (
        "(CASE WHEN {width} = {scale} THEN regexp_replace(CAST(round({0}, {scale}) AS text), '^(-?)0[.]', '\\1.') "
        'ELSE CAST(round({0}, {scale}) AS text) END COLLATE "C")'
    ),
}
