"""Order of the groups that an engine returns, and which of them: the first ones, those of partitions, or a cut.

A cut leaves the groups of a value or more, and few others, by their places. A place is the number of a group in the
order of the keys, from 1, among all groups of the statement; groups that the statement names have 0 in its place. Which
places are returned is bound to parameters: so many places, in ascending order, and then the last place after which all
are. Without places drawn these are zeros, and every group is returned. The first place is always returned: a number
that stands beside every group, as that of all units does, must be read whatever the groups are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.statements import GroupCut
from dpsql.sql.ir.tree import Expression, Literal
from dpsql.sql.ir.visitor import canonicalize
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last

__all__ = ["cut_groups", "select_leading_groups", "sort_groups"]


def sort_groups(groups: str, order: str, *, key: str) -> str:
    """Return the SELECT of all groups by `order`; with a `key` of partitions, with the position of their partition."""
    if not key:
        return compose("{groups}\nORDER BY {order}", groups=groups, order=order)
    return compose("SELECT * FROM ({positioned}) ORDER BY {order}", positioned=_add_position(groups, key), order=order)


def select_leading_groups(
    writer: Writer, groups: str, *, order: str, rows: int, key: str, columns: Sequence[str]
) -> str:
    """Return the SELECT of the first `rows` groups by `order`.

    With a `key` of partitions these are the first ones of each of them, partition by partition, with its position as
    the last of the `columns`.
    """
    if not key:
        return compose("{groups}\nORDER BY {order}\nLIMIT {rows}", groups=groups, order=order, rows=rows)
    template = """
        SELECT * FROM ({groups})
        QUALIFY system.main.row_number() OVER (PARTITION BY dpsql_position ORDER BY {order}) <= {rows}
        ORDER BY dpsql_position, {order}
        """
    if not writer.native:
        template = """
        SELECT {columns}, dpsql_position
        FROM (
            SELECT {columns}, dpsql_position,
            system.main.row_number() OVER (PARTITION BY dpsql_position ORDER BY {order}) AS dpsql_rank
            FROM ({groups})
        )
        WHERE dpsql_rank <= {rows}
        ORDER BY dpsql_position, {order}
        """
    return compose(template, columns=columns, groups=_add_position(groups, key), order=order, rows=rows)


def _add_position(groups: str, key: str) -> str:
    """Return the SELECT of groups with the position of the partition of each as the last column."""
    return compose(
        "SELECT dpsql_counted.*, dpsql_position FROM ({groups}) AS dpsql_counted JOIN dpsql_partitions USING ({key})",
        groups=groups,
        key=key,
    )


def cut_groups(
    writer: Writer, groups: str, *, cut: GroupCut, names: Sequence[str], measures: Sequence[str], ranked: str
) -> tuple[str, int | None]:
    """Return the SELECT of the groups that are left of `groups`, and the index of the first parameter of the places.

    The columns of `groups` are names and measures, to which dpsql_place is added, 0 for groups that the cut names. The
    cut is of the column `ranked`; the first of the measures is the count. Of groups that are all named there are no
    places. A cut at 12 with two places, of the three groups with the highest counts, is

    SELECT dpsql_key_1, dpsql_count, dpsql_number AS dpsql_place
    FROM (SELECT *, row_number() OVER (ORDER BY dpsql_key_1) AS dpsql_number,
                 row_number() OVER (ORDER BY dpsql_count DESC, dpsql_key_1) AS dpsql_leader FROM groups)
    WHERE dpsql_count >= 12 OR dpsql_number IN ($1, $2) OR dpsql_number > $3 OR dpsql_number <= 1 OR dpsql_leader <= 3
    """
    keys, last = sort_nulls_last(names), cut.places
    named = _is_named(writer, cut.names, names=names)
    numbers = [f"system.main.row_number() OVER (ORDER BY {keys}) AS dpsql_number"]
    if cut.value is None:
        cut_sql = compose(
            "SELECT {columns} FROM (SELECT *, {number} FROM ({groups})) WHERE ({named} OR dpsql_number <= 1)",
            columns=[*names, *measures],
            number=numbers,
            groups=groups,
            named=named,
        )
        return cut_sql, None
    start = len(writer.parameters)
    bound = [f"CAST({writer.bind(0)} AS BIGINT)" for _ in range(last + 1)]
    conditions = [
        f"{ranked} >= {cut.value:d}",
        f"dpsql_number IN ({', '.join(bound[:last])})",
        f"dpsql_number > {bound[last]}",
        "dpsql_number <= 1",
    ]
    for most, name, column in ((cut.leaders, "dpsql_leader", measures[0]), (cut.heaviest, "dpsql_heaviest", ranked)):
        if most:
            numbers.append(f"system.main.row_number() OVER (ORDER BY {column} DESC, {keys}) AS {name}")
            conditions.append(f"{name} <= {most:d}")
    rows, place = compose("SELECT *, {numbers} FROM ({groups})", numbers=numbers, groups=groups), "dpsql_number"
    if named:
        rows = compose(
            "SELECT *, CASE WHEN {named} THEN 1 ELSE 0 END AS dpsql_named FROM ({rows})", named=named, rows=rows
        )
        conditions.append("dpsql_named >= 1")
        place = "CASE WHEN dpsql_named <= 0 THEN dpsql_number ELSE 0 END"
    cut_sql = compose(
        "SELECT {columns}, {place} AS dpsql_place FROM ({rows}) WHERE ({conditions})",
        columns=[*names, *measures],
        place=place,
        rows=rows,
        conditions=" OR ".join(conditions),
    )
    return cut_sql, start


def _is_named(writer: Writer, listed: Sequence[Sequence[Expression]], *, names: Sequence[str]) -> str:
    """Return the condition that the keys of a group are those of one of the listed names; "" for none."""
    if not listed:
        return ""
    if len(names) > 1:
        matches = [
            " AND ".join(_has_key(writer, name, value=key) for name, key in zip(names, keys, strict=True))
            for keys in listed
        ]
        return f"({' OR '.join(matches)})"
    values = [writer.expression(canonicalize(key)) for (key,) in listed if not _is_null(key)]
    matches = [f"{names[0]} IN ({', '.join(values)})"] if values else []
    return f"({' OR '.join([*matches, *[f'{names[0]} IS NULL'] * (len(values) < len(listed))])})"


def _has_key(writer: Writer, name: str, *, value: Expression) -> str:
    return f"{name} IS NULL" if _is_null(value) else f"{name} = {writer.expression(canonicalize(value))}"


def _is_null(value: Expression) -> bool:
    return isinstance(value, Literal) and value.value is None
