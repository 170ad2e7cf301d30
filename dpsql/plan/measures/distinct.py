"""Bounds of COUNT(DISTINCT x): how many different values of one unit count in one group.

Adding a unit raises the number of different values in a group by at most so many, and by none where others have its
values; removing it lowers the number by as much. So any number is a sound bound, also one that a query states, and it
decides the noise. It is, in this order, that of the aggregate itself; `max_items_contributed`; and the lesser of what
the policy has for the columns and for rows. A unit that counts with at most so many rows in COUNT(*) has no more values
in them, so the rows of the policy are a default that cuts no unit which COUNT(*) does not cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod

from dpsql.errors import Refusal
from dpsql.plan.measures.rows import Count
from dpsql.policy import PrivateTable
from dpsql.policy.toml import spell
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.terms import read_whole_number

OPTION = "max_items_contributed"


def refuse_stray_option(query: PrivateQuery) -> None:
    """Refuse the option of numbers of values in a query without one."""
    option = query.clause.options[OPTION]
    if any(measure.aggregate is Aggregate.ITEMS for measure in query.measures):
        return
    reason = f"{OPTION} is for COUNT(DISTINCT x) of another column than the privacy unit, and the query has none."
    raise Refusal("option", reason, hint="Leave it out.", place=option.place)


def bound_items(measure: Measure, query: PrivateQuery, *, policy: Mapping[str, PrivateTable], rows: Count) -> Measure:
    """Return a number of different values with how many of one unit count; `rows` are those of one unit in FROM."""
    named = _find_distinct(measure, policy)
    option = query.clause.options.get(OPTION)
    asked = read_whole_number(option, OPTION, bounds=(1, MOST_STEPS if named == inf else int(named)))
    most = min(named, rows) if asked is None else asked
    if most > MOST_STEPS:
        raise _refuse(measure, query, is_joined=most != inf)
    return replace(measure, bounds=ContributionRange(0, int(most)))


def _find_distinct(measure: Measure, policy: Mapping[str, PrivateTable]) -> Count:
    """Return how many values of an expression one unit has by the bounds of its columns, infinite without one."""
    if not measure.columns:
        return inf
    found = [policy[table].bounds.find(column) for table, column in measure.columns]
    known = [each.distinct for each in found if each is not None and each.distinct is not None]
    most = prod(known) if len(known) == len(found) else inf
    return most if most <= MOST_STEPS else inf


def _refuse(measure: Measure, query: PrivateQuery, *, is_joined: bool) -> Refusal:
    """Return the refusal of a number of values without a bound, with the statement and the line that give it one."""
    words = "COUNT(DISTINCT x)" if measure.words is None else " ".join(measure.words.fragment.split())
    hint = (
        f"Write {words.removesuffix(')')}, contribution_bounds_per_group => (0, 3)), with your own number of values of "
        "one unit."
    )
    reason = "The policy does not say how many different values of one unit count in a group."
    if is_joined:
        reason = "By the rows of its tables one unit can have too many rows here: a join multiplies them."
    if len(measure.columns) == 1:
        ((table, column),) = measure.columns
        line = f"{spell(column)} = {{distinct = 3}}"
        hint = f"{hint} Or ask the curator to add {line}, or another number, under [tables.{spell(table)}.bounds]."
    return Refusal("no-bounds", reason, hint=hint, place=measure.words or query.clause.place)
