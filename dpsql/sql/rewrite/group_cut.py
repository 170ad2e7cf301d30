"""Cut of the groups that an engine returns: those of a value or more, and few others, by their places.

A place is the number of a group in the order of the keys, from 1, among all groups of the statement. Which places are
returned is bound to parameters: so many places, in ascending order, and then the last place after which all are.
Without places drawn these are zeros, and every group is returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.statements import GroupCut
from dpsql.sql.render.clauses import (
    alias,
    among,
    at_least,
    at_most,
    bigint,
    descending,
    either,
    list_parts,
    more_than,
    number_all,
    select,
    sort_nulls_last,
    subquery,
)
from dpsql.sql.render.duckdb import Writer

__all__ = ["PLACE", "cut_groups"]

PLACE = "dpsql_place"
_LEADER, _HEAVIEST = "dpsql_leader", "dpsql_heaviest"


def cut_groups(
    writer: Writer, groups: str, cut: GroupCut, *, names: Sequence[str], measures: Sequence[str], ranked: str
) -> tuple[str, int]:
    """Return the SELECT of the groups that are left of `groups`, and the index of the first parameter of the places.

    The columns of `groups` are names and measures, to which PLACE is added. The cut is of the column `ranked`; the
    first of the measures is the count.
    """
    keys = sort_nulls_last(names)
    last, start = cut.places, len(writer.parameters)
    bound = [bigint(writer.bind(0)) for _ in range(last + 1)]
    conditions = [at_least(ranked, cut.value), among(PLACE, bound[:last]), more_than(PLACE, bound[last])]
    numbers = [alias(number_all(keys), PLACE)]
    for most, name, column in ((cut.leaders, _LEADER, measures[0]), (cut.heaviest, _HEAVIEST, ranked)):
        if most:
            numbers.append(alias(number_all(list_parts([descending(column), keys])), name))
            conditions.append(at_most(name, most))
    numbered = select(["*", *numbers], subquery(groups))
    return select([*names, *measures, PLACE], subquery(numbered), where=either(*conditions)), start
