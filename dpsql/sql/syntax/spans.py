"""Private queries inside another SELECT: their places in the text, and the text with a name in place of each.

    SELECT a.n::FLOAT / b.n FROM (<private query>) AS a, (<private query>) AS b
    SELECT a.n::FLOAT / b.n FROM (FROM "dpsql released 1") AS a, (FROM "dpsql released 2") AS b

Each is then analyzed like a statement of its own, with the CTEs that it can see. The text around them is no concern of
this grammar: DuckDB reads it, over released and public rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.sql.ir.tree import BIGINT, NULL, Family, Literal, find_integer_type
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement, Value, ascii_lower
from dpsql.sql.syntax.block import (
    SET_OPERATIONS,
    Block,
    Node,
    Nodes,
    Parts,
    Slice,
    first_token,
    flatten,
    kind_of,
    last_token,
    list_blocks,
    make_token,
    nest,
    word_of,
)

if TYPE_CHECKING:
    from sqlglot import Token

_OF_THE_WHOLE = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])  # what follows the last part of a set operation


@dataclass(frozen=True, slots=True)
class PrivateSpan:
    """A private query in a statement: characters `start` to `end` of the text.

    `tokens` are those to analyze, with the CTEs that stand before it, and `clause` is the one of them that its clause
    begins with. A query that `is_main` has no SELECT around it.
    """

    start: int
    end: int
    tokens: list[Token]
    clause: Token
    is_main: bool


@dataclass(frozen=True, slots=True)
class SurroundingText:
    """Text around private queries, which stand in it under `name_released`; `literals` are those of $1, $2, ..."""

    text: str
    literals: tuple[Literal, ...]


def name_released(number: int) -> str:
    """Return the name that stands for the answer of a private query, numbered from 1."""
    return f"dpsql released {number}"


def find_private_spans(
    statement: ScannedStatement, tokens: list[Token], *, clauses: Sequence[Token], marks: Collection[int] = ()
) -> list[PrivateSpan]:
    """Return the private queries whose clauses begin at these tokens, in the order of the text.

    One that parentheses which are never closed tear apart is left out. CTEs with a clause, or with a token that starts
    at one of the `marks`, are private queries of their own, which no other one can read.
    """
    private = {clause.start for clause in clauses} | set(marks)
    root = nest(tokens)
    spans = (_find_span(statement, tokens, root=root, clause=clause, private=private) for clause in clauses)
    return [span for span in spans if span is not None]


def cut_private_queries(
    statement: ScannedStatement,
    tokens: list[Token],
    *,
    spans: Sequence[PrivateSpan],
    computed: Mapping[int, Parts],
    arrays: Collection[Value],
    literal: Callable[[Value], Literal | list[Literal]],
) -> SurroundingText:
    """Return the text with a name in place of each private query, and its parameters numbered as DuckDB has them.

    A private query that is in `computed`, numbered from 0, has that SELECT in its place. `literal` returns what is
    bound to a parameter, and the items of one of the `arrays`, which are parameters or texts.
    """
    text = _Text(statement, tokens, spans, computed, literal, arrays)
    text.copy(Slice(_find_start(statement, tokens), _find_end(statement, tokens), ()))
    return SurroundingText("".join(text.parts), tuple(text.literals))


def write_parts(statement: ScannedStatement, parts: Parts) -> str:
    """Return the text of a SELECT, in which private queries are as they are written."""
    text = _Text(statement, list(statement.tokens), (), {}, lambda _: Literal(None, NULL))
    text.add(parts)
    return "".join(text.parts)


@dataclass(slots=True)
class _Text:
    """A text that is written part by part, with what is bound to its parameters."""

    statement: ScannedStatement
    tokens: list[Token]
    spans: Sequence[PrivateSpan]
    computed: Mapping[int, Parts]
    literal: Callable[[Value], Literal | list[Literal]]
    arrays: Collection[Value] = ()
    parts: list[str] = field(default_factory=list)
    literals: list[Literal] = field(default_factory=list)

    def add(self, parts: Parts) -> None:
        for part in parts:
            if isinstance(part, str):
                self.parts.append(part)
            else:
                self.copy(part)

    def copy(self, part: Slice) -> None:
        """Add a part of the statement."""
        start, end = part.start, part.end
        pieces: list[tuple[int, int, str | int | Value]] = list(part.replaced)
        pieces += [
            (span.start, span.end, number)
            for number, span in enumerate(self.spans)
            if start <= span.start and span.end <= end
        ]
        for token in self.tokens:
            value = self.statement.value(token.text)
            is_bound = value is not None and (value.kind == "parameter" or value in self.arrays)
            if value is not None and is_bound and start <= token.start < end:
                pieces.append((token.start, token.end + 1, value))
        at = start
        # Of pieces that begin at one character the longest comes first and hides those in it.
        for first, last, piece in sorted(pieces, key=lambda each: (each[0], -each[1])):
            if first < at:
                continue  # in one before
            self.parts.append(self.statement.text[at:first])
            self._replace(piece)
            at = last
        self.parts.append(self.statement.text[at:end])

    def _replace(self, piece: str | int | Value) -> None:
        if isinstance(piece, str):
            self.parts.append(piece)
        elif isinstance(piece, int):
            self.parts.append(" ")
            self.add(self.computed.get(piece, [f'FROM "{name_released(piece + 1)}"']))
            self.parts.append(" ")
        else:
            bound, marks = self.literal(piece), list[str]()
            for literal in bound if isinstance(bound, list) else [bound]:
                self.literals.append(literal)
                mark = f"${len(self.literals)}"
                is_time = literal.type.family in {Family.DATE, Family.TIMESTAMP}  # sent as text
                # sent as INTEGER
                is_wide = literal.type == BIGINT and find_integer_type(int(str(literal.value))) != BIGINT
                marks.append(f"CAST({mark} AS {literal.type.name})" if is_time or is_wide else mark)
            self.parts.append(f" [{', '.join(marks)}] " if isinstance(bound, list) else f" {marks[0]} ")


def _find_start(statement: ScannedStatement, tokens: list[Token]) -> int:
    """Return where the SELECT begins: EXPLAIN is none of it, parentheses around all of it are."""
    first, *others = statement.tokens
    if tokens[0] is first or first.token_type.name == "L_PAREN":
        return 0
    return (others[0] if word_of(others, 0) == "verbose" else first).end + 1


def _find_end(statement: ScannedStatement, tokens: list[Token]) -> int:
    """Return where the SELECT ends, without a semicolon."""
    after = [token.start for token in statement.tokens if token.token_type.name == "SEMICOLON"]
    return next((start for start in after if start > tokens[-1].end), len(statement.text))


def _find_span(
    statement: ScannedStatement, tokens: list[Token], *, root: Block, clause: Token, private: Collection[int]
) -> PrivateSpan | None:
    # The brackets in which the clause stands directly, or the whole statement.
    around = next(block for block in list_blocks(root) if any(node is clause for node in block.nodes))
    first, last = _find_part(around.nodes, clause)
    combined = (first, last) != (0, len(around.nodes))
    seen = [cte for cte in root.ctes if last_token(cte).end < clause.start]
    if around is root and not first and seen:  # the main SELECT, behind the CTEs
        first = next(at for at, node in enumerate(root.nodes) if node is seen[-1][-1]) + 1
    query = flatten(around.nodes[first:last])
    inner = [*_list_ctes(root, seen, query=query, private=private), *query]
    if kind_of(query, 0) == "WITH" and len(inner) > len(query):  # its own CTEs follow those that it sees
        inner[-len(query)] = make_token("COMMA", ",", beside=query[0])
    if not any(token is clause for token in inner):
        return None
    before = last_token(around.nodes[:first]) if first else around.opening
    after = first_token(around.nodes[last:]) if last < len(around.nodes) else around.closing
    return PrivateSpan(
        start=_find_start(statement, tokens) if before is None else before.end + 1,
        end=_find_end(statement, tokens) if after is None else after.start,
        tokens=inner,
        clause=clause,
        is_main=around is root and not combined,
    )


def _find_part(nodes: Nodes, clause: Token) -> tuple[int, int]:
    """Return the part of a set operation in which a clause stands, or all nodes of its query.

    ORDER BY and LIMIT behind the clause of the last part are of the whole.
    """
    first, stands, combined = 0, False, False
    for at, node in enumerate(nodes):
        kind = kind_of(nodes, at)
        stands |= node is clause
        if kind in SET_OPERATIONS and stands:
            return first, at
        if kind in SET_OPERATIONS:
            first = at + 1 + (kind_of(nodes, at + 1) in {"ALL", "DISTINCT"})
            combined = True
        elif combined and stands and node is not clause and kind in _OF_THE_WHOLE:
            return first, at
    return first, len(nodes)


def _list_ctes(root: Block, seen: Sequence[Nodes], *, query: list[Token], private: Collection[int]) -> list[Token]:
    """Return WITH and those of its CTEs that a query may read: others may be in SQL that only DuckDB reads."""
    words = {_read_word(token) for token in query}
    kept: list[Node] = []
    is_recursive = False
    for cte in reversed(seen):  # each sees those before it
        first, *others = flatten(cte)
        if _read_word(first) not in words or any(token.start in private for token in (first, *others)):
            continue
        inside = {_read_word(token) for token in others}
        # RECURSIVE stays only if one of the CTEs that are left names itself.
        is_recursive |= root.is_recursive and _read_word(first) in inside
        words |= inside
        kept = [*cte, make_token("COMMA", ",", beside=first), *kept] if kept else list(cte)
    return flatten([*root.nodes[: 1 + is_recursive], *kept]) if kept and query else []


def _read_word(token: Token) -> str:
    return ascii_lower(token.text.removeprefix(FUNCTION_PREFIX))
