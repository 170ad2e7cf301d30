"""A SELECT without a clause: public, private by standard SQL, or refused.

This file has three parts. (1) `read_without_clause` reads a query over public tables alone, which is answered exactly,
and free. The same expressions are known as in private queries, and besides them COUNT, SUM, AVG, MIN and MAX, GROUP BY,
HAVING, DISTINCT, ORDER BY, LIMIT and OFFSET of the outermost SELECT. One without FROM has one row, as SELECT 1. A
statement that cannot return a row (LIMIT 0, WHERE 1 = 0), which tools send to learn the columns, may name private
tables, too: the catalog gives its columns, and nothing is read, released or charged.

(2) From `find_implied` on, `read_implied` reads standard SQL as all groups of a calendar, or the first k, and notes
which groups SQL promises besides. A statement that would mean something else in plain SQL is refused: its first keys in
alphabetical order, or its least frequent ones (`check_ranking`). Notes depend on the statement and the policy alone.

(3) From `refuse_without_clause` on, the refusal of a statement that would show exact values of a private table, with
what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Protocol

from dpsql.dialects import propose_query, write_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import AGGREGATES, FUNCTIONS, refuse_unknown
from dpsql.sql.analysis.domains import find_joined_domain
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.private_select import AnalysisRequest, check_ranking
from dpsql.sql.analysis.ranked_statements import find_public_column, has_all_groups, refuse_computation
from dpsql.sql.analysis.reader import Reader, read_alias, read_row_count
from dpsql.sql.analysis.row_facts import has_no_row, is_false
from dpsql.sql.analysis.select_clauses import PUBLIC_READERS, SelectClauses, Selected, read_output
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.measures import SPREADS, Aggregate
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import CutList, PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import NULL, Cast, Family, FromWhere, Literal, Numbered, find_answer_type
from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import EVERY_AGGREGATE, Block, find_calls, find_selects, first_token, nest
from dpsql.sql.syntax.clause import CLAUSE_HINT, PrivacyHeader, SplitStatement
from dpsql.sql.syntax.grammar import allow_only, pair_items_with_text, parse, settle
from dpsql.sql.syntax.implied import ImpliedClause, PrivateNames, describe_end, find_implied_clauses, groups_by_any

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node


_PARTS = "with_ expressions from_ joins where group having order limit offset distinct".split()
_LONGEST_QUOTED = 200  # characters of a statement in a hint
_AFTER_ROWS = frozenset(["GROUP_BY", "ORDER_BY", "LIMIT", "OFFSET"])
_CALLED = ("count", "sum", "avg", *SPREADS, *sorted(FUNCTIONS))
_UNREAD = frozenset([Family.OPAQUE, Family.INTERVAL])  # no group keys
_Check = Callable[[PrivateQuery], None]
_MORE = 10  # times as many groups are proposed


def read_without_clause(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Return a SELECT without private rows: it names only public tables, or selects no row.

    If it is refused, raise the most helpful error.
    """
    reader, catalog, tokens = sources.reader, sources.catalog, lifted.tokens
    public = {ascii_lower(table.name.rpartition(".")[2]) for table in catalog.tables if table.privacy_unit is None}
    # without the name of a public table it can only ask private ones
    helps = any(ascii_lower(token.text) in public for token in tokens)
    helps = helps or all(token.token_type.name != "FROM" for token in tokens)
    helps = helps or find_private_table(tokens, catalog) is None  # a misspelt name, most likely
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
        raise refuse_without_clause(reader.statement, tokens, catalog=catalog)
    if sources.protected:
        if lifted.explained or not has_no_row(query):
            raise refuse_without_clause(reader.statement, tokens, catalog=catalog)
        return remove_rows(query)
    return replace(query, explained=lifted.explained) if lifted.explained else query


