"""Analysis: the text of one statement into a private query, or a refusal; no row is read, no name guessed.

The statements that are no SELECT: SHOW BUDGET, SHOW TABLES, SHOW FUNCTIONS and DESCRIBE of a table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.not_private import add_clause_hint, find_misspelt, find_private_table, name_unit, not_private
from dpsql.sql.analysis.outer_select import read_outer_select
from dpsql.sql.analysis.outer_tree import SelectParser
from dpsql.sql.analysis.private_statement import (
    AnalysisRequest,
    ImpliedReading,
    check_explicit,
    check_header,
    find_implied,
    read_implied,
    read_private,
    set_terms,
)
from dpsql.sql.analysis.public_query import has_no_row, read_public, remove_rows, seeks_no_row
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.allow_list import AGGREGATES, PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock
from dpsql.sql.ir.scope import list_names
from dpsql.sql.ir.statements import (
    Describe,
    PrivateQuery,
    PublicQuery,
    ShowBudget,
    ShowFunctions,
    ShowTables,
)
from dpsql.sql.ir.statements import Statement as Asked
from dpsql.sql.lexer import Statement, ascii_lower, scan
from dpsql.sql.syntax.clause import (
    SplitStatement,
    extract_clause,
    find_clauses,
    list_select_tokens,
    several_queries,
)
from dpsql.sql.syntax.googlesql import extract_header
from dpsql.sql.syntax.grammar import settle
from dpsql.sql.syntax.implied import (
    EXPLICIT,
    StandardSQL,
    add_clause,
    find_ending,
)
from dpsql.sql.syntax.parameters import ParameterValues, bind
from dpsql.sql.syntax.sqlglot_nodes import parse

_WITHOUT_CLAUSE = frozenset(["not-private", "wrapping"])  # what is said of a statement that lacks a clause
_NOT_OF_CLAUSE = frozenset(["nothing-private", "clause"])  # what is said of one in a place where it means nothing
_Show = ShowBudget | ShowTables | ShowFunctions
_SHOWS: dict[str, _Show] = {"budget": ShowBudget(), "tables": ShowTables(), "functions": ShowFunctions()}


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
) -> Asked:
    """Analyze the statement, or raise `Refusal`, `Unsupported` or `UsageError`.

    `parameters` are the values of ?, $1 or :name. `accepts_pattern` says whether the engine compiles a regular
    expression, without any data. `clock` gives the time, and is read once, if the statement uses it. `standard` says
    whether standard SQL over private tables is read as private. With a `parser`, the SELECT around private queries may
    be of DuckDB's SQL. With `postgres`, the text means what it means in PostgreSQL, where DuckDB means another thing.
    """
    statement, refused = _scan(text, is_lenient=parser is not None, postgres=postgres)
    bound = bind(statement, parameters)
    command = None if refused else read_command(statement, catalog)
    if command is not None:
        return command
    clock = None if clock is None else cache(clock)  # one reading for all parts of a statement
    is_lenient = refused is not None
    plain, header = extract_header(statement, bound.__getitem__)
    asked = AnalysisRequest(plain, bound, catalog, accepts_pattern, clock, header, is_lenient, statement)
    try:
        return _read_statement(asked, standard, parser=parser, refused=refused)
    except (Refusal, Unsupported) as error:
        failed = error
    if not standard.is_private and header is None:
        failed = _find_lasting(asked, failed, max_k=standard.max_k, parser=parser, refused=refused)
    raise name_unit(failed, asked.statement, catalog=catalog)


def _read_statement(
    asked: AnalysisRequest,
    standard: StandardSQL,
    *,
    parser: SelectParser | None,
    refused: Refusal | Unsupported | None,
) -> Asked:
    """Return what a statement means; `refused` says why dpsql cannot cut it into words, if it cannot."""
    if refused is None:
        try:
            found = _read_alone(asked, standard)
        except (Refusal, Unsupported) as error:
            refused = error.with_traceback(None)  # whose frames would keep the answer of the session
        else:
            if found is not None:
                return found
            hint = (
                "Write the private query in FROM, or as a CTE: SELECT * FROM (SELECT ... TOP 10 PRIVATE) AS x LIMIT 5."
            )
            reason = "TOP k PRIVATE must be at the outermost level, in a subquery of FROM, or in a CTE."
            refused = Refusal("clause", reason, hint=hint, place=asked.statement.place(asked.statement.tokens[0]))
    found = None if parser is None else read_outer_select(asked, standard, parser=parser, refused=refused)
    if found is None:
        raise refused
    return found


def _find_lasting(
    asked: AnalysisRequest,
    failed: Refusal | Unsupported,
    *,
    max_k: int,
    parser: SelectParser | None,
    refused: Refusal | Unsupported | None,
) -> Refusal | Unsupported:
    """Return why a statement without a clause is refused: what it would still be refused for if it had one.

    The hint of that has the clause, too, so that both can be mended at once.
    """
    try:
        tokens, _ = list_select_tokens(asked.statement, of_duckdb=True)
        has_clause = bool(find_clauses(asked.statement, tokens))
    except (Refusal, Unsupported):
        return failed
    near = find_misspelt(failed, asked.catalog)
    implied = [] if has_clause else find_implied(asked, StandardSQL(is_private=True), besides=near)
    implied = [replace(each, k=min(each.asked or each.k, max_k)) for each in implied]
    if not (implied or has_clause) and failed.code == "not-private":
        implied = find_ending(tokens)
    if len(implied) != 1:
        return failed
    if near:
        return add_clause_hint(failed, implied[0], place=failed.place)
    clause = add_clause(asked.statement, implied[0], all_groups=False)
    try:
        _read_statement(replace(asked, statement=clause), EXPLICIT, parser=parser, refused=refused)
    except (Refusal, Unsupported) as error:
        is_lasting = failed.code in _WITHOUT_CLAUSE and error.code not in _NOT_OF_CLAUSE
        if not is_lasting and error.code != failed.code:
            return failed
        return add_clause_hint(error, implied[0], place=failed.place)
    return not_private(asked.statement, tokens, catalog=asked.catalog, clause=implied[0])


def _scan(text: str, *, is_lenient: bool, postgres: bool) -> tuple[Statement, Refusal | Unsupported | None]:
    """Return the tokens of a text, and why dpsql cannot read all of it, where it is left to DuckDB."""
    try:
        return scan(text, postgres=postgres), None
    except (Refusal, Unsupported) as error:
        refused = error.with_traceback(None)
    if is_lenient:
        with suppress(Refusal, Unsupported):
            return scan(text, lenient=True, postgres=postgres), refused
    raise refused


def _read_alone(asked: AnalysisRequest, standard: StandardSQL) -> Asked | None:
    """Return a statement with one private query or none; None where an outer SELECT is around its private query."""
    lifted = extract_clause(asked.statement, asked.bound.__getitem__)
    if lifted is None:
        return None
    if lifted.clause is not None:
        check_header(asked)
        return check_explicit(asked, read_private(asked.sources(asked.statement), lifted))
    try:
        return _free(asked.sources(asked.statement), lifted)
    except (Refusal, Unsupported) as error:
        refused = error.with_traceback(None)
    implied = find_implied(asked, standard)
    if not implied:
        raise refused
    if len(implied) > 1:
        raise several_queries(asked.statement, asked.statement.tokens[0])

    def read(*, all_groups: bool) -> PrivateQuery:
        explicit = add_clause(asked.statement, implied[0], all_groups=all_groups)
        lifted = extract_clause(explicit, asked.bound.__getitem__)
        if lifted is None or lifted.clause is None:  # a SELECT is around it, or what it would end is no query
            raise refused
        try:
            return read_private(asked.sources(explicit), set_terms(lifted, asked.header))
        except Refusal as error:
            if error.code != "nothing-private":
                raise
        raise refused

    reading = ImpliedReading(asked.statement, asked.catalog, standard.max_k, asked.header)
    return read_implied(implied[0], read, by=reading)


def _free(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Return a SELECT without private rows: it names only public tables, or selects no row."""
    statement = sources.reader.statement
    query = _read(sources, lifted)
    if sources.protected:
        if lifted.explained or not has_no_row(query):
            raise not_private(statement, lifted.tokens, catalog=sources.catalog)
        return remove_rows(query)
    return replace(query, explained=True) if lifted.explained else query


