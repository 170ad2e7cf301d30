"""Owners of the rows of a private table: a column of its own, or the unit that its links lead to.

Links form chains; each ends at a table with a privacy unit of its own. If a link leads to that unit itself, its column
is the unit already, and no other table is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpsql.errors import PolicyError
from dpsql.policy.tables import PrivateTable, Table, TableLink
from dpsql.policy.validation import fold

__all__ = ["Owner", "check_links", "find_owner", "find_path", "find_target", "shadowed"]

Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Owner:
    """The privacy unit `column` of `table`, at the end of `links`; without links it is the table's own column.

    As text it is what a ledger records: "household_id", or "customers.household_id via customer_id -> customers.id".
    """

    table: str
    column: str
    links: tuple[TableLink, ...] = ()

    def __str__(self) -> str:
        return self.column if not self.links else f"{self.table}.{self.column} via {', '.join(map(str, self.links))}"


def find_owner(tables: Tables, name: str) -> Owner:
    """Return whose rows a private table holds; its links have passed `check_links`."""
    table = tables[name]
    link, unit = (table.link, table.privacy_unit) if isinstance(table, PrivateTable) else (None, None)
    if link is None:
        return Owner(name, unit or "")
    beyond = find_owner(tables, find_target(tables, link) or "")
    if not beyond.links and fold(beyond.column) == fold(link.key):
        return Owner(name, link.column)
    return Owner(beyond.table, beyond.column, (link, *beyond.links))


def find_target(tables: Tables, link: TableLink) -> str | None:
    """Return the name of the table that a link leads to, compared as statements compare names, or None."""
    return next((name for name in tables if _spoken(name) == _spoken(link.table)), None)


def find_path(tables: Tables, name: str) -> tuple[str, ...]:
    """Return the tables that links lead through, from `name` on, each once."""
    path: list[str] = []
    at: str | None = name
    while at is not None and at not in path:
        path.append(at)
        link = _link(tables, at)
        at = None if link is None else find_target(tables, link)
    return tuple(path)


def check_links(tables: Tables) -> None:
    """Raise `PolicyError` unless every link leads to a privacy unit, whose name means nothing else in the table."""
    linked = {name: table for name, table in tables.items() if isinstance(table, PrivateTable) and table.link}
    for name in linked:
        _check_target(tables, name)
    for name, table in linked.items():
        for error in _misnamed(table, find_owner(tables, name), place=f"tables.{name}"):
            raise error


def _check_target(tables: Tables, name: str) -> None:
    link, place = _link(tables, name), f"tables.{name}.link"
    target = None if link is None else find_target(tables, link)
    if target is None:
        hint = "Declare that table too, or correct its name."
        raise PolicyError("policy-link", "The link leads to a table that is not named here.", hint=hint, place=place)
    if not isinstance(tables[target], PrivateTable):
        reason = "The link leads to a public table, whose rows belong to no privacy unit."
        hint = "Link to a private table, or declare that one with a privacy_unit."
        raise PolicyError("policy-link", reason, hint=hint, place=place)
    if name in find_path(tables, target):
        reason, hint = "The links go round in a circle.", "Give one of these tables a privacy_unit of its own."
        raise PolicyError("policy-link", reason, hint=hint, place=place)


def _misnamed(table: PrivateTable, owner: Owner, *, place: str) -> Iterator[PolicyError]:
    """Yield what is wrong with the names of columns, now that the privacy unit's is known."""
    unit, exposed = fold(owner.column), None if table.columns is None else set(map(fold, table.columns))
    if owner.links and exposed is not None and unit in exposed:
        yield shadowed(owner, place=f"{place}.columns")
    if not owner.links and exposed is not None and unit not in exposed:
        reason = f'The list does not contain "{owner.column}", by which the link says whose a row is.'
        hint = "Add it to the list; counting distinct units needs it."
        yield PolicyError("policy-columns", reason, hint=hint, place=f"{place}.columns")
    if unit in map(fold, table.one_value_per_unit):
        reason, hint = f'The column "{owner.column}" is the privacy unit itself.', "Leave it out."
        yield PolicyError("policy-columns", reason, hint=hint, place=f"{place}.one_value_per_unit")


def shadowed(owner: Owner, *, place: str) -> PolicyError:
    """Return the error of a linked table with an exposed column of the privacy unit's name."""
    reason = f'A column of this table is called "{owner.column}", as the privacy unit is that its link leads to.'
    hint = "List in columns those that analysts see, without it; the unit is there by the link."
    return PolicyError("policy-link", reason, hint=hint, place=place)


def _link(tables: Tables, name: str) -> TableLink | None:
    table = tables[name]
    return table.link if isinstance(table, PrivateTable) else None


def _spoken(name: str) -> str:
    return fold(name).removeprefix("main.")
