"""Numbers in MySQL and MariaDB: whole numbers are computed as DECIMAL, which holds them all, and then fitted.

A DOUBLE that does not fit fails there: sums and products are tested before, on operands that are scaled, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["NUMBERS"]

_WIDE = "CAST({0} AS DECIMAL(65, 0))"


def _fitting(value: str) -> str:
    """Return the form of an exact number, which is NULL where it does not fit the type of the result."""
    return f"CAST(NULLIF(NULLIF(LEAST(GREATEST({value}, {{below}}), {{above}}), {{below}}), {{above}}) AS {{type}})"


def _other(form: str) -> str:
    return form.replace("{0}", "{1}")


def _power(exponent: int) -> str:
    """Return a power of two as a DOUBLE, exactly."""
    written = repr(math.ldexp(1.0, exponent))
    return written if "e" in written else f"{written}e0"


def _sum(sign: str) -> str:
    """Return the form of a sum; its half, which is exact for what is near the ends, never overflows."""
    half = f"abs({{0}} * 0.5e0 {sign} {{1}} * 0.5e0)"
    return f"(CASE WHEN {half} < {_power(1023)} THEN {{0}} {sign} {{1}} END)"


def _product() -> str:
    """Return the form of a product, tested by operands that were made smaller, and not below where that is exact."""
    small = (f"GREATEST(abs({each}), {_power(-24)}) * {_power(-512)}" for each in ("{0}", "{1}"))
    return f"(CASE WHEN {' * '.join(f'({each})' for each in small)} < 1e0 THEN {{0}} * {{1}} + 0e0 END)"


_REST = f"MOD({_WIDE}, NULLIF({_other(_WIDE)}, 0))"
_ROUNDED = (
    "(CASE WHEN abs({0} - TRUNCATE({0}, 0)) >= 0.5e0 THEN TRUNCATE({0}, 0) + SIGN({0}) ELSE TRUNCATE({0}, 0) END)"
)
_FITS = "ROUND({0}) >= -9223372036854775808e0 AND ROUND({0}) < 9223372036854775808e0"
_FROM_DOUBLE = f"(CASE WHEN {_FITS} THEN CAST(ROUND({{0}}) AS SIGNED) END)"  # to DECIMAL, digits would be lost
_BITS = {"&": "&", "|": "|", "xor": "^"}

NUMBERS: Mapping[str, str] = {
    **{f"{sign} INTEGER INTEGER": _fitting(f"{_WIDE} {sign} {_other(_WIDE)}") for sign in ("+", "-", "*")},
    **{
        f"{sign} {first} {second}": _fitting(f"{{0}} {sign} {{1}}")
        for sign in ("+", "-", "*")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    "// INTEGER INTEGER": _fitting(f"({_WIDE} - {_REST}) / NULLIF({_other(_WIDE)}, 0)"),
    "% INTEGER INTEGER": f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN CAST({_REST} AS {{type}}) END)",
    "% DECIMAL DECIMAL": _fitting("MOD({0}, NULLIF({1}, 0))"),
    "+ DOUBLE DOUBLE": _sum("+"),
    "- DOUBLE DOUBLE": _sum("-"),
    "* DOUBLE DOUBLE": _product(),
    "neg INTEGER": _fitting(f"-{_WIDE}"),
    "neg DECIMAL": "(-{0})",
    "neg DOUBLE": "(0e0 - {0})",  # which is not -0.0 where MySQL has it
    "abs INTEGER": _fitting(f"abs({_WIDE})"),
    "abs DECIMAL": "abs({0})",
    "abs DOUBLE": "abs({0})",
    **{f"{sign} INTEGER INTEGER": f"CAST(({{0}} {own} {{1}}) AS SIGNED)" for sign, own in _BITS.items()},
    "~ INTEGER": f"CAST({{least}} + {{greatest}} - {_WIDE} AS SIGNED)",
    "sign DOUBLE": "SIGN({0})",
    "isnan DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN FALSE END)",
    "signbit DOUBLE": "({0} < 0)",  # zero has no sign here
    "isinf DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN FALSE END)",
    "isfinite DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN TRUE END)",
    "floor DOUBLE": "(floor({0}) + 0e0)",  # as a sum all of its digits are sent
    "ceil DOUBLE": "(ceiling({0}) + 0e0)",
    "trunc DOUBLE": "(TRUNCATE({0}, 0) + 0e0)",
    "round DOUBLE": f"({_ROUNDED} + 0e0)",
    **{f"{name} INTEGER": "CAST({0} AS DOUBLE)" for name in ("floor", "ceil")},
    **{f"{name} INTEGER": "{0}" for name in ("trunc", "round")},
    "floor DECIMAL": "CAST(floor({0}) AS {type})",
    "ceil DECIMAL": "CAST(ceiling({0}) AS {type})",
    "trunc DECIMAL": "CAST(TRUNCATE({0}, 0) AS {type})",
    "round DECIMAL": "CAST(round({0}, 0) AS {type})",
    "round DECIMAL INTEGER": "CAST(round({0}, LEAST({1}, {scale})) AS {type})",
    "sum INTEGER": f"SUM({_WIDE})",
    "sum DECIMAL": "SUM({0})",
    "cast INTEGER INTEGER": _fitting(_WIDE),
    "cast INTEGER DECIMAL": _fitting(_WIDE),
    "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
    "cast INTEGER BOOLEAN": "({0} <> 0)",
    "cast BOOLEAN BOOLEAN": "{0}",
    "cast BOOLEAN INTEGER": "CAST({0} AS SIGNED)",
    "cast BOOLEAN DOUBLE": "CAST({0} AS DOUBLE)",
    "cast DECIMAL DECIMAL": _fitting("round({0}, {scale})"),
    "cast DECIMAL INTEGER": _fitting("round({0}, 0)"),
    "cast DECIMAL DOUBLE": "CAST({0} AS DOUBLE)",
    "cast DECIMAL BOOLEAN": "({0} <> 0)",
    "cast DOUBLE DOUBLE": "{0}",
    "cast DOUBLE INTEGER": _fitting(f"CAST({_FROM_DOUBLE} AS DECIMAL(65, 0))"),
    "cast DOUBLE BOOLEAN": "({0} <> 0)",
    "cast FLOAT DOUBLE": "CAST({0} AS DOUBLE)",
    "column FLOAT": "CAST({0} AS DOUBLE)",  # of which more digits are sent
}
