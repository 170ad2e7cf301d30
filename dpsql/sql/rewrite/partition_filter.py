"""Partition pass: drop the rows outside the listed partitions and, if required, bound each unit to one partition.

The partition of a unit depends only on its own rows, the list and the salts of the session: it is the value with the
minimum draw, ties broken by the value, as under a contribution bound of one group. A unit therefore adds to counts of
one partition only, for all data, and the choice for another unit does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.statements import Partitions
from dpsql.sql.render.clauses import (
    alias,
    at_most,
    bigint,
    cte,
    in_query,
    join,
    list_parts,
    number_rows,
    select,
    subquery,
    values,
)
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contribution_bounding import UNIT, Bound, bound_contributions

__all__ = ["filter_partitions", "order_groups", "select_leading_groups"]

POSITION = "dpsql_position"
_LIST = "dpsql_partitions"
_ROWS = "dpsql_rows"


def filter_partitions(
    writer: Writer, base: str, *, names: Sequence[str], partitions: Partitions, parts: Sequence[str] = ()
) -> tuple[tuple[str, ...], str]:
    """Filter `base`, a SELECT of the canonical keys `names` and of UNIT, to the rows of the partitions.

    `parts` are further columns, of which each pair of group and unit has one row. Return the CTEs, and the SELECT over
    them.
    """
    key, columns = names[partitions.key], (*names, UNIT, *parts)
    found = enumerate(map(writer.expression, map(canonicalize, partitions.values)))
    rows = ((value, bigint(str(position))) for position, value in found)
    listed = cte(_LIST, select(["*"], values(rows, "dpsql_listed", columns=[key, POSITION])))
    inside = select(columns, subquery(base), where=in_query(key, select([key], _LIST)))
    if partitions.salts is None:
        return (listed,), inside
    distinct = cte(_ROWS, select(columns, subquery(inside), distinct=True))
    own = bound_contributions(writer, select([key, UNIT], _ROWS), names=[key], bound=Bound(1, partitions.salts))
    ours = alias(subquery(own.source), "dpsql_own")
    return (listed, distinct, *own.ctes), select(columns, join(_ROWS, ours, kind=writer.semi, using=[key, UNIT]))


def order_groups(counted: str, order: str, *, key: str) -> str:
    """Sort all counted groups by `order`, and add the position of the partition of each group as the last column."""
    return select(["*"], subquery(_add_position(counted, key)), order_by=order)


def select_leading_groups(
    writer: Writer, counted: str, *, order: str, rows: int, key: str, columns: Sequence[str]
) -> str:
    """Select the first `rows` counted groups of each partition by `order`, partition by partition.

    `columns` names the columns of `counted`. The position of the partition is added as the last column.
    """
    rank, positioned = number_rows(POSITION, order), subquery(_add_position(counted, key))
    by_partition = list_parts([POSITION, order])
    if writer.native:
        return select(["*"], positioned, qualify=at_most(rank, rows), order_by=by_partition)
    names = (*columns, POSITION)
    ranked = select((*names, alias(rank, "dpsql_rank")), positioned)
    return select(names, subquery(ranked), where=at_most("dpsql_rank", rows), order_by=by_partition)


def _add_position(counted: str, key: str) -> str:
    groups = alias(subquery(counted), "dpsql_counted")
    return select(["dpsql_counted.*", POSITION], join(groups, _LIST, using=[key]))
