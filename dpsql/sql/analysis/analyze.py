"""Analysis: the text of one statement into a private query, or a refusal; no row is read, no name guessed.

This file has three parts. (1) `analyze` scans and binds, then tries in this order: `_read_command` (SHOW, DESCRIBE);
`_read_alone` (one private query with its clause, a public query, or standard SQL that implies a clause);
`read_outer_select` (private queries inside another SELECT). What none of them reads is refused, with a hint that
`_find_lasting` completes.

(2) `AnalysisCache` has the analyzed statements of a session, for dashboards that repeat them. They depend only on the
text, the values of its parameters, the catalog and the patterns that the engine accepts, which do not change in a
session. Statements with a clock call, and refused statements, are never cached.

(3) From `prepare_statement` on, analysis of a statement whose parameters have no values yet: their types, and the
statement with such values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache, partial

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal, Unsupported, UsageError
from dpsql.sql.allow_list import PatternCheck
from dpsql.sql.analysis.measures import propose_for_extreme
from dpsql.sql.analysis.outer_select import read_outer_select
from dpsql.sql.analysis.outer_tree import SelectParser
from dpsql.sql.analysis.plain_select import (
    find_implied,
    find_private_table,
    propose_clause,
    put_header_options,
    read_implied,
    read_without_clause,
    refuse_without_clause,
)
from dpsql.sql.analysis.private_select import AnalysisRequest, check_explicit, check_header, read_private
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, UnboundParameter
from dpsql.sql.ir.scope import list_tables, propose_name
from dpsql.sql.ir.statements import (
    Describe,
    OuterSelect,
    PrivateQuery,
    ShowAnswers,
    ShowBudget,
    ShowFunctions,
    ShowTables,
    Statement,
)
from dpsql.sql.ir.tree import NULL, TEXT, Family, Type, parse_type
from dpsql.sql.lexer import ParameterValues, ScannedStatement, ascii_lower, bind, scan
from dpsql.sql.syntax.block import EVERY_AGGREGATE
from dpsql.sql.syntax.clause import extract_clause, extract_header, find_clauses, list_select_tokens, several_queries
from dpsql.sql.syntax.forms import read_top_as_limit
from dpsql.sql.syntax.grammar import UNIT_COUNT
from dpsql.sql.syntax.implied import EXPLICIT, ImpliedClause, StandardSQL, add_clause, find_ending

_WITHOUT_CLAUSE = frozenset(["not-private", "wrapping"])  # what is said of a statement that lacks a clause
_NOT_OF_CLAUSE = frozenset(["nothing-private", "clause"])  # what is said of one in a place where it means nothing
_Show = ShowBudget | ShowTables | ShowAnswers | ShowFunctions
_COMMANDS = frozenset(["show", "describe", "desc"])
_SHOWS: dict[str, _Show] = {
    "answers": ShowAnswers(),
    "budget": ShowBudget(),
    "functions": ShowFunctions(),
    "tables": ShowTables(),
}
MAX_STATEMENTS = 64
MAX_STATEMENT_LENGTH = 16 * 1024  # characters of a statement, and of the values of its parameters
_VALUES = frozenset([type(None), bool, int, float, Decimal, str, bytes, date, time, datetime])
UNKNOWN = "UNKNOWN"
MAX_PARAMETERS = 10_000
_READINGS = 4  # what one reading learns of a parameter may teach the next something of another
_OTHER_NAMES = {"NUMERIC": "DECIMAL(18,3)", "DECIMAL": "DECIMAL(18,3)", "TEXT": "VARCHAR", "FLOAT": "DOUBLE"}


def analyze(  # noqa: PLR0913 - what a session has
    text: str,
    catalog: Catalog,
    *,
    parameters: ParameterValues = (),
    accepts_pattern: PatternCheck,
    clock: Clock | None = None,
    standard: StandardSQL = EXPLICIT,
    parser: SelectParser | None = None,
    postgres: bool = False,
) -> Statement:
    """Analyze the statement, or raise `Refusal`, `Unsupported` or `UsageError`.

    `parameters` are the values of ?, $1 or :name. `accepts_pattern` says whether the engine compiles a regular
    expression, without any data. `clock` gives the time, and is read once, if the statement uses it. `standard` says
    whether standard SQL over private tables is read as private. With a `parser`, the SELECT around private queries may
    be of DuckDB's SQL. With `postgres`, the text means what it means in PostgreSQL, where DuckDB means another thing.
    """
    statement: ScannedStatement | None = None
    refused: Refusal | Unsupported | None = None  # why dpsql cannot cut the text into words; DuckDB may read it
    try:
        statement = scan(text, postgres=postgres)
    except (Refusal, Unsupported) as error:
        refused = error.with_traceback(None)
        if parser is None:
            raise
        with suppress(Refusal, Unsupported):
            statement = scan(text, lenient=True, postgres=postgres)
        if statement is None:
            raise
    bound = bind(statement, parameters)
    if refused is None and statement.tokens and ascii_lower(statement.tokens[0].text) in _COMMANDS:
        command = _read_command(statement, catalog)
        if command is not None:
            return command
    clock = None if clock is None else cache(clock)  # one reading for all parts of a statement
    plain, header = extract_header(statement, bound.__getitem__)
    if (standard.is_private or header is not None) and "top" in text.lower():
        # SELECT TOP 5 city FROM visits GROUP BY city becomes SELECT city FROM visits GROUP BY city LIMIT 5
        plain = replace(plain, tokens=tuple(read_top_as_limit(plain.tokens)))
    request = AnalysisRequest(
        plain, bound, catalog, accepts_pattern, clock, header, refused is not None, statement, standard, parser
    )
    try:
        return _read_statement(request, refused)
    except (Refusal, Unsupported) as error:
        failed = _refuse_missing_comma(plain) or error if error.code in {"syntax", "order"} else error
    if not standard.is_private and header is None:
        failed = _find_lasting(request, failed, refused=refused)
    raise _complete_hint(plain, failed, catalog=catalog)


def _refuse_missing_comma(statement: ScannedStatement) -> Refusal | None:
    """Return the refusal of an aggregate behind a name or a parenthesis, as in SELECT city COUNT(*), if any."""
    tokens = statement.tokens
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_call = ascii_lower(token.text) in EVERY_AGGREGATE and after.token_type.name == "L_PAREN"
        if is_call and before.token_type.name in {"VAR", "IDENTIFIER", "R_PAREN"}:
            hint, reason = f"Write a comma behind {before.text}.", f"A comma is missing before {token.text.upper()}."
            return Refusal("syntax", reason, hint=hint, place=statement.place(token))
    return None


def _complete_hint(
    statement: ScannedStatement, failed: Refusal | Unsupported, *, catalog: Catalog
) -> Refusal | Unsupported:
    """Return a refusal with what the grammar cannot say, which knows no catalog: names of columns, and their types."""
    table = find_private_table(statement.tokens, catalog) if failed.code == "not-row-local" else None
    if table is None or table.privacy_unit is None:
        return failed
    hint = (failed.hint or "").replace(UNIT_COUNT, f"COUNT(DISTINCT {write_name(table.privacy_unit)}),")
    hint = propose_for_extreme(statement, failed, table=table, catalog=catalog) or hint
    return type(failed)(failed.code, failed.reason, hint=hint, place=failed.place)


def _read_statement(request: AnalysisRequest, otherwise: Refusal | Unsupported | None) -> Statement:
    """Return what a statement means; `otherwise` says why dpsql cannot cut it into words, if it cannot.

    Read (1) one private query or a public SELECT alone; (2) where a SELECT is around the clause (None), or (1) refuses,
    private queries inside DuckDB's SQL; (3) if that fails too, raise the better refusal of the two, for which that of
    (1) is passed on.
    """
    if otherwise is None:
        try:
            found = _read_alone(request)
        except (Refusal, Unsupported) as error:
            otherwise = error.with_traceback(None)  # whose frames would keep the answer of the session
        else:
            if found is not None:
                return found
            hint = (
                "Write the private query in FROM, or as a CTE: SELECT * FROM (SELECT ... TOP 10 PRIVATE) AS x LIMIT 5."
            )
            reason = "TOP k PRIVATE must be at the outermost level, in a subquery of FROM, or in a CTE."
            otherwise = Refusal("clause", reason, hint=hint, place=request.statement.place(request.statement.tokens[0]))
    found = None if request.parser is None else read_outer_select(request, request.parser, otherwise=otherwise)
    if found is None:
        raise otherwise
    return found


def _find_lasting(
    request: AnalysisRequest, failed: Refusal | Unsupported, *, refused: Refusal | Unsupported | None
) -> Refusal | Unsupported:
    """Return why a statement without a clause is refused: what it would still be refused for if it had one.

    The hint of that has the clause, too, so that both can be mended at once.
    """
    try:
        tokens, _ = list_select_tokens(request.statement, of_duckdb=True)
        has_clause = bool(find_clauses(request.statement, tokens))
    except (Refusal, Unsupported):
        return failed
    near = _find_misspelt(failed, request.catalog)
    implied = [] if has_clause else find_implied(replace(request, standard=StandardSQL(is_private=True)), besides=near)
    implied = [replace(each, k=min(each.written_limit or each.k, request.standard.max_k)) for each in implied]
    if not (implied or has_clause) and failed.code == "not-private":
        implied = find_ending(tokens)
    if len(implied) != 1:
        return failed
    if near:
        return _add_clause_hint(failed, implied[0], place=failed.place)
    # The statement is read again as its author would write it, with TOP k PRIVATE: what still refuses it has to be
    # mended too.
    clause = add_clause(request.statement, implied[0], all_groups=False)
    try:
        _read_statement(replace(request, statement=clause, standard=EXPLICIT), refused)
    except (Refusal, Unsupported) as error:
        is_lasting = failed.code in _WITHOUT_CLAUSE and error.code not in _NOT_OF_CLAUSE
        if not is_lasting and error.code != failed.code:
            return failed
        return _add_clause_hint(error, implied[0], place=failed.place)
    return refuse_without_clause(request.statement, tokens, catalog=request.catalog, clause=implied[0])


def _read_alone(request: AnalysisRequest) -> Statement | None:
    """Return a statement with one private query or none; None where an outer SELECT is around its private query."""
    lifted = extract_clause(request.statement, request.bound.__getitem__)
    if lifted is None:
        return None
    if lifted.clause is not None:
        check_header(request)
        query = read_private(request.sources(request.statement), lifted)
        check_explicit(request, query)
        return query
    try:
        return read_without_clause(request.sources(request.statement), lifted)
    except (Refusal, Unsupported) as error:
        refused = error.with_traceback(None)
    implied = find_implied(request)
    if not implied:
        raise refused
    if len(implied) > 1:
        raise several_queries(request.statement, request.statement.tokens[0])

    def read(*, all_groups: bool) -> PrivateQuery:
        explicit = add_clause(request.statement, implied[0], all_groups=all_groups)
        lifted = extract_clause(explicit, request.bound.__getitem__)
        if lifted is None or lifted.clause is None:  # a SELECT is around it, or what it would end is no query
            raise refused
        try:
            return read_private(request.sources(explicit), put_header_options(lifted, request.header))
        except Refusal as error:
            if error.code != "nothing-private":
                raise
        raise refused

    return read_implied(request, implied[0], read=read)


def _read_command(statement: ScannedStatement, catalog: Catalog) -> _Show | Describe | None:
    """Return the command that the statement is; None for one whose first word is a name in double quotes."""
    tokens = list(statement.tokens)
    while tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    if tokens[0].token_type.name == "IDENTIFIER":
        return None
    if ascii_lower(tokens[0].text) == "show":
        words = [ascii_lower(token.text) if token.token_type.name != "IDENTIFIER" else "" for token in tokens]
        if len(words) > 1 and (show := _SHOWS.get(" ".join(words[1:]))):
            return show
        hint = "Write SHOW TABLES, SHOW ANSWERS, SHOW FUNCTIONS, SHOW BUDGET, or DESCRIBE and a table."
        raise Refusal("not-a-query", "This is nothing that can be shown.", hint=hint, place=statement.place(tokens[0]))
    kinds = [token.token_type.name for token in tokens[1:]]
    names = [token.text for token in tokens[1::2]]
    if len(names) not in {1, 2, 3} or kinds[1::2] != ["DOT"] * (len(names) - 1) or len(kinds) != 2 * len(names) - 1:
        hint = "Write SHOW TABLES for their names; EXPLAIN shows what a query would do."
        raise Refusal("not-a-query", "DESCRIBE takes one table.", hint=hint, place=statement.place(tokens[0]))
    table = catalog.find_path(names)
    if table is None:
        hint = list_tables([known.name for known in catalog.list_tables()], names)
        where = statement.place(tokens[1], tokens[-1])
        raise Refusal("unknown-table", "There is no such table.", hint=hint, place=where)
    return Describe(table.name)


def _add_clause_hint(
    refused: Refusal | Unsupported, clause: ImpliedClause, *, place: Place | str | None
) -> Refusal | Unsupported:
    """Return a refusal that the clause which a statement lacks would not mend, with that clause in its hint.

    It is at the `place` given if it has none.
    """
    hint = refused.hint or ""
    hint = hint if "PRIVATE" in hint else f"{hint} {propose_clause(clause)}, too.".lstrip()
    return type(refused)(refused.code, refused.reason, hint=hint, place=refused.place or place)


def _find_misspelt(refused: Refusal | Unsupported, catalog: Catalog) -> frozenset[str]:
    """Return the name of a table that is not there, in lower case, where it is near to that of a private one."""
    if refused.code != "unknown-table" or not isinstance(refused.place, Place):
        return frozenset()
    written = refused.place.fragment.split(" ")[0].rpartition(".")[2].strip('"')
    near = propose_name(written, [table.name for table in catalog.tables if table.privacy_unit is not None])
    return frozenset([ascii_lower(written)] if near else [])


# Part 2: the cache.


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
        moments = list[datetime]()

        def read_clock() -> datetime:
            moments.append(self._clock())
            return moments[-1]

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
        statement = reading(clock=read_clock)
        if moments:
            # Second 59 becomes second 0 of the same minute, so that a text which cuts its reading to a minute or longer
            # is the same statement in both readings.
            later = reading(clock=lambda: moments[0].replace(second=(moments[0].second + 1) % 60))
            # a private query that means another one a second later says so
            if statement != later and isinstance(statement, PrivateQuery):
                statement = replace(statement, reads_seconds=True)
            elif statement != later and isinstance(statement, OuterSelect):
                statement = replace(
                    statement, inners=tuple(replace(inner, reads_seconds=True) for inner in statement.inners)
                )
        if key is not None and not moments:
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


# Part 3: statements whose parameters have no values yet.


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
            # A reading that is refused has learned the types of the parameters before the place where it stops; the
            # last reading, below, raises.
            read(holes)
        before, unknown = unknown, [hole for hole in unknown if hole.value is None]
        if len(unknown) == len(before):
            break
    for hole in unknown:
        if hole.otherwise != TEXT or hole.is_array:
            hole.fill(hole.otherwise)
    # A client sees UNKNOWN for the parameters that are still open; only then do these get a text, so that the statement
    # can be read.
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
