"""Contribution bounding: which groups of each unit count, and with which weight.

    keys and unit of each row ──▶ distinct pairs of group and unit, ranked by a draw ──▶ the first pairs of each unit

A unit's draws depend on its own rows and on two salts alone, so no other unit changes which of its groups count.

The number of units in any group is read beside each group. Every unit that adds to a group must raise it by exactly 1,
and no unit by more, in the very rows that the groups are counted from: a number from rows of another moment, or of some
groups alone, would be wrong. It is taken in one of two ways, and neither reads the rows of a table twice, since they
could change in between:

* The pairs of group and unit have a rank within their unit. Each unit has one pair of rank 1, and the groups' numbers
  of these pairs are added up over all groups.
* In DuckDB, which computes a CTE once, the units of such a CTE are counted beside the groups that are counted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last

UNIT = "dpsql_unit"
WEIGHT = "dpsql_weight"
RANK = "dpsql_rank"
DRAW = "dpsql_draw"
GROUPS = "dpsql_groups"
# In the logs measured, 90 % of the units have fewer groups: from this bound on, sorting only the others is faster.
MIN_GROUPS_SORTED_APART = 16
_ABOVE = "dpsql_pairs SEMI JOIN (SELECT dpsql_unit FROM dpsql_units WHERE dpsql_above) USING (dpsql_unit)"


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound on the groups of each unit, chosen by a hash under two 64-bit salts that are private to the session.

    With `counts_units` the bounded rows tell the number of units, as `BoundedRows` says.

    Enforced by `bound_contributions` (units), `weigh_contributions` (units with weights), and, where rows or sums are
    measured, by `dpsql_rank <= max_groups_contributed` in `_add_measures` and `_weigh_measures` of `engine_query.py`.
    The same number goes into the noise and the price by `price_items` (`plan/mechanisms/base.py`).
    """

    max_groups_contributed: int
    salts: tuple[int, int]
    counts_units: bool = False


@dataclass(frozen=True, slots=True)
class UnitRows:
    """SELECT of the canonical keys `names` and of UNIT, which is never NULL.

    With `ranked`, the rows are distinct and have two more columns: RANK, the rank of the row within its unit, and
    GROUPS, the number of rows of the unit.
    """

    sql: str
    names: Sequence[str]
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """SQL of the bounded rows: `source` selects keys and unit, one row per selected group of a unit, over `ctes`.

    Where the units are counted, `units` is a CTE with one row for each of them; without one, the rows of `source` have
    their RANK within their unit, from 1.
    """

    ctes: tuple[str, ...]
    source: str
    units: str = ""


def select_pairs(writer: Writer, rows: UnitRows) -> str:
    """Return the SQL for the distinct pairs of group and unit."""
    gathered = writer.gather(rows.sql, rows.names, unit=UNIT)
    return compose("SELECT DISTINCT {columns} FROM ({rows})", columns=[*rows.names, UNIT], rows=gathered)


def rank_pairs(
    writer: Writer,
    pairs: str,
    *,
    names: Sequence[str],
    salts: tuple[int, int] | None,
    parts: Sequence[str] | None = None,
) -> str:
    """Return the SQL for a relation of distinct pairs with the RANK of each pair within its unit, from 1.

    Pairs are ranked by their draw under the salts, or without salts by their keys. `parts` are further columns of the
    pairs, which may have others too. From lists they have GROUPS as well.
    """
    by = [] if salts is None else [writer.draw(names, UNIT, salts=salts)]
    if writer.lists:
        # from a list for each unit that is sorted by the draw:
        # SELECT dpsql_pair[1] AS dpsql_key_1, dpsql_unit, dpsql_rank, dpsql_groups
        # FROM (SELECT dpsql_unit, unnest(dpsql_list) AS dpsql_pair, position AS dpsql_rank, length AS dpsql_groups
        #       FROM (SELECT dpsql_unit, list of (draw, dpsql_key_1) AS dpsql_list FROM pairs GROUP BY dpsql_unit))
        form, columns = writer.list_form, [*names, *(parts or ())]
        return compose(
            """
            SELECT {fields}, dpsql_unit, dpsql_rank, dpsql_groups
            FROM (
                SELECT dpsql_unit, {rows} AS dpsql_pair, {positions} AS dpsql_rank, {length} AS dpsql_groups
                FROM (SELECT dpsql_unit, {list} AS dpsql_list FROM {pairs} GROUP BY dpsql_unit)
            )
            """,
            rows=form("list_rows", "dpsql_list"),
            positions=form("list_positions", "dpsql_list"),
            length=form("list_length", "dpsql_list"),
            list=form("list", *by, *columns),
            fields=[
                f"{form('list_field', 'dpsql_pair', str(at))} AS {name}" for at, name in enumerate(columns, len(by))
            ],
            pairs=pairs,
        )
    columns = [*names, UNIT] if parts is None else ["*"]
    if by and not writer.native:  # some engines compute what a window sorts by more than once, unless it is a column
        pairs = compose("(SELECT {columns}, {draw} AS dpsql_draw FROM {pairs})", columns=columns, draw=by, pairs=pairs)
        by = [DRAW]
    # SELECT dpsql_key_1, dpsql_unit,
    #        row_number() OVER (PARTITION BY dpsql_unit ORDER BY draw, dpsql_key_1 ASC NULLS LAST) AS dpsql_rank
    # FROM pairs
    return compose(
        """
        SELECT {columns}, system.main.row_number() OVER (PARTITION BY dpsql_unit ORDER BY {order}) AS dpsql_rank
        FROM {pairs}
        """,
        columns=columns,
        order=[*by, sort_nulls_last(names)],
        pairs=pairs,
    )


