"""ALL PRIVATE: every group of a known domain. Values of a public table are read before the query is planned.

The number of groups decides the price of the query where nothing bounds the groups of a unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.domain import convert_values, find_values
from dpsql.sql.ir.statements import (
    Domain,
    PrivateQuery,
    ProductDomain,
    PublicQuery,
    TableDomain,
    count_groups,
    list_factors,
)

__all__ = ["MOST_GROUPS", "check_number_of_groups", "find_group_query", "set_known_groups"]

MOST_GROUPS = 10_000
_OPTION = "domain"


def find_group_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the groups that a public table holds, as text; None where they are known."""
    if query.clause.shape != "all" or query.domain is None:
        return None
    stored = next((each for each in list_factors(query.domain) if isinstance(each, TableDomain)), None)
    return None if stored is None else find_values(_OPTION, stored, most=MOST_GROUPS)


def check_number_of_groups(domain: Domain, *, place: Place) -> None:
    """Refuse a domain of more than MOST_GROUPS combinations of values."""
    found = count_groups(domain)
    if found is not None and found > MOST_GROUPS:
        reason = f"The keys have {found:,} combinations of values; ALL PRIVATE returns at most {MOST_GROUPS:,} groups."
        raise Refusal(_OPTION, reason, hint="Group by fewer keys, or set the bounds in WHERE closer.", place=place)


def set_known_groups(query: PrivateQuery, texts: Iterable[str | None]) -> PrivateQuery:
    """Return the query with the groups that its public table holds; NULL is none of them.

    Raises `Refusal` where there are none, or too many.
    """
    if query.domain is None:
        return query
    place = query.clause.options[_OPTION].place
    known = tuple(text for text in texts if text is not None)
    if len(known) > MOST_GROUPS:
        hint = "List those that matter: domain = ['DE', 'FR']."
        raise Refusal(_OPTION, f"The domain has more than {MOST_GROUPS} values.", hint=hint, place=place)
    factors = tuple(
        convert_values(_OPTION, known, key=key, place=place) if isinstance(each, TableDomain) else each
        for key, each in zip(query.keys, list_factors(query.domain), strict=True)
    )
    domain: Domain = factors[0] if len(factors) == 1 else ProductDomain(factors)
    check_number_of_groups(domain, place=place)
    return replace(query, domain=domain)
