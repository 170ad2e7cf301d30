"""A check in plain words, for a curator who reads it on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import MAX_EMAX, ROUND_CEILING, Context, Decimal
from itertools import groupby
from pathlib import Path
from posixpath import normpath
from typing import Any

from dpsql.accounting import Certificate, describe_periods
from dpsql.policy import Policy
from dpsql.policy.toml import quote, spell
from dpsql.policy.validation import is_csv
from dpsql.receipt import format_share
from dpsql.report.policy_check import LARGE_DELTA, LARGE_EPSILON, Check, CheckedTable, LedgerState, TotalAfter

_WIDTH = 100
_NO_WARNINGS = (
    'No warnings. You must judge what a schema cannot say: see "Decide, table by table" in '
    "docs/how-to/write-a-policy.md."
)
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
_WORKER = (
    "Data is opened, and released rows are computed with, in processes that have neither the ledger nor its place. "
    "Their memory, open files and time are bounded."
)
_PLACES = {  # by isolation
    "in_process": "Data is opened in the process that runs the queries (isolation = in_process). An analyst whose own "
    "code runs there, as in a notebook, can read the rows.",
    "remote": "Another engine has the data (isolation = remote), and is trusted to count correctly. The process that "
    "runs the queries has its credentials: an analyst whose own code runs there can read the rows.",
}
_MANY_TIMES = 1_000  # a factor from which all digits before the point are shown, up to a million
_WIDE = Context(Emax=MAX_EMAX)
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_BULLET = re.compile(r"^(?:\* |\d+\. )")
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


def describe_policy(check: Check) -> list[str]:
    """Return the lines of a check, at most 100 characters wide unless a name is longer."""
    ledger = "None is named: spending is recorded in memory and lost."
    if check.ledger is not None:
        ledger = f"{quote(check.ledger)}. dpsql budget shows what is left in it."
    warnings = [f"* {warning}" for warning in check.warnings]
    parts: dict[str, Iterable[str]] = {
        "WHO IS PROTECTED": _list_protected(check),
        "WHO MAY ASK": _list_analysts(check),
        "WHAT IS EXPOSED": _list_exposed(check),
        "WHAT THE BUDGET BUYS": _list_purchases(check),
        "THE LEDGER": [ledger],
    }
    parts["THE WORKER" if check.isolation == "process" else "THE PROCESS"] = _describe_isolation(check)
    if check.catalog_confinement is not None:
        parts["THE CATALOG"] = [
            (
                "A PostgreSQL that has the tables' columns and no rows answers tools that explore the tables. One was "
                "started to try what confines it. Its memory, open files and the size of its files are bounded."
            ),
            *_list_measures(check.catalog_confinement, _CATALOG_TAKEN, lacking=_CATALOG_LACKING),
        ]
    parts["LOOK AGAIN"] = warnings or [_NO_WARNINGS]
    lines: list[str] = []
    for title, paragraphs in parts.items():
        lines.append(title)
        for paragraph in paragraphs:
            line = paragraph if paragraph.startswith("  ") else f"  {paragraph}"
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            wrapped = textwrap.wrap(line, _WIDTH, subsequent_indent=indent, **_WHOLE_WORDS)
            lines += wrapped or [""]
        lines.append("")
    return lines[:-1]


def write_promise(policy: Policy, check: Check, *, state: LedgerState | None) -> str:
    """Return the page for a data-protection officer, in Markdown: what holds for a policy and the state of its ledger.

    Links are written as the paths of pages. `check` has the budget that the ledger has granted. `state` is None for a
    ledger that does not exist yet.
    """
    from importlib.metadata import version
    from importlib.resources import files

    endless = check.period is not None and check.periods is None
    most = check.totals[-1] if check.totals and not endless else TotalAfter(1, check.epsilon, check.delta)
    public = ", ".join(_code(table.name) for table in check.public)
    per = " in each period" if endless else ""
    factor = _WIDE.add(1, _exponentiate(most.epsilon))  # of the delta, for two units together
    delta = _WIDE.multiply(factor, Decimal(str(most.delta)))
    slots = {
        "version": version("dpsql"),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "policy": Path(policy.lines.name if policy.lines else "").name,
        "facts": "\n".join(_list_units(check, state)),
        "public": f"Nothing is protected in the public tables: {public}." if public else "No table is public.",
        "doubts": "\n".join(_list_doubts(check)),
        "total": _describe_total(check) + _describe_former(state),
        "bound": _describe_bound(check, most, span="Within one period, any" if endless else "Any"),
        "isolation": " ".join(each.removeprefix("* ") for each in _describe_isolation(check)),
        "state": _describe_state(policy, check, state=state),
        "holders": "\n".join(f"| {' | '.join(row)} |" for row in _list_holders(policy, check, state=state)),
        "steps": "\n".join(f"{number}. {step}" for number, step in enumerate(_list_steps(policy, check), 1)),
        "double": (
            f"twice the epsilon, {_round_up(2 * most.epsilon)}{per}, and 1 + e^{_round_up(most.epsilon)} = "
            f"{_spell_factor(factor)} times the delta, {_round_up(delta, 3) if delta < 1 else 'which promises nothing'}"
        ),
        "delta": f"{_round_up(most.delta)}{per}",
        "verdicts": _quote_verdicts(check, most),
        "tables": ", ".join(_code(table.name) for table in check.private),
        "units": " and ".join(sorted({_code(table.privacy_unit or "") for table in check.private})),
    }
    page = files("dpsql.report").joinpath("promise.md").read_text(encoding="utf-8").format(**slots)
    lines = list[str]()
    for line in _LINK.sub(lambda link: f"{link[1]} ({normpath(f'docs/explanation/{link[2]}')})", page).splitlines():
        indent = "> " if line.startswith("> ") else " " * (len(line) - len(_BULLET.sub("", line)))
        cut = [] if line.startswith("|") else textwrap.wrap(line, 120, subsequent_indent=indent, **_WHOLE_WORDS)
        lines += cut or [line]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _code(name: str) -> str:
    return f"`{spell(name)}`"


def _round_up(value: float | Decimal, digits: int = 6) -> str:
    """Return a number in so many digits, never a smaller one."""
    rounded = Context(prec=digits, rounding=ROUND_CEILING, Emax=MAX_EMAX).create_decimal(str(value))
    return f"{rounded if rounded > sys.float_info.max else float(rounded):,.{digits}g}"


def _exponentiate(epsilon: float) -> Decimal:
    return Decimal(str(epsilon)).exp(_WIDE)


def _spell_factor(factor: Decimal) -> str:
    return _round_up(factor, 3 if factor < _MANY_TIMES else 6)


def _list_units(check: Check, state: LedgerState | None) -> Iterator[str]:
    for table in check.private:
        link = "" if table.link is None else f" ({table.link})"
        yield f"* {_code(table.name)}: one unit is one {_code(table.privacy_unit or '')}{link}"
    for former in () if state is None else state.former:
        yield (
            f"* {_code(former.table)}, until {former.until:%Y-%m-%d %H:%M} UTC: one unit was one `{former.unit}`. "
            "Answers until then protect the former units alone, and not those of now."
        )


def _list_doubts(check: Check) -> Iterator[str]:
    """Yield what `dpsql check` says of who may not be protected, and what it could not check."""
    found = [each.message for each in check.findings if each.code in {"other-person", "public-unit", "public-person"}]
    unchecked = [_code(table.name) for table in check.tables if not table.checked]
    if unchecked:
        found.append(f"Not checked without the data (`--db`): whether {', '.join(unchecked)} exist with these columns.")
    if found:
        yield from ("`dpsql check` says of this:", "", *(f"* {each}" for each in found))


def _describe_total(check: Check) -> str:
    one = f"({_round_up(check.epsilon)}, {_round_up(check.delta)})-differential privacy"
    if check.period is None:
        return f"All answers together, over all queries, analysts and time, satisfy {one}."
    totals = [f"({_round_up(each.epsilon)}, {_round_up(each.delta)})" for each in check.totals]
    granted = (
        f"The answers of one period of {check.period} together satisfy {one}, and within any {check.period} at most "
        "two such budgets are used. The budget is granted again in each period"
    )
    if check.periods is not None:
        return f"{granted}, {_count(check.periods)} at most. All answers of all periods together satisfy {totals[-1]}."
    after = ", ".join(f"{each} after {_count(total.periods)}" for each, total in zip(totals, check.totals, strict=True))
    return f"{granted} WITHOUT END: all answers together have no limit. It is {after}."


def _describe_former(state: LedgerState | None) -> str:
    """Return from when on the units of now are protected, as a sentence behind the total."""
    if state is None or not state.former:
        return ""
    until = max(former.until for former in state.former)
    units = ", ".join(f"`{former.unit}` of {_code(former.table)}" for former in state.former)
    return f" Except: answers until {until:%Y-%m-%d %H:%M} UTC protect the former units alone ({units})."


def _describe_bound(check: Check, most: TotalAfter, *, span: str) -> str:
    epsilon, delta, factor = _round_up(most.epsilon), _round_up(most.delta), _exponentiate(most.epsilon)
    believed = "be all but certain of it after these answers"
    if most.epsilon <= LARGE_EPSILON:
        believed = f"believe it, after all these answers, with at most {_round_up(100 * factor / (99 + factor), 3)} %"
    words = (
        f"{span} result is at most e^{epsilon} = {_spell_factor(factor)} times as likely with the rows of one unit as "
        f"without them, and the other way round, plus a probability of at most {delta}. This holds for every analyst, "
        "for all of them together, and whatever else they know. Someone who thought there was a 1 % chance that a unit "
        f"is in the data can {believed}; with a probability of at most {delta} the answers may reveal more."
    )
    return " ".join((words, *(f"{verdict}." for verdict in _list_verdicts(check, most))))


def _list_verdicts(check: Check, most: TotalAfter) -> Iterator[str]:
    """Yield why a total protects too little, if it does."""
    delta = _round_up(most.delta)
    if most.epsilon > LARGE_EPSILON:
        factor = f"e^{_round_up(most.epsilon)} = {_spell_factor(_exponentiate(most.epsilon))}"
        yield f"**A factor of {factor} protects a unit hardly or not at all**"
    people = min((table.population for table in check.private if table.population), default=None)
    if people is not None and most.delta * people > 1:
        yield (
            f"**{delta} is more than 1 divided by {people:,}, the population that the policy names**: printing all "
            "rows of one unit in so many would satisfy it, too"
        )
    elif people is None and most.delta >= LARGE_DELTA:
        yield f"**{delta} is large**: it should be far less than 1 divided by the number of units"


def _quote_verdicts(check: Check, most: TotalAfter) -> str:
    """Return what an impact assessment must not leave out: a weak total, and other persons who may be named."""
    others = "; ".join(each.message.removesuffix(".") for each in check.findings if each.code == "other-person")
    parts = "; ".join(_list_verdicts(check, most)), f"`dpsql check` says: {others}" if others else ""
    return "".join(f" {part}." for part in parts if part)


def _describe_isolation(check: Check) -> list[str]:
    if check.isolation != "process":
        return [_PLACES[check.isolation]]
    return [_WORKER, *_list_measures(check.confinement, _TAKEN, lacking=_LACKING)]


def _describe_state(policy: Policy, check: Check, *, state: LedgerState | None) -> str:
    if state is None:
        return (
            f"`{check.ledger}` does not exist yet: the first session makes it, with the budget of the policy. If "
            "queries were answered before, their ledger is missing, and this page does not hold."
        )
    balance = state.spending.balance
    periods = None if balance.calendar is None else balance.calendar.periods
    words = (
        f"`{check.ledger}` has {state.events:,} events, which hold together; head of the chain: {state.head}. Data "
        f"version {state.data_version}. It grants {balance.granted} {describe_periods(periods)}; "
        f"{format_share(balance.used)} is used."
    )
    words += "" if balance.calendar is None else f" Now: {balance.calendar}."
    budget = policy.budget
    if (budget.epsilon, budget.delta) != (balance.granted.epsilon, balance.granted.delta):
        words += (
            f" The policy says ({budget.epsilon}, {budget.delta}), which does not hold before the curator runs `dpsql "
            "ledger grant`."
        )
    return words


def _list_holders(policy: Policy, check: Check, *, state: LedgerState | None) -> Iterator[tuple[str, str, str]]:
    """Yield the files and other places of a policy: what, where, and what is in them."""
    csv = any(table.source is not None and is_csv(Path(table.source)) for table in check.tables)
    memory = "; open sessions have those of CSV files in memory" if csv else ""
    yield "data", "your files or database", f"the rows{memory}; a query may spill rows below `TMPDIR` while it runs"
    folder = _find_materialized(policy)
    if folder is not None:
        yield "materialized", f"`{folder}`", "private rows ([materialize](../how-to/materialize.md))"
    yield (
        "policy",
        f"`{Path(policy.lines.name if policy.lines else '').name}`",
        "names of tables, columns, analysts; numbers",
    )
    kept = "the text of every query, its account and time, and stored answers, with noise"
    yield "ledger", f"`{check.ledger}`", kept
    yield "backups of the ledger", "where `dpsql ledger backup` or others wrote them", "the same"
    if state is not None and state.published:
        names = ", ".join(map(_code, state.published))
        yield "published tables", "in the ledger", f"{names}: answers that every analyst reads, with noise"
    if policy.server.users is not None:
        yield "users", f"`{policy.server.users}`", "names of users, verifiers of passwords, digests of tokens"
        yield (
            "log of the server",
            "standard error of `dpsql serve`",
            "times, accounts, kinds of queries and errors, items",
        )
    yield "answers", "where analysts take them", "numbers with noise, and names of groups"


def _find_materialized(policy: Policy) -> Path | str | None:
    """Return the folder or schema in which a policy materializes tables."""
    source = None if policy.source is None else policy.source.materialized
    return policy.materialized if source is None else source


def _list_steps(policy: Policy, check: Check) -> Iterator[str]:
    """Yield what deletes a person from a policy's data, in order."""
    yield "Delete the rows in the source."
    yield f'Run `dpsql data bump {shlex.quote(str(check.ledger))} --note "rows deleted"`.'
    folder = _find_materialized(policy)
    name = Path(policy.lines.name if policy.lines else "").name
    again = f"`dpsql materialize --policy {shlex.quote(name)}`"
    if folder is not None and policy.materialized is not None:
        where = f"in the policy's folder{', with the `--db` of the data' if policy.needs_database else ''}"
        yield f"Delete the folder `{folder}`, or run {again} twice {where}: until then it holds these rows."
    elif folder is not None:
        yield (
            f"Run {again} in the policy's folder, with the `--url` of before if there was one. [Materialize tables]"
            f"(../how-to/materialize.md) says when the schema `{folder}` holds none of these rows any more."
        )
    yield "Restart each server, and close and open each session: until then they may answer from the rows of before."


