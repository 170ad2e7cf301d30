"""Proposal of a privacy unit for each table, with the reason; from names and keys alone, and never a silent guess.

A table is decided when one column is clear and no other is. Everything else is left to the curator: until a policy
names a table, it does not exist for analysts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.policy.name_evidence import NO_IDS, find_people, judge_name
from dpsql.policy.quoting import spell
from dpsql.policy.validation import fold

__all__ = ["Candidate", "Decision", "FoundColumn", "FoundTable", "decide"]

_MEASURES = frozenset(["DOUBLE", "FLOAT"])


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the data: whether dpsql computes with its type, and whether the type can name units."""

    name: str
    type: str
    readable: bool
    may_be_unit: bool


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the data, its name as a policy writes it, and its keys; the foreign ones lead to such names.

    `source` is the path of its file or folder as the policy writes it, "" for a table of a database. The types of a CSV
    file are `guessed` from its rows.
    """

    name: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...] = ()
    unique: frozenset[str] = frozenset()
    leads_to: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column that could be the privacy unit: how sure that is, and the reasons for and against."""

    column: FoundColumn
    is_clear: bool
    is_own_key: bool
    is_role: bool
    reasons: tuple[str, ...]
    is_near: bool = False

    @property
    def why(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons)

    @property
    def is_somebody(self) -> bool:
        """Whether it names a person, be it beside the one the row is about."""
        return self.is_clear or self.is_role


@dataclass(frozen=True, slots=True)
class Decision:
    """A table, the unit that was decided (None: left to the curator), and the other columns that could name someone.

    `through` is the column whose foreign key leads to a table of units when the table itself has none.
    """

    table: FoundTable
    unit: Candidate | None
    others: tuple[Candidate, ...]
    through: str | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The unit, if one was decided, and the others."""
        return self.others if self.unit is None else (self.unit, *self.others)

    @property
    def open_question(self) -> str:
        """Why the table was not decided, in one sentence."""
        clear = [candidate for candidate in self.others if candidate.is_clear]
        if len(clear) > 1:
            return f"{len(clear)} columns could be the privacy unit."
        if clear:
            return "The column that looks like the privacy unit has a type that cannot be one."
        if self.others:
            return "Only weak candidates for a privacy unit."
        if self.through is not None:
            return "Its rows seem to belong to units of another table."
        return "No column looks like a privacy unit."


def decide(tables: Sequence[FoundTable]) -> tuple[Decision, ...]:
    """Return a decision for every table, in the order given."""
    spread = Counter(fold(column.name) for table in tables for column in table.columns)
    decisions = {table.name: _decide(table, spread) for table in tables}
    ways = _ways(decisions)
    return tuple(replace(decision, through=ways.get(name)) for name, decision in decisions.items())


def _decide(table: FoundTable, spread: Mapping[str, int]) -> Decision:
    found = [candidate for column in table.columns if (candidate := _candidate(column, table, spread=spread))]
    found.sort(key=lambda candidate: (not candidate.is_clear, -len(candidate.reasons)))
    clear = [candidate for candidate in found if candidate.is_clear]
    own = [candidate for candidate in clear if candidate.is_own_key]
    if own and all(other.is_role for other in clear if other not in own):
        clear = own  # in a table of people, one row a unit, the others stand beside the one it is about
    if not clear and len(found) == 1 and found[0].is_near:
        clear = found  # no person is named; what comes near one is better than no unit, and its reason says so
    unit = clear[0] if len(clear) == 1 and clear[0].column.may_be_unit else None
    return Decision(table, unit, tuple(candidate for candidate in found if candidate is not unit))


def _candidate(column: FoundColumn, table: FoundTable, *, spread: Mapping[str, int]) -> Candidate | None:
    """Return what the schema says for `column`, or None when it says nothing."""
    if column.type in NO_IDS:
        return None
    naming, target, people = judge_name(column.name), table.leads_to.get(column.name), find_people(table.name)
    leads = target is not None and find_people(target) is not None
    is_key = table.primary_key == (column.name,)
    is_own_key = is_key and people is not None
    is_person = naming is not None and naming.is_person
    unnamed_key = fold(column.name) == "id" and people is not None and not is_key
    if naming is None and not (leads or is_own_key or unnamed_key):
        return None
    if column.type in _MEASURES and not (leads or is_own_key or is_person):
        return None
    reasons = [] if naming is None else [naming.reason]
    reasons += _reasons_of_keys(column, table, leads_to=target if leads else None)
    if unnamed_key and not leads:
        reasons.append("usually a row's own key, in a table that seems to list people; but no key is declared")
    if naming is not None and (others := spread[fold(column.name)] - 1):
        reasons.append(f"the same name in {others} other {'table' if others == 1 else 'tables'}")
    return Candidate(
        column,
        is_clear=leads or is_own_key or is_person,
        is_own_key=is_own_key
        and people != "account",  # a person may have several accounts, so an account outranks no person
        is_role=not is_own_key and (naming.is_role if naming else leads),
        reasons=tuple(reasons),
        is_near=naming is not None and naming.is_near,
    )


def _reasons_of_keys(column: FoundColumn, table: FoundTable, *, leads_to: str | None) -> Iterator[str]:
    if leads_to is not None:
        yield f"foreign key to {spell(leads_to)}, a table of people"
    if table.primary_key == (column.name,):
        listed = " of a table of people" if find_people(table.name) else ""
        yield f"primary key{listed}: one row for each unit"
    elif column.name in table.unique:
        yield "unique: one row for each unit"
    if not column.may_be_unit:
        yield f"but a {column.type} cannot be a unit" if column.readable else f"but dpsql does not read {column.type}"


def _ways(decisions: Mapping[str, Decision]) -> dict[str, str]:
    """Return the column by which each table leads, perhaps through others, to one with candidates, if it has none."""
    about_people = {name for name, decision in decisions.items() if decision.candidates}
    ways: dict[str, str] = {}
    grew = True
    while grew:
        known = about_people | ways.keys()
        further = {
            name: column
            for name, decision in decisions.items()
            if name not in known
            for column, target in decision.table.leads_to.items()
            if target in known
        }
        ways |= further
        grew = bool(further)
    return ways
