"""Cache of the analyzed statements of a session, for dashboards that repeat them.

The cached results depend only on the text, the catalog and the patterns that the engine accepts, which do not change
in a session. Statements with parameters or a clock call, and refused statements, are never cached.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.analysis.evaluated_select import SelectParser
from dpsql.sql.functions.allow_list import PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock
from dpsql.sql.ir.statements import EvaluatedQuery, PrivateQuery, WrappedQuery
from dpsql.sql.ir.statements import Statement as Asked
from dpsql.sql.syntax.parameters import ParameterValues
from dpsql.sql.syntax.standard_sql import StandardSQL

__all__ = ["AnalysisCache", "is_plain"]

MAX_STATEMENTS = 64
MAX_STATEMENT_LENGTH = 16 * 1024  # characters of a statement


class AnalysisCache:
    """The analysis of statements over one catalog; `read` raises what `analyze` does.

    `default_k` is the number of keys where a statement that is read as private says none.
    """

    __slots__ = ("_accepts_pattern", "_catalog", "_clock", "_default_k", "_kept", "_parser")

    def __init__(
        self,
        catalog: Catalog,
        accepts_pattern: PatternCheck,
        *,
        clock: Clock,
        default_k: int,
        parser: SelectParser | None = None,
    ) -> None:
        self._catalog = catalog
        self._accepts_pattern = accepts_pattern
        self._clock = clock
        self._default_k = default_k
        self._parser = parser
        self._kept: dict[tuple[str, bool], Asked] = {}

    def read(self, text: str, parameters: ParameterValues, *, implicit: bool = False) -> Asked:
        """Return the analyzed statement; with `implicit`, standard SQL over private tables is read as private."""
        plain = is_plain(text, parameters)
        known = self._kept.get((text, implicit)) if plain else None
        if known is not None:
            return known
        clock = _TrackedClock(self._clock)
        asked = self._analyze(text, parameters, clock=clock, implicit=implicit)
        if clock.moment is not None:
            moment = clock.moment
            tick: Clock = lambda: moment.replace(second=(moment.second + 1) % 60)  # noqa: E731 - used once
            later = self._analyze(text, parameters, clock=tick, implicit=implicit)
            asked = asked if asked == later else _mark_seconds(asked)
        if plain and clock.moment is None and len(text) <= MAX_STATEMENT_LENGTH:
            if len(self._kept) >= MAX_STATEMENTS:
                self._kept = {}  # another thread may be reading the old one
            self._kept[text, implicit] = asked
        return asked

    def has(self, text: str, *, implicit: bool) -> bool:
        """Return whether the analysis of a statement without parameters is in the cache."""
        return (text, implicit) in self._kept

    def _analyze(self, text: str, parameters: ParameterValues, *, clock: Clock, implicit: bool) -> Asked:
        return analyze(
            text,
            self._catalog,
            parameters=parameters,
            accepts_pattern=self._accepts_pattern,
            clock=clock,
            standard=StandardSQL(implicit, self._default_k),
            parser=self._parser,
        )


def is_plain(text: object, parameters: object) -> bool:
    """Return whether a statement is a text without parameters, which may be in the cache."""
    return type(text) is str and type(parameters) in {tuple, list, dict} and not parameters


def _mark_seconds(statement: Asked) -> Asked:
    """Return a statement that says of its private query, if it has one, that it means another one a second later."""
    match statement:
        case PrivateQuery():
            return replace(statement, reads_seconds=True)
        case WrappedQuery(inner=inner):
            return replace(statement, inner=replace(inner, reads_seconds=True))
        case EvaluatedQuery(inners=inners):
            return replace(statement, inners=tuple(replace(inner, reads_seconds=True) for inner in inners))
    return statement


class _TrackedClock:
    """Clock that knows the moment at which it was read; None if it was not."""

    __slots__ = ("_clock", "moment")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.moment: datetime | None = None

    def __call__(self) -> datetime:
        self.moment = self._clock()
        return self.moment
