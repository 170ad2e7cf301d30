"""ALL PRIVATE: every group of a known domain. Values of a public table are read before the query is planned.

The number of groups decides the price of the query where nothing bounds the groups of a unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.errors import Refusal
from dpsql.sql.analysis.domain import convert_values, find_values
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery, TableDomain

__all__ = ["MOST_GROUPS", "find_group_query", "set_known_groups"]

MOST_GROUPS = 10_000
_OPTION = "domain"


def find_group_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the groups that a public table holds, as text; None where they are known."""
    if query.clause.shape != "all" or not isinstance(query.domain, TableDomain):
        return None
    return find_values(_OPTION, query.domain, most=MOST_GROUPS)


def set_known_groups(query: PrivateQuery, texts: Iterable[str | None]) -> PrivateQuery:
    """Return the query with the groups that its public table holds; NULL is none of them.

    Raises `Refusal` where there are none, or too many.
    """
    place = query.clause.options[_OPTION].place
    known = tuple(text for text in texts if text is not None)
    if len(known) > MOST_GROUPS:
        hint = "List those that matter: domain = ['DE', 'FR']."
        raise Refusal(_OPTION, f"The domain has more than {MOST_GROUPS} values.", hint=hint, place=place)
    return replace(query, domain=convert_values(_OPTION, known, key=query.keys[0], place=place))
