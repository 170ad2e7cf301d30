"""Cut of the groups that an engine returns: those of a value or more, and few others, by their places.

A place is the number of a group in the order of the keys, from 1, among all groups of the statement; groups that the
statement names have 0 in its place. Which places are returned is bound to parameters: so many places, in ascending
order, and then the last place after which all are. Without places drawn these are zeros, and every group is returned.
The first place is always returned: a number that stands beside every group, as that of all units does, must be read
whatever the groups are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.statements import GroupCut
from dpsql.sql.ir.tree import Expression, Literal
from dpsql.sql.render.clauses import (
    alias,
    among,
    at_least,
    at_most,
    bigint,
    both,
    descending,
    either,
    equal,
    is_null,
    list_parts,
    more_than,
    number_all,
    one_if,
    select,
    sort_nulls_last,
    subquery,
    zero_unless,
)
from dpsql.sql.render.duckdb import Writer

__all__ = ["PLACE", "cut_groups"]

PLACE = "dpsql_place"
_NUMBER, _NAMED = "dpsql_number", "dpsql_named"
_LEADER, _HEAVIEST = "dpsql_leader", "dpsql_heaviest"


def cut_groups(
    writer: Writer, groups: str, *, cut: GroupCut, names: Sequence[str], measures: Sequence[str], ranked: str
) -> tuple[str, int | None]:
    """Return the SELECT of the groups that are left of `groups`, and the index of the first parameter of the places.

    The columns of `groups` are names and measures, to which PLACE is added, 0 for groups that the cut names. The cut is
    of the column `ranked`; the first of the measures is the count. Of groups that are all named there are no places.
    """
    keys, last = sort_nulls_last(names), cut.places
    named = _is_named(writer, cut.names, names=names)
    if cut.value is None:
        numbered = select(["*", alias(number_all(keys), _NUMBER)], subquery(groups))
        return select([*names, *measures], subquery(numbered), where=either(named, at_most(_NUMBER, 1))), None
    start = len(writer.parameters)
    bound = [bigint(writer.bind(0)) for _ in range(last + 1)]
    conditions = [at_least(ranked, cut.value), among(_NUMBER, bound[:last]), more_than(_NUMBER, bound[last])]
    conditions.append(at_most(_NUMBER, 1))
    numbers = [alias(number_all(keys), _NUMBER)]
    for most, name, column in ((cut.leaders, _LEADER, measures[0]), (cut.heaviest, _HEAVIEST, ranked)):
        if most:
            numbers.append(alias(number_all(list_parts([descending(column), keys])), name))
            conditions.append(at_most(name, most))
    numbered, place = subquery(select(["*", *numbers], subquery(groups))), _NUMBER
    if named:
        numbered = subquery(select(["*", alias(one_if(named), _NAMED)], numbered))
        conditions.append(at_least(_NAMED, 1))
        place = zero_unless(at_most(_NAMED, 0), _NUMBER)
    return select([*names, *measures, alias(place, PLACE)], numbered, where=either(*conditions)), start


def _is_named(writer: Writer, listed: Sequence[Sequence[Expression]], *, names: Sequence[str]) -> str:
    """Return the condition that the keys of a group are those of one of the listed names; "" for none."""
    if not listed:
        return ""
    if len(names) > 1:
        return either(
            *(
                both(*(_has_key(writer, name, value=key) for name, key in zip(names, keys, strict=True)))
                for keys in listed
            )
        )
    values = [key for (key,) in listed if not _is_null(key)]
    among_values = [among(names[0], [writer.expression(canonicalize(value)) for value in values])] if values else []
    return either(*among_values, *([is_null(names[0])] if len(values) < len(listed) else []))


def _has_key(writer: Writer, name: str, *, value: Expression) -> str:
    return is_null(name) if _is_null(value) else equal(name, writer.expression(canonicalize(value)))


def _is_null(value: Expression) -> bool:
    return isinstance(value, Literal) and value.value is None
