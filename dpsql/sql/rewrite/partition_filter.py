"""Partition pass: drop the rows outside the listed partitions and, if required, bound each unit to one partition.

The partition of a unit depends only on its own rows, the list and the salts of the session: it is the value with the
minimum draw, ties broken by the value, as under a contribution bound of one group. A unit therefore adds to counts of
one partition only, for all data, and the choice for another unit does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.statements import Partitions
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contribution_bounding import UNIT, Bound, bound_contributions

__all__ = ["filter_partitions", "order_groups", "select_leading_groups"]

POSITION = "dpsql_position"
_LIST = "dpsql_partitions"
_ROWS = "dpsql_rows"


def filter_partitions(
    writer: Writer, base: str, *, names: Sequence[str], partitions: Partitions
) -> tuple[tuple[str, ...], str]:
    """Filter `base`, a SELECT of the canonical keys `names` and of UNIT, to the rows of the partitions.

    Return the CTEs, and the SELECT over them.
    """
    key, columns = names[partitions.key], ", ".join((*names, UNIT))
    values = enumerate(map(writer.expression, map(canonicalize, partitions.values)))
    rows = ", ".join(f"({value}, CAST({position:d} AS BIGINT))" for position, value in values)
    listed = f"{_LIST} AS MATERIALIZED (SELECT * FROM (VALUES {rows}) AS dpsql_listed({key}, {POSITION}))"  # noqa: S608 - nothing in it is the analyst's text
    inside = f"SELECT {columns} FROM ({base}) WHERE {key} IN (SELECT {key} FROM {_LIST})"  # noqa: S608 - as above
    if partitions.salts is None:
        return (listed,), inside
    distinct = f"{_ROWS} AS MATERIALIZED (SELECT DISTINCT {columns} FROM ({inside}))"  # noqa: S608 - as above
    pairs = f"SELECT {key}, {UNIT} FROM {_ROWS}"  # noqa: S608 - as above
    own = bound_contributions(writer, pairs, names=[key], bound=Bound(1, partitions.salts))
    selected = f"SELECT {columns} FROM {_ROWS} {writer.semi} JOIN ({own.source}) AS dpsql_own USING ({key}, {UNIT})"  # noqa: S608 - as above
    return (listed, distinct, *own.ctes), selected


def order_groups(counted: str, order: str, *, key: str) -> str:
    """Sort all counted groups by `order`, and add the position of the partition of each group as the last column."""
    return f"SELECT * FROM ({_add_position(counted, key)}) ORDER BY {order}"  # noqa: S608 - nothing in it is the analyst's text


def select_leading_groups(
    writer: Writer, counted: str, *, order: str, rows: int, key: str, columns: Sequence[str]
) -> str:
    """Select the first `rows` counted groups of each partition by `order`, partition by partition.

    `columns` names the columns of `counted`. The position of the partition is added as the last column.
    """
    rank = f"system.main.row_number() OVER (PARTITION BY {POSITION} ORDER BY {order})"
    if writer.native:
        return f"SELECT * FROM ({_add_position(counted, key)}) QUALIFY {rank} <= {rows:d} ORDER BY {POSITION}, {order}"  # noqa: S608 - as above
    names = ", ".join((*columns, POSITION))
    ranked = f"SELECT {names}, {rank} AS dpsql_rank FROM ({_add_position(counted, key)})"  # noqa: S608 - as above
    return f"SELECT {names} FROM ({ranked}) WHERE dpsql_rank <= {rows:d} ORDER BY {POSITION}, {order}"  # noqa: S608 - as above


def _add_position(counted: str, key: str) -> str:
    return f"SELECT dpsql_counted.*, {POSITION} FROM ({counted}) AS dpsql_counted JOIN {_LIST} USING ({key})"  # noqa: S608 - as above
