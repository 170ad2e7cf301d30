"""The seam of the catalogs: what answers a statement over system catalogs, and in which shape.

Values travel as the bytes of PostgreSQL's protocol, in text or binary as the client wants them, so that whoever speaks
to the client passes them on as they are. Nothing here depends on a row: a catalog knows the names and types of the
tables that the policy exposes and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Catalog", "CatalogError", "CatalogRows", "Column", "Description", "Parameter"]


class CatalogError(Exception):
    """What a client is told when a statement over system catalogs cannot be answered; it carries a SQLSTATE.

    `position` is the 1-based character of the statement at which it went wrong, or None.
    """

    def __init__(self, sqlstate: str, message: str, *, hint: str = "", position: int | None = None) -> None:
        self.sqlstate = sqlstate
        self.message = message
        self.hint = hint
        self.position = position
        super().__init__(sqlstate, message, hint, position)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result, as a RowDescription tells it: its name, and the OID, size and modifier of its type."""

    name: str
    type_oid: int
    type_size: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value of $1, $2, ... as the client sent it, or None for NULL; a `type_oid` of 0 leaves the type open."""

    value: bytes | None
    type_oid: int = 0
    is_binary: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """What a statement takes and gives: the OIDs of its parameters' types, and its columns."""

    parameters: tuple[int, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """The rows of an answer, each value as the bytes to send in the format that was asked for; None is NULL."""

    columns: tuple[Column, ...]
    rows: list[tuple[bytes | None, ...]]
    tag: str


class Catalog(Protocol):
    """Something that answers statements over system catalogs; it blocks, and threads may share it."""

    @property
    def version(self) -> str:
        """The PostgreSQL that it speaks as, such as "18.4"; a server that uses it says the same of itself."""
        ...

    def describe(self, sql: str, types: Sequence[int] = (), *, user: str) -> Description:
        """Return what one statement takes and gives; `types` are OIDs of its parameters so far as the client says.

        `user` is who asks, and whom current_user names. Raises `CatalogError`.
        """
        ...

    def execute(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows:
        """Answer one statement; `formats` are as a Bind message has them: none (text), one for all, or one a column.

        0 is text and 1 is binary. Raises `CatalogError`.
        """
        ...

    def close(self) -> None:
        """Let go of what it runs on; closing twice is closing once."""
        ...
