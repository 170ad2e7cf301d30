"""Catalog of a server without a PostgreSQL: it refuses every statement over system catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dpsql.server.catalog.protocol import CatalogError, Parameter

__all__ = ["NoCatalog"]


class NoCatalog:
    """Catalog that has no tables; `reason` says why there is no PostgreSQL, for the message at start."""

    version = "18.0"

    def __init__(self, reason: str = 'The policy says catalog = "none".') -> None:
        self.summary = f"none, so tools that list tables get an error. {reason}"

    def find_description(self, sql: str, types: Sequence[int] = ()) -> None:
        """Return None: nothing is stored."""

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> None:
        """Return None: nothing is stored."""

    def describe(self, *_: object, **__: object) -> NoReturn:
        """Raise `CatalogError`: the statement reads a system catalog."""
        raise _refuse()

    def execute(self, *_: object, **__: object) -> NoReturn:
        """Raise `CatalogError`: the statement reads a system catalog."""
        raise _refuse()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _refuse() -> CatalogError:
    reason = "This server has no catalog, so it does not answer what reads pg_catalog or information_schema."
    return CatalogError("0A000", reason, hint="SHOW TABLES lists the tables, and DESCRIBE a table its columns.")
