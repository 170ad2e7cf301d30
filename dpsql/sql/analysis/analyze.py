"""Analysis: the text of one statement into a private query, or a refusal; no row is read, no name guessed.

`analyze` scans and binds, then tries in this order: `_read_command` (SHOW, DESCRIBE); `_read_alone` (one private query
with its clause, a public query, or standard SQL that implies a clause); `read_outer_select` (private queries inside
another SELECT). What none of them reads is refused, with a hint that `_find_lasting` completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.dialects import propose_query, write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.outer_select import read_outer_select
from dpsql.sql.analysis.outer_tree import SelectParser
from dpsql.sql.analysis.private_select import (
    AnalysisRequest,
    ImpliedReading,
    check_explicit,
    check_header,
    find_implied,
    put_header_options,
    read_implied,
    read_private,
)
from dpsql.sql.analysis.public_query import has_no_row, read_public, remove_rows, seeks_no_row
from dpsql.sql.analysis.quantiles import propose_for_extreme
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.allow_list import AGGREGATES, EVERY_AGGREGATE, FUNCTIONS, PatternCheck, refuse_unknown
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.literals import Clock
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.ir.scope import list_names, propose_name
from dpsql.sql.ir.statements import (
    Describe,
    PrivateQuery,
    PublicQuery,
    ShowBudget,
    ShowFunctions,
    ShowTables,
    Statement,
)
from dpsql.sql.ir.tree import Family
from dpsql.sql.lexer import ScannedStatement, ascii_lower, scan
from dpsql.sql.syntax.block import Block, find_calls, find_selects, first_token, nest
from dpsql.sql.syntax.clause import (
    CLAUSE_HINT,
    SplitStatement,
    extract_clause,
    find_clauses,
    list_select_tokens,
    several_queries,
)
from dpsql.sql.syntax.googlesql import extract_header
from dpsql.sql.syntax.grammar import UNIT_COUNT, settle
from dpsql.sql.syntax.implied import EXPLICIT, ImpliedClause, StandardSQL, add_clause, find_ending, groups_by_any
from dpsql.sql.syntax.parameters import ParameterValues, bind
from dpsql.sql.syntax.sqlglot_nodes import parse

if TYPE_CHECKING:
    from sqlglot import Token


_WITHOUT_CLAUSE = frozenset(["not-private", "wrapping"])  # what is said of a statement that lacks a clause
_NOT_OF_CLAUSE = frozenset(["nothing-private", "clause"])  # what is said of one in a place where it means nothing
_Show = ShowBudget | ShowTables | ShowFunctions
_SHOWS: dict[str, _Show] = {"budget": ShowBudget(), "tables": ShowTables(), "functions": ShowFunctions()}
_LONGEST_QUOTED = 200  # characters of a statement in a hint
_AFTER_ROWS = frozenset(["GROUP_BY", "ORDER_BY", "LIMIT", "OFFSET"])
_CALLED = ("count", "sum", "avg", *SPREADS, *sorted(FUNCTIONS))
_UNREAD = frozenset([Family.OPAQUE, Family.INTERVAL])  # no group keys


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
    command = None if refused else _read_command(statement, catalog)
    if command is not None:
        return command
    clock = None if clock is None else cache(clock)  # one reading for all parts of a statement
    plain, header = extract_header(statement, bound.__getitem__)
    if (standard.is_private or header is not None) and "top" in text.lower():
        from dpsql.sql.syntax.forms import read_top_as_limit

        plain = replace(plain, tokens=tuple(read_top_as_limit(plain.tokens)))
    asked = AnalysisRequest(plain, bound, catalog, accepts_pattern, clock, header, refused is not None, statement)
    try:
        return _read_statement(asked, standard, parser=parser, otherwise=refused)
    except (Refusal, Unsupported) as error:
        failed = error
    if not standard.is_private and header is None:
        failed = _find_lasting(asked, failed, max_k=standard.max_k, parser=parser, refused=refused)
    raise _complete_hint(plain, failed, catalog=catalog)


def _complete_hint(
    statement: ScannedStatement, failed: Refusal | Unsupported, *, catalog: Catalog
) -> Refusal | Unsupported:
    """Return a refusal with what the grammar cannot say, which knows no catalog: names of columns, and their types."""
    table = _find_private_table(statement.tokens, catalog) if failed.code == "not-row-local" else None
    if table is None or table.privacy_unit is None:
        return failed
    hint = (failed.hint or "").replace(UNIT_COUNT, f"COUNT(DISTINCT {write_name(table.privacy_unit)}),")
    hint = propose_for_extreme(statement, failed, table=table) or hint
    return type(failed)(failed.code, failed.reason, hint=hint, place=failed.place)


def _read_statement(
    asked: AnalysisRequest,
    standard: StandardSQL,
    *,
    parser: SelectParser | None,
    otherwise: Refusal | Unsupported | None,
) -> Statement:
    """Return what a statement means; `otherwise` says why dpsql cannot cut it into words, if it cannot.

    Read (1) one private query or a public SELECT alone; (2) where a SELECT is around the clause (None), or (1) refuses,
    private queries inside DuckDB's SQL; (3) if that fails too, raise the better refusal of the two, for which that of
    (1) is passed on.
    """
    if otherwise is None:
        try:
            found = _read_alone(asked, standard)
        except (Refusal, Unsupported) as error:
            otherwise = error.with_traceback(None)  # whose frames would keep the answer of the session
        else:
            if found is not None:
                return found
            hint = (
                "Write the private query in FROM, or as a CTE: SELECT * FROM (SELECT ... TOP 10 PRIVATE) AS x LIMIT 5."
            )
            reason = "TOP k PRIVATE must be at the outermost level, in a subquery of FROM, or in a CTE."
            otherwise = Refusal("clause", reason, hint=hint, place=asked.statement.place(asked.statement.tokens[0]))
    found = None if parser is None else read_outer_select(asked, standard, parser=parser, otherwise=otherwise)
    if found is None:
        raise otherwise
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
    near = _find_misspelt(failed, asked.catalog)
    implied = [] if has_clause else find_implied(asked, StandardSQL(is_private=True), besides=near)
    implied = [replace(each, k=min(each.written_limit or each.k, max_k)) for each in implied]
    if not (implied or has_clause) and failed.code == "not-private":
        implied = find_ending(tokens)
    if len(implied) != 1:
        return failed
    if near:
        return _add_clause_hint(failed, implied[0], place=failed.place)
    clause = add_clause(asked.statement, implied[0], all_groups=False)
    try:
        _read_statement(replace(asked, statement=clause), EXPLICIT, parser=parser, otherwise=refused)
    except (Refusal, Unsupported) as error:
        is_lasting = failed.code in _WITHOUT_CLAUSE and error.code not in _NOT_OF_CLAUSE
        if not is_lasting and error.code != failed.code:
            return failed
        return _add_clause_hint(error, implied[0], place=failed.place)
    return _not_private(asked.statement, tokens, catalog=asked.catalog, clause=implied[0])


def _read_alone(asked: AnalysisRequest, standard: StandardSQL) -> Statement | None:
    """Return a statement with one private query or none; None where an outer SELECT is around its private query."""
    lifted = extract_clause(asked.statement, asked.bound.__getitem__)
    if lifted is None:
        return None
    if lifted.clause is not None:
        check_header(asked)
        query = read_private(asked.sources(asked.statement), lifted)
        check_explicit(asked, query)
        return query
    try:
        return _read_public(asked.sources(asked.statement), lifted)
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
            return read_private(asked.sources(explicit), put_header_options(lifted, asked.header))
        except Refusal as error:
            if error.code != "nothing-private":
                raise
        raise refused

    reading = ImpliedReading(asked.statement, asked.catalog, standard.max_k, asked.header)
    return read_implied(implied[0], read, by=reading)


def _read_public(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Return a SELECT without private rows: it names only public tables, or selects no row.

    If it is refused, raise the most helpful error.
    """
    reader, catalog, tokens = sources.reader, sources.catalog, lifted.tokens
    public = {ascii_lower(table.name.rpartition(".")[2]) for table in catalog.tables if table.privacy_unit is None}
    # without the name of a public table it can only ask private ones
    helps = any(ascii_lower(token.text) in public for token in tokens)
    helps = helps or all(token.token_type.name != "FROM" for token in tokens)
    helps = helps or _find_private_table(tokens, catalog) is None  # a misspelt name, most likely
    query: PublicQuery | None = None
    try:
        select = parse(reader.statement, settle(reader.statement, tokens, aggregates=AGGREGATES))
        # a reader of the same statement that sees no table and no clock, and counts for itself
        apart = Sources(Catalog(()), Reader(reader.statement, reader.bound, reader.accepts_pattern, READERS))
        helps = helps or seeks_no_row(apart.reader, select)
        query = read_public(sources, select, tokens=tokens)
    except (Refusal, Unsupported):
        if helps:
            raise
    if query is None:
        raise _not_private(reader.statement, tokens, catalog=catalog)
    if sources.protected:
        if lifted.explained or not has_no_row(query):
            raise _not_private(reader.statement, tokens, catalog=catalog)
        return remove_rows(query)
    return replace(query, explained=True) if lifted.explained else query


