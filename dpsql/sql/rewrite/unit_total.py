"""The number of units that are in any group, beside each group: read in the same pass over the same rows.

Every unit that adds to a group must raise the number by exactly 1, and no unit by more, in the very rows that the
groups are counted from: a number from rows of another moment, or of some groups alone, would be wrong. It is taken in
one of two ways. Neither reads the rows of a table twice, since they could change in between:

* The pairs of group and unit have a rank within their unit. Each unit has one pair of rank 1, and the groups' numbers
  of these pairs are added up over all groups.
* In DuckDB, which computes a CTE once, the units of such a CTE are counted beside the groups that are counted from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.render.clauses import (
    alias,
    at_most,
    bigint,
    count,
    number_rows,
    or_zero,
    over_all,
    select,
    sort_nulls_last,
    subquery,
    sum_column,
    zero_unless,
)
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contribution_bounding import RANK, UNIT, rank_in_lists

__all__ = [
    "FIRST",
    "PAIRS",
    "TOTAL",
    "add_total",
    "count_rows",
    "count_units",
    "number_pairs",
    "spread_first",
    "sum_first",
]

TOTAL = "dpsql_total"
PAIRS = "dpsql_pairs"
FIRST = "dpsql_first"


def count_units(pairs: str) -> str:
    """Return the scalar subquery that counts the units of a relation of pairs, which is computed once."""
    return subquery(select([count()], subquery(select([UNIT], pairs, group_by=UNIT))))


def count_rows(units: str) -> str:
    """Return the scalar subquery that counts the rows of a CTE of units; "" without one."""
    return subquery(select([count()], units)) if units else ""


def add_total(groups: str, columns: Sequence[str], *, units: str) -> str:
    """Return the SELECT of groups with the number of units, a scalar subquery, as TOTAL."""
    return select([*columns, alias(units, TOTAL)], subquery(groups))


def number_pairs(writer: Writer, pairs: str, *, names: Sequence[str], parts: Sequence[str] = ()) -> str:
    """Return the SELECT of distinct pairs of keys, UNIT and `parts`, with the RANK of each within its unit."""
    if writer.lists:
        return rank_in_lists(writer, subquery(pairs), names=names, parts=parts)
    return select(["*", alias(number_rows(UNIT, sort_nulls_last(names)), RANK)], subquery(pairs))


def sum_first() -> str:
    """Return the column of a group that has the number of units whose pair of rank 1 is in it."""
    return alias(sum_column(zero_unless(at_most(RANK, 1), "1")), FIRST)


def spread_first(groups: str, columns: Sequence[str], *, where: str = "") -> str:
    """Return the SELECT of groups, which have `sum_first`, with the sum of it over all of them as TOTAL.

    Candidates of a known domain have none where no row is in their group. `where` is a condition on the columns of
    those that are selected; it leaves the total as it is.
    """
    total = alias(bigint(or_zero(over_all(sum_column(FIRST)))), TOTAL)
    spread = select([*columns, total], subquery(groups))
    return select(["*"], subquery(spread), where=where) if where else spread
