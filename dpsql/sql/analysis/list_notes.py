"""Notes on rankings of which SQL means more: lists that are cut, and what is computed from released rows.

They depend on the text and the policy alone.
"""

from __future__ import annotations

from dpsql.dialects import write_name
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery, count_groups
from dpsql.sql.ir.types import Family
from dpsql.sql.lexer import ascii_lower

__all__ = ["describe_cut", "describe_released", "find_public_column", "has_all_groups"]

_MORE = 10  # times as many groups are proposed


def has_all_groups(query: PrivateQuery) -> bool:
    """Say whether the text and the policy show that every group of a query is released."""
    if query.clause.shape != "top":
        return True
    known = None if query.partitions is not None else count_groups(query.domain)
    return known is not None and query.clause.k is not None and known <= query.clause.k


def describe_cut(query: PrivateQuery, asked: int | None, *, catalog: Catalog, max_k: int) -> str:
    """Return what an answer has of the groups that SQL promises, and what to write for others.

    The statement asks for so many groups, None for all.
    """
    k = query.clause.k or 0
    rank = "largest" if query.measures[0].aggregate is Aggregate.SUM else "most frequent"
    of = "all groups" if asked is None else f"the {asked:,} groups of LIMIT"
    more = min(max_k, k * _MORE if asked is None or asked > k * _MORE else asked)
    hints = [f"LIMIT {k} for these alone"]
    hints += [f"TOP {more} PRIVATE before ORDER BY for more"] if more > k else []
    public = find_public_column(query, 0, catalog=catalog) if len(query.keys) == 1 and query.releases_counts else ""
    hints += [f"ALL PRIVATE WITH (domain = '{public}') there for all of {public}"] if public else []
    *most, last = hints
    return f"the {k} {rank} of {of}; write {', '.join(most)}{' or ' if most else ''}{last}"


def describe_released(query: PrivateQuery) -> str:
    """Return that a SELECT around a ranking computes from its released rows."""
    k = query.clause.k
    rows = "the released rows" if k is None else f"at most {k} released {'row' if k == 1 else 'rows'}"
    per = next((each.name for each in query.outputs if query.partitions and each.key == query.partitions.key), "")
    return f"computed over {rows}{f' of each {write_name(per)}' if per else ''}: other groups are left out"


def find_public_column(query: PrivateQuery, key: int, *, catalog: Catalog) -> str:
    """Return the column of a public table that has the name and the kind of a key; "" without one."""
    names = {ascii_lower(output.name) for output in query.outputs if output.key == key}
    names |= {ascii_lower(query.key_column[1])} if query.key_column is not None else set()
    family = query.keys[key].type.family
    for table in catalog.tables:
        for column, type_ in table.columns if table.privacy_unit is None else ():
            if ascii_lower(column) in names and type_.family is family is not Family.OPAQUE:
                return f"{table.name}.{column}"
    return ""