def _read_command(statement: ScannedStatement, catalog: Catalog) -> _Show | Describe | None:
    """Return the command that the statement is, or None when it does not begin like one."""
    tokens = list(statement.tokens)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    first = ascii_lower(tokens[0].text) if tokens and tokens[0].token_type.name != "IDENTIFIER" else ""
    if first == "show":
        words = [ascii_lower(token.text) if token.token_type.name != "IDENTIFIER" else "" for token in tokens]
        if len(words) > 1 and (show := _SHOWS.get(" ".join(words[1:]))):
            return show
        hint = "Write SHOW TABLES, SHOW FUNCTIONS, SHOW BUDGET, or DESCRIBE and a table."
        raise Refusal("not-a-query", "This is nothing that can be shown.", hint=hint, place=statement.place(tokens[0]))
    if first not in {"describe", "desc"}:
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


def _not_private(
    statement: ScannedStatement, tokens: Sequence[Token], *, catalog: Catalog, clause: ImpliedClause | None = None
) -> Refusal | Unsupported:
    """Return the refusal of a statement that would show exact values of a private table.

    `tokens` are those of its SELECT, without EXPLAIN. With the `clause` that it lacks it would be answered.
    """
    table, roots = _find_private_table(tokens, catalog), nest(tokens)
    unit, place = "" if table is None else table.privacy_unit or "", statement.place(statement.tokens[-1])
    first = next((select for select in find_selects(roots) if first_token(select.nodes) is tokens[0]), None)
    if unit and first is not None and groups_by_any(first, names={ascii_lower(unit)}):
        reason = f"Each group would be one {unit}, and what belongs to one is never released."
        hint = _propose_total(statement, tokens, table=table)
        return Refusal("not-private", reason, hint=hint, place=place)
    outer = [node for node in roots.nodes if not isinstance(node, Block)]  # the tokens outside of all parentheses
    kinds, has_calls = [token.token_type.name for token in outer], bool(find_calls(roots.nodes))
    # a SELECT with neither groups nor an aggregate has the rows of its tables
    has_raw_rows = not (has_calls or "GROUP_BY" in kinds or "DISTINCT" in kinds[:2])
    reason, hint = "This query does not end in PRIVATE, and exact answers are not given.", CLAUSE_HINT
    if "GROUP_BY" not in kinds and has_calls:
        hint = _propose_total(statement, tokens, table=table)
    elif has_raw_rows:
        hint = _propose_query(table, selected=tokens[1:])
    elif kinds[-2:] == ["LIMIT", "NUMBER"]:  # which may be written FETCH FIRST 3 ROWS ONLY
        ending = " ".join(statement.text[outer[-2].start : statement.tokens[-1].end + 1].rstrip("; \n").split())
        hint = f"Write TOP {outer[-1].text} PRIVATE in place of {ending}."
    if has_raw_rows:
        reason = "Rows are not released as they are: counts, sums and averages of many are."
        for token, after in pairwise(tokens):
            if token.token_type.name != "VAR" or after.token_type.name != "L_PAREN":
                continue
            word = ascii_lower(token.text)
            if word not in _CALLED and word not in EVERY_AGGREGATE and propose_name(word, _CALLED):
                return refuse_unknown(token.text, statement.place(token), known=_CALLED)
    if clause is not None and clause.is_inside:
        hint = f"{_propose_clause(clause)}."
    return Refusal("not-private", reason, hint=hint, place=place)


