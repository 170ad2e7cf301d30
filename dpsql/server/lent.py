"""An engine that many sessions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engines import Column, Engine, Exact, Statement

__all__ = ["Lent"]


class Lent:
    """An engine that many sessions share: they may not close it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened it."""
        return self._engine.sealed

    @property
    def isolation(self) -> str:
        """Where the data is open."""
        return self._engine.isolation

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the identifier of a table."""
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of a table."""
        return self._engine.columns(name)

    def unique(self, name: str, column: str) -> bool:
        """Return whether no value stands twice in a column."""
        return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression."""
        return self._engine.accepts_pattern(pattern)

    def execute(self, statement: Statement) -> Exact:
        """Run one SELECT."""
        return self._engine.execute(statement)

    def close(self) -> None:
        """Do nothing: whoever lent it closes it."""
