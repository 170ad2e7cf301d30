"""Forms of DataFusion's for numbers: computed in a type that holds every result, then NULL where it does not fit."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EVEN_NAN", "NAN", "NUMBERS"]

NAN, _INFINITY = "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"
EVEN_NAN = f"nanvl(CAST({{0}} AS DOUBLE) + 0e0, {NAN})"  # one zero and one NaN, the greatest of all
_WIDE = "CAST({0} AS DECIMAL(20, 0))"
_NEGATIVE = f"TRY_CAST(-{_WIDE} AS {{type}})"
_WHOLE = "({0} - {0} % 1)"
_DIGITS = range(-9, 16)


def _fitting(sign: str) -> str:
    return f"TRY_CAST({_WIDE} {sign} {_WIDE.replace('{0}', '{1}')} AS {{type}})"


def _exact(sign: str, divisor: str = "{1}") -> str:
    return f"TRY_CAST({{0}} {sign} {divisor} AS {{type}})"


def _rounded(digits: int) -> str:
    """Return the form of ROUND(DOUBLE, digits) as DuckDB computes it, by a power of ten."""
    power = f"{10.0 ** abs(digits)!r}".removesuffix(".0") + ("" if "e" in f"{10.0 ** abs(digits)!r}" else "e0")
    first, second = ("*", "/") if digits >= 0 else ("/", "*")
    rounded = f"round({{0}} {first} {power}) {second} {power}"
    return f"(CASE WHEN abs({rounded}) < {_INFINITY} THEN {rounded} ELSE {{0}} END)"


_EVEN = "(CASE WHEN abs({0} - trunc({0})) = 0.5e0 THEN 2e0 * round({0} / 2e0) ELSE round({0}) END)"
_SIGN = "(CASE WHEN {0} IS NULL THEN NULL WHEN isnan({0}) OR {0} = 0e0 THEN 0 WHEN {0} > 0e0 THEN 1 ELSE -1 END)"

_ARITHMETIC: Mapping[str, str] = {
    **{f"{sign} INTEGER INTEGER": _fitting(sign) for sign in ("+", "-", "*")},
    "// INTEGER INTEGER": f"(CASE WHEN {{1}} = -1 THEN {_NEGATIVE} ELSE {{0}} / NULLIF(NULLIF({{1}}, 0), -1) END)",
    "% INTEGER INTEGER": "(CASE WHEN {1} = -1 THEN 0 * NULLIF({0}, {least}) ELSE {0} % NULLIF(NULLIF({1}, 0), -1) END)",
    **{
        f"{sign} {first} {second}": _exact(sign, "NULLIF({1}, 0)" if sign == "%" else "{1}")
        for sign in ("+", "-", "*", "%")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in ("+", "-", "*", "/", "%")},
    "neg INTEGER": _NEGATIVE,
    "neg DECIMAL": "(-{0})",
    "neg DOUBLE": "(-{0})",
    "abs INTEGER": f"(CASE WHEN {{0}} < 0 THEN {_NEGATIVE} ELSE {{0}} END)",
    "abs DECIMAL": "abs({0})",
    "abs DOUBLE": "abs({0})",
    "& INTEGER": "({0} & {1})",
    "| INTEGER": "({0} | {1})",
    "xor INTEGER": "({0} ^ {1})",
    "~ INTEGER": "({greatest} + {least} - {0})",
}
_FUNCTIONS: Mapping[str, str] = {
    "keyed_hash INTEGER": "xxhash64({1}, CAST({0} AS BIGINT))",
    "pi": "pi()",
    "sign DOUBLE": f"CAST({_SIGN} AS TINYINT)",
    "isnan DOUBLE": "isnan({0})",
    "isnan FLOAT": "isnan({0})",
    "isinf DOUBLE": f"(abs({{0}}) = {_INFINITY})",
    "isfinite DOUBLE": f"(abs({{0}}) < {_INFINITY})",
    "signbit DOUBLE": "(CAST({0} AS VARCHAR) LIKE '-%')",
    "signbit FLOAT": "(CAST({0} AS VARCHAR) LIKE '-%')",
    **{f"{name} INTEGER": "CAST({0} AS DOUBLE)" for name in ("floor", "ceil")},
    **{f"{name} INTEGER": "{0}" for name in ("trunc", "round")},
    **{f"{name} DOUBLE": f"{name}({{0}})" for name in ("floor", "ceil", "round")},
    "trunc DOUBLE": "(CASE WHEN {0} < 0e0 THEN ceil({0}) ELSE floor({0}) END)",
    "floor DECIMAL": f"CAST({_WHOLE} - (CASE WHEN {{0}} % 1 < 0 THEN 1 ELSE 0 END) AS {{type}})",
    "ceil DECIMAL": f"CAST({_WHOLE} + (CASE WHEN {{0}} % 1 > 0 THEN 1 ELSE 0 END) AS {{type}})",
    "trunc DECIMAL": f"CAST({_WHOLE} AS {{type}})",
    "round DECIMAL": "CAST(round({0}) AS {type})",
    "round DECIMAL INTEGER": "CAST(round({0}, LEAST({1}, {scale})) AS {type})",
    **{f"round.{digits} DOUBLE": _rounded(digits) for digits in _DIGITS},
    "sqrt DOUBLE": f"sqrt(CASE WHEN {{0}} < 0e0 THEN {NAN} ELSE {{0}} END)",
}
_AGGREGATES: Mapping[str, str] = {
    "sum INTEGER": "SUM(CAST({0} AS DECIMAL(20, 0)))",
    "sum DECIMAL": "SUM(CAST({0} AS DECIMAL(28, {scale})))",
}
_CASTS: Mapping[str, str] = {
    "cast INTEGER INTEGER": "TRY_CAST({0} AS {type})",
    "cast INTEGER DECIMAL": f"TRY_CAST({_WIDE} AS {{type}})",
    "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
    "cast INTEGER TEXT": "CAST({0} AS VARCHAR)",
    "cast INTEGER BOOLEAN": "({0} <> 0)",
    "cast BOOLEAN BOOLEAN": "{0}",
    "cast BOOLEAN INTEGER": "CAST({0} AS {type})",
    "cast BOOLEAN DOUBLE": "CAST(CAST({0} AS INT) AS DOUBLE)",
    "cast BOOLEAN DECIMAL": "TRY_CAST(CAST({0} AS INT) AS {type})",
    "cast BOOLEAN TEXT": "CAST({0} AS VARCHAR)",
    "cast DECIMAL DECIMAL": "TRY_CAST({0} AS {type})",
    "cast DECIMAL INTEGER": "TRY_CAST(round({0}) AS {type})",
    "cast DECIMAL DOUBLE": "CAST({0} AS DOUBLE)",
    "cast DECIMAL TEXT": "CAST({0} AS VARCHAR)",
    "cast DECIMAL BOOLEAN": "({0} <> 0)",
    "cast DOUBLE DOUBLE": "{0}",
    "cast DOUBLE INTEGER": f"TRY_CAST(TRY_CAST({_EVEN} AS BIGINT) AS {{type}})",
    "cast DOUBLE BOOLEAN": "({0} <> 0e0)",
    "cast FLOAT DOUBLE": "CAST({0} AS DOUBLE)",
}
NUMBERS: Mapping[str, str] = {**_ARITHMETIC, **_FUNCTIONS, **_AGGREGATES, **_CASTS}
