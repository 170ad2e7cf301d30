"""Warnings about a policy, from its text and the names of columns, never from data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.dialects import ENUM
from dpsql.policy import Bounds, ColumnBounds, Policy, PrivateTable
from dpsql.policy.name_evidence import somebody_in
from dpsql.policy.starter import quote, spell
from dpsql.policy.validation import fold
from dpsql.report.policy_report import CheckedTable, Finding

__all__ = ["lint_policy"]

_LARGE_DELTA = Fraction(1, 10**5)
_LARGE_EPSILON = 10
_MANY_ROWS = 1_000  # of one unit in one group
_FEW = 10  # for each row of a unit, where nothing is said of the value of one row
_SIGNED = re.compile(r"TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|FLOAT|DOUBLE|DECIMAL\(.*\)")
_WORD = re.compile(r"\w+")
_WITH_FIELDS = frozenset(["STRUCT", "UNION"])


def lint_policy(policy: Policy, tables: Sequence[CheckedTable]) -> Iterator[Finding]:
    """Yield a finding for each thing that is allowed and seldom meant."""
    for found in (*_of_settings(policy), *_of_tables(policy, tables)):
        yield replace(found, place=policy.where(found.place))


def _of_settings(policy: Policy) -> Iterator[Finding]:
    budget = policy.budget
    if policy.ledger is None:
        reason = (
            "No ledger is named: spending is lost when a session ends, and the next one has the whole budget again."
        )
        yield Finding("no-ledger", "ledger", reason, 'Write ledger = "ledger.sqlite" at the top of the policy.')
    if budget.delta.value >= _LARGE_DELTA:
        reason = f"delta {budget.delta} is large: it should be far less than 1 divided by the number of units."
        yield Finding("large-delta", "budget.delta", reason, "Write delta = 1e-6.")
    if budget.epsilon.value > _LARGE_EPSILON:
        reason = f"epsilon {budget.epsilon} is a weak guarantee: 1 is a strong one."
        yield Finding("large-epsilon", "budget.epsilon", reason, "Write epsilon = 1.")
    if policy.limits.share_replays:
        reason = "share_replays: one draw answers a question for all analysts, and each is charged in full for it."
        yield Finding("share-replays", "limits.share_replays", reason, "Leave share_replays out.")
    if policy.engine.isolation == "process" and policy.engine.time_limit is None:
        reason = "isolation is process, and there is no time_limit: a statement that does not end is not killed."
        yield Finding("no-time-limit", "engine.isolation", reason, "Write time_limit = 60 below [engine].")


def _of_tables(policy: Policy, tables: Sequence[CheckedTable]) -> Iterator[Finding]:
    units = {fold(table.privacy_unit) for table in tables if table.privacy_unit is not None}
    for table in tables:
        if table.privacy_unit is None:
            yield from _of_public(table, units)
        else:
            yield from _of_private(policy, table, unit=table.privacy_unit)


def _of_private(policy: Policy, table: CheckedTable, *, unit: str) -> Iterator[Finding]:
    name, place = spell(table.name), f"tables.{table.name}"
    if policy.tables[table.name].columns is None:
        reason = f"{name}: no columns are listed, so all of them exist for analysts, also those added later."
        listed = ", ".join(quote(column.name) for column in table.columns or ()) or f'{quote(unit)}, "column"'
        yield Finding("all-columns", place, reason, f"Write columns = [{listed}] below [tables.{name}].")
    yield from _of_labels(table)
    declared = policy.tables[table.name]
    if isinstance(declared, PrivateTable):
        yield from _of_bounds(table, declared.bounds)
    for column in table.columns or ():
        naming = somebody_in(column.name, column.type)
        if naming is not None and fold(column.name) != fold(unit):
            reason = (
                f"{name}: {spell(column.name)} ({naming.reason}) may name a person other than {spell(unit)}, who is "
                "not protected by it."
            )
            yield Finding("other-person", f"{place}.columns", reason, _leave_out(column.name))


def _leave_out(*columns: str) -> str:
    return f"Leave {', '.join(map(spell, columns))} out of columns, unless analysts need it."


def _of_bounds(table: CheckedTable, bounds: Bounds) -> Iterator[Finding]:
    """Yield which bounds are more than is meant, or contradict each other."""
    name, place = spell(table.name), f"tables.{table.name}.bounds"
    if bounds.rows is not None and bounds.rows > _MANY_ROWS:
        reason = (
            f"{name}: rows = {bounds.rows:,}: the noise of COUNT(*) is {bounds.rows:,} times that of a count of units. "
            "Few units have so many rows in one group: 20 is a good start."
        )
        yield Finding("many-rows", f"{place}.rows", reason, "Write rows = 20.")
    types = {fold(column.name): column.type or "" for column in table.columns or ()}
    for column, found in bounds.columns:
        where = f"{name}: {spell(column)}"
        for words, hint in _contradict(found, bounds.rows):
            yield Finding("bounds-contradict", f"{place}.{column}", f"{where}: {words} {hint}", hint)
        may_be_below = found.max is not None and found.min is None and (found.each is None or found.each[0] < 0)
        if may_be_below and _SIGNED.fullmatch(types.get(fold(column), "")):
            hint = "Write min = -500, or another number, or min = 0 if there are none."
            reason = f"{where} may hold values below 0, which count as 0 without a min. {hint}"
            yield Finding("bounds-no-min", f"{place}.{column}", reason, hint)


def _contradict(bounds: ColumnBounds, rows: int | None) -> Iterator[tuple[str, str]]:
    """Yield in words how the bounds of a column contradict each other, and the rows of a unit, each with a hint."""
    if bounds.max is None:
        return
    most = float(bounds.max)
    if bounds.each is None:
        if rows is not None and rows > 1 and bounds.max < rows * _FEW:
            each_row = f"rows = {rows:,} and max = {most:,g} are {most / rows:,.3g} for each row"
            yield (
                f"{each_row}: a unit with all its rows is cut at that.",
                "Raise max, lower rows, or say each = {min = 1, max = 10}, the range of one row's value.",
            )
        return
    low, high = map(float, bounds.each)
    if high > most:
        yield (
            f"each reaches {high:,g} and max = {most:,g}: one row alone is cut.",
            "Raise max, or lower that of each.",
        )
    if rows is None:
        return
    if low > 0 and rows * low > most:
        yield (
            f"rows = {rows:,} of at least {low:,g} are more than max = {most:,g}: a unit with all its rows is cut.",
            "Raise max, or lower rows.",
        )
    if 0 < rows * high < most:
        added = f"rows = {rows:,} of at most {high:,g} add up to {rows * high:,g}"
        yield f"{added}, so that max = {most:,g} is never reached.", "Lower max."


def _of_labels(table: CheckedTable) -> Iterator[Finding]:
    """Yield what is hidden of the types of columns, which engines make from rows."""
    types = {column.name: set(_WORD.findall(column.type or "")) for column in table.columns or ()}
    name, place = spell(table.name), f"tables.{table.name}"
    if labelled := [column for column, words in types.items() if ENUM in words]:
        reason = (
            f"{name}: the labels of {', '.join(map(spell, labelled))} came from data; they are not shown: analysts "
            "see the type ENUM alone, and its values are compared as text."
        )
        yield Finding("hidden-labels", place, reason, _leave_out(*labelled))
    if fielded := [column for column, words in types.items() if words & _WITH_FIELDS and ENUM not in words]:
        reason = f"{name}: the fields of {', '.join(map(spell, fielded))} may have come from data; they are not shown."
        yield Finding("hidden-fields", place, reason, _leave_out(*fielded))


def _of_public(table: CheckedTable, units: set[str]) -> Iterator[Finding]:
    name, place = spell(table.name), f"tables.{table.name}"
    for column in table.columns or ():
        naming = somebody_in(column.name, column.type)
        hint = f"If something is, write privacy_unit = {quote(column.name)} in place of public = true."
        if fold(column.name) in units:
            reason = (
                f"{name} is public, but {spell(column.name)} is called like a privacy unit: is nothing in it private?"
            )
            yield Finding("public-unit", place, reason, hint)
        elif naming is not None:
            reason = f"{name} is public, but {spell(column.name)} is {naming.reason}: is nothing in it private?"
            yield Finding("public-person", place, reason, hint)
