"""The option `assume`: a public guess of the counts, for which EXPLAIN simulates what each mechanism would find."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from dpsql.errors import Refusal
from dpsql.sql.analysis.domain import find_public_column
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import Assumption, Option, PrivateQuery, PublicQuery, TableDomain
from dpsql.sql.ir.tree import FromWhere, Sorted
from dpsql.sql.ir.types import Family

__all__ = ["MAX_ASSUMED", "MAX_UNITS", "find_guess_query", "read_assumption", "set_guess"]

MAX_ASSUMED = 20_000  # groups: twice what a limited domain reads at most
MAX_UNITS = 10**9 - 1  # of a group: more is taken for that, and its weight still fits into a BIGINT
_OPTION = "assume"
_ZIPF = re.compile(r"\s*zipf\s*\(\s*([0-9]{1,2}(?:\.[0-9]{1,6})?)\s*,\s*([0-9]{1,9})\s*\)\s*", re.IGNORECASE)
_HINT = (
    "Write assume = 'zipf(1.0, 5000)', the exponent and the units of the first group, or assume = 'guesses.units', a "
    "column of whole numbers of a public table."
)


def read_assumption(option: Option, *, catalog: Catalog) -> Assumption:
    """Return the guess: counts by Zipf's law, or the column of a public table that holds them."""
    if not isinstance(option.value, str) or option.word:
        raise Refusal(_OPTION, "This is no guess of the counts.", hint=_HINT, place=option.place)
    law = _ZIPF.fullmatch(option.value)
    if law is not None:
        return Assumption(tuple(_falling(float(law[1]), int(law[2]))))
    if "(" in option.value:
        raise Refusal(_OPTION, "This is no guess of the counts.", hint=_HINT, place=option.place)
    table, column = find_public_column(_OPTION, option, catalog=catalog, hint=_HINT)
    if column.type.family is not Family.INTEGER:
        reason = f"Counts are whole numbers, and this column is {column.type}."
        raise Refusal(_OPTION, reason, hint=_HINT, place=option.place)
    return Assumption((), TableDomain(FromWhere(table, None), column))


def find_guess_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the highest counts that a public table holds; None where they are known."""
    source = None if query.assumed is None else query.assumed.source
    if source is None:
        return None
    units = canonicalize(source.value)
    return PublicQuery(
        names=(_OPTION,),
        outputs=(units,),
        distinct=False,
        body=source.body,
        keys=None,
        by_all=False,
        having=None,
        order=(Sorted(units, descending=True, nulls_first=False),),
        limit=MAX_ASSUMED,
        offset=0,
    )


def set_guess(query: PrivateQuery, counts: Iterable[int | None]) -> PrivateQuery:
    """Return the query with the counts that the public table holds; only those above 0 are groups."""
    known = sorted((min(count, MAX_UNITS) for count in counts if count is not None and count > 0), reverse=True)
    return replace(query, assumed=Assumption(tuple(known)))


def _falling(exponent: float, first: int) -> Iterable[int]:
    """Yield first / rank**exponent, rounded down, while a unit is left."""
    for rank in count(1):
        units = int(first / rank**exponent)
        if units < 1 or rank > MAX_ASSUMED:
            return
        yield units