def _list_protected(check: Check) -> Iterator[str]:
    for table in check.private:
        unit = spell(table.privacy_unit or "")
        rows = f"with the same {unit}" if table.link is None else f"of the same {unit} ({table.link})"
        yield f"{spell(table.name)}: every {unit}, all rows {rows} together."
    if not check.private:
        yield "No one: no table of this policy has a privacy unit."
    else:
        span = "as one total over all queries"
        if check.period is not None:
            span = f"per {check.period}, over all queries of these"
        yield (
            f"Each has ({check.epsilon:g}, {check.delta:g})-differential privacy {span} and all analysts. A unit that "
            "is in several tables is covered by this same total; somebody with two ids in one table is protected as "
            "two."
        )
    if check.private and check.period is not None:
        again = f"The budget is granted again every {check.period}"
        totals = ", ".join(f"({each.epsilon:g}, {each.delta:g}) after {_count(each.periods)}" for each in check.totals)
        if check.periods is None:
            yield (
                f"{again}, so the total over all of them grows WITHOUT END: {totals}. Set periods to end it. Nothing "
                "is carried over."
            )
        else:
            yield (
                f"{again}, {_count(check.periods)} at most, and then no more. Over all of them the total is "
                f"{totals}. Nothing is carried over."
            )
    for table in check.public:
        yield f"{spell(table.name)}: public, so UNPROTECTED: nothing in it is private by your word."


