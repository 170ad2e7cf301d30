"""Redshift: text without the blanks at its end, since they do not count where it compares VARCHAR, and by its bytes.

https://docs.aws.amazon.com/redshift/latest/dg/r_Examples_with_character_types.html shows that. Columns are therefore
read without them, and texts are compared with a character behind each that sorts before all others.

A database or a column may ignore case, and no catalog names the collation of a column. Every text is therefore given
the collation that compares bytes: columns, values, and what functions return, since a statement in which texts of two
collations meet is an error. DOUBLE is not computed with: how NaN compares is not documented.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import DAYS, FIRST_DAY, LAST_DAY, Dialect, begin, fit, list_dates

__all__ = ["REDSHIFT"]

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DATE", "TIMESTAMP")
_WIDE = "CAST({} AS DECIMAL(19, 0))"  # of a BIGINT; the product of two has 38 digits, the most that there are
_ONE, _TWO = _WIDE.format("{0}"), _WIDE.format("{1}")
_BY_BYTES = "COLLATE({}, 'case_sensitive')"
_TEXT = _BY_BYTES.format("{0}")
_TRIMMED = _BY_BYTES.format("RTRIM({0}, ' ')")
_LAST = _BY_BYTES.format("CHR(1)")
_DAY, _MOMENT = "CAST({0} AS DATE)", "CAST({0} AS TIMESTAMP)"
_SINCE = "({0} - DATE '1970-01-01')"
_WITHIN = f"{DAYS[0]} AND {DAYS[1]}"
_PARTS = "year month day quarter week doy dow"


def _whole(value: str) -> str:
    return f"CAST({fit(value)} AS {{type}})"


def _comparisons() -> dict[str, str]:
    forms = {f"{sign} {family} {family}": f"({{0}} {sign} {{1}})" for sign in _SIGNS for family in _COMPARED}
    return {**forms, **{f"{sign} TEXT TEXT": f"({{0}} || {_LAST} {sign} {{1}} || {_LAST})" for sign in _SIGNS}}


REDSHIFT = Dialect(
    "Redshift",
    "redshift",
    MappingProxyType(
        {
            **{name: form for name, form in begin().items() if name not in _SIGNS and "DOUBLE" not in name},
            **_comparisons(),
            "column TEXT": _TRIMMED,
            "canonical TEXT": _TRIMMED,
            "literal TEXT": _BY_BYTES.format("CAST({0} AS {type})"),
            "digested TEXT": _TEXT,
            "column DATE": f"(CASE WHEN {{0}} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {{0}} END)",
            "column TIMESTAMP": f"(CASE WHEN {_DAY} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {{0}} END)",
            **{f"{sign} INTEGER INTEGER": _whole(f"{_ONE} {sign} {_TWO}") for sign in "+-*"},
            **{f"{sign} DECIMAL DECIMAL": _whole(f"{{0}} {sign} {{1}}") for sign in "+-"},
            "% INTEGER INTEGER": (
                f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN {_whole(f'MOD({_ONE}, NULLIF({_TWO}, 0))')} END)"
            ),
            "neg INTEGER": _whole(f"-{_ONE}"),
            "abs INTEGER": _whole(f"ABS({_ONE})"),
            "neg DECIMAL": "(-{0})",
            "abs DECIMAL": "ABS({0})",
            "sum INTEGER": "SUM(CAST({0} AS DECIMAL(38, 0)))",
            "sum DECIMAL": "SUM({0})",
            "cast BOOLEAN TEXT": _BY_BYTES.format(begin()["cast BOOLEAN TEXT"]),
            "cast INTEGER INTEGER": _whole(_ONE),
            "cast INTEGER DECIMAL": _whole(_ONE),
            "cast INTEGER TEXT": _BY_BYTES.format("CAST({0} AS VARCHAR)"),
            "cast DECIMAL INTEGER": _whole("ROUND({0})"),
            "cast DECIMAL DECIMAL": _whole("ROUND({0}, {scale})"),
            "md5 TEXT": _BY_BYTES.format("MD5({0})"),
            "length TEXT": "CAST(CHAR_LENGTH({0}) AS BIGINT)",
            "strlen TEXT": "CAST(OCTET_LENGTH({0}) AS BIGINT)",
            **list_dates("CAST(EXTRACT(@ FROM {0}) AS BIGINT)", names=_PARTS.split(), part="date_part"),
            **{
                f"{name} TIMESTAMP": form
                for name, form in list_dates(
                    "CAST(EXTRACT(@ FROM {0}) AS BIGINT)", names=["hour", "minute"], part="date_part"
                ).items()
            },
            **list_dates(
                f"DATE_TRUNC('@', {_MOMENT})",
                names="second minute hour day week month quarter year".split(),
                part="date_trunc",
            ),
            "date_diff.day": "CAST(CAST({1} AS DATE) - CAST({0} AS DATE) AS BIGINT)",
            "- DATE DATE": "CAST({0} - {1} AS BIGINT)",
            **{
                f"{sign} DATE INTEGER": f"({{0}} + CAST((CASE WHEN {_SINCE} {sign} {_TWO} BETWEEN {_WITHIN} "
                f"THEN {sign} {_TWO} END) AS INTEGER))"
                for sign in "+-"
            },
            "cast DATE TIMESTAMP": _MOMENT,
            "cast TIMESTAMP DATE": _DAY,
            "cast DATE TEXT": _BY_BYTES.format("TO_CHAR({0}, 'YYYY-MM-DD')"),
            "lookup": "CAST(TRIM(SPLIT_PART('{1*}', ',', CAST({0} AS INTEGER))) AS BIGINT)",
            **{f"in_query {family}": "({0} IN {1})" for family in _COMPARED},
        }
    ),
    lacks=frozenset(
        ["SEMI", "ANTI", "IN", "FULL unequal", "INTERSECT ALL", "EXCEPT ALL", "UTINYINT", "USMALLINT", "UINTEGER"]
    ),
    types=MappingProxyType({"TINYINT": "SMALLINT", "TEXT": "VARCHAR(65535)", "VARCHAR": "VARCHAR(65535)"}),
)
