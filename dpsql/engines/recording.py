"""A double for tests: a real engine whose statements can be read afterwards and whose failure can be ordered."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dpsql.dialects import Dialect
from dpsql.engines.base import Engine, Exact, Statement, find_data_version, find_descriptions, take_turn
from dpsql.engines.sources import Column
from dpsql.errors import EngineError

if TYPE_CHECKING:
    from dpsql.engines.base import Stop


class RecordingEngine:
    """Wrapper of an engine that records every statement; if `fail_with` is set, it raises that instead."""

    def __init__(self, engine: Engine, *, fail_with: EngineError | None = None) -> None:
        self.statements: list[Statement] = []
        self.fail_with = fail_with
        self._engine = engine

    @property
    def dialect(self) -> Dialect:
        """The SQL in which statements are written."""
        return self._engine.dialect

    @property
    def sealed(self) -> bool:
        """Whether the wrapped engine is sealed."""
        return self._engine.sealed

    @property
    def isolation(self) -> str:
        """Place where the wrapped engine has the data open."""
        return self._engine.isolation

    def relation(self, name: str) -> tuple[str, ...]:
        """Return what the wrapped engine returns."""
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return what the wrapped engine returns."""
        return self._engine.columns(name)

    def unique(self, name: str, column: str) -> bool:
        """Return what the wrapped engine returns."""
        return self._engine.unique(name, column)

    def data_version(self, name: str) -> str | None:
        """Return what the wrapped engine returns."""
        return find_data_version(self._engine, name)

    @property
    def descriptions(self) -> Mapping[str, str]:
        """Descriptions of what is materialized in the database of the wrapped engine."""
        return find_descriptions(self._engine)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return what the wrapped engine returns."""
        return self._engine.accepts_pattern(pattern)

    def turn(self, stop: Stop | None = None) -> AbstractContextManager[None]:
        """Return the turn of the wrapped engine."""
        return take_turn(self._engine, stop)

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Keep `statement`, then run it or fail as ordered."""
        self.statements.append(statement)
        if self.fail_with is not None:
            raise self.fail_with
        return self._engine.execute(statement) if stop is None else self._engine.execute(statement, stop=stop)

    def close(self) -> None:
        """Close the wrapped engine."""
        self._engine.close()
