"""Facts about the rows of a query that its FROM and WHERE tell, for all data: none, of some values, of some columns.

This file has three parts. (1) `find_charged_values` finds the values of a public column that a query is charged to,
where each value has a budget of its own. A unit has one value: the least over all its rows of the stored table, text by
its bytes, without NULL. A query names values if every row that it counts comes from a row of the table whose column is
one of some constants. WHERE says so in a conjunct at its top, `column = constant` or `column IN (constants)` or several
of these joined by OR; of a UNION in every branch. Only units of these values are then counted, and only they are
charged. What is not certain to say so names no values: such a query counts and charges all units, which is always
right.

(2) From `find_sole_column` on, lineage: the stored columns that an expression is worked out from, through subqueries in
FROM.

(3) From `is_empty_by_text` on, detection of queries that cannot return a row (LIMIT 0, WHERE 1 = 0), whose answer does
not depend on any table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import ChargedValues, PrivateQuery, PublicQuery
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import (
    BOOLEAN,
    Call,
    Cast,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scalar,
    Scan,
    Type,
    find_read_type,
    is_aggregate,
    is_column,
    output_column,
    split_conjuncts,
    stored_column,
    walk,
)
from dpsql.sql.lexer import ascii_lower

MAX_VALUES = 100  # of one query
_MAX_LENGTH = 200  # characters of a value
_SUBQUERY, _UNITS, _TABLE = 2_001, 2_002, 2_003  # numbers that no other relation has, see `from_clause.py`
_FAMILIES = frozenset([Family.TEXT, Family.INTEGER, Family.BOOLEAN, Family.DATE])
_Values = Mapping[str, Literal]  # by their names in a ledger
_Relations = dict[int, Scan | tuple[Derived, ...]]
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find_charged_values(body: FromWhere, unit: Expression, *, table: Table) -> ChargedValues | None:
    """Return the values that a query of these rows and units names, None for one that is charged to all units.

    `table` is the one whose column has a budget for each value.
    """
    assert table.budget_by is not None  # noqa: S101 - of the caller
    found = _find_values(body, table)
    types = dict(table.columns)
    wanted = ascii_lower(table.privacy_unit or "")
    unit_name = next(name for name in types if ascii_lower(name) == wanted)  # as the table spells it
    own = stored_column(_TABLE, unit_name, type_=types[unit_name])
    if not found or len(found) > MAX_VALUES or unit.type != own.type:
        return None
    names = tuple(sorted(found))
    value = stored_column(_TABLE, table.budget_by, type_=types[table.budget_by])
    condition = _select_units(table, (unit, own), value=value, wanted=tuple(found[name] for name in names))
    return ChargedValues(table.name, table.budget_by, names, condition)


def _select_units(
    table: Table, units: tuple[Expression, Expression], *, value: Expression, wanted: tuple[Literal, ...]
) -> Expression:
    """Return the condition that the unit of a row has one of the wanted values.

        unit IN (SELECT u FROM (SELECT user_id AS u, min(country) AS least FROM users
                                WHERE user_id IS NOT NULL GROUP BY 1) WHERE least IN ('DE', 'FR'))

    The least is over all rows of the stored table, whatever the query's own conditions, options and salts are.
    """
    unit, own = units
    least = Call("min", (canonicalize(value),), value.type)
    is_there = Call("not", (Call("is_null", (own,), BOOLEAN),), BOOLEAN)
    grouped = Derived(_UNITS, (canonicalize(own), least), FromWhere(Scan(_TABLE, table.path), is_there), grouping="1")
    of_unit, of_value = output_column(_UNITS, 1, expression=own), output_column(_UNITS, 2, expression=value)
    chosen = FromWhere(grouped, In(canonicalize(of_value), wanted))
    return InQuery(canonicalize(unit), Derived(_SUBQUERY, (canonicalize(of_unit),), chosen))


def _find_values(body: FromWhere, table: Table) -> _Values | None:
    """Return the values of which each row of a block has one; None where that is not certain."""
    # A conjunct that lists no values is passed over: WHERE country IN ('DE', 'FR') AND country <> 'FR' names both.
    known = [_read_condition(each, body.source, table=table) for each in split_conjuncts(body.where)]
    return _intersect([*known, _find_relation_values(body.source, table)])


def _find_relation_values(relation: Relation, table: Table) -> _Values | None:
    match relation:
        case Derived(body=body):
            return _find_values(body, table)
        case Joined(left=left, kind=kind, right=right):
            # A LEFT JOIN keeps rows without a partner, of which a condition inside its right side says nothing.
            sides = {"LEFT": [left], "SEMI": [left], "ANTI": [left], "RIGHT": [right], "FULL": []}.get(kind)
            return _intersect(
                _find_relation_values(side, table) for side in ([left, right] if sides is None else sides)
            )
        case Combined(branches=branches):
            return _unite(_find_values(branch.body, table) for branch in branches)
    return None


def _read_condition(condition: Expression, source: Relation, *, table: Table) -> _Values | None:
    """Return the values of the column for which a condition can be true; None where it looks at anything else."""
    match condition:
        case (
            Call(function="=", arguments=(column, Literal() as value))
            | Call(function="=", arguments=(Literal() as value, column))
        ):
            return _read_constants(column, (value,), source=source, table=table)
        case In(argument=column, choices=choices):
            return _read_constants(column, choices, source=source, table=table)
        case Call(function="or", arguments=parts):
            return _unite(_read_condition(part, source, table=table) for part in parts)
    return None


def _read_constants(
    column: Expression, constants: Iterable[Expression], *, source: Relation, table: Table
) -> _Values | None:
    """Return constants that the bare column is compared with, by their names; None with any of another kind."""
    if not _is_value(column, source, table=table):
        return None
    values: dict[str, Literal] = {}
    for constant in constants:
        name = _name_value(constant, column.type)
        if name is None or not isinstance(constant, Literal):
            return None
        values[name] = constant
    return values


def _name_value(constant: Expression, type_: Type) -> str | None:
    """Return the name of a constant of the column's type; None for NULL, and for what a ledger does not name."""
    if not isinstance(constant, Literal) or constant.type != type_ or type_.family not in _FAMILIES:
        return None
    value = constant.value
    if value is None or isinstance(value, float):
        return None
    name = str(value).lower() if isinstance(value, bool) else str(value)
    return name if name.isprintable() and len(name) <= _MAX_LENGTH else None