def read_public(sources: Sources, select: Node, *, tokens: list[Token]) -> PublicQuery:
    """Analyze the SELECT; the caller must ensure that `sources` found no private table."""
    reader = sources.reader
    allow_only(reader.statement, select, *_PARTS)
    if select.args.get("with_") is not None:
        sources.define(select.args["with_"])
    # only a list of values, which tools send to test a connection, has one row
    is_one_row = not select.is_star and all(name == "expressions" for name, part in select.args.items() if part)
    body, _ = sources.read_without_from(select) if is_one_row else sources.read_from_and_where(select)
    outputs = list[Selected]()
    for item, text in pair_items_with_text(reader.statement, select, tokens=tokens):
        if (starred := reader.star(item)) is not None:
            outputs += [Selected(column.name, column.expression) for column in starred]
            continue
        name, node = read_alias(reader, item)
        if type(node).__name__ == "Column" and not reader.means_clock(node):
            name = name or reader.column(node).name
        outputs.append(Selected(name or text, read_output(reader, node, readers=PUBLIC_READERS)))
    block = SelectClauses(reader, select, outputs, PUBLIC_READERS)
    names = tuple(output.name for output in block.outputs)
    if len(set(map(ascii_lower, names))) < len(names):
        hint = "Give each output its own alias."
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=block.place)
    grouping, order = block.grouping(), block.order()
    block.check(grouping, order)
    return PublicQuery(
        names=names,
        outputs=tuple(output.expression for output in block.outputs),
        distinct=block.distinct,
        body=body,
        keys=grouping.keys,
        by_all=grouping.by_all,
        having=grouping.having,
        order=order,
        limit=read_row_count(reader, select, clause="limit"),
        offset=read_row_count(reader, select, clause="offset") or 0,
    )


def seeks_no_row(reader: Reader, select: Node) -> bool:
    """Say whether a SELECT ends with LIMIT 0 or has a WHERE that is false without any column; it need not be read."""
    where = select.args.get("where")
    try:
        return read_row_count(reader, select, clause="limit") == 0 or (
            where is not None and is_false(reader.condition(where.this))
        )
    except (Refusal, Unsupported):
        return False


def remove_rows(query: PublicQuery) -> PublicQuery:
    """Return a query of no table that answers with the names and types of the columns of this one, and no row."""
    absent = Literal(None, NULL)  # in the type as which a column is answered, which the catalog says and no row
    types = [output.type for output in query.outputs]
    outputs = tuple(absent if type_ == NULL else Cast(absent, find_answer_type(type_)) for type_ in types)
    body = FromWhere(Numbered(1, 1), None)
    return PublicQuery(names=query.names, outputs=outputs, body=body, limit=0, explained=query.explained)


# Part 2: private queries that standard SQL implies.


def find_implied(request: AnalysisRequest, *, besides: frozenset[str] = frozenset()) -> list[ImpliedClause]:
    """Return the clauses that standard SQL implies; none where it is not read as private.

    Names `besides` those of the private tables mean one, too.
    """
    header = request.header
    if not request.standard.is_private and header is None:
        return []
    private = [table for table in request.catalog.tables if table.privacy_unit is not None]
    names = PrivateNames(
        besides.union(ascii_lower(table.name.rpartition(".")[2]) for table in private),
        frozenset(ascii_lower(table.privacy_unit or "") for table in private),
    )
    parameter = request.bound.__getitem__
    found = find_implied_clauses(request.statement, names, default_k=request.standard.default_k, parameter=parameter)
    if header is not None and found and [clause.select for clause in found] != [header.select]:
        hint = "Write WITH DIFFERENTIAL_PRIVACY at the SELECT that aggregates the rows of a private table."
        raise Refusal("clause", "This SELECT is not the private query.", hint=hint, place=header.place)
    return found


def put_header_options(lifted: SplitStatement, header: PrivacyHeader | None) -> SplitStatement:
    """Return the split statement, its clause with the options and the stated total of the header."""
    if header is None or lifted.clause is None:
        return lifted
    return replace(lifted, clause=replace(lifted.clause, options=header.options, stated=header.stated, form="header"))


class _Read(Protocol):
    def __call__(self, *, all_groups: bool) -> PrivateQuery:
        """Return the statement with ALL PRIVATE, or with TOP k PRIVATE."""


