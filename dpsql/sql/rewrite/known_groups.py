"""Groups whose names are known: candidates of a known domain, the partitions that PER lists, and the cut by names.

What is known comes from the text, from public tables or from earlier answers, never from the rows that are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.statements import Domain, GroupCut, KeyDomain, Partitions, TableDomain, list_factors
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import Expression, Literal
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.rewrite.bounding import UNIT, Bound, UnitRows, bound_contributions


def list_candidates(writer: Writer, domain: Domain, *, names: list[str], ctes: list[str]) -> str:
    """Add the CTEs of the candidates of the known domain, and return the condition that the keys of a row are there.

    WITH dpsql_domain AS (SELECT DISTINCT dpsql_key_1 FROM (VALUES ('Paris'), ('Rome')) AS dpsql_listed(dpsql_key_1)
                          WHERE dpsql_key_1 IS NOT NULL)
    ... WHERE dpsql_key_1 IN (SELECT dpsql_key_1 FROM dpsql_domain)

    With several keys dpsql_domain has all combinations of the values in dpsql_domain_1, dpsql_domain_2 and so on.
    """
    factors, tables = list_factors(domain), list[str]()
    for at, (factor, name) in enumerate(zip(factors, names, strict=True)):
        tables.append(_name_factor(at, factors))
        ctes.append(f"{tables[-1]} AS MATERIALIZED ({_build_values(writer, factor, name=name)})")
    if len(tables) > 1:
        product = "dpsql_domain AS MATERIALIZED (SELECT {keys} FROM {tables})"
        ctes.append(compose(product, keys=names, tables=" CROSS JOIN ".join(tables)))
    return is_candidate(domain, names)


def _build_values(writer: Writer, domain: KeyDomain, *, name: str) -> str:
    """Return the SQL for the distinct values of a key; NULL is among them only where the query says so."""
    if isinstance(domain, TableDomain):
        values = writer.select([f"{writer.expression(domain.value)} AS {name}"], domain.body)
    elif (times := writer.list_times(domain.values, name)) is not None:
        values = times
    else:
        rows = (f"({writer.expression(value)})" for value in domain.values)
        values = compose("SELECT {name} FROM (VALUES {rows}) AS dpsql_listed({name})", name=name, rows=rows)
    present = "" if domain.has_null else f"{name} IS NOT NULL"
    template = "SELECT DISTINCT {name} FROM ({values})\nWHERE {present}"
    return compose(template, name=name, values=values, present=present)


def _name_factor(at: int, factors: Sequence[object]) -> str:
    """Return the name of the CTE of the values of one key."""
    return "dpsql_domain" if len(factors) == 1 else f"dpsql_domain_{at + 1}"


def is_candidate(domain: Domain, names: list[str]) -> str:
    """Return the condition that the keys of a row have values of the domain."""
    factors = list_factors(domain)
    parts = []
    for at, (factor, name) in enumerate(zip(factors, names, strict=True)):
        listed = compose("{name} IN (SELECT {name} FROM {table})", name=name, table=_name_factor(at, factors))
        parts.append(f"({name} IS NULL OR {listed})" if factor.has_null else listed)
    return " AND ".join(parts)


def filter_partitions(
    writer: Writer,
    base: str,
    *,
    names: Sequence[str],
    partitions: Partitions,
    ctes: list[str],
    parts: Sequence[str] = (),
) -> str:
    """Drop the rows of `base` outside the listed partitions and, with salts, bound each unit to one partition.

    `base` selects the canonical keys `names`, UNIT and `parts`, of which each pair of group and unit then has one row.
    Add the CTEs, and return the SELECT over them. The partition of a unit depends only on its own rows, the list and
    the salts of the session: it is the value with the minimum draw, ties broken by the value, as under a contribution
    bound of one group. A unit therefore adds to counts of one partition only, for all data, and the choice for another
    unit does not depend on it.
    """
    key, columns = names[partitions.key], [*names, UNIT, *parts]
    values = [writer.expression(canonicalize(value)) for value in partitions.values]
    ctes.append(
        compose(
            """
            dpsql_partitions AS MATERIALIZED (
                SELECT * FROM (VALUES {rows}) AS dpsql_listed({key}, dpsql_position)
            )
            """,
            rows=(f"({value}, CAST({position} AS BIGINT))" for position, value in enumerate(values)),
            key=key,
        )
    )
    # WITH dpsql_partitions AS (
    #     SELECT * FROM (VALUES ('DE', 0), ('FR', 1)) AS dpsql_listed(dpsql_key_1, dpsql_position))
    # SELECT dpsql_key_1, dpsql_key_2, dpsql_unit FROM (rows)
    # WHERE dpsql_key_1 IN (SELECT dpsql_key_1 FROM dpsql_partitions)
    inside = compose(
        "SELECT {columns} FROM ({base}) WHERE {key} IN (SELECT {key} FROM dpsql_partitions)",
        columns=columns,
        base=base,
        key=key,
    )
    if partitions.salts is None:
        return inside
    distinct = "dpsql_rows AS MATERIALIZED (SELECT DISTINCT {columns} FROM ({inside}))"
    ctes.append(compose(distinct, columns=columns, inside=inside))
    # with salts, of these rows those of the one partition that each unit has drawn:
    # SELECT dpsql_key_1, dpsql_key_2, dpsql_unit
    # FROM dpsql_rows SEMI JOIN (the partition of the least draw of each unit) USING (dpsql_key_1, dpsql_unit)
    rows = UnitRows(compose("SELECT {key}, dpsql_unit FROM dpsql_rows", key=key), [key])
    own = bound_contributions(writer, rows, bound=Bound(1, partitions.salts))
    ctes.extend(own.ctes)
    return compose(
        "SELECT {columns} FROM dpsql_rows {semi} JOIN ({own}) AS dpsql_own USING ({key}, dpsql_unit)",
        columns=columns,
        semi=writer.semi,
        own=own.source,
        key=key,
    )


def cut_groups(
    writer: Writer, groups: str, *, cut: GroupCut, names: Sequence[str], measures: Sequence[str], ranked: str
) -> tuple[str, int | None]:
    """Return the SELECT of the groups that are left of `groups`, and the index of the first parameter of the places.

    A cut leaves the groups of a value or more, and few others, by their places. A place is the number of a group in the
    order of the keys, from 1, among all groups of the statement; groups that the statement names have 0 in its place.
    Which places are returned is bound to parameters: so many places, in ascending order, and then the last place after
    which all are. Without places drawn these are zeros, and every group is returned. The first place is always
    returned: a number that stands beside every group, as that of all units does, must be read whatever the groups are.

    The columns of `groups` are names and measures, to which dpsql_place is added, 0 for groups that the cut names. The
    cut is of the column `ranked`. Of groups that are all named there are no places. A cut at 12 with two places is

    SELECT dpsql_key_1, dpsql_count, dpsql_number AS dpsql_place
    FROM (SELECT *, row_number() OVER (ORDER BY dpsql_key_1) AS dpsql_number FROM groups)
    WHERE dpsql_count >= 12 OR dpsql_number IN ($1, $2) OR dpsql_number > $3 OR dpsql_number <= 1
    """
    keys, last = sort_nulls_last(names), cut.places
    named = is_named(writer, cut.names, names=names)
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


def is_named(writer: Writer, listed: Sequence[Sequence[Expression]], *, names: Sequence[str]) -> str:
    """Return the condition that the keys of a group are those of one of the listed names; "" for none."""
    if not listed:
        return ""

    def has_key(name: str, key: Expression) -> str:
        is_null = isinstance(key, Literal) and key.value is None
        return f"{name} IS NULL" if is_null else f"{name} = {writer.expression(canonicalize(key))}"

    if len(names) > 1:
        matches = [" AND ".join(map(has_key, names, keys)) for keys in listed]
        return f"({' OR '.join(matches)})"
    # city IN ('Rome', NULL) is never true of NULL: it becomes (city IN ('Rome') OR city IS NULL).
    present = [key for (key,) in listed if not (isinstance(key, Literal) and key.value is None)]
    values = ", ".join([writer.expression(canonicalize(key)) for key in present])
    matches = [f"{names[0]} IN ({values})"] if present else []
    return f"({' OR '.join([*matches, *[f'{names[0]} IS NULL'] * (len(present) < len(listed))])})"
