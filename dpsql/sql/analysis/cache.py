"""Cache of the analyzed statements of a session, for dashboards that repeat them.

The cached results depend only on the text, the catalog and the patterns that the engine accepts, which do not change
in a session. Statements with parameters or a clock call, and refused statements, are never cached.
"""

from __future__ import annotations

from datetime import datetime

from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.functions.allow_list import PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock
from dpsql.sql.ir.statements import Statement as Asked
from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["AnalysisCache"]

MAX_STATEMENTS = 64
MAX_STATEMENT_LENGTH = 16 * 1024  # characters of a statement


class AnalysisCache:
    """The analysis of statements over one catalog; `read` raises what `analyze` does."""

    __slots__ = ("_accepts_pattern", "_catalog", "_clock", "_kept")

    def __init__(self, catalog: Catalog, accepts_pattern: PatternCheck, *, clock: Clock) -> None:
        self._catalog = catalog
        self._accepts_pattern = accepts_pattern
        self._clock = clock
        self._kept: dict[str, Asked] = {}

    def read(self, text: str, parameters: ParameterValues) -> Asked:
        """Return the analyzed statement."""
        plain = type(text) is str and type(parameters) in {tuple, list, dict} and not parameters
        known = self._kept.get(text) if plain else None
        if known is not None:
            return known
        clock = _TrackedClock(self._clock)
        asked = analyze(text, self._catalog, parameters=parameters, accepts_pattern=self._accepts_pattern, clock=clock)
        if plain and not clock.was_read and len(text) <= MAX_STATEMENT_LENGTH:
            if len(self._kept) >= MAX_STATEMENTS:
                self._kept = {}  # another thread may be reading the old one
            self._kept[text] = asked
        return asked


class _TrackedClock:
    """A clock that knows whether it was read."""

    __slots__ = ("_clock", "was_read")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.was_read = False

    def __call__(self) -> datetime:
        self.was_read = True
        return self._clock()
