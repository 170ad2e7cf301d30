"""Rows that an engine in another program returns of a mechanism of all groups: those that its noise may lift."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from dpsql.dialects import DUCKDB
from dpsql.mechanisms import WEIGHT_STEPS
from dpsql.mechanisms.lower_cut import PLACES, LowerCut
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.sql.ir.statements import GroupCut, PrivateQuery

__all__ = ["cut_rows", "describe_cut"]


class _HasCut(Protocol):
    @property
    def cut(self) -> LowerCut | None:
        """The cut below which few groups need be read."""
        ...


def cut_rows(
    query: PrivateQuery, mechanism: _HasCut, *, known: int = 0, leaders: int = 0, heaviest: int = 0
) -> tuple[PrivateQuery, LowerCut | None]:
    """Return the query with the mechanism's cut where the engine is in another program, and the cut.

    In this one rows are as good as read. Beside known names there is no cut: the engine is not told which they are.
    """
    cut = None if known or query.dialect is DUCKDB else mechanism.cut
    if cut is None:
        return query, None
    return replace(query, group_cut=GroupCut(cut.value, PLACES, leaders, heaviest)), cut


def describe_cut(query: PrivateQuery, cut: LowerCut | None, *, weighted: bool) -> str:
    """Return in words which groups the engine returns; "" for all of them."""
    if cut is None:
        return ""
    if weighted:
        return f"the groups with a weight of {float(Fraction(cut.value, WEIGHT_STEPS)):.1f} or more, and few others"
    return f"the groups with {describe_amount(query, cut.value)} or more, and few others"