def _count(count: int) -> str:
    return f"{count} period{'' if count == 1 else 's'}"


def _list_analysts(check: Check) -> Iterator[str]:
    first = Certificate(check.certificate).currencies[0]
    for analyst in check.analysts:
        who = "Each of the unlisted" if analyst.name is None else analyst.name
        if analyst.epsilon is None:
            yield f"{who}: nothing."
        elif not analyst.epsilon:
            yield f"{who}: no share of the budget, so public and published tables alone."
        else:
            shares = (
                f"{100 * analyst.share:.2g} % of the total's {first} and {100 * analyst.delta_share:.2g} % of its delta"
            )
            yield (
                f"{who}: at most epsilon {analyst.epsilon:g} and delta {analyst.delta:g} ({shares}), meant for "
                f"{analyst.items} items and {analyst.queries} queries."
            )
    if all(analyst.name is not None for analyst in check.analysts):
        who = "An analyst who is not listed" if check.analysts else "Anybody who can open a session"
        yield f"{who} may spend all of the total."


def _list_exposed(check: Check) -> Iterator[str]:
    for table in check.tables:
        source = ""
        if table.source is not None:
            is_file = is_csv(Path(table.source)) or table.source.lower().endswith((".parquet", ".json"))
            kind = "file" if is_file else "folder"
            source = f" ({'address' if '://' in table.source else kind} {quote(table.source)})"
        columns = "every column of the database's table"
        if table.columns is not None:
            columns = ", ".join(" ".join(filter(None, (spell(each.name), each.type))) for each in table.columns)
        yield f"{spell(table.name)}{source}: {columns}."
        if table.hidden:
            yield f"    not exposed: {', '.join(map(spell, table.hidden))}."
        yield from (f"    {rule}" for rule in _list_rules(table))
    yield "Tables that are not named here do not exist for analysts."
    if check.implicit:
        yield (
            "implicit = true: standard SQL over private tables is read as private, so tools can use budget without a "
            "word about it in their SQL."
        )
    unchecked = [spell(table.name) for table in check.tables if not table.checked]
    if unchecked:
        yield (
            f"Not checked without a database (--db): whether {', '.join(unchecked)} exist with these columns, which "
            "other columns they have, and whether the types of their units can be units."
        )


