"""Join of a linked table with the privacy unit of its rows, by the declared key.

The key is declared unique and was unique when the session opened, but data may change under a session that reads a file
or a connection of the user. A key therefore belongs to one unit for all data: the smallest, by its bytes, of the units
that have a row with this key. Removing a unit A means removing all its rows: those of the table of units with A, and
those of linked tables that belong to it. Every other row stays with its unit, because a smallest unit other than A is
still the smallest without A; by induction this holds along a chain. No row ever passes from one unit to another, so
counts fall by at most 1 and only in the groups of the removed unit, which is what a private table requires. (With a
plain join, a row with two units would remove two units; if a key with two units belonged to no unit, it would pass to
the second one when the first is removed.) Where keys are unique, the smallest unit is the only one.

Rows whose key is NULL or names no row have no unit and drop out of the join. Keys are compared by their bytes, like
groups, under every collation. The grouping took no measurable time: the join builds the same hash table of keys anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.catalog import Link
from dpsql.sql.ir.tree import Call, Column, Derived, Expression, FromWhere, Joined, Relation, Scan, stored_column
from dpsql.sql.ir.types import BOOLEAN

__all__ = ["find_owned_rows"]


def find_owned_rows(scan: Scan, link: Link, *, number: Callable[[], int]) -> tuple[Relation, Expression]:
    """Return the rows of a linked table that have a unit, and the unit; `number` gives fresh relation numbers."""
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
