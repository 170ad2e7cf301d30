"""Names and lineage: which column a name means in one query block, and which of them is the privacy unit.

The unit is followed by identity, never by name: a column is the unit when it *is* the declared column of a private
table, passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal
from dpsql.sql.ir.catalog import RowKey, is_schema
from dpsql.sql.ir.tree import Call, Expression
from dpsql.sql.lexer import ascii_lower

__all__ = ["Scope", "ScopeColumn", "ScopeTable", "list_names", "propose_name", "propose_text"]

_SHOWN = 12
_NEAR = 0.7  # of 1, the likeness of two equal names
_NEARER = 0.8
_SHORTEST, _SHORT, _NEAR_SHORT = 2, range(3, 5), 0.6  # characters, of which one may be wrong


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """Column in scope; `merged` if a JOIN USING has given its name to the other side.

    A unit column is `absent` if an outer join may have left it NULL in a row that has a unit. `shared` is the meaning
    of the name without its table, where a JOIN USING changed it. `row_keys` are the keys of links that it is or refers
    to, each with the path of its table: columns that are equal and have one of these in common are of one unit.
    """

    name: str
    column: Expression
    is_unit: bool
    merged: bool = False
    absent: bool = False
    shared: ScopeColumn | None = None
    row_keys: frozenset[RowKey] = frozenset()

    @property
    def bare(self) -> ScopeColumn:
        """Return what the name means without its table."""
        return self if self.shared is None else self.shared


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """A table, subquery or CTE under its alias; `table` is the private table whose unit it carries, or None.

    `schema` is that of a table under its own name, which its columns may be written with; '' where there is none.
    """

    alias: str
    columns: tuple[ScopeColumn, ...]
    table: str | None = None
    unit_name: str | None = None
    schema: str = ""

    def is_called(self, name: str, schema: str) -> bool:
        """Say whether a column may be written with this name before it, or with this schema and this name."""
        known = not schema or is_schema(schema, self.schema)
        return known and ascii_lower(self.alias) == ascii_lower(name)


@dataclass(frozen=True, slots=True)
class Scope:
    """Names in scope in one query block.

    `ties` are pairs of unit columns that are equal in every row that has both. `outer` are the names around a subquery
    in an expression, which it sees after its own. `tied` says that each of its rows has the same unit as the outer row.
    `linked` are pairs of units that equal keys of a link make equal, where keys are unique: to be tied where need be.
    """

    tables: tuple[ScopeTable, ...]
    ties: tuple[tuple[Expression, Expression], ...] = ()
    outer: Scope | None = None
    tied: bool = False
    linked: tuple[tuple[ScopeColumn, ScopeColumn], ...] = ()

    @property
    def private(self) -> ScopeTable | None:
        """Return the first private table in scope."""
        return next((table for table in self.tables if table.table is not None), None)

    @property
    def units(self) -> tuple[ScopeColumn, ...]:
        """Return every column that is the privacy unit, by its own name and as USING merged it."""
        columns = [column for table in self.tables for column in table.columns if column.is_unit]
        return tuple(dict.fromkeys(each for column in columns for each in (column.bare, column)))

    @property
    def outer_units(self) -> tuple[ScopeColumn, ...]:
        """Return the unit columns of all blocks around this one."""
        return () if self.outer is None else (*self.outer.units, *self.outer.outer_units)

    @property
    def outer_tables(self) -> tuple[ScopeTable, ...]:
        """Return the tables of all blocks around this one."""
        return () if self.outer is None else (*self.outer.tables, *self.outer.outer_tables)

    @property
    def unit(self) -> Expression | None:
        """Return the privacy unit of the rows of a private block that have a unit."""
        units = self.units
        whole = [column.column for column in units if not column.absent]
        if whole or not units:
            return whole[0] if whole else None
        columns = tuple(dict.fromkeys(column.column for column in units))
        return columns[0] if len(columns) == 1 else Call("coalesce", columns, columns[0].type)

    def find(
        self, name: str, qualifier: str, *, place: Callable[[], Place | None], schema: str = ""
    ) -> ScopeColumn | None:
        """Return the column a name means, or None; refuse a name that could mean two, at its `place`."""
        wanted = ascii_lower(name)
        found = [
            column if qualifier else column.bare
            for table in self.tables
            for column in table.columns
            if ascii_lower(column.name) == wanted
            and (table.is_called(qualifier, schema) if qualifier else not column.merged)
        ]
        if len(found) > 1:
            owner = next(
                table.alias for table in self.tables if any(each.name == found[0].name for each in table.columns)
            )
            qualified = f"{write_name(owner or 'x')}.{write_name(found[0].name)}"
            hint = f"Write it with its table, such as {qualified}."
            if not owner:
                hint = f"Name the subquery, as in (SELECT ...) AS x, and write {qualified}."
            raise Refusal("ambiguous-column", "This name could mean two columns.", hint=hint, place=place())
        known = qualifier and any(table.is_called(qualifier, schema) for table in self.tables)
        if not found and not known and self.outer is not None:
            return self.outer.find(name, qualifier, place=place, schema=schema)
        return found[0] if found else None

    def star(self, qualifier: str = "", schema: str = "") -> list[ScopeColumn]:
        """Return the columns of *, alias.* or schema.table.*."""
        return [
            column if qualifier else column.bare
            for table in self.tables
            if not qualifier or table.is_called(qualifier, schema)
            for column in table.columns
            if qualifier or not column.merged
        ]


def list_names(lead: str, names: Sequence[str], *, wanted: str = "") -> str:
    """Return a hint that lists public names: those of the policy, or of the statement itself.

    The one that comes nearest to what was `wanted` is proposed first.
    """
    if not names:
        return f"{lead} none."
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{propose_name(wanted, names)}{lead} {', '.join(names[:_SHOWN])}{more}."


def propose_text(name: str) -> str:
    """Return a hint for text in double quotes, which are those of names."""
    return f"Double quotes are for names: write '{name.replace(chr(39), chr(39) * 2)}' for text. "


def propose_name(wanted: str, names: Iterable[str]) -> str:
    """Return a question that proposes the public name nearest to a misspelt one, with a space; "" if none is near."""
    from difflib import get_close_matches  # start-up: few statements are misspelt

    folded, known = ascii_lower(wanted), {ascii_lower(name): name for name in names}
    if len(folded) < _SHORTEST or folded in known:
        return ""
    alike = [name for name in known if name[:1] == folded[:1]]  # a first letter is seldom wrong
    cutoff = _NEAR_SHORT if len(folded) in _SHORT else _NEAR
    near = get_close_matches(folded, alike, 1, cutoff) or get_close_matches(folded, known, 1, _NEARER)
    return f"Did you mean {known[near[0]]}? " if near else ""