def _is_value(expression: Expression, source: Relation, *, table: Table) -> bool:
    """Say whether an expression is the column of values of the stored table, unchanged through subqueries."""
    column = expression.argument if isinstance(expression, Cast) else expression
    if not isinstance(column, ColumnRef) or not is_column(expression):
        return False
    relation = _relations(source).get(column.relation, ())
    if isinstance(relation, Scan):
        return relation.path == table.path and column.name == table.budget_by
    # A UNION has several SELECTs and so no one column; a cast of the output of a subquery is no bare column.
    if len(relation) != 1 or isinstance(expression, Cast):
        return False
    output = relation[0].outputs[int(column.name.removeprefix("c")) - 1]
    return _is_value(output, relation[0].body.source, table=table)


def _intersect(found: Iterable[_Values | None]) -> _Values | None:
    """Return what is in all of the found values, of which each holds in every row; None without any."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    return reduce(lambda one, other: {name: value for name, value in one.items() if name in other}, known)


def _unite(found: Iterable[_Values | None]) -> _Values | None:
    """Return what is in any of the found values; None where one of them is not known."""
    united: dict[str, Literal] = {}
    for each in found:
        if each is None:
            return None
        united |= each
    return united


# Part 2: lineage.


def find_sole_column(expression: Expression, source: Relation, *, catalog: Catalog) -> tuple[str, str] | None:
    """Return the one stored column that an expression is worked out from, with its private table, or None."""
    columns = _stored_columns(expression, _relations(source))
    if len(columns) != 1:
        return None
    ((_, path, name),) = columns
    private = _find_private(path, catalog)
    return (private[0].name, name) if len(private) == 1 and name else None


def find_private_columns(expression: Expression, source: Relation, *, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the stored columns of numbers of private tables that an expression reads, as (table, column), sorted."""
    columns = _stored_columns(expression, _relations(source))
    found = {(table, name) for _, path, name in columns for table in _find_private(path, catalog) if name}
    return tuple(
        sorted(
            (table.name, name)
            for table, name in found
            if any(known == name and find_read_type(type_).is_number for known, type_ in table.columns)
        )
    )


