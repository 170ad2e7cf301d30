"""Forms that several warehouses share, made from what each calls its own functions.

Arithmetic of whole numbers is computed in a type that holds every result, then cut to the first values beyond the
result's type, and those are NULL. It is written so that an operand is named once, and forms can be nested.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.dialects.letters import list_lower_cases, list_upper_cases
from dpsql.dialects.standard import STANDARD

__all__ = ["DAYS", "FIRST_DAY", "LAST_DAY", "begin", "fit", "fold_case", "list_dates"]

FIRST_DAY, LAST_DAY = "DATE '0001-01-01'", "DATE '9999-12-31'"  # calendar of most warehouses
DAYS = (-719_162, 2_932_896)  # the same, since 1970
_PLAIN = {
    **{f"{end} {kind}": f"{end.upper()}({{0}})" for end in ("min", "max") for kind in ("TEXT", "DECIMAL")},
    "lag": "LAG({0})",
    "lead": "LEAD({0})",
    "coalesce": "COALESCE({*}, NULL)",
    "cast BOOLEAN BOOLEAN": "{0}",
    "cast BOOLEAN INTEGER": "(CASE WHEN {0} THEN 1 WHEN NOT {0} THEN 0 END)",
    "cast BOOLEAN TEXT": "(CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END)",
    "cast INTEGER BOOLEAN": "({0} <> 0)",
    "cast DECIMAL BOOLEAN": "({0} <> 0)",
    "cast TEXT TEXT": "{0}",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast DOUBLE DOUBLE": "{0}",
}


def begin() -> dict[str, str]:
    """Return the forms that are alike in all warehouses."""
    return {**STANDARD, **_PLAIN}


def fit(value: str) -> str:
    """Return the form of an exact number, NULL where it does not fit the type of the result."""
    return f"NULLIF(NULLIF(LEAST(GREATEST({value}, {{below}}), {{above}}), {{below}}), {{above}})"


def list_dates(form: str, *, names: Iterable[str], part: str) -> dict[str, str]:
    """Return a form for each name of a part or unit, with that name for "@"; names are "ours" or "ours=theirs"."""
    pairs = (name.partition("=") for name in names)
    return {f"{part}.{ours}": form.replace("@", theirs or ours) for ours, _, theirs in pairs}


def fold_case(translate: str, *, ascii_alone: str) -> dict[str, str]:
    """Return the forms of LOWER and UPPER, which agree with DuckDB's on ASCII alone: the rest is translated.

    In `translate`, "@" are the characters and "#" those that replace them; `ascii_alone` is the condition of a text
    without others.
    """
    forms, plain = {}, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for name, pairs, own in (("lower", list_lower_cases(), plain), ("upper", list_upper_cases(), plain.lower())):
        mapped = translate.replace("@", own + pairs[0]).replace("#", own.swapcase() + pairs[1])
        forms[f"{name} TEXT"] = f"(CASE WHEN {ascii_alone} THEN {name.upper()}({{0}}) ELSE {mapped} END)"
    return forms
