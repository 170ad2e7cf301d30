"""BigQuery: whole numbers are INT64, computed as BIGNUMERIC; text without a collation is compared by its bytes.

NaN is unequal to itself and sorts first, so that a DOUBLE is compared by forms and is no key. An operator on FLOAT64
fails where its result overflows; only IEEE_DIVIDE does not.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import DAYS, Dialect, begin, fit, fold_case, list_dates

__all__ = ["BIGQUERY"]

_WIDE = "CAST({} AS BIGNUMERIC)"
_ONE, _TWO = _WIDE.format("{0}"), _WIDE.format("{1}")
_DIVISOR = f"NULLIF({_TWO}, 0)"
_PLAIN = ("INTEGER", "DECIMAL", "TEXT", "DATE", "TIMESTAMP", "BOOLEAN")
_INFINITE = "CAST('inf' AS FLOAT64)"
_NULL = "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE"
_LESS = f"({_NULL} NOT IS_NAN(@) AND (IS_NAN(#) OR @ < #) END)"
_AT_MOST = f"({_NULL} IS_NAN(#) OR (NOT IS_NAN(@) AND @ <= #) END)"
_EQUAL = "({0} = {1} OR (IS_NAN({0}) AND IS_NAN({1})))"
_DAY = "CAST({0} AS DATE)"
_DATETIME = "CAST({} AS DATETIME)"
_SINCE = "DATE_DIFF({0}, DATE '1970-01-01', DAY)"
_PARTS = "year month day quarter doy=DAYOFYEAR week=ISOWEEK isoyear=ISOYEAR".split()


def _fit(value: str) -> str:
    """Return a BIGNUMERIC, NULL where it does not fit; a literal beyond INT64 has to be a text."""
    form = fit(value)
    for end in ("{below}", "{above}"):
        form = form.replace(end, _WIDE.format(f"TRIM('{end}', '()')"))
    return form


def _whole(value: str) -> str:
    return f"CAST({_fit(value)} AS INT64)"


def _order(form: str, *, left: str, right: str) -> str:
    return form.replace("@", left).replace("#", right)


_DOUBLES = {
    "= DOUBLE DOUBLE": _EQUAL,
    "<> DOUBLE DOUBLE": f"(NOT {_EQUAL})",
    "< DOUBLE DOUBLE": _order(_LESS, left="{0}", right="{1}"),
    "> DOUBLE DOUBLE": _order(_LESS, left="{1}", right="{0}"),
    "<= DOUBLE DOUBLE": _order(_AT_MOST, left="{0}", right="{1}"),
    ">= DOUBLE DOUBLE": _order(_AT_MOST, left="{1}", right="{0}"),
    "/ DOUBLE DOUBLE": "IEEE_DIVIDE({0}, {1})",
    "neg DOUBLE": "(-{0})",
    "abs DOUBLE": "ABS({0})",
    "isinf DOUBLE": "IS_INF({0})",
    "isfinite DOUBLE": f"(ABS({{0}}) < {_INFINITE})",
}

_REST = _whole(f"MOD({_ONE}, {_DIVISOR})")
BIGQUERY = Dialect(
    "BigQuery",
    "bigquery",
    MappingProxyType(
        {
            **begin(),
            **_DOUBLES,
            "column TIMESTAMP": _DATETIME.format("{0}"),
            **{f"{sign} INTEGER INTEGER": _whole(f"{_ONE} {sign} {_TWO}") for sign in "+-*"},
            **{f"{sign} DECIMAL DECIMAL": _fit(f"{_ONE} {sign} {_TWO}") for sign in "+-*"},
            "// INTEGER INTEGER": _whole(f"DIV({_ONE}, {_DIVISOR})"),
            "% INTEGER INTEGER": f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN {_REST} END)",
            "neg INTEGER": _whole(f"-{_ONE}"),
            "abs INTEGER": _whole(f"ABS({_ONE})"),
            "neg DECIMAL": "(-{0})",
            "abs DECIMAL": "ABS({0})",
            "& INTEGER": "({0} & {1})",
            "| INTEGER": "({0} | {1})",
            "xor INTEGER": "({0} ^ {1})",
            "sum INTEGER": f"SUM({_ONE})",
            "sum DECIMAL": f"SUM({_ONE})",
            "cast INTEGER INTEGER": _whole(_ONE),
            "cast INTEGER DECIMAL": _fit(_ONE),
            "cast INTEGER DOUBLE": "CAST({0} AS FLOAT64)",
            "cast INTEGER TEXT": "CAST({0} AS STRING)",
            "cast DECIMAL INTEGER": _whole(f"ROUND({_ONE})"),
            "cast DECIMAL DECIMAL": _fit(f"ROUND({_ONE}, {{scale}})"),
            "cast DOUBLE BOOLEAN": "({0} <> 0)",
            "md5 TEXT": "TO_HEX(MD5({0}))",
            "sha1 TEXT": "TO_HEX(SHA1({0}))",
            "sha256 TEXT": "TO_HEX(SHA256({0}))",
            **fold_case("TRANSLATE({0}, '@', '#')", ascii_alone="BYTE_LENGTH({0}) = CHAR_LENGTH({0})"),
            "length TEXT": "CHAR_LENGTH({0})",
            "strlen TEXT": "BYTE_LENGTH({0})",
            "bit_length TEXT": "(BYTE_LENGTH({0}) * 8)",
            "starts_with TEXT TEXT": "STARTS_WITH({0}, {1})",
            "suffix TEXT TEXT": "ENDS_WITH({0}, {1})",
            "contains TEXT TEXT": "(STRPOS({0}, {1}) > 0)",
            "like_backslash TEXT": "({0} LIKE {1})",
            **list_dates("EXTRACT(@ FROM {0})", names=_PARTS, part="date_part"),
            "date_part.dow": "(EXTRACT(DAYOFWEEK FROM {0}) - 1)",
            "date_part.isodow": "(MOD(EXTRACT(DAYOFWEEK FROM {0}) + 5, 7) + 1)",
            **{
                f"{name} TIMESTAMP": form
                for name, form in list_dates(
                    "EXTRACT(@ FROM {0})", names=["hour", "minute", "second"], part="date_part"
                ).items()
            },
            **list_dates(
                _DATETIME.format(f"DATE_TRUNC({_DAY}, @)"),
                names="day week=ISOWEEK month quarter year".split(),
                part="date_trunc",
            ),
            **list_dates(
                f"DATETIME_TRUNC({_DATETIME.format('{0}')}, @)", names="second minute hour".split(), part="date_trunc"
            ),
            **list_dates(
                "DATE_DIFF(CAST({1} AS DATE), CAST({0} AS DATE), @)",
                names="day month quarter year".split(),
                part="date_diff",
            ),
            "- DATE DATE": "DATE_DIFF({0}, {1}, DAY)",
            **{
                f"{sign} DATE INTEGER": f"DATE_ADD({{0}}, INTERVAL (CASE WHEN SAFE_{name}({_SINCE}, {{1}}) "
                f"BETWEEN {DAYS[0]} AND {DAYS[1]} THEN {sign} {{1}} END) DAY)"
                for sign, name in (("+", "ADD"), ("-", "SUBTRACT"))
            },
            "last_day": f"LAST_DAY({_DAY}, MONTH)",
            "cast DATE TIMESTAMP": _DATETIME.format("{0}"),
            "cast TIMESTAMP DATE": _DAY,
            "cast DATE TEXT": "CAST({0} AS STRING)",
            "divide_wide": "DIV({0}, {1})",
            "lookup": "[{1*}][SAFE_ORDINAL({0})]",
            **{f"in_query {family}": "({0} IN {1})" for family in _PLAIN},
        }
    ),
    parameter="@p{n}",
    lacks=frozenset(
        [
            "SEMI",
            "ANTI",
            "IN",
            "HAVING",
            "ORDER BY DOUBLE",
            "INTERSECT ALL",
            "EXCEPT ALL",
            "UTINYINT",
            "USMALLINT",
            "UINTEGER",
        ]
        + [f"{kind} unequal" for kind in ("LEFT", "RIGHT", "FULL")]
    ),
    types=MappingProxyType({"TIMESTAMP": "DATETIME", "DECIMAL(38, 0)": "NUMERIC"}),
)
