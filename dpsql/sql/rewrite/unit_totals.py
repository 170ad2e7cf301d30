"""Units by what they add up to: engine SQL that counts the units in each bin of a public axis, one bin for each unit.

    rows: keys, unit, steps of each row ──▶ keys, unit: added up ──▶ unit: the largest group ──▶ bin: units

    SELECT SUM(amount) FROM visits PRIVATE                  becomes, with three bins and without modules,

    SELECT dpsql_bin, count() AS dpsql_count
    FROM (SELECT CASE WHEN dpsql_total <= 100 THEN CASE WHEN dpsql_total <= 0 THEN 0 ELSE 1 END ELSE 2 END AS dpsql_bin
          FROM (SELECT dpsql_unit, max(dpsql_total) AS dpsql_total
                FROM (SELECT dpsql_unit, sum(dpsql_row) AS dpsql_total FROM (rows) GROUP BY dpsql_unit)
                GROUP BY dpsql_unit))
    GROUP BY dpsql_bin ORDER BY dpsql_bin ASC NULLS LAST

The bin of a unit is a function of its own rows: one unit more changes one number by 1. Rows become whole steps, as in
`contributions.py`, and are added up as DOUBLE. Sums of rows of one sign below 2**53 are exact in any order, and what
is above stays above, in the last bin; a total of BIGINT could leave its type. Rows without a value are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import canonicalize, make_total
from dpsql.sql.ir.tree import BIGINT, DOUBLE, Call, Cast, Expression, join_conjuncts, split_conjuncts
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contributions import UNIT, build_row_steps
from dpsql.sql.rewrite.engine_query import EngineQuery, apply_passes

_BIN, _COUNT = "dpsql_bin", "dpsql_count"


class UnitStatistic(Enum):
    """Number of one unit that is put into a bin; of negated values they are those of the other side."""

    ROWS = "the rows of a unit"
    SUM = "the sum of the values above 0 of a unit"
    LARGEST = "the largest value of a unit"


def rewrite_unit_totals(
    query: PrivateQuery,
    statistic: UnitStatistic,
    *,
    edges: ContributionRange,
    ends: Sequence[int],
    negated: bool = False,
) -> EngineQuery:
    """Return the SQL for the bins that have units, in ascending order, each with the number of its units.

    The first measure of `query` has the value, and its keys are the groups, of which the largest total of each unit
    counts. `ends` are the last steps of the bins but the last one, ascending; `edges` is the range of one row in steps.
    """
    query = apply_passes(replace(query, materialized=()))
    measure = query.measures[0]
    if measure.argument is not None:
        condition = join_conjuncts([*split_conjuncts(query.body.where), *map(make_total, is_present(measure.argument))])
        query = replace(query, body=replace(query.body, where=condition))
        value = Call("neg", (measure.argument,), measure.argument.type) if negated else measure.argument
        measure = Measure(Aggregate.SUM, argument=value, bounds=edges)
    names = [f"dpsql_key_{at}" for at in range(1, len(query.keys) + 1)]
    types = {name: each.type for name, each in zip((*names, UNIT), (*query.keys, query.unit), strict=True)}
    writer = writer_for(query.dialect, types)
    rows = "" if statistic is UnitStatistic.ROWS else "dpsql_row"
    sql = compose(
        """
        SELECT {bin}, CAST(system.main.count() AS BIGINT) AS dpsql_count
        FROM (SELECT {number} AS dpsql_bin FROM ({units}))
        GROUP BY {bin}
        ORDER BY {order}
        """,
        bin=_BIN,
        number=f"CAST({_find_bin('dpsql_total', ends)} AS BIGINT)",
        units=compose(
            """
            SELECT dpsql_unit, system.main.max(dpsql_total) AS dpsql_total
            FROM ({pairs})
            GROUP BY dpsql_unit
            """,
            pairs=compose(
                """
                SELECT {columns}
                FROM ({base})
                GROUP BY {pair}
                """,
                columns=[*names, UNIT, f"{_write_total(statistic)} AS dpsql_total"],
                base=_read_rows(writer, query, names=names, measure=measure if rows else None),
                pair=[*names, UNIT],
            ),
        ),
        order=sort_nulls_last([_BIN]),
    )
    return EngineQuery(writer.finished(sql), tuple(writer.parameters), (BIGINT.name, BIGINT.name))


def _write_total(statistic: UnitStatistic) -> str:
    """Return the aggregate of the rows of a unit in a group."""
    match statistic:
        case UnitStatistic.ROWS:
            return "system.main.count()"
        case UnitStatistic.SUM:
            return "system.main.sum(dpsql_row)"
        case UnitStatistic.LARGEST:
            return "system.main.max(dpsql_row)"


def _read_rows(writer: Writer, query: PrivateQuery, *, names: Sequence[str], measure: Measure | None) -> str:
    """Return the SQL for the rows that have a unit: the keys, the unit and, with a measure, the steps of the row."""
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    read = list[str]()
    steps: Expression | None = None if measure is None else build_row_steps(measure)
    if steps is not None:
        read.append(f"{writer.expression(make_total(Cast(steps, DOUBLE)))} AS dpsql_row")
    return writer.select([*keys, f"{unit} AS {UNIT}", *read], query.body, where=f"({unit} IS NOT NULL)")


def _find_bin(column: str, ends: Sequence[int], *, first: int = 0) -> str:
    """Return the number of the bin of a column, by halves: the first whose end it does not exceed, or the last."""
    if not ends:
        return f"{first:d}"
    half = len(ends) // 2
    low, high = _find_bin(column, ends[:half], first=first), _find_bin(column, ends[half + 1 :], first=first + half + 1)
    return f"CASE WHEN {column} <= {ends[half]:d} THEN {low} ELSE {high} END"