def find_item_columns(expression: Expression, source: Relation, *, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the stored columns that an expression reads, as (table, column), sorted; none unless all are private."""
    columns = _stored_columns(expression, _relations(source))
    found = [[(table.name, name) for table in _find_private(path, catalog)] for _, path, name in columns]
    return tuple(sorted({each for named in found for each in named})) if all(found) else ()


def find_stored_column(column: ColumnRef, source: Relation, *, catalog: Catalog) -> tuple[Table, str] | None:
    """Return the stored column of a private table that a column is, unchanged through subqueries; None for another."""
    relation = _relations(source)[column.relation]
    if isinstance(relation, Scan):
        private = _find_private(relation.path, catalog)
        return (private[0], column.name) if len(private) == 1 else None
    if len(relation) != 1:
        return None
    output = relation[0].outputs[int(column.name.removeprefix("c")) - 1]
    return (
        find_stored_column(output, relation[0].body.source, catalog=catalog) if isinstance(output, ColumnRef) else None
    )


def _find_private(path: tuple[str, ...], catalog: Catalog) -> list[Table]:
    return [table for table in catalog.tables if table.path == path and table.privacy_unit is not None]


def _stored_columns(
    expression: Expression, relations: _Relations, *, seen: set[tuple[int, int]] | None = None
) -> set[tuple[int, tuple[str, ...], str]]:
    """Return the columns of stored tables that an expression reads, each with the number and the path of its table.

    Outputs of subqueries that were `seen` are passed over: each may be named many times, in each of many subqueries.
    What a subquery in it reads is a column of no table: it may be any row's. So is the number of an item of unnest, and
    what UNION puts together: they make several values of one.
    """
    found, seen = set[tuple[int, tuple[str, ...], str]](), set() if seen is None else seen
    for part in walk(expression):
        if isinstance(part, InQuery | Exists | Scalar):
            found.add((part.source.number, (), ""))
        if not isinstance(part, ColumnRef):
            continue
        relation = relations[part.relation]
        if isinstance(relation, Scan):
            found.add((part.relation, relation.path, part.name))
            continue
        if not relation:
            found.add((part.relation, (), ""))
        for subquery in relation:
            at = int(part.name.removeprefix("c")) - 1
            if (id(subquery), at) not in seen:
                seen.add((id(subquery), at))
                found |= _stored_columns(subquery.outputs[at], _relations(subquery.body.source), seen=seen)
    return found


def _relations(relation: Relation) -> _Relations:
    """Return the tables and subqueries of one FROM, by their numbers: for each the SELECTs that its rows come of."""
    match relation:
        case Joined():
            return _relations(relation.left) | _relations(relation.right)
        case Scan():
            return {relation.number: relation}
        case Derived():
            return {relation.number: (relation,)}
        case Numbered() | Combined():  # no one SELECT
            return {relation.number: ()}
        case Cut():
            return {relation.number: (relation.source,)}


# Part 3: queries that cannot return a row.


def is_empty_by_text(query: PrivateQuery) -> bool:
    """Say whether the text alone decides that no row is selected: LIMIT 0, or a WHERE that is never true.

    A private query then returns no row also if its domain is known. Its candidates would be returned because of their
    noise alone, which a query without rows does not want. A total is a row of its own.
    """
    return query.limit == 0 or (query.clause.shape != "total" and _is_empty(query.body))


def has_no_row(query: PublicQuery) -> bool:
    """Say whether the text alone decides that the answer has no row; COUNT(*) without a key has one also of none."""
    return query.limit == 0 or (query.keys is None and _is_empty(query.body))


def _is_empty(relation: Relation | FromWhere) -> bool:
    """Say whether a relation certainly has no row, for all data; some such relations are not recognized."""
    match relation:
        case FromWhere(source=source, where=where):
            return (where is not None and is_false(where)) or _is_empty(source)
        case Joined(left=left, kind="LEFT" | "ANTI"):
            return _is_empty(left)
        case Joined(kind="RIGHT", right=right):
            return _is_empty(right)
        case Joined(left=left, kind="FULL", right=right):
            return _is_empty(left) and _is_empty(right)
        case Joined(left=left, right=right):
            return _is_empty(left) or _is_empty(right)
        case Combined(kind=kind, branches=(first, *others)):
            found = _is_empty(first), *map(_is_empty, others)
            return found[0] if kind == "EXCEPT" else any(found) if kind == "INTERSECT" else all(found)
        case Cut(source=source, limit=limit):
            return limit == 0 or _is_empty(source)
        case Derived(body=body):
            # a subquery that aggregates without a key has a row where its source has none
            aggregated = any(is_aggregate(node) for output in relation.outputs for node in walk(output))
            has_key = relation.grouping != "" and any(isinstance(output, ColumnRef) for output in relation.outputs)
            return (not aggregated or has_key) and _is_empty(body)
    return False


def is_false(condition: Expression) -> bool:
    """Say whether a condition is FALSE or NULL, as a comparison with NULL is, or compares two values and fails."""
    match condition:
        case Literal(value=value):
            return not value
        case Call(function="and", arguments=arguments):
            return any(map(is_false, arguments))
        case Call(function="or", arguments=arguments):
            return all(map(is_false, arguments))
        case Call(function="not", arguments=(Literal(value=bool() as value),)):
            return value
        case Call(function=function, arguments=(Literal(value=int() as left), Literal(value=int() as right))):
            return function in _COMPARED and not _COMPARED[function](left, right)
        case Call(function="=", arguments=(Literal(value=str() as text), Literal(value=str() as other))):
            return text != other
        case Call(function=function, arguments=(Literal(value=None), _) | (_, Literal(value=None))):
            return function in _COMPARED  # x = NULL is NULL for every x, as is that of a parameter without a value
        case In(choices=choices):
            return all(isinstance(each, Literal) and each.value is None for each in choices)
    return False
