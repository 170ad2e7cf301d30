"""PER key: the first k groups for each value of a key with public values, from a list or a public table.

The number of values decides the price of a query, so values of a public table are read before it is planned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.errors import Refusal
from dpsql.sql.analysis.domain import convert_values, find_values, read_values
from dpsql.sql.analysis.lineage import find_sole_column
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import LiteralDomain, Name, Partitions, PrivateQuery, PublicQuery, TableDomain
from dpsql.sql.ir.tree import Literal
from dpsql.sql.syntax.options import MAX_LISTED

__all__ = ["find_partition_query", "read_partitions", "set_partition_values"]

_OPTION = "partitions"


def read_partitions(query: PrivateQuery, named: int | None, *, catalog: Catalog) -> PrivateQuery:
    """Return the query with the partitions of its clause; `named` is the key that PER names, if it is one.

    Raises `Refusal` for PER without partitions, and the reverse, and where no other key is left to rank.
    """
    per, option = query.clause.per, query.clause.options.get(_OPTION)
    if per is None and option is None:
        return query
    if per is None or option is None:
        place = query.clause.place if option is None else option.place
        reason = "PER needs the public list of its partitions." if per is not None else "partitions belong to PER."
        raise Refusal("per", reason, hint=_show_form(query, None if named is None else per), place=place)
    if named is None:
        raise Refusal("per", "PER names no key of this query.", hint=_show_form(query, None), place=per.place)
    if len(query.keys) == 1:
        hint = "Group by another key too, or leave PER out and write domain in place of partitions."
        raise Refusal("per", "There is no other key to rank in each partition.", hint=hint, place=per.place)
    if "domain" in query.clause.options:
        hint = "Leave domain out: partitions says which values PER's key has."
        raise Refusal("domain", "A known domain does not go with PER.", hint=hint, place=per.place)
    key = query.keys[named]
    found = Partitions(named, (), option.place, column=find_sole_column(key, query.body.source, catalog=catalog))
    values = read_values(_OPTION, option, key=key, catalog=catalog)
    found = (
        replace(found, source=values) if isinstance(values, TableDomain) else replace(found, values=_ordered(values))
    )
    return replace(query, partitions=found)


def _show_form(query: PrivateQuery, per: Name | None) -> str:
    """Return a hint with a clause of this query: by the key that PER names or, without one, by its first key."""
    shown = [output.name for output in query.outputs if output.key is not None]
    name = per.text if per is not None else next(iter(shown), "country")
    top = "ADAPTIVE" if query.clause.k is None else query.clause.k
    clause = f"TOP {top} PRIVATE PER {name} WITH (partitions = ['first', 'second'])"
    return f"Write {clause}, with the values of {name} that you want."


def find_partition_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the partitions that a public table holds, as text; None where they are known."""
    source = None if query.partitions is None else query.partitions.source
    return None if source is None else find_values(_OPTION, source, most=MAX_LISTED)


def set_partition_values(query: PrivateQuery, texts: Iterable[str | None]) -> PrivateQuery:
    """Return the query with the partitions that its public table holds; NULL is none of them.

    Raises `Refusal` where there are none, or too many.
    """
    found = query.partitions
    if found is None:
        return query
    known = tuple(text for text in texts if text is not None)
    if len(known) > MAX_LISTED:
        reason = f"The column of partitions has more than {MAX_LISTED} values."
        raise Refusal(_OPTION, reason, hint="List those that matter: partitions = ['DE', 'FR'].", place=found.place)
    values = convert_values(_OPTION, known, key=query.keys[found.key], place=found.place)
    return replace(query, partitions=replace(found, values=_ordered(values), source=None))


def _ordered(values: LiteralDomain) -> tuple[Literal, ...]:
    """Return the values, each once, in their natural order."""
    found: dict[object, Literal] = {}
    for value in values.values:
        if isinstance(value, Literal):
            zero = Literal(value.value + 0.0, value.type) if isinstance(value.value, float) else value  # -0.0 is 0.0
            found.setdefault(zero.value, zero)
    return tuple(found[value] for value in sorted(found))  # type: ignore[type-var] # values of one type
