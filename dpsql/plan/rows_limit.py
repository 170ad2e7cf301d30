"""Limit of the rows that cross from the engine to dpsql: refuse a plan whose public bound is above it.

How many groups there are is a function of the rows of each unit, so a statement is never stopped or shortened because
there are more than expected: a mechanism may answer only if a number that is public beforehand bounds its rows. Those
of the candidates in a public table are not limited: their number is public, and the curator's own choice.
"""

from __future__ import annotations

from dpsql.errors import Refusal
from dpsql.plan.mechanisms import MechanismPlan, RowsRead
from dpsql.sql.ir.statements import PrivateQuery, ReleasedDomain

__all__ = ["check_rows"]


def check_rows(mechanism_plan: MechanismPlan, rows: RowsRead, *, query: PrivateQuery, limit: int | None) -> None:
    """Raise `Refusal` where the engine may return more rows than `limit`; None is no limit."""
    if limit is None or (rows.most is not None and rows.most <= limit):
        return
    clause, domain = query.clause, query.domain
    if rows.most is None and domain is not None and not rows.known:
        return
    option = clause.options.get("domain" if domain is not None else "mechanism")
    reason = (
        f"This may fetch {rows.most:,} rows from the engine" if rows.most else _describe_all(mechanism_plan, domain)
    )
    reason = f"{reason}, and the policy allows {limit:,} (max_rows_fetched)."
    place = clause.place if option is None else option.place
    raise Refusal("rows-fetched", reason, hint=_propose(query, limit=limit), place=place)


def _describe_all(mechanism_plan: MechanismPlan, domain: object) -> str:
    name = "domain = released" if isinstance(domain, ReleasedDomain) else mechanism_plan.selection.name
    return f"{name} may fetch a row for each group from the engine"


def _propose(query: PrivateQuery, *, limit: int) -> str:
    if isinstance(query.domain, ReleasedDomain):
        return "List the names: domain = ['a', 'b']."
    if query.domain is not None:
        return f"List at most {limit:,} candidates, or narrow the time in WHERE."
    if query.partitions is not None:
        k = query.clause.k or 1
        return f"List at most {limit // (k + 1):,} partitions, and write mechanism = limited_domain if one is named."
    return "Leave the mechanism out, or write mechanism = limited_domain."
