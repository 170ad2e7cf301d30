"""Partitions in the engine: rows outside the listed ones left out, each unit kept to one of them if that is promised.

Which one a unit keeps is a function of its own rows, the list and the session's salts alone: the value of the least
draw, then the least value, as a bound of one group chooses. So what one unit adds to the others' counts is in one
partition, whatever the data holds, and no other unit's choice depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.canonical_keys import canonical
from dpsql.sql.ir.statements import Partitions
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contribution_bounding import UNIT, Bound, bounded

__all__ = ["arranged", "leading", "within"]

POSITION = "dpsql_position"
_LIST = "dpsql_partitions"
_ROWS = "dpsql_rows"


def within(writer: Writer, base: str, *, names: Sequence[str], partitions: Partitions) -> tuple[tuple[str, ...], str]:
    """Return the rows of `base`, a SELECT of the canonical keys `names` and of UNIT, that count in some partition.

    As CTEs, and the SELECT over them.
    """
    key, columns = names[partitions.key], ", ".join((*names, UNIT))
    values = enumerate(map(writer.expression, map(canonical, partitions.values)))
    rows = ", ".join(f"({value}, CAST({position:d} AS BIGINT))" for position, value in values)
    listed = f"{_LIST} AS MATERIALIZED (SELECT * FROM (VALUES {rows}) AS dpsql_listed({key}, {POSITION}))"  # noqa: S608 - nothing in it is the analyst's text
    inside = f"SELECT {columns} FROM ({base}) WHERE {key} IN (SELECT {key} FROM {_LIST})"  # noqa: S608 - as above
    if partitions.salts is None:
        return (listed,), inside
    distinct = f"{_ROWS} AS MATERIALIZED (SELECT DISTINCT {columns} FROM ({inside}))"  # noqa: S608 - as above
    own = bounded(writer, f"SELECT {key}, {UNIT} FROM {_ROWS}", names=[key], bound=Bound(1, partitions.salts))  # noqa: S608 - as above
    kept = f"SELECT {columns} FROM {_ROWS} {writer.semi} JOIN ({own.source}) AS dpsql_own USING ({key}, {UNIT})"  # noqa: S608 - as above
    return (listed, distinct, *own.ctes), kept


def arranged(counted: str, order: str, *, key: str) -> str:
    """Return the SQL for all counted groups by `order`, the position of the partition of each as the last column."""
    return f"SELECT * FROM ({_placed(counted, key)}) ORDER BY {order}"  # noqa: S608 - nothing in it is the analyst's text


def leading(writer: Writer, counted: str, *, order: str, rows: int, key: str, columns: Sequence[str]) -> str:
    """Return the SQL for the first `rows` counted groups of each partition by `order`, partition by partition.

    `columns` are those of `counted`; the position of the partition is the last column.
    """
    rank = f"system.main.row_number() OVER (PARTITION BY {POSITION} ORDER BY {order})"
    if writer.native:
        return f"SELECT * FROM ({_placed(counted, key)}) QUALIFY {rank} <= {rows:d} ORDER BY {POSITION}, {order}"  # noqa: S608 - as above
    names = ", ".join((*columns, POSITION))
    ranked = f"SELECT {names}, {rank} AS dpsql_rank FROM ({_placed(counted, key)})"  # noqa: S608 - as above
    return f"SELECT {names} FROM ({ranked}) WHERE dpsql_rank <= {rows:d} ORDER BY {POSITION}, {order}"  # noqa: S608 - as above


def _placed(counted: str, key: str) -> str:
    return f"SELECT dpsql_counted.*, {POSITION} FROM ({counted}) AS dpsql_counted JOIN {_LIST} USING ({key})"  # noqa: S608 - as above