def read_implied(  # noqa: C901 - one rule after another
    request: AnalysisRequest, clause: ImpliedClause, *, read: _Read, check: _Check = check_ranking
) -> PrivateQuery:
    """Return the private query that a statement implies; `check` refuses a ranking.

    The strategy of WITH DIFFERENTIAL_PRIVACY decides whether the groups are public.
    """
    header = request.header
    strategy = "" if header is None else header.strategy
    if clause.is_total:
        return _mark(read(all_groups=False), clause, request=request)
    if strategy == "public":
        found = read(all_groups=True)
        if found.domain is None and not found.clause.options.get("domain"):
            found = replace(found, domain=find_joined_domain(found))
        if found.domain is None and not found.clause.options.get("domain"):
            hint = "Group by a column of a public table in FROM or by a time bucket with bounds in WHERE, "
            hint += "or add domain = ['DE', 'FR'] to OPTIONS."
            reason = "PUBLIC_GROUPS needs groups that the statement or the policy determines."
            raise Refusal("domain", reason, hint=hint, place=None if header is None else header.place)
        return _mark(found, clause, request=request)
    # Without LIMIT, or with one above the default, SQL promises all groups: these are released where the text
    # determines them.
    if clause.may_be_all and strategy != "threshold" and (every := _read_all(request, clause, read=read)) is not None:
        return every
    found = _mark(read(all_groups=False), clause, request=request)
    try:
        check(found)
    except Refusal as error:
        every = None
        # ORDER BY day LIMIT 7 is no ranking, but the first 7 of all days, if WHERE bounds the days.
        if error.code in {"order", "window"} and strategy != "threshold" and not clause.may_be_all:
            every = _read_all(request, clause, read=read)  # the first of all groups, in any order
        if every is None:
            raise
        return every
    if has_all_groups(found):
        return found
    # a ranking notes which groups SQL promises besides
    if clause.around is not None and clause.may_be_all:
        raise refuse_computation(request.statement, clause, found=clause.around, query=found, catalog=request.catalog)
    if clause.may_be_all and not clause.is_largest:
        return replace(found, cut_list=_describe_cut_list(found, clause, request=request))
    return replace(found, list_note=describe_released(found) if clause.computes and not clause.is_largest else "")


def _read_all(request: AnalysisRequest, clause: ImpliedClause, *, read: _Read) -> PrivateQuery | None:
    """Return the query with ALL PRIVATE, None where its groups are not known; refuse a calendar that has no bounds."""
    try:
        found = read(all_groups=True)
    except Refusal as error:
        if error.code == "domain":  # a calendar without bounds, or of too many buckets
            raise
        return None
    return None if found.domain is None else _mark(found, clause, request=request)


def _mark(query: PrivateQuery, clause: ImpliedClause, *, request: AnalysisRequest) -> PrivateQuery:
    """Return the query with a clause that says that it was not written, and that it stands for LIMIT."""
    marked, limit = replace(query.clause, implied=True), clause.limit
    if limit is not None and request.header is None:
        value = request.statement.value(limit.text)
        parameter = "" if value is None or value.kind != "parameter" else value.content
        marked = replace(marked, form="limit", parameter=parameter)
    return replace(query, clause=marked)


def _describe_cut_list(query: PrivateQuery, clause: ImpliedClause, *, request: AnalysisRequest) -> CutList:
    """Return what an answer has of the groups that SQL promises, and what to write for others."""
    k, wanted = query.clause.k or 0, clause.written_limit  # None for all groups
    # where a clause belongs in a query inside parentheses, such as "after GROUP BY country"
    after = describe_end(request.statement, clause) if clause.is_inside else ""
    is_of_rows = query.measures[0].aggregate in {Aggregate.UNITS, Aggregate.ROWS}
    rank = "most frequent" if is_of_rows else "largest"
    of = "all groups" if wanted is None else f"the {wanted:,} groups that LIMIT asks for"
    order: str | None = ""  # the ORDER BY that LIMIT needs; None where the measure has no name to order by
    first = query.outputs[query.order[0].output] if query.order else None
    if first is not None and (not first.is_measure or first.divisor is not None):
        names = [each.name for each in query.outputs if each.is_measure and not each.measure and each.divisor is None]
        name = next(iter(names), "")
        order = f"ORDER BY {name} DESC " if name.isidentifier() and name.isascii() else None
    found = CutList(f"the {k} {rank} of {of}", k, alone="" if order is None else f"{order}LIMIT {k} for these alone")
    if after:
        is_at_end = not query.order and wanted is None
        found = replace(found, place=f"inside the parentheses{f', {after},' if is_at_end else ''} ")
    if clause.beside or request.header is not None:  # another private query could not stay without a clause
        return found
    where = " before ORDER BY" if query.order else " before LIMIT" if wanted is not None else ""
    where = where or ("" if after else " at the end of the query")
    is_counted = len(query.keys) == 1 and query.releases_counts
    public = find_public_column(query, 0, catalog=request.catalog) if is_counted else ""
    every = f"ALL PRIVATE WITH (domain = '{public}'){where} for all of {public}" if public else ""
    more = min(request.standard.max_k, k * _MORE if wanted is None or wanted > k * _MORE else wanted)
    return replace(found, more=more, where=where, every=every)


