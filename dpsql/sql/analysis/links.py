"""Rows of a linked table, joined to the privacy unit that they belong to by the declared key.

The key is declared unique and was so when the session opened, but data may change under a session that reads a file or
a borrowed connection. So a key stands for one unit whatever the data holds: the least, by its bytes, of the units that
have a row with this key. Dropping a unit A means dropping all its rows: those of the table of units that carry A, and
those of linked tables that belong to it. Every other row stays with its unit, since a least unit other than A is still
the least when A is gone; by induction this holds along a chain. So no unit's rows ever pass to another one, and counts
fall by at most 1 and only in the dropped unit's groups, which is all that a private table must offer. (Joined to the
keys as they are, a row of two units would take two units with it; a key of two units that belonged to nobody would pass
to the second when the first is dropped.) Where keys are unique, the least unit is the only one, and nothing is lost.

Rows whose key is NULL, or names no row, belong to nobody and fall out of the join. Keys are compared by their bytes,
as groups are, whatever collation a column declares. The grouping costs no time that was measurable: the join builds
the same hash table of keys in any case.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.catalog import Link
from dpsql.sql.ir.tree import Call, Column, Derived, Expression, FromWhere, Joined, Relation, Scan, stored_column
from dpsql.sql.ir.types import BOOLEAN

__all__ = ["find_owned_rows"]


def find_owned_rows(scan: Scan, link: Link, *, number: Callable[[], int]) -> tuple[Relation, Expression]:
    """Return the rows of a linked table that belong to somebody, and their unit; `number` gives fresh ones."""
    at, target = number(), Scan(number(), link.path)
    source: Relation = target
    if link.beyond is None:
        unit = stored_column(target.number, link.unit, type_=link.unit_type)
    else:
        source, unit = find_owned_rows(target, link.beyond, number=number)
    key = canonicalize(stored_column(target.number, link.key, type_=link.type))
    least = Call("min", (canonicalize(unit),), unit.type)
    units = Derived(at, (key, least), FromWhere(source, None), grouping="1")
    own = canonicalize(stored_column(scan.number, link.column, type_=link.type))
    sides = (own, canonicalize(Column(at, "c1", key.type)))
    return Joined(scan, "INNER", units, Call("=", sides, BOOLEAN)), Column(at, "c2", unit.type)
