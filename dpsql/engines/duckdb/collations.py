"""The collations that columns of DuckDB declare, which no catalog of it names; no row is read to find them.

A text goes with another one of its own collation, or of none, and with no other: DuckDB decides that when it binds a
statement, before it looks at the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import duckdb

from dpsql.dialects import quote_name, quote_path

__all__ = ["collations"]

# The first two tell whether a column has any collation at all; the others are the commonest. For DuckDB nocase and
# NOCASE are two.
_NAMES = ("C", "NOCASE", "NOACCENT", "NOCASE.NOACCENT", "NOACCENT.NOCASE", "NFC", "POSIX")
_KNOWN = (*_NAMES, *(name.lower() for name in _NAMES))


def collations(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, columns: Sequence[str]
) -> dict[str, str]:
    """Return the collations of those columns of text that have one.

    A collation that is not among the known ones is taken for the column's own.
    """
    if not columns or all(_go_with(connection, relation, columns=columns, collation=each) for each in _KNOWN[:2]):
        return {}
    found = {}
    for column in columns:
        fits = [each for each in _KNOWN if _go_with(connection, relation, columns=[column], collation=each)]
        if len(fits) < len(_KNOWN):
            found[column] = fits[0] if fits else f"that of {'.'.join((*relation, column))}"
    return found


def _go_with(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, columns: Sequence[str], collation: str
) -> bool:
    """Say whether the columns may be compared with a text of a collation."""
    compared = ", ".join(f"{quote_name(column)} = ('' COLLATE {collation})" for column in columns)
    with suppress(duckdb.Error, RuntimeError, ValueError):
        connection.execute(f"SELECT {compared} FROM {quote_path(relation)} LIMIT 0")  # noqa: S608 - quoted
        return True
    return False