def describe_released(query: PrivateQuery) -> str:
    """Return that a SELECT around a ranking computes from its released rows."""
    k = query.clause.k
    rows = "the released rows" if k is None else f"at most {k} released {'row' if k == 1 else 'rows'}"
    per = next((each.name for each in query.outputs if query.partitions and each.key == query.partitions.key), "")
    return f"computed over {rows}{f' of each {write_name(per)}' if per else ''}: other groups are left out"


# Part 3: what to write instead.


def refuse_without_clause(
    statement: ScannedStatement, tokens: Sequence[Token], *, catalog: Catalog, clause: ImpliedClause | None = None
) -> Refusal | Unsupported:
    """Return the refusal of a statement that would show exact values of a private table.

    `tokens` are those of its SELECT, without EXPLAIN. With the `clause` that it lacks it would be answered.
    """
    table, roots = find_private_table(tokens, catalog), nest(tokens)
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
        is_whole = clause is not None and "LIMIT" not in kinds and table is not None and _has_bounds(tokens, table)
        hint = "End the query with PRIVATE." if is_whole else _propose_total(statement, tokens, table=table)
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
        hint = f"{propose_clause(clause)}."
    return Refusal("not-private", reason, hint=hint, place=place)


def propose_clause(clause: ImpliedClause) -> str:
    """Return where to write the clause that a statement lacks."""
    words = "PRIVATE" if clause.is_total else f"TOP {clause.k} PRIVATE"
    limit = [token.text.upper() for token in clause.tail[:2]]
    query = "the inner query" if clause.is_inside else "the query"
    if not clause.is_total and limit == ["LIMIT", str(clause.k)]:
        return f"Write {words} in place of LIMIT {clause.k} in {query}"
    return f"End {query} with {words}"


def find_private_table(tokens: Sequence[Token], catalog: Catalog) -> Table | None:
    """Return the first private table that a word of the statement names."""
    private = {
        ascii_lower(table.name.rpartition(".")[2]): table for table in catalog.tables if table.privacy_unit is not None
    }
    return next((private[word] for token in tokens if (word := ascii_lower(token.text)) in private), None)


def _has_bounds(tokens: Sequence[Token], table: Table) -> bool:
    """Return whether the policy has the bounds that the aggregates of a SELECT without groups need."""
    words = [ascii_lower(token.text) for token in takewhile(lambda token: token.token_type.name != "FROM", tokens)]
    columns = {ascii_lower(name) for name, _ in table.columns} - {ascii_lower(table.privacy_unit or "")}
    needs_rows = any(word in EVERY_AGGREGATE and word != "sum" for word in words)
    is_bounded = all(table.find_bounds(word) is not None for word in words if word in columns)
    is_spread = any(word in SPREADS for word in words)  # which has a range of each row, besides
    return is_bounded and not is_spread and (table.rows is not None or not needs_rows)


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
    rows = statement.text[start:end].strip()
    if "\n" in rows or len(rows) > _LONGEST_QUOTED:
        return simple
    return f"Ask for a total: SELECT COUNT(DISTINCT {write_name(unit)}) AS n {rows} PRIVATE"


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
    key = next((named[word] for token in selected if (word := ascii_lower(token.text)) in named), "")
    lacks = ""
    if not key:  # a column that is misspelt, perhaps
        before = takewhile(lambda pair: pair[0].token_type.name != "FROM", pairwise(selected))
        words = [token.text for token, after in before if after.token_type.name != "L_PAREN"]
        word, near = next(((word, near) for word in words if (near := propose_name(word, keys))), ("", ""))
        lacks = f"There is no column {write_name(word)} here. {near}" if near else ""
        key = next((name for name in keys if f" {name}? " in near), (texts or keys)[0])
    query = propose_query(table.name, key=key, unit=unit)
    return f"{lacks}Ask for the most frequent values of a column: {query}"