def _add_clause_hint(
    refused: Refusal | Unsupported, clause: ImpliedClause, *, place: Place | str | None
) -> Refusal | Unsupported:
    """Return a refusal that the clause which a statement lacks would not mend, with that clause in its hint.

    It is at the `place` given if it has none.
    """
    hint = refused.hint or ""
    hint = hint if "PRIVATE" in hint else f"{hint} {_propose_clause(clause)}, too.".lstrip()
    return type(refused)(refused.code, refused.reason, hint=hint, place=refused.place or place)


def _find_misspelt(refused: Refusal | Unsupported, catalog: Catalog) -> frozenset[str]:
    """Return the name of a table that is not there, in lower case, where it is near to that of a private one."""
    if refused.code != "unknown-table" or not isinstance(refused.place, Place):
        return frozenset()
    written = refused.place.fragment.split(" ")[0].rpartition(".")[2].strip('"')
    near = propose_name(written, [table.name for table in catalog.tables if table.privacy_unit is not None])
    return frozenset([ascii_lower(written)] if near else [])


def _propose_clause(clause: ImpliedClause) -> str:
    """Return where to write the clause that a statement lacks."""
    words = "PRIVATE" if clause.is_total else f"TOP {clause.k} PRIVATE"
    limit = [token.text.upper() for token in clause.tail[:2]]
    query = "the inner query" if clause.is_inside else "the query"
    if not clause.is_total and limit == ["LIMIT", str(clause.k)]:
        return f"Write {words} in place of LIMIT {clause.k} in {query}"
    return f"End {query} with {words}"


