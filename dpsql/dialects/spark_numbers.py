"""Forms of Spark's for numbers: NULL where a result does not fit, doubles rounded and printed as DuckDB does."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NUMBERS"]

_WHOLE = "(abs({0}) >= 4503599627370496D)"  # a double of this size has no fraction; NaN is the greatest of all
_DIVIDED = "(CASE WHEN {1} = 0 OR ({1} = -1 AND {0} = {least}) THEN NULL ELSE TRY_CAST(({0} DIV {1}) AS {type}) END)"
_ZERO = "({0} * 0.0D)"  # of the sign of {0}
_ROUND = f"(CASE WHEN abs({{0}}) < 0.5D THEN {_ZERO} WHEN {_WHOLE} THEN {{0}} ELSE round({{0}}) END)"
# the C library's pow(10, 23) and pow(10, 210), with which DuckDB counts, are not the doubles next to them
_POWER = "(CASE abs({1}) WHEN 23 THEN 1.0000000000000001e+23D WHEN 210 THEN 1.0000000000000001e+210D "
_POWER += "ELSE CAST(concat('1e', abs({1})) AS DOUBLE) END)"
_UP, _DOWN = (_ROUND.replace("{0}", f"({{0}} {sign} {_POWER})") for sign in ("*", "/"))
_ENDLESS = "CAST('Infinity' AS DOUBLE)"
_TENS = f"({_DOWN} * {_POWER})"
_DIGITS = f"(CASE WHEN NOT abs({{0}}) < {_ENDLESS} THEN {{0}} WHEN {{1}} >= 0 THEN "
_DIGITS += f"(CASE WHEN abs({_UP} / {_POWER}) < {_ENDLESS} THEN {_UP} / {_POWER} ELSE {{0}} END) "
_DIGITS += f"WHEN isnan({_TENS}) THEN 0.0D WHEN abs({_TENS}) < {_ENDLESS} THEN {_TENS} ELSE {{0}} END)"
_SUM = "SUM(CAST({0} AS DECIMAL(20, 0)))"

_ARITHMETIC: Mapping[str, str] = {
    "+ INTEGER INTEGER": "try_add({0}, {1})",
    "- INTEGER INTEGER": "try_subtract({0}, {1})",
    "* INTEGER INTEGER": "try_multiply({0}, {1})",
    "// INTEGER INTEGER": _DIVIDED,
    "% INTEGER INTEGER": "(CASE WHEN {1} = 0 OR ({1} = -1 AND {0} = {least}) THEN NULL ELSE {0} % {1} END)",
    **{
        f"{sign} {first} {second}": f"TRY_CAST(({{0}} {sign} {{1}}) AS {{type}})"
        for sign in ("+", "-", "*", "%")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in ("+", "-", "*")},
    "/ DOUBLE DOUBLE": "(CASE WHEN {1} = 0 THEN {0} * power({1}, -1D) ELSE {0} / {1} END)",
    "% DOUBLE DOUBLE": "(CASE WHEN {1} = 0 AND {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) ELSE {0} % {1} END)",
    "neg INTEGER": "(CASE WHEN {0} = {least} THEN NULL ELSE -{0} END)",
    "neg DECIMAL": "(-{0})",
    "neg DOUBLE": "(-{0})",
    "abs INTEGER": "(CASE WHEN {0} = {least} THEN NULL ELSE abs({0}) END)",
    "abs DECIMAL": "abs({0})",
    "abs DOUBLE": "abs({0})",
    "& INTEGER": "({0} & {1})",
    "| INTEGER": "({0} | {1})",
    "xor INTEGER": "({0} ^ {1})",
    "~ INTEGER": "(~{0})",
}
_FUNCTIONS: Mapping[str, str] = {
    "pi": "pi()",
    "sign DOUBLE": "CAST(sign({0}) AS TINYINT)",
    "isnan DOUBLE": "(CASE WHEN {0} IS NULL THEN NULL ELSE isnan({0}) END)",
    "isinf DOUBLE": "(abs({0}) = CAST('Infinity' AS DOUBLE))",
    "isfinite DOUBLE": "(abs({0}) < CAST('Infinity' AS DOUBLE))",
    "isnan FLOAT": "(CASE WHEN {0} IS NULL THEN NULL ELSE isnan({0}) END)",
    "signbit DOUBLE": "(CASE WHEN {0} IS NULL THEN NULL ELSE CAST({0} AS STRING) LIKE '-%' END)",
    "signbit FLOAT": "(CASE WHEN {0} IS NULL THEN NULL ELSE CAST({0} AS STRING) LIKE '-%' END)",
    "floor INTEGER": "CAST({0} AS DOUBLE)",
    "ceil INTEGER": "CAST({0} AS DOUBLE)",
    "trunc INTEGER": "{0}",
    "floor DOUBLE": f"(CASE WHEN {{0}} = 0 OR {_WHOLE} THEN {{0}} ELSE CAST(floor({{0}}) AS DOUBLE) END)",
    "ceil DOUBLE": f"(CASE WHEN {{0}} = 0 OR {_WHOLE} THEN {{0}} WHEN {{0}} > -1 AND {{0}} < 0 THEN {_ZERO} "
    "ELSE CAST(ceil({0}) AS DOUBLE) END)",
    "trunc DOUBLE": f"(CASE WHEN abs({{0}}) < 1 THEN {_ZERO} WHEN {_WHOLE} THEN {{0}} "
    "ELSE CAST(CAST({0} AS BIGINT) AS DOUBLE) END)",
    "floor DECIMAL": "CAST(floor({0}) AS {type})",
    "ceil DECIMAL": "CAST(ceil({0}) AS {type})",
    "trunc DECIMAL": "CAST((CASE WHEN {0} < 0 THEN ceil({0}) ELSE floor({0}) END) AS {type})",
    "round INTEGER": "{0}",
    "round INTEGER INTEGER": "(CASE WHEN {1} >= 0 THEN {0} "
    "ELSE TRY_CAST(round(CAST({0} AS DECIMAL(20, 0)), greatest(CAST({1} AS INT), -30)) AS {type}) END)",
    "round DOUBLE": _ROUND,
    "round DOUBLE INTEGER": _DIGITS,
    "round DECIMAL": "CAST(round({0}) AS {type})",
    "round DECIMAL INTEGER": "CAST(round({0}, CAST({1} AS INT)) AS {type})",
    "sqrt DOUBLE": "sqrt({0})",
}
_AGGREGATES: Mapping[str, str] = {
    "sum INTEGER": _SUM,
    "sum DECIMAL": "SUM({0})",
    "sum_sorted DOUBLE": "(CASE WHEN COUNT({0}) > 0 THEN aggregate(array_sort(collect_list({0})), 0.0D, "
    "(dpsql_a, dpsql_b) -> dpsql_a + dpsql_b) END)",
    "avg_sorted DOUBLE": "(aggregate(array_sort(collect_list({0})), 0.0D, "
    "(dpsql_a, dpsql_b) -> dpsql_a + dpsql_b) / COUNT({0}))",
}
_CASTS: Mapping[str, str] = {
    "cast INTEGER INTEGER": "TRY_CAST({0} AS {type})",
    "cast INTEGER DECIMAL": "TRY_CAST({0} AS {type})",
    "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
    "cast INTEGER TEXT": "CAST({0} AS STRING)",
    "cast INTEGER BOOLEAN": "({0} <> 0)",
    "cast BOOLEAN BOOLEAN": "{0}",
    "cast BOOLEAN INTEGER": "CAST({0} AS {type})",
    "cast BOOLEAN DOUBLE": "CAST({0} AS DOUBLE)",
    "cast BOOLEAN DECIMAL": "TRY_CAST({0} AS {type})",
    "cast BOOLEAN TEXT": "CAST({0} AS STRING)",
    "cast DECIMAL DECIMAL": "TRY_CAST({0} AS {type})",
    "cast DECIMAL INTEGER": "TRY_CAST(round({0}, 0) AS {type})",
    "cast DECIMAL DOUBLE": "CAST({0} AS DOUBLE)",
    "cast DECIMAL TEXT": "CAST({0} AS STRING)",
    "cast DECIMAL BOOLEAN": "({0} <> 0)",
    "cast DOUBLE DOUBLE": "{0}",
    "cast DOUBLE INTEGER": "(CASE WHEN {0} < 9223372036854775808D THEN TRY_CAST(rint({0}) AS {type}) END)",
    "cast DOUBLE BOOLEAN": "({0} <> 0)",
    "cast FLOAT DOUBLE": "CAST({0} AS DOUBLE)",
}
NUMBERS: Mapping[str, str] = {**_ARITHMETIC, **_FUNCTIONS, **_AGGREGATES, **_CASTS}
