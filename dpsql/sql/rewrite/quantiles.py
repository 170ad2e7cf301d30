"""Engine SQL of quantiles: how much the rows of each group weigh in each bin.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.sql.ir.measures import Bins, Quantile
from dpsql.sql.ir.statements import Domain, PrivateQuery
from dpsql.sql.ir.transforms import canonicalize, make_total, widen, widen_presence
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
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contributions import UNIT, Bound
from dpsql.sql.rewrite.engine_query import EngineQuery, apply_passes, is_named, list_candidates

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
    names = [f"dpsql_key_{at}" for at in range(1, len(query.keys) + 1)]
    types = {name: each.type for name, each in zip((*names, UNIT), (*query.keys, query.unit), strict=True)}
    writer, ctes = writer_for(query.dialect, types), list[str]()
    rows = _read_rows(writer, query, quantile=quantile, names=names)
    where = is_named(writer, count.keys, names=names)
    if not count.keys:
        where = _restrict(writer, query.domain, names=names, ctes=ctes)
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
    names = [f"dpsql_key_{at}" for at in range(1, len(query.keys) + 1)]
    writer, ctes = writer_for(query.dialect), list[str]()
    sql = "SELECT CAST(0 AS BIGINT) AS dpsql_count"
    if names:
        _ = _restrict(writer, query.domain, names=names, ctes=ctes)
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


def _restrict(writer: Writer, domain: Domain | None, *, names: list[str], ctes: list[str]) -> str:
    return "" if domain is None else list_candidates(writer, domain, names=names, ctes=ctes)


def _find_wide(writer: Writer) -> str:
    """Return the type of rows times weights, which are below 2**57; where not all engines divide it, one that is."""
    return BIGINT.name if writer.native else writer.wide


def _read_rows(writer: Writer, query: PrivateQuery, *, quantile: Quantile, names: Sequence[str]) -> str:
    """Return the SELECT of keys, unit and value."""
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    value = writer.expression(make_total(widen(quantile.argument)))
    columns = [*keys, f"{unit} AS {UNIT}", f"{value} AS {_VALUE.name}"]
    return writer.select(columns, query.body, where=f"({unit} IS NOT NULL)")


def _weigh_apart(binned: str, count: BinCount, *, names: Sequence[str], ctes: list[str]) -> str:
    """Return the SELECT of keys, bin and weight, with a weight for each row of units that have few; in DuckDB alone.

    Few units have more rows than count, so that rows are grouped by unit and bin for these alone. DuckDB reads the rows
    once for all of it.
    """
    pair, rows = [*names, UNIT], count.quantile.rows
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
    rows, wide = count.quantile.rows, _find_wide(writer)
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
        found = _place(segment.start, scale=1 / segment.width, before=before)
        is_last = at + 1 == len(bins.segments)
        branches.append((_compare("<" if not is_last else "<=", segment.end), found))
        before += segment.count
    number = writer.expression(Case(tuple(branches), Literal(0, BIGINT), BIGINT))
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