def count_groups_of_units(writer: Writer, ranked: str) -> str:
    """Return the SQL for ranked pairs with GROUPS, the number of pairs of their unit, which lists have already."""
    if writer.lists:
        return ranked
    return compose(
        "SELECT *, system.main.count() OVER (PARTITION BY dpsql_unit) AS dpsql_groups FROM ({ranked})", ranked=ranked
    )


def bound_contributions(writer: Writer, rows: UnitRows, *, bound: Bound) -> BoundedRows:
    """Return the first groups of each unit by their draws."""
    # With `counts_units`, a unit is counted by its pair of rank 1, which a bound of 1 or more keeps.
    columns, ranks = [*rows.names, UNIT], [RANK] * bound.counts_units
    if bound.max_groups_contributed == 1 and writer.native and not ranks and not rows.ranked:
        # the fields of the minimum struct of (draw, keys) of each unit:
        # SELECT struct_extract_at(dpsql_least, 2) AS dpsql_key_1, dpsql_unit
        # FROM (SELECT dpsql_unit, min(row(draw, dpsql_key_1)) AS dpsql_least FROM (rows) GROUP BY dpsql_unit)
        least = compose(
            """
            SELECT {keys}, dpsql_unit
            FROM (
                SELECT dpsql_unit, system.main.min(system.main.row({draw}, {names})) AS dpsql_least
                FROM ({rows})
                GROUP BY dpsql_unit
            )
            """,
            keys=(f"system.main.struct_extract_at(dpsql_least, {at}) AS {key}" for at, key in enumerate(rows.names, 2)),
            draw=writer.draw(rows.names, UNIT, salts=bound.salts),
            names=rows.names,
            rows=rows.sql,
        )
        return BoundedRows((), least)
    if rows.ranked or bound.max_groups_contributed < MIN_GROUPS_SORTED_APART or not writer.native:
        # all pairs are ranked in one pass:
        # SELECT dpsql_key_1, dpsql_unit FROM (SELECT ..., dpsql_rank FROM (pairs)) WHERE dpsql_rank <= 3
        ranked = rows.sql
        if not rows.ranked:
            ranked = rank_pairs(writer, f"({select_pairs(writer, rows)})", names=rows.names, salts=bound.salts)
        return BoundedRows((), _select_first(ranked, [*columns, *ranks], bound=bound))
    # only the pairs of units above the bound are drawn and sorted:
    # WITH dpsql_pairs AS (SELECT DISTINCT dpsql_key_1, dpsql_unit FROM (rows)),
    #      dpsql_above AS (SELECT dpsql_unit FROM dpsql_pairs GROUP BY dpsql_unit HAVING count() > 20)
    # SELECT dpsql_key_1, dpsql_unit FROM dpsql_pairs ANTI JOIN dpsql_above USING (dpsql_unit)
    # UNION ALL SELECT dpsql_key_1, dpsql_unit FROM (the other pairs, ranked) WHERE dpsql_rank <= 20
    if bound.counts_units:
        units = _list_units(bound)
        above, of_all = _ABOVE, "dpsql_units"
        within = "(SELECT dpsql_unit FROM dpsql_units WHERE dpsql_above)"
    else:
        units = compose(
            """
            dpsql_above AS MATERIALIZED (
                SELECT dpsql_unit FROM dpsql_pairs GROUP BY dpsql_unit HAVING system.main.count() > {groups}
            )
            """,
            groups=bound.max_groups_contributed,
        )
        above, within, of_all = "dpsql_pairs SEMI JOIN dpsql_above USING (dpsql_unit)", "dpsql_above", ""
    first = compose(
        """
        SELECT {columns} FROM dpsql_pairs ANTI JOIN {above} USING (dpsql_unit)
        UNION ALL
        {first}
        """,
        columns=columns,
        above=within,
        first=_select_first(rank_pairs(writer, above, names=rows.names, salts=bound.salts), columns, bound=bound),
    )
    return BoundedRows((f"dpsql_pairs AS MATERIALIZED ({select_pairs(writer, rows)})", units), first, of_all)


