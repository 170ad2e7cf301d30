"""Text in MySQL and MariaDB, brought to a collation that compares it by its bytes.

Sorting looks at the first bytes of a text alone, as many as `max_sort_length` says: a key that is longer is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MAX_KEY_LENGTH", "list_texts"]

MAX_KEY_LENGTH = 65_536  # bytes

_LENGTH = "CHAR_LENGTH({0})"
_FIRST = f"(CASE WHEN {{1}} < 0 THEN {_LENGTH} + 1 + {{1}} ELSE {{1}} END)"  # counted from 1; may be before it
_START, _END = f"LEAST({_FIRST}, {_FIRST} + {{2}})", f"GREATEST({_FIRST}, {_FIRST} + {{2}})"
_LEFT = f"(CASE WHEN {{1}} < 0 THEN GREATEST({_LENGTH} + {{1}}, 0) ELSE {{1}} END)"


def list_texts(collation: str) -> Mapping[str, str]:
    """Return the forms for text under a collation that compares it by its bytes."""
    by_bytes = f"(CONVERT({{0}} USING utf8mb4) COLLATE {collation})"
    key = f"(CASE WHEN OCTET_LENGTH({{0}}) <= {MAX_KEY_LENGTH} THEN {by_bytes} END)"

    def text(form: str) -> str:
        return f"(CONVERT({form} USING utf8mb4) COLLATE {collation})"

    return {
        "column TEXT": by_bytes,
        "literal TEXT": by_bytes,
        "canonical TEXT": key,
        "count_distinct TEXT": f"COUNT(DISTINCT {key})",
        "cast TEXT TEXT": "{0}",
        **{f"cast {family} TEXT": text("CAST({0} AS CHAR)") for family in ("INTEGER", "DECIMAL", "DATE")},
        "cast BOOLEAN TEXT": text("(CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END)"),
        "cast TIMESTAMP TEXT": text("TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({0} AS CHAR)))"),
        "like_backslash TEXT": "({0} LIKE {1} ESCAPE '\\')",
        "|| TEXT TEXT": "CONCAT({0}, {1})",
        "concat TEXT": f"CONCAT_WS({text(chr(39) * 2)}, {{*}})",
        "concat_ws TEXT": "CONCAT_WS({*})",
        "md5 TEXT": text("MD5({0})"),
        "sha256 TEXT": text("SHA2({0}, 256)"),
        "length TEXT": "CHAR_LENGTH({0})",
        "strlen TEXT": "OCTET_LENGTH({0})",
        "bit_length TEXT": "(OCTET_LENGTH({0}) * 8)",
        "unicode TEXT": "(CASE WHEN {0} = '' THEN -1 "
        "ELSE CAST(CONV(HEX(CONVERT(LEFT({0}, 1) USING utf32)), 16, 10) AS SIGNED) END)",
        "ascii TEXT": "(CASE WHEN {0} = '' THEN 0 "
        "ELSE CAST(CONV(HEX(CONVERT(LEFT({0}, 1) USING utf32)), 16, 10) AS SIGNED) END)",
        "replace TEXT TEXT TEXT": "REPLACE({0}, {1}, {2})",
        "left TEXT INTEGER": f"LEFT({{0}}, {_LEFT})",
        "right TEXT INTEGER": f"RIGHT({{0}}, {_LEFT})",
        "substring TEXT INTEGER": f"SUBSTRING({{0}}, GREATEST({_FIRST}, 1))",
        "substring TEXT INTEGER INTEGER": f"SUBSTRING({{0}}, GREATEST({_START}, 1), "
        f"GREATEST({_END} - GREATEST({_START}, 1), 0))",
        "starts_with TEXT TEXT": "(LEFT({0}, CHAR_LENGTH({1})) = {1})",
        "suffix TEXT TEXT": "(RIGHT({0}, CHAR_LENGTH({1})) = {1})",
        "contains TEXT TEXT": "(LOCATE({1}, {0}) > 0)",
        "strpos TEXT TEXT": "LOCATE({1}, {0})",
    }
