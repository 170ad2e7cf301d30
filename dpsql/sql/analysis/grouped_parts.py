"""Clause of each grouping set of a private SELECT: one without keys is a total, and each takes the options it has.

The sets are private queries of one statement. Each is charged and stored by itself, and their worst cases must fit into
the budget together, as with any statement of several private queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from dpsql.errors import Refusal
from dpsql.sql.analysis.known_values import is_time_bucket, list_known_values
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import Option, PrivateQuery
from dpsql.sql.ir.tree import Expression
from dpsql.sql.syntax.clause import SplitStatement
from dpsql.sql.syntax.grouping_sets import GroupingSet, GroupingSets, expand_grouping_sets

__all__ = ["choose_set", "expand_grouping_sets", "read_sets"]
_OF_SELECTION = frozenset(  # options that have no meaning for a total
    "delta domain evidence gate k_bar known max_groups_contributed mechanism monotone partitions prefer".split()
)


class _Found(Protocol):
    @property
    def query(self) -> PrivateQuery:
        """The private query of a set."""


FoundQuery = TypeVar("FoundQuery", bound=_Found)


def choose_set(lifted: SplitStatement, *, sets: GroupingSets, chosen: GroupingSet) -> SplitStatement:
    """Return the private query of one of the grouping sets of a statement."""
    clause = lifted.clause
    assert clause is not None  # noqa: S101 - of the caller
    stated = clause.stated
    if stated is not None and stated.epsilon is not None and len(sets.sets) > 1:
        reason = "The epsilon of OPTIONS is that of one private query, and each grouping set is one."
        hint = "Leave epsilon and delta out: each set then costs what the policy says."
        raise Refusal("option", reason, hint=hint, place=stated.place)
    if not chosen.is_total:
        return replace(lifted, tokens=chosen.tokens)
    options = {name: option for name, option in clause.options.items() if name not in _OF_SELECTION}
    total = replace(clause, k=None, per=None, shape="total", options=MappingProxyType(options))
    return replace(lifted, tokens=chosen.tokens, clause=total)


def read_sets(
    lifted: SplitStatement, sets: GroupingSets, *, read: Callable[[SplitStatement], FoundQuery], catalog: Catalog
) -> list[FoundQuery]:
    """Return the private query of each grouping set; the option `domain` is for those of the one key that it has.

    Raises `Refusal` where it would be the domain of several keys.
    """
    domain = lifted.clause.options.get("domain") if lifted.clause is not None else None
    queries, listed = list[FoundQuery](), set[Expression]()
    for each in sets.sets:
        part = choose_set(lifted, sets=sets, chosen=each)
        if domain is None or each.is_total:
            queries.append(read(part))
            continue
        query = read(_without_domain(part))
        keys = _list_open_keys(query.query, catalog=catalog)
        if keys:
            listed |= set(keys)
            query = read(part)
        queries.append(query)
    if domain is not None and len(listed) > 1:
        reason = "The domain is that of one key, and the grouping sets have several keys without known values."
        hint = "Leave the domain out and write TOP 10 PRIVATE, or write a query for each set with a domain of its own."
        raise Refusal("domain", reason, hint=hint, place=domain.place)
    return queries


def _without_domain(lifted: SplitStatement) -> SplitStatement:
    clause = lifted.clause
    assert clause is not None  # noqa: S101 - of the caller
    options: Mapping[str, Option] = {name: each for name, each in clause.options.items() if name != "domain"}
    return replace(lifted, clause=replace(clause, options=MappingProxyType(dict(options))))


def _list_open_keys(query: PrivateQuery, *, catalog: Catalog) -> list[Expression]:
    """Return the keys whose values the statement does not tell; all keys of a ranking, whose domain is of them."""
    if query.clause.shape == "top":
        return list(query.keys)
    is_known = (is_time_bucket(key) or list_known_values(key, query.body, catalog=catalog) for key in query.keys)
    return [key for key, known in zip(query.keys, is_known, strict=True) if not known]
