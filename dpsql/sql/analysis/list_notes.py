"""Notes on rankings of which SQL means more: lists that are cut, and what is computed from released rows.

They depend on the text and the policy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.dialects import write_name
from dpsql.sql.ir.catalog import Catalog
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
    """How a statement of standard SQL asks for a ranking: for so many groups, `asked`, None for all.

    It may ask for `max_k`. `may_have_clause` says that a clause may be written into it: it has no WITH
    DIFFERENTIAL_PRIVACY, and no other private query, which could not stay without a clause.
    """

    asked: int | None
    max_k: int
    may_have_clause: bool = True


def describe_cut(query: PrivateQuery, reading: ListReading, *, catalog: Catalog) -> str:
    """Return what an answer has of the groups that SQL promises, and what to write for others."""
    k, asked = query.clause.k or 0, reading.asked
    rank = "largest" if query.measures[0].aggregate is Aggregate.SUM else "most frequent"
    of = "all groups" if asked is None else f"the {asked:,} groups that LIMIT asks for"
    hints = [f"{order}LIMIT {k} for these alone"] if (order := _write_order(query)) is not None else []
    if reading.may_have_clause:
        more = min(reading.max_k, k * _MORE if asked is None or asked > k * _MORE else asked)
        where = "before ORDER BY" if query.order else "at the end of the query" if asked is None else "before LIMIT"
        hints += [f"TOP {more} PRIVATE {where} for more"] if more > k else []
        is_counted = len(query.keys) == 1 and query.releases_counts
        public = find_public_column(query, 0, catalog=catalog) if is_counted else ""
        hints += [f"ALL PRIVATE WITH (domain = '{public}') there for all of {public}"] if public else []
    found = f"the {k} {rank} of {of}"
    *most, last = hints or [""]
    return f"{found}; write {', '.join(most)}{' or ' if most else ''}{last}" if hints else found


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