def _list_rules(table: CheckedTable) -> Iterator[str]:
    """Yield what holds for every query of a table."""
    if table.max_groups_contributed is not None:
        yield (
            f"max_groups_contributed = {table.max_groups_contributed}: a unit counts in at most so many groups of a "
            "query, so true counts can be higher."
        )
    if table.min_units is not None:
        yield f"min_units = {table.min_units}: smaller groups are not released; a noisy rule, not an exact test."
    if table.population is not None:
        yield (
            f"population = {table.population:,}: about so many units, in public; queries that can hardly return a row "
            "are warned of, or need consent."
        )
    if table.one_value_per_unit:
        yield (
            f"one_value_per_unit = {', '.join(map(spell, table.one_value_per_unit))}: PER one of these costs as one "
            "partition; where each partition has a run of its own, a unit counts in one alone."
        )
    if table.not_null:
        yield f"not_null = {', '.join(map(spell, table.not_null))}: no group of NULL is listed for these."
    if table.budget_by is not None:
        column = spell(table.budget_by)
        yield (
            f"budget_by = {column}: each value has the whole budget; WHERE {column} = constant counts and charges the "
            "units of that value alone."
        )
    if table.bounds:
        measures = "COUNT(*), COUNT(DISTINCT x), SUM and AVG"
        yield f"bounds: {', '.join(table.bounds)}: {measures} count no more of a unit in a group."
    if table.calendar:
        yield f"calendar: {', '.join(table.calendar)}: the days of a time series without bounds in WHERE."
    if table.materialized:
        sets = ", ".join(f"({', '.join(map(spell, columns)) or 'totals'})" for columns in table.materialized)
        yield f"materialized = {sets}: once dpsql materialize has run, queries that need no more read these."