def _read(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Analyze a SELECT without the clause; if it is refused, raise the most helpful error."""
    statement, helps = sources.reader.statement, _names_public(lifted, sources.catalog)
    helps = helps or all(token.token_type.name != "FROM" for token in lifted.tokens)
    helps = helps or find_private_table(lifted.tokens, sources.catalog) is None  # a misspelt name, most likely
    try:
        select = parse(statement, settle(statement, lifted.tokens, aggregates=AGGREGATES))
        helps = helps or seeks_no_row(_apart(sources.reader), select)
        return read_public(sources, select, tokens=lifted.tokens)
    except (Refusal, Unsupported):
        if helps:
            raise
    raise not_private(statement, lifted.tokens, catalog=sources.catalog)


def _apart(reader: Reader) -> Reader:
    """Return a reader of the same statement that sees no table and no clock, and counts for itself."""
    apart = Reader(reader.statement, reader.bound, reader.accepts_pattern, READERS)
    return Sources(Catalog(()), apart).reader


def _names_public(lifted: SplitStatement, catalog: Catalog) -> bool:
    """Say whether a word of the statement is the name of a public table: without one it can only ask private ones."""
    public = {ascii_lower(table.name.rpartition(".")[2]) for table in catalog.tables if table.privacy_unit is None}
    return any(ascii_lower(token.text) in public for token in lifted.tokens)


def read_command(statement: Statement, catalog: Catalog) -> _Show | Describe | None:
    """Return the command that the statement is, or None when it does not begin like one."""
    tokens = list(statement.tokens)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    words = [ascii_lower(token.text) if token.token_type.name != "IDENTIFIER" else "" for token in tokens]
    if words[:1] == ["show"]:
        if len(words) > 1 and (show := _SHOWS.get(" ".join(words[1:]))):
            return show
        hint = "Write SHOW TABLES, SHOW FUNCTIONS, SHOW BUDGET, or DESCRIBE and a table."
        raise Refusal("not-a-query", "This is nothing that can be shown.", hint=hint, place=statement.place(tokens[0]))
    if words[:1] not in (["describe"], ["desc"]):
        return None
    kinds = [token.token_type.name for token in tokens[1:]]
    names = [token.text for token in tokens[1::2]]
    if len(names) not in {1, 2, 3} or kinds[1::2] != ["DOT"] * (len(names) - 1) or len(kinds) != 2 * len(names) - 1:
        hint = "Write SHOW TABLES for their names; EXPLAIN shows what a query would do."
        raise Refusal("not-a-query", "DESCRIBE takes one table.", hint=hint, place=statement.place(tokens[0]))
    table = catalog.find_path(names)
    if table is None:
        hint = list_names("The policy exposes", [known.name for known in catalog.tables], wanted=names[-1])
        where = statement.place(tokens[1], tokens[-1])
        raise Refusal("unknown-table", "There is no such table.", hint=hint, place=where)
    return Describe(table.name)
