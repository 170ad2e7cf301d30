"""Pass that confines a query to the units of the values that it is charged to.

In every row of a private query all units are equal, and a row belongs to its unit (`unit_equality.py`). Rows of units
with other values are dropped where the rows are counted. So such a unit changes no answer: its own rows are not
counted, and neither the rows of other units nor their values depend on it. Which value a unit has is decided over all
its rows of the stored table, before WHERE, without the salts of a session and without materialized tables.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.unit_equality import join_conjuncts, split_conjuncts

__all__ = ["confine_to_values"]


def confine_to_values(query: PrivateQuery) -> PrivateQuery:
    """Return the query over the rows of units that have one of its charged values; as it is without these."""
    values = query.charged_values
    if values is None or values.condition is None:
        return query
    where = join_conjuncts([*split_conjuncts(query.body.where), values.condition])
    return replace(query, body=replace(query.body, where=where), charged_values=replace(values, condition=None))