def _list_purchases(check: Check) -> Iterator[str]:
    granted = "The total" if check.period is None else "Each period"
    yield f"{granted} (epsilon {check.epsilon:g}, delta {check.delta:g}) is accounted as {_describe_account(check)}"
    yield (
        f"By default an item, which is a returned key, a count or the end of the list, has epsilon "
        f"{check.item_epsilon:g}: the budget holds {check.items} of them. A query has delta {check.query_delta:g}: it "
        f"holds {check.queries} of them."
    )
    for (most, least), purchases in groupby(check.buys, key=lambda each: (each.max_groups_contributed, each.min_units)):
        terms = [] if most is None else [f"max_groups_contributed = {most}"]
        terms += [] if least is None else [f"min_units = {least}"]
        yield ""
        if terms:
            yield f"Where {' and '.join(terms)}:"
        yield f"  {'':22} {'items at worst':>14} {'queries':>9} {'k_bar':>7} {'threshold':>18} {'error':>9}"
        for each in purchases:
            name = f"TOP {each.k} {'with counts' if each.counts else 'names only'}"
            at_least = f", >= {each.least_threshold:,.1f}" if each.least_threshold else ""
            threshold, error = f"{each.threshold:,.1f}{at_least}", "" if each.reach is None else f"± {each.reach:,}"
            row = f"  {name:22} {each.worst_items:>14,} {each.queries:>9,} {each.k_bar:>7,} {threshold:>18} {error:>9}"
            yield row.rstrip()
    if check.buys:
        yield ""
        yield (
            "All rows are of limited_domain. What auto takes in its place costs no more at the worst. queries: so many "
            "fit at their worst case; those that return less cost less. threshold: how many units a group must stand "
            "above group number k_bar + 1 (above 0 if there is none) to have an even chance, and at least how many it "
            "must have where min_units is set. error: how far a released count is from the exact one at most, in 95 of "
            "100 cases."
        )


def _describe_account(check: Check) -> str:
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


def _list_measures(held: Collection[str], taken: Mapping[str, str], *, lacking: Mapping[str, str]) -> Iterator[str]:
    """Yield which measures are in force against a process, and which are missing."""
    yield from (f"* {sentence}" for name, sentence in taken.items() if name in held)
    if sys.platform != "linux":
        yield "* Files, network, processes and system calls are not confined: only Linux can do that."
    else:
        yield from (f"* MISSING. {sentence}" for name, sentence in lacking.items() if name not in held)