def _find_private_table(tokens: Sequence[Token], catalog: Catalog) -> Table | None:
    """Return the first private table that a word of the statement names."""
    private = {
        ascii_lower(table.name.rpartition(".")[2]): table for table in catalog.tables if table.privacy_unit is not None
    }
    return next((private[word] for token in tokens if (word := ascii_lower(token.text)) in private), None)


def _propose_total(statement: ScannedStatement, tokens: Sequence[Token], *, table: Table | None) -> str:
    """Return a hint with the total of a query, its FROM and WHERE as they are written."""
    simple = "End the query with PRIVATE."
    unit = "" if table is None else table.privacy_unit or ""
    outer = [node for node in nest(tokens).nodes if not isinstance(node, Block)]
    start = next((token.start for token in outer if token.token_type.name == "FROM"), None)
    end = next((token.start for token in outer if token.token_type.name in _AFTER_ROWS), tokens[-1].end + 1)
    words = [ascii_lower(token.text) for token in tokens]
    counts_units = words[:6] == ["select", "count", "(", "distinct", ascii_lower(unit), ")"]
    if not unit or start is None or (counts_units and end > tokens[-1].end):
        return simple
    asked = statement.text[start:end].strip()
    if "\n" in asked or len(asked) > _LONGEST_QUOTED:
        return simple
    return f"Ask for a total: SELECT COUNT(DISTINCT {write_name(unit)}) AS n {asked} PRIVATE"


def _propose_query(table: Table | None, *, selected: Sequence[Token]) -> str:
    """Return a hint with a query of a table: the most frequent values of a column that can be a key.

    It is the first one that the statement names, else the first of text, else the first.
    """
    unit = "" if table is None else table.privacy_unit or ""
    columns = () if table is None else table.columns
    keys = [name for name, type_ in columns if ascii_lower(name) != ascii_lower(unit) and type_.family not in _UNREAD]
    if table is None or not keys:
        return "Add GROUP BY and a column, and end the query with TOP 10 PRIVATE."
    named = {ascii_lower(name): name for name in keys}
    texts = [name for name, type_ in columns if name in keys and type_.family is Family.TEXT]
    key = next((named[word] for token in selected if (word := ascii_lower(token.text)) in named), (texts or keys)[0])
    query = propose_query(table.name, key=key, unit=unit)
    return f"Ask for the most frequent values of a column: {query}"
