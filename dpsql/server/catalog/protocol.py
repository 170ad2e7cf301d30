"""Protocol of the catalogs, which answer statements over system catalogs, and the types of their answers.

Values are bytes of PostgreSQL's protocol, in the format that the client requested, and are sent unchanged. A catalog
knows only the names and types of the policy's tables, so nothing here depends on a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpsql.errors import UsageError
from dpsql.server.memory import RowBlocks, WireColumn, measure_columns

Hold = Callable[[int], None]  # counts bytes that an answer holds, before they are held, and may wait; < 0 gives back


class CatalogError(Exception):
    """Error of a statement over system catalogs, with its SQLSTATE.

    `position` is the character of the statement that caused it, from 1, or None.
    """

    def __init__(self, sqlstate: str, message: str, *, hint: str = "", position: int | None = None) -> None:
        self.sqlstate = sqlstate
        self.message = message
        self.hint = hint
        self.position = position
        super().__init__(sqlstate, message, hint, position)


def unavailable_error() -> UsageError:
    """Return the error for a PostgreSQL that dpsql cannot run."""
    hint = 'Write catalog = "none" in [server].'
    return UsageError("catalog-unavailable", "The PostgreSQL for catalogs cannot be run.", hint=hint)


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value of $1, $2, ... as the client sent it, or None for NULL; a `type_oid` of 0 leaves the type open."""

    value: bytes | None
    type_oid: int = 0
    is_binary: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """The types of a statement's parameters, as OIDs, and its columns."""

    parameters: tuple[int, ...]
    columns: tuple[WireColumn, ...]


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """The rows of an answer, each value as bytes in the requested format."""

    columns: tuple[WireColumn, ...]
    rows: RowBlocks
    tag: str

    @property
    def size(self) -> int:
        """The bytes that the answer holds."""
        return self.rows.size + measure_columns(self.columns)


class SystemCatalog(Protocol):
    """Catalog that answers statements over system catalogs; its methods block, and threads may share it."""

    @property
    def version(self) -> str:
        """The version of PostgreSQL that answers, such as "18.4"; the server reports the same."""
        ...

    @property
    def summary(self) -> str:
        """What the catalog is, in a few words, for the message at start."""
        ...

    def find_description(self, sql: str, types: Sequence[int] = ()) -> Description | None:
        """Return the description of a statement if it is known, or None; it does not block."""
        ...

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows | None:
        """Return the stored answer to a statement if it is still right, or None; it does not block."""
        ...

    def describe(
        self, sql: str, types: Sequence[int] = (), *, user: str, definitions: Sequence[str] = ()
    ) -> Description:
        """Return the parameters and columns of one statement; `types` are the OIDs that the client declared.

        `user` is the value of current_user; what the statements `definitions` create, only this statement sees.
        Raises `CatalogError`.
        """
        ...

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        definitions: Sequence[str] = (),
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement; `formats` are those of a Bind message: none (text), one for all, or one a column.

        0 is text and 1 is binary. `hold` is called with the bytes of the rows while they are read; what it raises ends
        the statement. Raises `CatalogError`.
        """
        ...

    def close(self) -> None:
        """Release its resources; safe to repeat."""
        ...
