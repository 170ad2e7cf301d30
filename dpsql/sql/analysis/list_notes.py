"""Notes on rankings where SQL promises more groups: lists that are cut, and what is computed from released rows.

They depend on the statement and the policy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.dialects import write_name
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.list_notes import CutList
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery, count_groups
from dpsql.sql.ir.types import Family
from dpsql.sql.lexer import ascii_lower

__all__ = ["ListReading", "describe_cut", "describe_released", "find_public_column", "has_all_groups"]

_MORE = 10  # times as many groups are proposed


def has_all_groups(query: PrivateQuery) -> bool:
    """Say whether the text and the policy show that every group of a query is released."""
    if query.clause.shape != "top":
        return True
    known = None if query.partitions is not None else count_groups(query.domain)
    return known is not None and query.clause.k is not None and known <= query.clause.k


@dataclass(frozen=True, slots=True)
class ListReading:
    """How a statement of standard SQL asks for a ranking: `asked` is the number of groups that it wants, None for all.

    It may ask for `max_k`. `may_have_clause` says that a clause may be written into it: it has no WITH
    DIFFERENTIAL_PRIVACY, and no other private query, which could not stay without a clause. `after` is where the clause
    belongs in a query inside parentheses, such as "after GROUP BY country"; "" for a query that is the statement.
    """

    asked: int | None
    max_k: int
    may_have_clause: bool = True
    after: str = ""


def describe_cut(query: PrivateQuery, reading: ListReading, *, catalog: Catalog) -> CutList:
    """Return what an answer has of the groups that SQL promises, and what to write for others."""
    k, asked, after = query.clause.k or 0, reading.asked, reading.after
    rank = "largest" if query.measures[0].aggregate is Aggregate.SUM else "most frequent"
    of = "all groups" if asked is None else f"the {asked:,} groups that LIMIT asks for"
    order = _write_order(query)
    found = CutList(f"the {k} {rank} of {of}", k, alone="" if order is None else f"{order}LIMIT {k} for these alone")
    if after:
        is_at_end = not query.order and asked is None
        found = replace(found, place=f"inside the parentheses{f', {after},' if is_at_end else ''} ")
    if not reading.may_have_clause:
        return found
    where = " before ORDER BY" if query.order else " before LIMIT" if asked is not None else ""
    where = where or ("" if after else " at the end of the query")
    is_counted = len(query.keys) == 1 and query.releases_counts
    public = find_public_column(query, 0, catalog=catalog) if is_counted else ""
    every = f"ALL PRIVATE WITH (domain = '{public}'){where} for all of {public}" if public else ""
    more = min(reading.max_k, k * _MORE if asked is None or asked > k * _MORE else asked)
    return replace(found, more=more, where=where, every=every)


def _write_order(query: PrivateQuery) -> str | None:
    """Return the ORDER BY that LIMIT needs, "" where it needs none; None where the measure has no name to order by."""
    if not query.order or query.outputs[query.order[0].output].key is None:
        return ""
    names = [each.name for each in query.outputs if each.key is None and not each.measure and each.divisor is None]
    name = next(iter(names), "")
    return f"ORDER BY {name} DESC " if name.isidentifier() and name.isascii() else None


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
