"""Queries that read what is materialized of a table in place of its rows, with the same answers.

Only distinct units are ever counted, so rows that agree in the unit and in every column that a query names may stand
once: the table of pairs does for the table of rows wherever nothing counts rows, that is anywhere but below aggregates,
windows and set operations. Three short forms do less, for a query of one table alone whose keys, together
with the columns that WHERE holds to one value, tell all rows of a unit apart:

* COUNTS: nothing bounds the groups of a unit and nothing names the unit, so the counts are known already;
* PAIRS: the same where WHERE names the unit, so that each row of pairs is one unit of a group;
* RANKS: the groups are bounded, and the rows are not filtered, so a unit's first groups are those with its first ranks.

What a query reads is decided by its text and by what the policy lists, in its order, and never by the data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from dpsql.sql.ir.catalog import MaterializedSet
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import (
    Call,
    Cast,
    Column,
    Derived,
    Expression,
    FromWhere,
    In,
    Joined,
    Literal,
    Relation,
    Scan,
    Window,
    is_aggregate,
    is_column,
    walk,
)
from dpsql.sql.ir.unit_equality import conjuncts
from dpsql.sql.ir.visitor import rebuild, rebuild_body

__all__ = ["Form", "Reading", "reading"]

Named = defaultdict[int, set[str]]


class Form(Enum):
    """How the units of a group are counted."""

    ROWS = auto()
    PAIRS = auto()
    RANKS = auto()
    COUNTS = auto()


@dataclass(frozen=True, slots=True)
class Reading:
    """A query over what it reads, how it is counted, and what is to be told of it: "" where it reads rows alone."""

    query: PrivateQuery
    form: Form = Form.ROWS
    told: str = ""

    @property
    def relation(self) -> int:
        """The number of the one relation of a short form."""
        source = self.query.body.source
        return source.number if isinstance(source, Scan) else 0


def reading(query: PrivateQuery, *, bounded: bool) -> Reading:
    """Return what a query reads: the first of what is materialized that takes a short form, else pairs, else rows."""
    if not query.materialized:
        return Reading(query)
    short = _short(query, bounded=bounded)
    if short is not None:
        return short
    named, used = _named((*query.keys, query.unit), query.body), list[MaterializedSet]()
    source = _replaced(query.body.source, named, query=query, used=used)
    told = "; ".join(dict.fromkeys(f"materialized pairs of {_listed(each)}" for each in used))
    return Reading(replace(query, body=replace(query.body, source=source)), told=told)


def _short(query: PrivateQuery, *, bounded: bool) -> Reading | None:
    """Return the query in a short form; None where there is none."""
    scan, unit, conditions = query.body.source, query.unit, conjuncts(query.body.where)
    if not isinstance(scan, Scan) or not is_column(unit) or query.partitions is not None:
        return None
    if bounded and (conditions or query.domain is not None):  # what is left out would take ranks
        return None
    apart = set(map(_name, query.keys)) | set(map(_held, conditions))
    keys, filters = _named(query.keys)[scan.number], _named(conditions)[scan.number]
    for path, each in query.materialized:
        columns = set(each.columns)
        if path != scan.path or not columns <= apart or not keys <= columns or not filters <= {*columns, each.unit}:
            continue
        if bounded:
            return _over(query, each, form=Form.RANKS)
        return _over(query, each, form=Form.PAIRS if each.unit in filters else Form.COUNTS)
    return None


def _over(query: PrivateQuery, materialized: MaterializedSet, *, form: Form) -> Reading:
    """Return the query over what is materialized of its one table."""
    scan = query.body.source
    number = scan.number if isinstance(scan, Scan) else 0
    path = materialized.counts if form is Form.COUNTS else materialized.pairs
    told = f"materialized {form.name.lower()} of {_listed(materialized)}"
    return Reading(replace(query, body=replace(query.body, source=Scan(number, path))), form, told)


def _listed(materialized: MaterializedSet) -> str:
    return ", ".join(materialized.columns)


def _replaced(relation: Relation, named: Named, *, query: PrivateQuery, used: list[MaterializedSet]) -> Relation:
    """Return the relation over the pairs of its tables, as far as these have every column that is named."""
    match relation:
        case Scan(number=number, path=path):
            fits = [
                each
                for table, each in query.materialized
                if table == path and named[number] <= {each.unit, *each.columns}
            ]
            if not fits:
                return relation
            used.append(least := min(fits, key=lambda each: len(each.columns)))
            return Scan(number, least.pairs)
        case Joined(left=left, right=right):
            left = _replaced(left, named, query=query, used=used)
            return replace(relation, left=left, right=_replaced(right, named, query=query, used=used))
        case Derived(outputs=outputs, body=body) if not any(map(_counts_rows, outputs)):
            return replace(relation, body=replace(body, source=_replaced(body.source, named, query=query, used=used)))
    return relation


def _counts_rows(expression: Expression) -> bool:
    """Say whether an expression looks at more than one row."""
    return any(isinstance(node, Window) or is_aggregate(node) for node in walk(expression))


def _held(condition: Expression) -> str:
    """Return the column that a condition holds to one value; "" for none."""
    match condition:
        case Call(function="=", arguments=(column, Literal()) | (Literal(), column)):
            return _name(column)
        case Call(function="is_null", arguments=(column,)) | In(argument=column, choices=(Literal(),)):
            return _name(column)
    return ""


def _name(expression: Expression) -> str:
    """Return the name of a column that stands alone, as it is stored or as an ENUM is read; "" for all else."""
    column = expression.argument if isinstance(expression, Cast) else expression
    return column.name if isinstance(column, Column) and is_column(expression) else ""


def _named(expressions: Iterable[Expression], body: FromWhere | None = None) -> Named:
    """Return the columns that are named of each relation, in subqueries too."""
    found: Named = defaultdict(set)

    def note(expression: Expression) -> Expression:
        if isinstance(expression, Column):
            found[expression.relation].add(expression.name)
        return rebuild(expression, note)

    for expression in expressions:
        note(expression)
    if body is not None:
        rebuild_body(body, note)
    return found
