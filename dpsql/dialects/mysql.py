"""MySQL and MariaDB, in what both have: text by its bytes, numbers that look before they compute.

Both take letters of either case, and text with and without blanks at its end, for equal under most collations; they
fail where a result does not fit its type; and they have neither NaN nor infinity nor the sign of zero. A DOUBLE that
would be infinite is NULL.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.mysql_numbers import NUMBERS
from dpsql.dialects.mysql_texts import list_texts
from dpsql.dialects.mysql_times import TIMES
from dpsql.dialects.standard import STANDARD

__all__ = ["MARIADB", "MYSQL"]

_COMPUTED = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIMESTAMP")
_RANKED = ("row_number", "rank", "dense_rank")
_INTEGERS = "TINYINT SMALLINT INTEGER INT BIGINT UTINYINT USMALLINT UINTEGER".split()


def _windows() -> dict[str, str]:
    forms = {name: f"{name.upper()}()" for name in _RANKED}
    for name in ("lag", "lead"):
        forms |= {name: f"{name.upper()}({{0}})"}
    return {**forms, "first_value": "FIRST_VALUE({0})"}


def _choices() -> dict[str, str]:
    forms = {}
    for name in ("greatest", "least"):  # which are NULL here where one operand is
        for family in _COMPUTED:
            both = f"COALESCE({name.upper()}({{0}}, {{1}}), {{0}}, {{1}})"
            forms[f"{name} {family} {family}"] = both
    return {**forms, **{f"{end} {family}": f"{end.upper()}({{0}})" for end in ("min", "max") for family in _COMPUTED}}


def _forms(collation: str) -> dict[str, str]:
    """Return the forms under a `collation` that compares text by its bytes, blanks at the end too."""
    return {
        **STANDARD,
        "is_true": "({0} IS TRUE)",
        "is_false": "({0} IS FALSE)",
        "is_distinct": "(NOT ({0} <=> {1}))",
        "is_not_distinct": "({0} <=> {1})",
        "lookup": "CAST(ELT({0}, {1*}) AS SIGNED)",
        "column BOOLEAN": "({0} <> 0)",
        **_choices(),
        **_windows(),
        **NUMBERS,
        **list_texts(collation),
        **TIMES,
    }


def _without_md5(forms: dict[str, str]) -> dict[str, str]:
    """Return the forms for a server that may have no MD5, as MySQL 9.7 by itself: it draws by SHA-256."""
    return {**{name: form for name, form in forms.items() if name != "md5 TEXT"}, "draw TEXT": forms["sha256 TEXT"]}


def _dialect(name: str, forms: dict[str, str]) -> Dialect:
    return Dialect(
        name,
        "mysql",
        MappingProxyType(forms),
        parameter="@dpsql_{n}",
        types=MappingProxyType(
            {
                **dict.fromkeys([*_INTEGERS, "BOOLEAN"], "SIGNED"),
                "TIMESTAMP": "DATETIME(6)",
                "FLOAT": "DOUBLE",
                "REAL": "DOUBLE",
            }
        ),
        lacks=frozenset(["SEMI", "ANTI", "FULL", "NaN", "infinity", "ordinal NULLS"]),
    )


MARIADB = _dialect("MariaDB", _forms("utf8mb4_nopad_bin"))
MYSQL = _dialect("MySQL", _without_md5(_forms("utf8mb4_0900_bin")))
