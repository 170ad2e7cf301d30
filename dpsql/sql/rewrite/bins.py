"""Counts in the bins of a public axis: rows by their values, for quantiles, and units by what they add up to.

Quantiles: how much the rows of each group weigh in each bin.

    rows: keys, unit, value ──▶ keys, unit, bin: number of rows ──▶ with the rows of the unit ──▶ keys, bin: weights

A value becomes the number of its bin by itself, so no other row changes it. All rows of a unit in a group weigh at most
`rows` steps of 2**-shift together: n of them in a bin weigh n * 2**shift where the unit has at most `rows`, and else
n * rows * 2**shift // (the unit's rows), a function of its own rows. With a bound a unit counts in the first groups by
its draw.

    SELECT MEDIAN(dwell) FROM visits PRIVATE        becomes, with 600 seconds in 1,024 bins and 3 rows of a unit,

    SELECT dpsql_bin, sum(dpsql_weight) AS dpsql_weight
    FROM (SELECT dpsql_bin, CASE WHEN dpsql_number <= 3 THEN dpsql_rows * 1024
                                 ELSE dpsql_rows * 3072 // dpsql_number END AS dpsql_weight
          FROM (SELECT dpsql_bin, dpsql_rows, sum(dpsql_rows) OVER (PARTITION BY dpsql_unit) AS dpsql_number
                FROM (SELECT dpsql_unit, dpsql_bin, count() AS dpsql_rows
                      FROM (SELECT dpsql_unit, CASE WHEN t0.dpsql_value > 0 ... END AS dpsql_bin
                            FROM (SELECT t1.user_id AS dpsql_unit, t1.dwell AS dpsql_value FROM visits AS t1) AS t0)
                      GROUP BY dpsql_unit, dpsql_bin)))
    GROUP BY dpsql_bin
    ORDER BY dpsql_bin

DuckDB weighs the units that have more rows apart, in `_weigh_apart`: the same numbers, in a third of the time.

Units by what they add up to, one bin for each unit:

    rows: keys, unit, steps of each row ──▶ keys, unit: added up ──▶ unit: the largest group ──▶ bin: units

    SELECT SUM(amount) FROM visits PRIVATE                  becomes, with three bins and without modules,

    SELECT dpsql_bin, count() AS dpsql_count
    FROM (SELECT CASE WHEN dpsql_total <= 100 THEN CASE WHEN dpsql_total <= 0 THEN 0 ELSE 1 END ELSE 2 END AS dpsql_bin
          FROM (SELECT dpsql_unit, max(dpsql_total) AS dpsql_total
                FROM (SELECT dpsql_unit, sum(dpsql_row) AS dpsql_total FROM (rows) GROUP BY dpsql_unit)
                GROUP BY dpsql_unit))
    GROUP BY dpsql_bin ORDER BY dpsql_bin ASC NULLS LAST

The bin of a unit is a function of its own rows: one unit more changes one number by 1. Rows become whole steps, as in
`row_steps.py`, and are added up as DOUBLE. Sums of rows of one sign below 2**53 are exact in any order, and what
is above stays above, in the last bin; a total of BIGINT could leave its type. Rows without a value are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from dpsql.sql.ir.measures import Aggregate, Bins, ContributionRange, Measure, Quantile, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import make_total, widen, widen_presence
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    join_conjuncts,
    split_conjuncts,
)
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.rewrite.bounding import UNIT, Bound
from dpsql.sql.rewrite.contributions import name_keys, read_rows
from dpsql.sql.rewrite.engine_query import EngineQuery, apply_passes, open_writer
from dpsql.sql.rewrite.known_groups import is_named, list_candidates
from dpsql.sql.rewrite.row_steps import build_row_steps

_VALUE = ColumnRef(0, "dpsql_value", DOUBLE)  # of the rows, which are relation 0


@dataclass(frozen=True, slots=True)
class BinCount:
    """Count of the rows of a quantile in `bins`, with `shift`; of the groups with these `keys` alone, if there are any.

    Without keys the groups are those of the domain of the query.
    """

    quantile: Quantile
    bins: Bins
    shift: int
    keys: Sequence[Sequence[Expression]] = ()


def rewrite_bins(query: PrivateQuery, count: BinCount, *, bound: Bound | None) -> EngineQuery:
    """Return the SQL for one row per group and bin: the keys, the number of the bin, and the weight of its rows."""
    quantile = count.quantile
    conditions = [*split_conjuncts(query.body.where), *split_conjuncts(widen_presence(quantile.condition))]
    query = apply_passes(replace(query, body=replace(query.body, where=join_conjuncts(conditions))))
    writer, names, ctes = open_writer(query), name_keys(query), list[str]()
    value = make_total(widen(quantile.argument))
    rows = read_rows(writer, query, names=names, columns=[(value, _VALUE.name)])
    where = is_named(writer, count.keys, names=names)
    if not count.keys and query.domain is not None:
        where = list_candidates(writer, query.domain, names=names, ctes=ctes)
    # With a bound, the rank of a pair needs all pairs of its unit, so that rows are grouped by unit in any case.
    is_apart = writer.native and bound is None
    binned = compose(
        """
        SELECT {columns}, {bin} AS dpsql_bin
        FROM ({rows}) AS t0
        WHERE {where}
        """,
        columns=[*names, UNIT],
        bin=f"CAST({_write_bin(writer, count.bins)} AS {'SMALLINT' if is_apart else 'BIGINT'})",
        rows=rows,
        where=where,
    )
    if is_apart:
        weighed = _weigh_apart(binned, count, names=names, ctes=ctes)
    else:
        weighed = _weigh(writer, binned, count=count, names=names, bound=bound)
    sql = compose(
        """
        WITH {ctes}
        SELECT {columns}, CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_weight
        FROM ({weighed})
        GROUP BY {keys}
        ORDER BY {order}
        """,
        ctes=ctes,
        columns=[*names, "CAST(dpsql_bin AS BIGINT) AS dpsql_bin" if is_apart else "dpsql_bin"],
        keys=[*names, "dpsql_bin"],
        order=sort_nulls_last([*names, "dpsql_bin"]),
        weighed=weighed,
    )
    kinds = *(key.type.name for key in query.keys), BIGINT.name, BIGINT.name
    return EngineQuery(writer.finished(sql), tuple(writer.parameters), kinds)


def rewrite_candidates(query: PrivateQuery) -> EngineQuery:
    """Return the SQL for one row for each candidate of a known domain, or for a total, with 0; no other row is read."""
    query = apply_passes(query)
    writer, names, ctes = open_writer(query), name_keys(query), list[str]()
    sql = "SELECT CAST(0 AS BIGINT) AS dpsql_count"
    if query.domain is not None:
        list_candidates(writer, query.domain, names=names, ctes=ctes)
        sql = compose(
            """
            WITH {ctes}
            SELECT {names}, CAST(0 AS BIGINT) AS dpsql_count
            FROM dpsql_domain
            ORDER BY {order}
            """,
            ctes=ctes,
            names=names,
            order=sort_nulls_last(names),
        )
    kinds = *(key.type.name for key in query.keys), BIGINT.name
    return EngineQuery(writer.finished(sql), tuple(writer.parameters), kinds)


def _weigh_apart(binned: str, count: BinCount, *, names: Sequence[str], ctes: list[str]) -> str:
    """Return the SELECT of keys, bin and weight, with a weight for each row of units that have few; in DuckDB alone.

    Few units have more rows than count, so that rows are grouped by unit and bin for these alone. DuckDB reads the rows
    once for all of it.
    """
    pair, rows = [*names, UNIT], count.quantile.rows
    # SELECT dpsql_bin, count() * 1024 FROM dpsql_binned ANTI JOIN dpsql_above ON ... GROUP BY dpsql_bin
    # UNION ALL
    # SELECT dpsql_bin, count() * 3072 // min(dpsql_number) FROM dpsql_binned JOIN dpsql_above ON ...
    # GROUP BY dpsql_bin, dpsql_unit
    # A NULL key is a group. With `=` the rows of a unit above the bound in that group would weigh in full.
    same = " AND ".join(f"dpsql_binned.{name} IS NOT DISTINCT FROM dpsql_above.{name}" for name in names)
    same = " AND ".join(filter(None, [same, "dpsql_binned.dpsql_unit = dpsql_above.dpsql_unit"]))
    ctes.append(f"dpsql_binned AS MATERIALIZED ({binned})")
    ctes.append(
        compose(
            """
            dpsql_above AS MATERIALIZED (
                SELECT {pair}, system.main.count() AS dpsql_number
                FROM dpsql_binned
                GROUP BY {pair}
                HAVING system.main.count() > {rows}
            )
            """,
            pair=pair,
            rows=rows,
        )
    )
    return compose(
        """
        SELECT {keys}, system.main.count() * {each} AS dpsql_weight
        FROM dpsql_binned ANTI JOIN dpsql_above ON {same}
        GROUP BY {keys}
        UNION ALL
        SELECT {own}, (system.main.count() * {most}) // system.main.min(dpsql_number) AS dpsql_weight
        FROM dpsql_binned JOIN dpsql_above ON {same}
        GROUP BY {own}, dpsql_binned.dpsql_unit
        """,
        keys=[*names, "dpsql_bin"],
        own=[f"dpsql_binned.{name}" for name in (*names, "dpsql_bin")],
        each=1 << count.shift,
        most=rows << count.shift,
        same=same,
    )


def _weigh(writer: Writer, binned: str, *, count: BinCount, names: Sequence[str], bound: Bound | None) -> str:
    """Return the SELECT of keys, bin and weight of the rows of each unit, of its first groups if there is a bound."""
    rows = count.quantile.rows
    # of rows times weights, which are below 2**57; where not all engines divide it, a type that all do
    wide = BIGINT.name if writer.native else writer.wide
    counted = compose(
        """
        SELECT {columns}, dpsql_bin, CAST(system.main.count() AS {wide}) AS dpsql_rows
        FROM ({binned})
        GROUP BY {columns}, dpsql_bin
        """,
        columns=[*names, UNIT],
        wide=wide,
        binned=binned,
    )
    columns = [*names, "dpsql_bin", "dpsql_rows"]
    numbers = [f"CAST(system.main.sum(dpsql_rows) OVER (PARTITION BY {', '.join([*names, UNIT])}) AS {wide})"]
    named = [f"{numbers[0]} AS dpsql_number"]
    if bound is not None:
        draw, drawn = writer.draw(names, UNIT, salts=bound.salts), [*names, UNIT, "dpsql_bin", "dpsql_rows"]
        template = "SELECT {drawn}, {draw} AS dpsql_draw FROM ({counted})"
        counted = compose(template, drawn=drawn, draw=draw, counted=counted)
        order = f"dpsql_draw, {sort_nulls_last(names)}"
        named.append(f"system.main.dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}) AS dpsql_rank")
    divided = writer.divide_wide(f"(dpsql_rows * {rows << count.shift:d})", "dpsql_number")
    return compose(
        """
        SELECT {keys}, CAST(CASE WHEN dpsql_number <= {rows} THEN {whole} ELSE {share} END AS BIGINT) AS dpsql_weight
        FROM (SELECT {columns} FROM ({counted}))
        WHERE {first}
        """,
        keys=[*names, "dpsql_bin"],
        rows=rows,
        whole=f"dpsql_rows * {1 << count.shift:d}",
        share=divided,
        columns=[*columns, *named],
        counted=counted,
        first="" if bound is None else f"dpsql_rank <= {bound.max_groups_contributed:d}",
    )


def _write_bin(writer: Writer, bins: Bins) -> str:
    """Return the number of the bin of a value, from 0: always one that there is."""
    last = bins.count - 1
    low, high = bins.segments[0].start, bins.segments[-1].end
    branches: list[tuple[Expression, Expression]] = [(_compare("<=", low), Literal(0, BIGINT))]
    branches.append((_compare(">=", high), Literal(last, BIGINT)))
    before = 0
    for at, segment in enumerate(bins.segments):
        # The first branch that holds decides, so that a value below the end of this segment is in no segment before it.
        found = _place(segment.start, scale=1 / segment.width, before=before)
        is_last = at + 1 == len(bins.segments)
        branches.append((_compare("<" if not is_last else "<=", segment.end), found))
        before += segment.count
    # CASE WHEN v <= 0 THEN 0 WHEN v >= 600 THEN 1023
    #      WHEN v <= 600 THEN CAST(floor((v - 0) * 1.70667) AS BIGINT) ELSE 0 END
    number = writer.expression(Case(tuple(branches), Literal(0, BIGINT), BIGINT))
    # The product is a DOUBLE and may round up to the next bin: of 1,024 bins a value just below the end could be in bin
    # 1,024.
    return f"system.main.least(system.main.greatest({number}, 0), {last:d})"


def _compare(sign: str, number: Fraction) -> Expression:
    return Call(sign, (_VALUE, Literal(float(number), DOUBLE)), BOOLEAN)


def _place(start: Fraction, *, scale: Fraction, before: int) -> Expression:
    """Return how many bins are below a value, of which `before` are below `start`."""
    from_start = Call("-", (_VALUE, Literal(float(start), DOUBLE)), DOUBLE)
    number: Expression = Call("*", (from_start, Literal(float(scale), DOUBLE)), DOUBLE)
    if before:
        number = Call("+", (Call("floor", (number,), DOUBLE), Literal(float(before), DOUBLE)), DOUBLE)
    return Cast(Call("floor", (number,), DOUBLE), BIGINT)


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
    # What is materialized has sums within the policy's bounds; here rows count within the whole range `edges`.
    query = apply_passes(replace(query, materialized=()))
    measure = query.measures[0]
    if measure.argument is not None:
        condition = join_conjuncts([*split_conjuncts(query.body.where), *map(make_total, is_present(measure.argument))])
        query = replace(query, body=replace(query.body, where=condition))
        value = Call("neg", (measure.argument,), measure.argument.type) if negated else measure.argument
        measure = Measure(Aggregate.SUM, argument=value, bounds=edges)
    writer, names = open_writer(query), name_keys(query)
    steps = None if statistic is UnitStatistic.ROWS else build_row_steps(measure)
    columns = [] if steps is None else [(make_total(Cast(steps, DOUBLE)), "dpsql_row")]
    sql = compose(
        """
        SELECT dpsql_bin, CAST(system.main.count() AS BIGINT) AS dpsql_count
        FROM (SELECT {number} AS dpsql_bin FROM ({units}))
        GROUP BY dpsql_bin
        ORDER BY dpsql_bin ASC NULLS LAST
        """,
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
                base=read_rows(writer, query, names=names, columns=columns),
                pair=[*names, UNIT],
            ),
        ),
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


def _find_bin(column: str, ends: Sequence[int], *, first: int = 0) -> str:
    """Return the number of the bin of a column, by halves: the first whose end it does not exceed, or the last."""
    if not ends:
        return f"{first:d}"
    half = len(ends) // 2
    low, high = _find_bin(column, ends[:half], first=first), _find_bin(column, ends[half + 1 :], first=first + half + 1)
    return f"CASE WHEN {column} <= {ends[half]:d} THEN {low} ELSE {high} END"
