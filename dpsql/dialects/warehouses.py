"""Warehouses: BigQuery, Redshift, Snowflake, and Trino with Athena, whose engine 3 is one.

Arithmetic of whole numbers is computed in a type that holds every result, then cut to the first values beyond the
result's type, and those are NULL; Trino's TRY is NULL there. Days beyond the years 1 to 9999 are read as NULL.

* BigQuery: whole numbers are INT64, computed as BIGNUMERIC; text without a collation is compared by its bytes. An
  operator on FLOAT64 fails where its result overflows; only IEEE_DIVIDE does not.
* Redshift: blanks at the end of text do not count where it compares VARCHAR
  (https://docs.aws.amazon.com/redshift/latest/dg/r_Examples_with_character_types.html). Columns are therefore read
  without them, and texts are compared with a character behind each that sorts before all others. A database or a column
  may ignore case, and no catalog names the collation of a column. Every text is therefore given the collation that
  compares bytes: columns, values, and what functions return, since a statement in which texts of two collations meet is
  an error. DOUBLE is not computed with: how NaN compares is not documented.
* Snowflake: every whole number is a NUMBER of 38 digits, and text is compared by its bytes. A NUMBER may hold more than
  a BIGINT: such values are read as NULL. NaN equals itself and is the greatest DOUBLE
  (https://docs.snowflake.com/en/sql-reference/data-types-numeric), but there is no arithmetic on DOUBLE here, since its
  overflow is not documented. Branches of a CASE may be computed before its condition, so that no form relies on one to
  avoid an error.
* Trino: text is compared by its bytes.

NaN is unequal to itself in BigQuery and Trino, and its place in an order differs, so that a DOUBLE is compared by forms
and is no key.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from dpsql.dialects.base import ALIKE, SIGNS, STANDARD, Dialect, fit, fit_type, fold_case, list_dates

_FAMILIES = ("INTEGER", "DECIMAL", "DATE", "TIMESTAMP", "BOOLEAN")
_UNITS = "second minute hour day week month quarter year"
_LACKS = ("SEMI", "ANTI", "INTERSECT ALL", "EXCEPT ALL", "UTINYINT", "USMALLINT", "UINTEGER")
_DAYS = "BETWEEN -719162 AND 2932896"  # of the calendar, since 1970
_IN_CALENDAR = "BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
_DAY = "CAST({0} AS DATE)"
_COLUMN_DAY = f"(CASE WHEN {{0}} {_IN_CALENDAR} THEN {{0}} END)"
_ALIKE = {
    **STANDARD,
    **ALIKE,
    **{f"{end} {kind}": f"{end.upper()}({{0}})" for end in ("min", "max") for kind in ("TEXT", "DECIMAL")},
    "coalesce": "COALESCE({*}, NULL)",
    "cast BOOLEAN INTEGER": "(CASE WHEN {0} THEN 1 WHEN NOT {0} THEN 0 END)",
    "cast BOOLEAN TEXT": "(CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END)",
    "cast TIMESTAMP DATE": _DAY,
}


def _take_rest(rest: str) -> str:
    """Return the form of % of integers: the quotient of the least number by -1 does not fit, so that there is none."""
    return f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN {rest} END)"


# a < b becomes NOT is_nan(a) AND (is_nan(b) OR a < b), and NULL where an operand is NULL
def _compare_doubles(is_nan: str) -> dict[str, str]:
    """Return the comparisons of DOUBLE in which NaN equals itself and is the greatest."""
    null = "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE"
    equal = f"({{0}} = {{1}} OR ({is_nan}({{0}}) AND {is_nan}({{1}})))"
    forms = {"= DOUBLE DOUBLE": equal, "<> DOUBLE DOUBLE": f"(NOT {equal})"}
    for sign, one, other in (("<", "{0}", "{1}"), (">", "{1}", "{0}")):
        forms[f"{sign} DOUBLE DOUBLE"] = f"{null} NOT {is_nan}({one}) AND ({is_nan}({other}) OR {one} < {other}) END)"
        forms[f"{sign}= DOUBLE DOUBLE"] = f"{null} {is_nan}({other}) OR (NOT {is_nan}({one}) AND {one} <= {other}) END)"
    return forms


def _fit_bignumeric(value: str) -> str:
    """Return a BIGNUMERIC, NULL where it does not fit; a literal beyond INT64 has to be a text."""
    # 9223372036854775808 becomes CAST(TRIM('9223372036854775808', '()') AS BIGNUMERIC)
    form = fit(value)
    for end in ("{below}", "{above}"):
        form = form.replace(end, f"CAST(TRIM('{end}', '()') AS BIGNUMERIC)")
    return form


def _list_bigquery() -> dict[str, str]:
    one, two = "CAST({0} AS BIGNUMERIC)", "CAST({1} AS BIGNUMERIC)"
    divisor, moment = f"NULLIF({two}, 0)", "CAST({0} AS DATETIME)"
    since = "DATE_DIFF({0}, DATE '1970-01-01', DAY)"
    parts = "year month day quarter doy=DAYOFYEAR week=ISOWEEK isoyear=ISOYEAR"

    def whole(value: str) -> str:
        return f"CAST({_fit_bignumeric(value)} AS INT64)"

    return {
        **_ALIKE,
        **_compare_doubles("IS_NAN"),
        "/ DOUBLE DOUBLE": "IEEE_DIVIDE({0}, {1})",
        "neg DOUBLE": "(-{0})",
        "abs DOUBLE": "ABS({0})",
        "isinf DOUBLE": "IS_INF({0})",
        "isfinite DOUBLE": "(ABS({0}) < CAST('inf' AS FLOAT64))",
        "column TIMESTAMP": moment,
        **{f"{sign} INTEGER INTEGER": whole(f"{one} {sign} {two}") for sign in "+-*"},
        **{f"{sign} DECIMAL DECIMAL": _fit_bignumeric(f"{one} {sign} {two}") for sign in "+-*"},
        "// INTEGER INTEGER": whole(f"DIV({one}, {divisor})"),
        "% INTEGER INTEGER": _take_rest(whole(f"MOD({one}, {divisor})")),
        "neg INTEGER": whole(f"-{one}"),
        "abs INTEGER": whole(f"ABS({one})"),
        "abs DECIMAL": "ABS({0})",
        "& INTEGER": "({0} & {1})",
        "| INTEGER": "({0} | {1})",
        "xor INTEGER": "({0} ^ {1})",
        **dict.fromkeys(["sum INTEGER", "sum DECIMAL"], f"SUM({one})"),
        "cast INTEGER INTEGER": whole(one),
        "cast INTEGER DECIMAL": _fit_bignumeric(one),
        "cast INTEGER DOUBLE": "CAST({0} AS FLOAT64)",
        **dict.fromkeys(["cast INTEGER TEXT", "cast DATE TEXT"], "CAST({0} AS STRING)"),
        "cast DECIMAL INTEGER": whole(f"ROUND({one})"),
        "cast DECIMAL DECIMAL": _fit_bignumeric(f"ROUND({one}, {{scale}})"),
        "cast DOUBLE BOOLEAN": "({0} <> 0)",
        **{f"{name} TEXT": f"TO_HEX({name.upper()}({{0}}))" for name in ("md5", "sha1", "sha256")},
        **fold_case(
            "TRANSLATE({0}, '@', '#')",
            ascii_alone="BYTE_LENGTH({0}) = CHAR_LENGTH({0})",
            calls=("LOWER({0})", "UPPER({0})"),
        ),
        "length TEXT": "CHAR_LENGTH({0})",
        "strlen TEXT": "BYTE_LENGTH({0})",
        "bit_length TEXT": "(BYTE_LENGTH({0}) * 8)",
        "starts_with TEXT TEXT": "STARTS_WITH({0}, {1})",
        "suffix TEXT TEXT": "ENDS_WITH({0}, {1})",
        "contains TEXT TEXT": "(STRPOS({0}, {1}) > 0)",
        "like_backslash TEXT": "({0} LIKE {1})",
        **list_dates("date_part", parts, form="EXTRACT(@ FROM {0})"),
        **list_dates("date_part", "hour minute second", form="EXTRACT(@ FROM {0})", family="TIMESTAMP"),
        "date_part.dow": "(EXTRACT(DAYOFWEEK FROM {0}) - 1)",
        "date_part.isodow": "(MOD(EXTRACT(DAYOFWEEK FROM {0}) + 5, 7) + 1)",
        **list_dates(
            "date_trunc", "day week=ISOWEEK month quarter year", form=f"CAST(DATE_TRUNC({_DAY}, @) AS DATETIME)"
        ),
        **list_dates("date_trunc", "second minute hour", form=f"DATETIME_TRUNC({moment}, @)"),
        **list_dates("date_diff", "day month quarter year", form="DATE_DIFF(CAST({1} AS DATE), CAST({0} AS DATE), @)"),
        "- DATE DATE": "DATE_DIFF({0}, {1}, DAY)",
        **{
            f"{sign} DATE INTEGER": f"DATE_ADD({{0}}, INTERVAL (CASE WHEN SAFE_{name}({since}, {{1}}) {_DAYS} "
            f"THEN {sign} {{1}} END) DAY)"
            for sign, name in (("+", "ADD"), ("-", "SUBTRACT"))
        },
        "last_day": f"LAST_DAY({_DAY}, MONTH)",
        "cast DATE TIMESTAMP": moment,
        "divide_wide": "DIV({0}, {1})",
        "lookup": "[{1*}][SAFE_ORDINAL({0})]",
        **{f"in_query {family}": "({0} IN {1})" for family in (*_FAMILIES, "TEXT")},
    }


BIGQUERY = Dialect(
    "BigQuery",
    "bigquery",
    MappingProxyType(_list_bigquery()),
    parameter="@p{n}",
    lacks=frozenset(
        [*_LACKS, "IN", "HAVING", "ORDER BY DOUBLE", *(f"{kind} unequal" for kind in ("LEFT", "RIGHT", "FULL"))]
    ),
    types=MappingProxyType({"TIMESTAMP": "DATETIME", "DECIMAL(38, 0)": "NUMERIC"}),
)


def _list_redshift() -> dict[str, str]:
    # of a BIGINT; the product of two has 38 digits, the most that there are
    one, two = "CAST({0} AS DECIMAL(19, 0))", "CAST({1} AS DECIMAL(19, 0))"
    since, moment = "({0} - DATE '1970-01-01')", "CAST({0} AS TIMESTAMP)"
    part = "CAST(EXTRACT(@ FROM {0}) AS BIGINT)"

    def by_bytes(text: str) -> str:
        return f"COLLATE({text}, 'case_sensitive')"

    # a < b becomes a || CHR(1) < b || CHR(1): 'a' and 'a ' are then two texts, in DuckDB's order
    last = by_bytes("CHR(1)")
    return {
        **{name: form for name, form in _ALIKE.items() if name not in SIGNS and "DOUBLE" not in name},
        **{f"{sign} {family} {family}": f"({{0}} {sign} {{1}})" for sign in SIGNS for family in _FAMILIES},
        **{f"{sign} TEXT TEXT": f"({{0}} || {last} {sign} {{1}} || {last})" for sign in SIGNS},
        **dict.fromkeys(["column TEXT", "canonical TEXT"], by_bytes("RTRIM({0}, ' ')")),
        "literal TEXT": by_bytes("CAST({0} AS {type})"),
        "digested TEXT": by_bytes("{0}"),
        "column DATE": _COLUMN_DAY,
        "column TIMESTAMP": f"(CASE WHEN {_DAY} {_IN_CALENDAR} THEN {{0}} END)",
        **{f"{sign} INTEGER INTEGER": fit_type(f"{one} {sign} {two}") for sign in "+-*"},
        **{f"{sign} DECIMAL DECIMAL": fit_type(f"{{0}} {sign} {{1}}") for sign in "+-"},
        "% INTEGER INTEGER": _take_rest(fit_type(f"MOD({one}, NULLIF({two}, 0))")),
        "neg INTEGER": fit_type(f"-{one}"),
        "abs INTEGER": fit_type(f"ABS({one})"),
        "abs DECIMAL": "ABS({0})",
        "sum INTEGER": "SUM(CAST({0} AS DECIMAL(38, 0)))",
        "sum DECIMAL": "SUM({0})",
        "cast BOOLEAN TEXT": by_bytes(_ALIKE["cast BOOLEAN TEXT"]),
        **dict.fromkeys(["cast INTEGER INTEGER", "cast INTEGER DECIMAL"], fit_type(one)),
        "cast INTEGER TEXT": by_bytes("CAST({0} AS VARCHAR)"),
        "cast DECIMAL INTEGER": fit_type("ROUND({0})"),
        "cast DECIMAL DECIMAL": fit_type("ROUND({0}, {scale})"),
        "md5 TEXT": by_bytes("MD5({0})"),
        "length TEXT": "CAST(CHAR_LENGTH({0}) AS BIGINT)",
        "strlen TEXT": "CAST(OCTET_LENGTH({0}) AS BIGINT)",
        **list_dates("date_part", "year month day quarter week doy dow", form=part),
        **list_dates("date_part", "hour minute", form=part, family="TIMESTAMP"),
        **list_dates("date_trunc", _UNITS, form=f"DATE_TRUNC('@', {moment})"),
        "date_diff.day": "CAST(CAST({1} AS DATE) - CAST({0} AS DATE) AS BIGINT)",
        "- DATE DATE": "CAST({0} - {1} AS BIGINT)",
        **{
            f"{sign} DATE INTEGER": f"({{0}} + CAST((CASE WHEN {since} {sign} {two} {_DAYS} "
            f"THEN {sign} {two} END) AS INTEGER))"
            for sign in "+-"
        },
        "cast DATE TIMESTAMP": moment,
        "cast DATE TEXT": by_bytes("TO_CHAR({0}, 'YYYY-MM-DD')"),
        "lookup": "CAST(TRIM(SPLIT_PART('{1*}', ',', CAST({0} AS INTEGER))) AS BIGINT)",
        **{f"in_query {family}": "({0} IN {1})" for family in _FAMILIES},
    }


REDSHIFT = Dialect(
    "Redshift",
    "redshift",
    MappingProxyType(_list_redshift()),
    lacks=frozenset([*_LACKS, "IN", "FULL unequal"]),
    types=MappingProxyType({"TINYINT": "SMALLINT", "TEXT": "VARCHAR(65535)", "VARCHAR": "VARCHAR(65535)"}),
)


def _list_snowflake() -> dict[str, str]:
    number, moment = "CAST({0} AS NUMBER(38, 0))", "CAST({0} AS TIMESTAMP_NTZ(6))"
    micro = moment.replace("{0}", "DATE_TRUNC('MICROSECOND', {0})")
    # d + 7 becomes DATEADD('DAY', CASE WHEN (days since 1970) + 7 BETWEEN ... THEN + 7 END, d)
    later = "(CASE WHEN DATEDIFF('DAY', DATE '1970-01-01', {0}) @ {1} " + _DAYS + " THEN @ {1} END)"
    infinite = "CAST('inf' AS DOUBLE)"
    parts = "year month day quarter doy=DAYOFYEAR isodow=DAYOFWEEKISO week=WEEKISO isoyear=YEAROFWEEKISO"
    below, above = "-9223372036854775809", "9223372036854775808"
    return {
        **_ALIKE,
        "column INTEGER": fit("{0}").replace("{below}", below).replace("{above}", above),
        "column TEXT": "COLLATE({0}, '')",
        "column DATE": _COLUMN_DAY,
        "column TIMESTAMP": f"(CASE WHEN {_DAY} {_IN_CALENDAR} THEN {micro} END)",
        **{f"{sign} INTEGER INTEGER": fit(f"{{0}} {sign} {{1}}") for sign in "+-*"},
        **{f"{sign} DECIMAL DECIMAL": fit_type(f"{{0}} {sign} {{1}}") for sign in "+-"},
        "% INTEGER INTEGER": _take_rest("MOD({0}, NULLIF({1}, 0))"),
        "neg INTEGER": fit("-{0}"),
        "abs INTEGER": fit("ABS({0})"),
        "abs DECIMAL": "ABS({0})",
        "sum INTEGER": f"SUM({number})",
        "sum DECIMAL": "SUM({0})",
        "cast INTEGER INTEGER": fit("{0}"),
        "cast INTEGER DECIMAL": fit_type("{0}"),
        "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
        "cast INTEGER TEXT": f"CAST({number} AS VARCHAR)",
        "cast DECIMAL INTEGER": fit("ROUND({0})"),
        "cast DECIMAL DECIMAL": fit_type("ROUND({0}, {scale})"),
        "isnan DOUBLE": "({0} = CAST('NaN' AS DOUBLE))",
        "isinf DOUBLE": f"({{0}} = {infinite} OR {{0}} = -{infinite})",
        "isfinite DOUBLE": f"({{0}} > -{infinite} AND {{0}} < {infinite})",
        "neg DOUBLE": "(-{0})",
        "md5 TEXT": "MD5({0})",
        "sha256 TEXT": "SHA2({0}, 256)",
        "length TEXT": "LENGTH({0})",
        "starts_with TEXT TEXT": "STARTSWITH({0}, {1})",
        "suffix TEXT TEXT": "ENDSWITH({0}, {1})",
        "contains TEXT TEXT": "CONTAINS({0}, {1})",
        "like TEXT TEXT": "({0} LIKE {1})",
        **list_dates("date_part", f"{parts} hour minute second", form="@({0})"),
        "date_part.dow": "MOD(DAYOFWEEKISO({0}), 7)",
        **list_dates("date_trunc", _UNITS, form=moment.replace("{0}", "DATE_TRUNC('@', {0})")),
        **list_dates("date_diff", "day month quarter year", form="DATEDIFF('@', {0}, {1})"),
        "- DATE DATE": "DATEDIFF('DAY', {1}, {0})",
        **{f"{sign} DATE INTEGER": f"DATEADD('DAY', {later.replace('@', sign)}, {{0}})" for sign in "+-"},
        "last_day": f"LAST_DAY({_DAY})",
        "cast DATE TIMESTAMP": moment,
        "cast DATE TEXT": "TO_CHAR({0}, 'YYYY-MM-DD')",
        "lookup": number.replace("{0}", "SPLIT_PART('{1*}', ', ', {0})"),
    }


SNOWFLAKE = Dialect(
    "Snowflake",
    "snowflake",
    MappingProxyType(_list_snowflake()),
    parameter=":{n}",
    lacks=frozenset([*_LACKS, "FULL unequal"]),
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP_NTZ(6)", "DOUBLE": "DOUBLE"}),
)


def _list_trino() -> dict[str, str]:
    one, two, moment = "CAST({0} AS DECIMAL(38, 0))", "CAST({1} AS DECIMAL(38, 0))", "CAST({0} AS TIMESTAMP(6))"
    divided, divisor = "CAST({0} AS BIGINT)", "NULLIF(CAST({1} AS BIGINT), 0)"
    since, truncated = "date_diff('day', DATE '1970-01-01', {0})", f"date_trunc('@', {moment})"
    parts = "year month day=day_of_month quarter doy=day_of_year isodow=day_of_week week isoyear=year_of_week"

    def try_fit(value: str) -> str:
        return f"TRY_CAST(TRY({value}) AS {{type}})"

    # date_trunc('week', d) becomes date_trunc('week', CAST(CASE WHEN d BETWEEN ... THEN d END AS TIMESTAMP(6)))
    def in_calendar(form: str) -> str:
        return form.replace("{0}", _COLUMN_DAY)

    return {
        **_ALIKE,
        **_compare_doubles("is_nan"),
        **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in "+-*/"},
        "neg DOUBLE": "(-{0})",
        "abs DOUBLE": "abs({0})",
        "isinf DOUBLE": "is_infinite({0})",
        "isfinite DOUBLE": "(abs({0}) < infinity())",
        "column TIMESTAMP": f"(CASE WHEN {_DAY} {_IN_CALENDAR} THEN {moment} END)",
        **{f"{sign} INTEGER INTEGER": try_fit(f"{one} {sign} {two}") for sign in "+-*"},
        **{f"{sign} DECIMAL DECIMAL": try_fit(f"{{0}} {sign} {{1}}") for sign in "+-"},
        "// INTEGER INTEGER": try_fit(f"{divided} / {divisor}"),
        "% INTEGER INTEGER": _take_rest(f"TRY({divided} % {divisor})"),
        "neg INTEGER": try_fit(f"-{one}"),
        "abs INTEGER": try_fit(f"abs({one})"),
        "abs DECIMAL": "abs({0})",
        "& INTEGER": "bitwise_and({0}, {1})",
        "| INTEGER": "bitwise_or({0}, {1})",
        "xor INTEGER": "bitwise_xor({0}, {1})",
        "sum INTEGER": f"SUM({one})",
        "sum DECIMAL": "SUM({0})",
        **dict.fromkeys(
            ["cast INTEGER INTEGER", "cast INTEGER DECIMAL", "cast DECIMAL DECIMAL"], "TRY_CAST({0} AS {type})"
        ),
        **dict.fromkeys(["cast INTEGER DOUBLE", "cast FLOAT DOUBLE"], "CAST({0} AS DOUBLE)"),
        "cast INTEGER TEXT": "CAST({0} AS VARCHAR)",
        "cast DECIMAL INTEGER": "TRY_CAST(round({0}) AS {type})",
        "cast DOUBLE BOOLEAN": "({0} <> 0)",
        **{f"{name} TEXT": f"lower(to_hex({name}(to_utf8({{0}}))))" for name in ("md5", "sha1", "sha256")},
        "length TEXT": "length({0})",
        "strlen TEXT": "length(to_utf8({0}))",
        "bit_length TEXT": "(length(to_utf8({0})) * 8)",
        "starts_with TEXT TEXT": "starts_with({0}, {1})",
        "contains TEXT TEXT": "(strpos({0}, {1}) > 0)",
        "like_backslash TEXT": "({0} LIKE {1} ESCAPE '\\')",
        **list_dates("date_part", parts, form="@({0})"),
        **list_dates("date_part", "hour minute second", form="@({0})", family="TIMESTAMP"),
        "date_part.dow": "(day_of_week({0}) % 7)",
        **list_dates("date_trunc", _UNITS, form=in_calendar(truncated), family="DATE"),
        **list_dates("date_trunc", _UNITS, form=truncated, family="TIMESTAMP"),
        "date_diff.day": "date_diff('day', CAST({0} AS DATE), CAST({1} AS DATE))",
        "- DATE DATE": "date_diff('day', {1}, {0})",
        **{
            f"{sign} DATE INTEGER": f"date_add('day', (CASE WHEN TRY({since} {sign} {{1}}) {_DAYS} "
            f"THEN {sign} {{1}} END), {{0}})"
            for sign in "+-"
        },
        "last_day DATE": in_calendar("last_day_of_month({0})"),
        "last_day TIMESTAMP": f"last_day_of_month({_DAY})",
        "cast DATE TIMESTAMP": in_calendar(moment),
        "cast DATE TEXT": in_calendar("CAST({0} AS VARCHAR)"),
        "lookup": "CAST(element_at(split('{1*}', ', '), {0}) AS BIGINT)",
        **{f"in_query {family}": "({0} IN {1})" for family in (*_FAMILIES, "TEXT")},
    }


TRINO = Dialect(
    "Trino",
    "trino",
    MappingProxyType(_list_trino()),
    parameter="?/*{n}*/",
    lacks=frozenset([*_LACKS, "IN", "FULL unequal", "ORDER BY DOUBLE"]),
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP(6)", "VARCHAR": "VARCHAR"}),
)
ATHENA = replace(TRINO, name="Athena", sqlglot="athena")
