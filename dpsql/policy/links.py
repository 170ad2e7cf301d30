"""A link: rows that belong to a privacy unit through the key of another table."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.errors import PolicyError
from dpsql.policy.validation import check_name, wrong_type

__all__ = ["Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """A `column` that names, by the `key` of another `table`, the row whose privacy unit its own row belongs to.

    >>> Link.of("customer_id -> customers.id")
    Link(column='customer_id', table='customers', key='id')
    """

    column: str
    table: str
    key: str

    @classmethod
    def of(cls, given: Link | str) -> Link:
        """Return the link that a text spells; raise `PolicyError` if it spells none."""
        if isinstance(given, Link):
            return given
        if not isinstance(given, str):
            raise wrong_type('text such as "customer_id -> customers.id"', given, place="link")
        column, _, target = (part.strip() for part in given.partition("->"))
        table, _, key = target.rpartition(".")
        if "->" in target or not all((column, table, key)):
            hint = 'Such as "customer_id -> customers.id": a column of this table, and the key that it names.'
            raise PolicyError("policy-link", "The link cannot be read.", hint=hint, place="link")
        return cls(*(check_name(name, "link") for name in (column, table, key)))

    def __str__(self) -> str:
        return f"{self.column} -> {self.table}.{self.key}"