def _list_units(bound: Bound, weight: str = "") -> str:
    """Return the CTE of the units, which says of each whether it is above the bound, after its weight if there is one.

    dpsql_units: dpsql_unit, dpsql_weight, dpsql_above
    """
    return compose(
        """
        dpsql_units AS MATERIALIZED (
            SELECT {columns}, system.main.count() > {groups} AS dpsql_above FROM dpsql_pairs GROUP BY dpsql_unit
        )
        """,
        columns=[UNIT, *([f"{weight} AS dpsql_weight"] if weight else [])],
        groups=bound.max_groups_contributed,
    )


def _select_first(ranked: str, columns: Sequence[str], *, bound: Bound) -> str:
    """Return the SQL for the pairs of the first ranks."""
    template = "SELECT {columns} FROM ({ranked}) WHERE dpsql_rank <= {groups}"
    return compose(template, columns=columns, ranked=ranked, groups=bound.max_groups_contributed)


def weigh_contributions(
    writer: Writer, rows: UnitRows, *, bound: Bound, weights: Sequence[int], of_all: bool = False
) -> BoundedRows:
    """Bound the groups of each unit as `bound_contributions` does, and return WEIGHT in place of the unit.

    A unit with t selected groups has the weight weights[t - 1], an integer below 2**31, in each of them; `weights` has
    one item for every t up to the bound. `of_all` selects every pair, with the weight 0 if the bound drops it. A weight
    depends on the number of groups of a unit. In DuckDB the distinct pairs are therefore materialized and read twice
    under every bound, and only the units above it are drawn and sorted.

    Other engines rank all pairs, from which the weights follow, in one pass over the table. They may evaluate a CTE
    twice, and the table may change in between. A unit could then get the large weight of few groups and add it to many.
    """
    first = f"dpsql_rank <= {bound.max_groups_contributed:d}"
    if rows.ranked or not writer.native:
        weight = writer.looked_up(
            writer.listed(weights), f"system.main.least(dpsql_groups, {bound.max_groups_contributed:d})"
        )
        ranked = rows.sql
        if not rows.ranked:
            pairs = f"({select_pairs(writer, rows)})"
            ranked = count_groups_of_units(writer, rank_pairs(writer, pairs, names=rows.names, salts=bound.salts))
        weight = f"CASE WHEN {first} THEN {weight} ELSE 0 END" if of_all else weight
        weighed = compose(
            "SELECT {columns} FROM ({ranked})\nWHERE {first}",
            columns=[*rows.names, f"{weight} AS dpsql_weight", *[RANK] * bound.counts_units],
            ranked=ranked,
            first="" if of_all else first,
        )
        return BoundedRows((), weighed)
    listed = writer.listed(weights)
    # weights[least(count(), 3)] AS dpsql_weight: a unit above the bound has 3 selected groups, and the third weight.
    own = writer.looked_up(listed, f"system.main.least(system.main.count(), {bound.max_groups_contributed:d})")
    ctes = f"dpsql_pairs AS MATERIALIZED ({select_pairs(writer, rows)})", _list_units(bound, own)
    cut = rank_pairs(writer, _ABOVE, names=rows.names, salts=bound.salts)
    least = writer.looked_up(listed, f"{bound.max_groups_contributed:d}")
    weighed = compose(
        """
        SELECT {keys}, dpsql_weight FROM dpsql_pairs JOIN dpsql_units USING (dpsql_unit) WHERE NOT dpsql_above
        UNION ALL
        SELECT {keys}, {weight} AS dpsql_weight FROM ({cut})
        """,
        keys=rows.names,
        weight=f"CASE WHEN {first} THEN {least} ELSE 0 END" if of_all else least,
        cut=cut if of_all else _select_first(cut, [*rows.names, UNIT], bound=bound),
    )
    return BoundedRows(ctes, weighed, "dpsql_units")


def rank_item_rows(
    writer: Writer, rows: str, *, names: Sequence[str], salts: tuple[int, int] | None, counted: bool = False
) -> str:
    """Return the SQL for a relation of rows with RANK, the rank of their pair within the unit, from 1.

    Pairs are ranked as `rank_pairs` does. With `counted` the rows have GROUPS, too.
    """
    by = [] if salts is None else ["dpsql_draw"]
    if by:
        draw = writer.draw(names, UNIT, salts=salts or (0, 0))
        rows = compose("(SELECT *, {draw} AS dpsql_draw FROM {rows})", draw=draw, rows=rows)
    ranked = compose(
        "SELECT *, system.main.dense_rank() OVER (PARTITION BY dpsql_unit ORDER BY {order}) AS dpsql_rank FROM {rows}",
        order=[*by, sort_nulls_last(names)],
        rows=rows,
    )
    if not counted:
        return ranked
    return compose(
        "SELECT *, CAST({last} OVER (PARTITION BY dpsql_unit) AS BIGINT) AS dpsql_groups FROM ({ranked})",
        last="system.main.max(dpsql_rank)",
        ranked=ranked,
    )
