"""Names and lineage: which column a name means in one query block, and which of them is the privacy unit.

The unit is followed by identity, never by name: a column is the unit when it *is* the declared column of a private
table, passed on unchanged.

This file has three parts: (1) `Scope` and its tables and columns; (2) `list_names`, `propose_text` and `propose_name`,
hints for names that are not there; (3) from `find_unit` on, ties. Ties are equalities of privacy units, the only
conditions that may join rows of several private tables.

Every query block has this invariant: in each of its rows, all unit columns that are not NULL are equal. The row belongs
to that unit. A row whose unit columns are all NULL has no unit and is dropped in the end. Rows are joined only by an
equality of units, which is never true of NULL. No tie joins a row with a unit to a row without one, or rows of two
units, and only rows of the same unit decide whether a row of a unit has a partner. Removing a unit therefore removes
its own rows and changes no other row.

A tie is a conjunct at the top of a condition, `a = b` of two unit columns of one type. Under OR, NOT, CASE or a
function it need not hold in every row. Unit columns are recognized by identity, never by name. Text units are compared
by their bytes, because a collation could treat two units as equal.

Rows that name the same row of a table by its key, which a link of the policy declares unique, have the same unit, so
SQL joins them by the key alone. The equality of their units is then added as a tie: where keys are unique it removes no
row that has a unit, and where they are not, no row of two units is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal
from dpsql.sql.ir.catalog import HOME, PUBLIC, RowKey, Table
from dpsql.sql.ir.tree import (
    BOOLEAN,
    Call,
    Cast,
    Collate,
    Expression,
    Family,
    find_read_type,
    join_conjuncts,
    split_conjuncts,
)
from dpsql.sql.lexer import ascii_lower

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
    expression: Expression
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
    """A table, subquery or CTE under its alias; `private_table` is the private table whose unit it carries, or None.

    `schema` is that of a table under its own name, which its columns may be written with; '' where there is none.
    """

    alias: str
    columns: tuple[ScopeColumn, ...]
    private_table: str | None = None
    unit_name: str | None = None
    schema: str = ""

    def is_called(self, name: str, schema: str) -> bool:
        """Say whether a column may be written with this name before it, or with this schema and this name."""
        written, own = ascii_lower(schema), ascii_lower(self.schema)
        known = written in {"", own} or (written == PUBLIC and own == HOME)  # which tools of PostgreSQL write unasked
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
        for table in self.tables:
            if table.private_table is not None:
                return table
        return None

    @property
    def units(self) -> tuple[ScopeColumn, ...]:
        """Return every column that is the privacy unit, by its own name and as USING merged it."""
        units = list[ScopeColumn]()
        for table in self.tables:
            for column in table.columns:
                if column.is_unit:
                    units += [column] if column.shared is None else [column.shared, column]
        return tuple(dict.fromkeys(units))

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
        whole = [column.expression for column in units if not column.absent]
        if whole or not units:
            return whole[0] if whole else None
        columns = tuple(dict.fromkeys(column.expression for column in units))
        # a FULL JOIN b: COALESCE(a.user_id, b.user_id), of which either may be NULL, and both are equal where both are
        # there.
        return columns[0] if len(columns) == 1 else Call("coalesce", columns, columns[0].type)

    def find(
        self, name: str, qualifier: str, *, place: Callable[[], Place | None], schema: str = ""
    ) -> ScopeColumn | None:
        """Return the column a name means, or None; refuse a name that could mean two, at its `place`."""
        wanted, found = ascii_lower(name), list[ScopeColumn]()
        for table in self.tables:
            if qualifier and not table.is_called(qualifier, schema):
                continue
            for column in table.columns:
                if ascii_lower(column.name) == wanted and (qualifier or not column.merged):
                    found.append(column if qualifier else column.bare)
        if len(found) > 1:
            owner = next(
                table.alias for table in self.tables if any(each.name == found[0].name for each in table.columns)
            )
            qualified = f"{write_name(owner or 'x')}.{write_name(found[0].name)}"
            hint = f"Write it with its table, such as {qualified}."
            if not owner:
                hint = f"Name the subquery, as in (SELECT ...) AS x, and write {qualified}."
            raise Refusal("ambiguous-column", "This name could mean two columns.", hint=hint, place=place())
        # t.x is looked for in the t of this block alone, also where a block around has a t with an x.
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


# Part 2: hints for names that are not there.


STORED, ENDED = "stored-table", "answer-ended"  # codes of refusals, by which their readers know them


def refuse_stored(table: Table, place: Place | None) -> Refusal:
    """Return the refusal of a stored table: in a private query, or of an answer of an earlier data version."""
    if table.has_ended:
        reason = f"The answer {table.name} is of an earlier version of the data."
        hint = f"Run its query again: {table.comment}"
        return Refusal(ENDED, reason, hint=hint, place=place)
    hint = "Write the private query in a subquery of FROM or a CTE, and join it with what is stored."
    return Refusal(STORED, "A private query cannot read an answer or a published table.", hint=hint, place=place)


def list_names(lead: str, names: Sequence[str], *, wanted: str = "") -> str:
    """Return a hint that lists public names: those of the policy, or of the statement itself.

    The one that comes nearest to what was `wanted` is proposed first.
    """
    if not names:
        return f"{lead} none."
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{propose_name(wanted, names)}{lead} {', '.join(names[:_SHOWN])}{more}."


def list_tables(names: Sequence[str], path: Sequence[str]) -> str:
    """Return a hint that lists the tables of the policy; one that is named otherwise than by this path comes first."""
    wanted = ascii_lower(path[-1])
    near = next((name for name in names if ascii_lower(name).rpartition(".")[2] == wanted), "")
    return f"{near and f'Did you mean {near}? '}{list_names('The policy exposes', names, wanted=wanted)}"


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


# Part 3: ties.
Pair = tuple[Expression, Expression]


def find_unit(expression: Expression, units: Iterable[ScopeColumn]) -> ScopeColumn | None:
    """Return the unit column that the expression is, in its stored type or in the type it is read as, else None."""
    for unit in units:
        wanted = find_read_type(unit.expression.type)
        read = unit.expression if wanted == unit.expression.type else Cast(unit.expression, wanted)
        if expression in (unit.expression, read):
            return unit
    return None


def compare_by_bytes(unit: Expression) -> Expression:
    """Return the unit in a form that is equal only to the same unit: text is compared by its bytes."""
    return Collate(unit, unit.type, unit.longest) if unit.type.family is Family.TEXT else unit


def equate_units(left: ScopeColumn, right: ScopeColumn) -> Expression:
    """Return the equality of two unit columns."""
    return Call("=", (compare_by_bytes(left.expression), compare_by_bytes(right.expression)), BOOLEAN)


def extract_unit_equalities(
    condition: Expression | None, left: Sequence[ScopeColumn], *, right: Sequence[ScopeColumn]
) -> tuple[Expression | None, tuple[Pair, ...]]:
    """Return the ties between units of `left` and `right`, and the condition with each tie made an exact equality."""
    parts, pairs = split_conjuncts(condition), list[Pair]()
    for at, part in enumerate(parts):
        if not isinstance(part, Call) or part.function != "=":
            continue
        for first, second in (part.arguments, part.arguments[::-1]):
            one, other = find_unit(first, left), find_unit(second, right)
            # a.user_id = a.user_id is no tie: it says nothing about another table.
            if one is not None and other is not None and _is_comparable(one, other):
                parts[at] = equate_units(one, other)
                pairs.append((one.expression, other.expression))
                break
    return join_conjuncts(parts), tuple(pairs)


def add_ties(condition: Expression | None, pairs: Iterable[tuple[ScopeColumn, ScopeColumn]]) -> Expression | None:
    """Return a condition and the equalities of these units."""
    return join_conjuncts([*split_conjuncts(condition), *(equate_units(*pair) for pair in pairs)])


def find_linked_units(
    condition: Expression | None, left: Sequence[ScopeTable], *, right: Sequence[ScopeTable]
) -> tuple[tuple[ScopeColumn, ScopeColumn], ...]:
    """Return the units of tables of `left` and `right` that a condition joins by a key that a link leads to."""
    pairs = list[tuple[ScopeColumn, ScopeColumn]]()
    for part in split_conjuncts(condition):
        if isinstance(part, Call) and part.function == "=":
            pairs += link_units(part.arguments, left, right=right) or link_units(
                part.arguments[::-1], left, right=right
            )
    return tuple(pairs)


def link_units(
    sides: Sequence[Expression], left: Sequence[ScopeTable], *, right: Sequence[ScopeTable]
) -> list[tuple[ScopeColumn, ScopeColumn]]:
    """Return the units of the tables of two sides that name the same row by its key; nothing for other sides."""
    first, second = sides
    found = []
    for table, column in _find_keyed(first, left):
        for other, named in _find_keyed(second, right):
            one, two = _find_table_unit(table), _find_table_unit(other)
            is_same = table is not other and not column.row_keys.isdisjoint(named.row_keys)
            if is_same and one is not None and two is not None and _is_comparable(one, two):
                found.append((one, two))
    return found


def _find_keyed(side: Expression, tables: Sequence[ScopeTable]) -> list[tuple[ScopeTable, ScopeColumn]]:
    """Return the column that a side is, in its stored type or in the type it is read as, with its table."""
    return [
        (table, column)
        for table in tables
        for column in table.columns
        if column.row_keys and find_unit(side, (column,)) is not None
    ]


def _find_table_unit(table: ScopeTable) -> ScopeColumn | None:
    """Return the unit of a table, which is NULL only where its key is."""
    units = [column for column in table.columns if column.is_unit]
    return next((column for column in units if not column.absent), units[0] if units else None)


def _is_comparable(one: ScopeColumn, other: ScopeColumn) -> bool:
    return one.expression != other.expression and one.expression.type == other.expression.type


def is_connected(scope: Scope, ties: Iterable[Pair] = ()) -> bool:
    """Return whether the ties connect all private tables of the scope, which gives its rows the invariant."""
    pairs, private = (*scope.ties, *ties), [table for table in scope.tables if table.private_table is not None]
    if not pairs and len(private) < 2:  # noqa: PLR2004 - nothing to connect
        return True
    groups = [{each.expression for each in Scope((table,)).units} for table in private]
    if len(groups) > 1 and not all(groups):
        return False
    # Each tie makes one group of all groups that it touches: the tables are connected if one group is left.
    for first, second in pairs:
        touched = [group for group in groups if first in group or second in group]
        groups = [group for group in groups if group not in touched] + [set().union({first, second}, *touched)]
    units = scope.units
    return sum(any(unit.expression in group for unit in units) for group in groups) <= 1
