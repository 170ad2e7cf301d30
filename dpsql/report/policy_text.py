"""A check in plain words, for a curator who reads it on a terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from dpsql.accounting import Certificate
from dpsql.policy.starter import quote, spell
from dpsql.report.policy_check import CertificatePurchase, Check, CheckedTable

_WIDTH = 100


def describe_policy(check: Check) -> list[str]:
    """Return the lines of a check, at most 100 characters wide unless a name is longer."""
    parts = (
        ("WHO IS PROTECTED", _protected(check)),
        ("WHO MAY ASK", _asking(check)),
        ("WHAT IS EXPOSED", _exposed(check)),
        ("WHAT THE BUDGET BUYS", _bought(check)),
        ("THE LEDGER", _ledger(check)),
        *([("THE WORKER", _worker(check))] if check.isolation == "process" else []),
        *([("THE CATALOG", _catalog(check.catalog_confinement))] if check.catalog_confinement is not None else []),
        ("LOOK AGAIN", _warnings(check)),
    )
    lines: list[str] = []
    for title, body in parts:
        lines += [title, *body, ""]
    return lines[:-1]


def _protected(check: Check) -> Iterator[str]:
    for table in check.private:
        unit = spell(table.privacy_unit or "")
        rows = f"with the same {unit}" if table.link is None else f"of the same {unit} ({table.link})"
        yield from _wrapped(f"{spell(table.name)}: every {unit}, all rows {rows} together.")
    if check.private:
        span = (
            "as one total over all queries"
            if check.period is None
            else f"per {check.period}, over all queries of these"
        )
        yield from _wrapped(
            f"Each has ({check.epsilon:g}, {check.delta:g})-differential privacy {span} and all "
            "analysts. A unit that is in several tables is covered by this same total; somebody with two ids in one "
            "table is protected as two."
        )
        yield from _in_all(check)
    else:
        yield from _wrapped("No one: no table of this policy has a privacy unit.")
    for table in check.public:
        yield from _wrapped(f"{spell(table.name)}: public, so UNPROTECTED: nothing in it is private by your word.")


def _in_all(check: Check) -> Iterator[str]:
    """Yield what holds over all periods, for a budget that is granted in each."""
    if check.period is None:
        return
    totals = ", ".join(
        f"({total.epsilon:g}, {total.delta:g}) after {_periods(total.periods)}" for total in check.totals
    )
    if check.periods is None:
        yield from _wrapped(
            f"The budget is granted again every {check.period}, so the total over all of them grows WITHOUT END: "
            f"{totals}. Set periods to end it. Nothing is carried over."
        )
    else:
        yield from _wrapped(
            f"The budget is granted again every {check.period}, {_periods(check.periods)} at most, and then no more. "
            f"Over all of them the total is {totals}. Nothing is carried over."
        )


def _periods(count: int) -> str:
    return f"{count} period{'' if count == 1 else 's'}"


def _asking(check: Check) -> Iterator[str]:
    first = Certificate(check.certificate).currencies[0]
    for analyst in check.analysts:
        who = "Each of the unlisted" if analyst.name is None else analyst.name
        if analyst.epsilon is None:
            yield from _wrapped(f"{who}: nothing.")
        else:
            yield from _wrapped(
                f"{who}: at most epsilon {analyst.epsilon:g} and delta {analyst.delta:g} ({100 * analyst.share:.2g} % "
                f"of the total's {first}), meant for {analyst.items} items and {analyst.queries} queries."
            )
    if all(analyst.name is not None for analyst in check.analysts):
        who = "An analyst who is not listed" if check.analysts else "Anybody who can open a session"
        yield from _wrapped(f"{who} may spend all of the total.")


def _exposed(check: Check) -> Iterator[str]:
    for table in check.tables:
        yield from _wrapped(f"{spell(table.name)}{_source(table)}: {_columns(table)}")
        if table.hidden:
            yield from _wrapped(f"not exposed: {', '.join(map(spell, table.hidden))}.", depth=2)
        yield from _rules(table)
    yield from _wrapped("Tables that are not named here do not exist for analysts.")
    if check.implicit:
        yield from _wrapped(
            "implicit = true: standard SQL over private tables is read as private, so tools can use budget "
            "without a word about it in their SQL."
        )
    unchecked = [spell(table.name) for table in check.tables if not table.checked]
    if unchecked:
        yield from _wrapped(
            f"Not checked without a database (--db): whether {', '.join(unchecked)} exist with these columns, which "
            "other columns they have, and whether the types of their units can be units."
        )


def _rules(table: CheckedTable) -> Iterator[str]:
    """Yield what holds for every query of a table."""
    if table.max_groups_contributed is not None:
        most = f"max_groups_contributed = {table.max_groups_contributed}"
        yield from _wrapped(
            f"{most}: a unit counts in at most so many groups of a query, so true counts can be higher.", depth=2
        )
    if table.min_units is not None:
        least = f"min_units = {table.min_units}"
        yield from _wrapped(f"{least}: smaller groups are not released; a noisy rule, not an exact test.", depth=2)
    if table.population is not None:
        yield from _wrapped(
            f"population = {table.population:,}: about so many units, in public; queries for too many keys are "
            "warned of.",
            depth=2,
        )
    if table.one_value_per_unit:
        single = ", ".join(map(spell, table.one_value_per_unit))
        yield from _wrapped(
            f"one_value_per_unit = {single}: PER one of these costs as one partition; where each partition has a "
            "run of its own, a unit counts in one alone.",
            depth=2,
        )
    if table.budget_by is not None:
        column = spell(table.budget_by)
        yield from _wrapped(
            f"budget_by = {column}: each value has the whole budget; WHERE {column} = constant counts and charges the "
            "units of that value alone.",
            depth=2,
        )
    if table.bounds:
        yield from _wrapped(
            f"bounds: {', '.join(table.bounds)}: COUNT(*), SUM and AVG add no more for a unit in a group.", depth=2
        )
    if table.calendar:
        yield from _wrapped(
            f"calendar: {', '.join(table.calendar)}: the days of a time series without bounds in WHERE.", depth=2
        )
    if table.materialized:
        sets = ", ".join(f"({', '.join(map(spell, columns)) or 'totals'})" for columns in table.materialized)
        yield from _wrapped(
            f"materialized = {sets}: once dpsql materialize has run, queries that need no more read these.", depth=2
        )


def _source(table: CheckedTable) -> str:
    if table.source is None:
        return ""
    if "://" in table.source:
        return f" (address {quote(table.source)})"
    kind = "file" if table.source.lower().endswith((".parquet", ".csv", ".json")) else "folder"
    return f" ({kind} {quote(table.source)})"


def _columns(table: CheckedTable) -> str:
    if table.columns is None:
        return "every column of the database's table."
    shown = (
        spell(column.name) if column.type is None else f"{spell(column.name)} {column.type}" for column in table.columns
    )
    return ", ".join(shown) + "."


def _bought(check: Check) -> Iterator[str]:
    granted = "The total" if check.period is None else "Each period"
    yield from _wrapped(
        f"{granted} (epsilon {check.epsilon:g}, delta {check.delta:g}) is accounted as {_accounted(check)}"
    )
    yield from _wrapped(
        f"By default an item, which is a returned key, a count or the end of the list, has epsilon "
        f"{check.item_epsilon:g}: the budget holds {check.items} of them. A query has delta {check.query_delta:g}: it "
        f"holds {check.queries} of them."
    )
    for terms, bought in groupby(check.buys, key=_terms):
        yield ""
        if terms:
            yield from _wrapped(f"Where {terms}:")
        yield from _rows(list(bought))
    if check.buys:
        yield ""
        yield from _wrapped(
            "All rows are of limited_domain. What auto takes in its place costs no more at the worst. queries: so many "
            "fit at their worst case; those that return less cost less. threshold: how many units a group must stand "
            "above group number k_bar + 1 (above 0 if there is none) to have an even chance, and at least how many it "
            "must have where min_units is set. error: how far a released count is from the exact one at most, in 95 of "
            "100 cases."
        )


def _accounted(check: Check) -> str:
    """Return what the filter counts of the total, in words."""
    certificate, delta = Certificate(check.certificate), f"delta {check.delta_of_queries:g} that queries draw from"
    items = f"{check.items} items of epsilon {check.item_epsilon:g}, fixed for good"
    match certificate:
        case Certificate.zcdp:
            return f"rho {check.rho:.6g} for what is returned, and {delta}."
        case Certificate.pure:
            counted = f"epsilon {check.epsilon:g} for what is returned, and {delta}"
        case Certificate.theorem2:
            counted = f"{items}, and {check.queries} queries of delta {check.query_delta:g}, each charged twice that"
        case Certificate.optimal:
            counted = f"{items}, and {delta}"
    return f"{counted}: {certificate.words} (certificate {certificate.value})."


def _terms(kind: CertificatePurchase) -> str:
    """Return the terms of the tables in the example queries."""
    said = {"max_groups_contributed": kind.max_groups_contributed, "min_units": kind.min_units}
    return " and ".join(f"{name} = {value}" for name, value in said.items() if value is not None)


def _rows(bought: Sequence[CertificatePurchase]) -> Iterator[str]:
    yield f"  {'':22} {'items at worst':>14} {'queries':>9} {'k_bar':>7} {'threshold':>18} {'error':>9}"
    for kind in bought:
        name = f"TOP {kind.k} {'with counts' if kind.counts else 'names only'}"
        error = "" if kind.reach is None else f"± {kind.reach:,}"
        least = f", >= {kind.least_threshold:,.1f}" if kind.least_threshold else ""
        threshold = f"{kind.threshold:,.1f}{least}"
        yield (
            f"  {name:22} {kind.worst_items:>14,} {kind.queries:>9,} {kind.k_bar:>7,} {threshold:>18} {error:>9}"
        ).rstrip()


def _ledger(check: Check) -> Iterator[str]:
    if check.ledger is None:
        yield from _wrapped("None is named: spending is recorded in memory and lost.")
    else:
        yield from _wrapped(f"{quote(check.ledger)}. It was not opened; dpsql budget shows what is left in it.")


_TAKEN = {
    "files": "It opens no file but the policy's, its scratch folder, Python's and the system's libraries (Landlock).",
    "network": "It has no network.",
    "system calls": "System calls are filtered (seccomp): it runs no other program, opens no socket, traces no other "
    "process, and changes no mode, owner or mount.",
    "processes": "It starts no other process or, where system calls are not filtered, no more than a bound.",
    "capabilities": "It has no capabilities, even where it runs as root: root reads what its owner or everybody may.",
}
_LACKING = {
    "files": "Files are not confined: the kernel has no Landlock (Linux 5.13 or later, switched on). It can read what "
    "this user can.",
    "network": "The network is not closed: the kernel gives this user no network namespace, and does not filter calls.",
    "system calls": "System calls are not filtered: the kernel has no seccomp, or the machine is neither x86_64 nor "
    "aarch64.",
    "processes": "Other processes are not bounded: system calls are not filtered, and root has no limit of processes.",
    "capabilities": "Capabilities are not dropped: the kernel does not let this user do it.",
}

_CATALOG_TAKEN = {
    "files": "It opens no file but those of its folder, its programs' and the system's libraries (Landlock).",
    "network": "It has no network.",
    "system calls": "System calls are filtered (seccomp): it runs no program, connects to nothing, opens no socket but "
    "the one in its folder, traces no other process, and changes no mode, owner or mount.",
    "processes": "The number of its processes is bounded.",
    "capabilities": "It has no capabilities.",
}
_CATALOG_LACKING = {
    **_LACKING,
    "processes": "The number of its processes is not bounded: the kernel does not let this user do it.",
}


def _worker(check: Check) -> Iterator[str]:
    """Yield which measures are in force against the process in which the data is open, and which are missing."""
    yield from _wrapped(
        "Data is opened, and released rows are computed with, in processes that have neither the ledger nor its "
        "place. Their memory, open files and time are bounded."
    )
    yield from _measures(check.confinement, _TAKEN, lacking=_LACKING)


def _catalog(confinement: Collection[str]) -> Iterator[str]:
    """Yield which measures are in force against the PostgreSQL of the catalog, and which are missing."""
    yield from _wrapped(
        "A PostgreSQL that has the tables' columns and no rows answers tools that explore the tables. One was started "
        "to try what confines it. Its memory, open files and the size of its files are bounded."
    )
    yield from _measures(confinement, _CATALOG_TAKEN, lacking=_CATALOG_LACKING)


def _measures(confinement: Collection[str], taken: Mapping[str, str], *, lacking: Mapping[str, str]) -> Iterator[str]:
    for name, sentence in taken.items():
        if name in confinement:
            yield from _wrapped(f"* {sentence}")
    if sys.platform != "linux":
        yield from _wrapped("* Files, network, processes and system calls are not confined: only Linux can do that.")
        return
    for name, sentence in lacking.items():
        if name not in confinement:
            yield from _wrapped(f"* MISSING. {sentence}")


def _warnings(check: Check) -> Iterator[str]:
    for warning in check.warnings:
        yield from _wrapped(f"* {warning}")
    if not check.warnings:
        yield from _wrapped("No warnings. You must judge what a schema cannot say: see dpsql init.")


def _wrapped(text: str, *, depth: int = 1) -> list[str]:
    first, rest = "  " * depth, "  " * (depth + 1)
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
