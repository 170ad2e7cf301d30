"""Warnings about a policy, from its text and the names of columns, never from data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dpsql.dialects import ENUM
from dpsql.plan.report.policy_report import CheckedTable
from dpsql.policy import Policy
from dpsql.policy.name_evidence import somebody_in
from dpsql.policy.quoting import spell
from dpsql.policy.validation import fold

__all__ = ["lint_policy"]

_LARGE_DELTA = Fraction(1, 10**5)
_LARGE_EPSILON = 10
_WORD = re.compile(r"\w+")
_WITH_FIELDS = frozenset(["STRUCT", "UNION"])


def lint_policy(policy: Policy, tables: Sequence[CheckedTable]) -> Iterator[str]:
    """Yield one sentence for each thing that is allowed and seldom meant."""
    budget = policy.budget
    if policy.ledger is None:
        yield "No ledger is named: spending is lost when a session ends, and the next one has the whole budget again."
    if budget.delta.value >= _LARGE_DELTA:
        yield f"delta {budget.delta} is large: it should be far less than 1 divided by the number of units."
    if budget.epsilon.value > _LARGE_EPSILON:
        yield f"epsilon {budget.epsilon} is a weak guarantee: 1 is a strong one."
    if policy.limits.share_replays:
        yield "share_replays: one draw answers a question for all analysts, and each is charged in full for it."
    if policy.engine.isolation == "process" and policy.engine.time_limit is None:
        yield "isolation is process, and there is no time_limit: a statement that does not end is not killed."
    units = {fold(table.privacy_unit) for table in tables if table.privacy_unit is not None}
    for table in tables:
        if table.privacy_unit is None:
            yield from _of_public(table, units)
        else:
            yield from _of_private(table, unit=table.privacy_unit, listed=policy.tables[table.name].columns is not None)


def _of_private(table: CheckedTable, *, unit: str, listed: bool) -> Iterator[str]:
    name = spell(table.name)
    if not listed:
        yield f"{name}: no columns are listed, so all of them exist for analysts, also those added later."
    yield from _of_labels(table)
    for column in table.columns or ():
        naming = somebody_in(column.name, column.type)
        if naming is not None and fold(column.name) != fold(unit):
            yield (
                f"{name}: {spell(column.name)} ({naming.reason}) may name a person other than {spell(unit)}, who is "
                "not protected by it."
            )


def _of_labels(table: CheckedTable) -> Iterator[str]:
    """Yield what is hidden of the types of columns, which engines make from rows."""
    types = {spell(column.name): set(_WORD.findall(column.type or "")) for column in table.columns or ()}
    if labelled := [name for name, words in types.items() if ENUM in words]:
        yield (
            f"{spell(table.name)}: the labels of {', '.join(labelled)} came from data; they are not shown: analysts "
            "see the type ENUM alone, and its values are compared as text."
        )
    if fielded := [name for name, words in types.items() if words & _WITH_FIELDS and ENUM not in words]:
        yield f"{spell(table.name)}: the fields of {', '.join(fielded)} may have come from data; they are not shown."


def _of_public(table: CheckedTable, units: set[str]) -> Iterator[str]:
    name = spell(table.name)
    for column in table.columns or ():
        naming = somebody_in(column.name, column.type)
        if fold(column.name) in units:
            yield f"{name} is public, but {spell(column.name)} is called like a privacy unit: is nothing in it private?"
        elif naming is not None:
            yield f"{name} is public, but {spell(column.name)} is {naming.reason}: is nothing in it private?"
