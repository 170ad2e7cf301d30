"""Cache of the analyzed statements of a session, for dashboards that repeat them.

The cached results depend only on the text, the values of its parameters, the catalog and the patterns that the engine
accepts, which do not change in a session. Statements with a clock call, and refused statements, are never cached.

This file has two parts: (1) `AnalysisCache`; (2) from `prepare_statement` on, analysis of a statement whose parameters
have no values yet: their types, and the statement with such values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial

from dpsql.errors import Refusal, Unsupported, UsageError
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.analysis.outer_tree import SelectParser
from dpsql.sql.functions.allow_list import PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, UnboundParameter
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, Statement
from dpsql.sql.ir.tree import NULL, TEXT, Family, Type, parse_type
from dpsql.sql.lexer import scan
from dpsql.sql.syntax.implied import StandardSQL
from dpsql.sql.syntax.parameters import ParameterValues

MAX_STATEMENTS = 64
MAX_STATEMENT_LENGTH = 16 * 1024  # characters of a statement, and of the values of its parameters
_VALUES = frozenset([type(None), bool, int, float, Decimal, str, bytes, date, time, datetime])
UNKNOWN = "UNKNOWN"
MAX_PARAMETERS = 10_000
_READINGS = 4  # what one reading learns of a parameter may teach the next something of another
_OTHER_NAMES = {"NUMERIC": "DECIMAL(18,3)", "DECIMAL": "DECIMAL(18,3)", "TEXT": "VARCHAR", "FLOAT": "DOUBLE"}


class AnalysisCache:
    """The analysis of statements over one catalog; `read` raises what `analyze` does.

    `default_k` is the number of keys where a statement that is read as private says none, and `max_k` the largest one.
    """

    __slots__ = ("_accepts_pattern", "_catalog", "_clock", "_default_k", "_kept", "_max_k", "_parser")

    def __init__(
        self,
        catalog: Catalog,
        accepts_pattern: PatternCheck,
        *,
        clock: Clock,
        default_k: int,
        max_k: int = 1_000,
        parser: SelectParser | None = None,
    ) -> None:
        self._catalog = catalog
        self._accepts_pattern = accepts_pattern
        self._clock = clock
        self._default_k = default_k
        self._max_k = max_k
        self._parser = parser
        self._kept: dict[Hashable, Statement] = {}

    def read(
        self, text: str, parameters: ParameterValues, *, implicit: bool = False, postgres: bool = False
    ) -> Statement:
        """Return the analyzed statement; with `implicit`, standard SQL over private tables is read as private.

        With `postgres`, the text means what it means in PostgreSQL.
        """
        key = find_key(text, parameters, implicit=implicit, postgres=postgres)
        known = None if key is None else self._kept.get(key)
        if known is not None:
            return known
        clock = _TrackedClock(self._clock)
        reading = partial(
            analyze,
            text,
            self._catalog,
            parameters=parameters,
            accepts_pattern=self._accepts_pattern,
            standard=StandardSQL(implicit, self._default_k, self._max_k),
            parser=self._parser,
            postgres=postgres,
        )
        statement = reading(clock=clock)
        if clock.moment is not None:
            moment = clock.moment
            later = reading(clock=lambda: moment.replace(second=(moment.second + 1) % 60))
            # a private query that means another one a second later says so
            if statement != later and isinstance(statement, PrivateQuery):
                statement = replace(statement, reads_seconds=True)
            elif statement != later and isinstance(statement, OuterSelect):
                statement = replace(
                    statement, inners=tuple(replace(inner, reads_seconds=True) for inner in statement.inners)
                )
        if key is not None and clock.moment is None:
            if len(self._kept) >= MAX_STATEMENTS:
                self._kept = {}  # another thread may be reading the old one
            self._kept[key] = statement
        return statement

    def has(self, key: Hashable) -> bool:
        """Return whether the analysis of a statement is in the cache, by its key."""
        return key in self._kept


def find_key(text: object, parameters: object, *, implicit: bool, postgres: bool = False) -> Hashable:
    """Return the key of a statement in caches; None for a long one, and for parameters that are no plain values.

    Values that are equal have the same key only if they are written alike: 1 and 1.0 are different, and so are 0.0 and
    -0.0.
    """
    if type(text) is not str or not isinstance(parameters, tuple | list | dict):
        return None
    if not parameters:
        return (text, implicit, postgres, ()) if len(text) <= MAX_STATEMENT_LENGTH else None
    if type(parameters) not in {tuple, list} or not all(type(each) in _VALUES for each in parameters):
        return None
    values = tuple((type(each), repr(each)) for each in parameters)
    size = len(text) + sum(len(value) for _, value in values)
    return (text, implicit, postgres, values) if size <= MAX_STATEMENT_LENGTH else None


class _TrackedClock:
    """Clock that knows the moment at which it was read; None if it was not."""

    __slots__ = ("_clock", "moment")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.moment: datetime | None = None

    def __call__(self) -> datetime:
        self.moment = self._clock()
        return self.moment


# Part 2: statements whose parameters have no values yet.


def prepare_statement(
    text: str, types: Sequence[str], *, read: Callable[[Mapping[str, object]], Statement]
) -> tuple[tuple[str, ...], Statement, bool]:
    """Return the types of the parameters in order, the analyzed statement, and whether options are still open.

    `types` are the known types by name, in the order of the parameters; for UNKNOWN or missing ones, `read` infers the
    type from the statement. Raises as `read` does if the statement is refused for all values.
    """
    holes = {name: UnboundParameter() for name in _names(text)}
    for hole, known in zip(holes.values(), types, strict=False):
        hole.is_array = known.endswith("[]")
        hole.fill(_type(known.removesuffix("[]")))
    unknown = [hole for hole in holes.values() if hole.value is None]
    for _ in range(_READINGS):
        if not unknown:
            break
        with suppress(Refusal, Unsupported):
            read(holes)
        before, unknown = unknown, [hole for hole in unknown if hole.value is None]
        if len(unknown) == len(before):
            break
    for hole in unknown:
        if hole.otherwise != TEXT or hole.is_array:
            hole.fill(hole.otherwise)
    found = tuple(hole.type for hole in holes.values())
    for hole in unknown:
        hole.fill(
            TEXT if hole.otherwise != NULL else NULL
        )  # a parameter without a known type is a text, as in PostgreSQL
    return found, read(holes), any(hole.is_option for hole in holes.values())


def _names(text: str) -> list[str]:
    """Return the names of the parameters: numbers from 1, or words in the order in which they are first met."""
    written = [value.content for value in scan(text, lenient=True).values if value.kind == "parameter"]
    numbers = [int(each[1:]) for each in written if each[1:].isdigit()]
    if max(numbers, default=0) > MAX_PARAMETERS:
        hint = "Number them from $1, without a gap."
        raise UsageError("parameters", f"A statement has at most {MAX_PARAMETERS} parameters.", hint=hint)
    if numbers:
        return [str(number) for number in range(1, max(numbers) + 1)]
    if "?" in written:
        return [str(position) for position in range(1, len(written) + 1)]
    return list(dict.fromkeys(each[1:] for each in written))


def _type(name: str) -> Type:
    """Return the type that a client names; one that no parameter has is left to be found."""
    type_ = parse_type(_OTHER_NAMES.get(name.upper(), name.upper()))
    return NULL if type_.family is Family.OPAQUE else type_
