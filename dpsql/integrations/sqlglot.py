"""The dialect `dpsql` for sqlglot, so that tools which read SQL with sqlglot, and write it again, keep the clause.

It is found by the entry point group `sqlglot.dialects` and needs no configuration: `sqlglot.parse_one(sql, "dpsql")`.
The clause is lifted off the tokens before DuckDB's own parser sees them, and travels as text in two places of a Select
that DuckDB's own generator prints where the clause may stand: a `hint` where it leads and, where it follows, `qualify`,
between HAVING and ORDER BY, which a private query has no other use for. So it survives copies and rewriting by every
tool that leaves them alone, and neither parser nor generator nor tree is subclassed, which the compiled build of
sqlglot refuses. A LIMIT before the clause comes to stand after it.

Functions of the language keep their spelling: sqlglot would rewrite some of them into others, of another meaning here.
Nothing is decided in this module: what comes out is read by dpsql like any other statement.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeVar

import sqlglot
from sqlglot import Token, TokenType
from sqlglot import expressions as exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError

from dpsql.sql.allow_list import FUNCTIONS, INTERVAL_ENDS
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import FUNCTION_PREFIX
from dpsql.sql.syntax.aggregate_forms import NAMES
from dpsql.sql.syntax.block import (
    Block,
    find_open_block,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    name_of,
    nest,
    split,
)
from dpsql.sql.syntax.clause import find_bare_clauses
from dpsql.sql.syntax.forms import DATE_FUNCTIONS, normalize_calls, normalize_literals

__all__ = ["Dpsql"]

_MARK = "dpsql\0clause "  # a name that no statement can hold
_OF_K = frozenset(["NUMBER", "VAR", "PLACEHOLDER", "PARAMETER", "COLON"])  # a number, a word, ? or :name
_KEPT = DATE_FUNCTIONS.union(FUNCTIONS, INTERVAL_ENDS)
_SIGNS = (exp.Neg, exp.BitwiseNot)
Tree = TypeVar("Tree")


class Dpsql(DuckDB):
    """DuckDB's SQL with TOP k PRIVATE, ALL PRIVATE and PRIVATE, in all spellings."""

    def parse(self, sql: str, **opts: Any) -> list[Any]:  # noqa: ANN401 - sqlglot's own signature
        """Return the trees of the statements; raises sqlglot's `ParseError`."""
        tokens, clauses = _mark_clauses(sql, self.tokenize(sql))
        return [_restore(tree, clauses) for tree in self.parser(**opts).parse(tokens, sql)]

    def parse_into(self, expression_type: Any, sql: str, **opts: Any) -> list[Any]:  # noqa: ANN401 - as above
        """Return the trees, read as the given kind of expression; raises sqlglot's `ParseError`."""
        tokens, clauses = _mark_clauses(sql, self.tokenize(sql))
        return [_restore(tree, clauses) for tree in self.parser(**opts).parse_into(expression_type, tokens, sql)]

    def generate(self, expression: Any, copy: bool = True, **opts: Any) -> str:  # noqa: ANN401, FBT001, FBT002 - as above
        """Return the text of a tree; where it is laid out in lines, the clause has one of its own."""
        pretty = opts.get("pretty")
        if pretty or (pretty is None and sqlglot.pretty):
            expression, copy = expression.copy() if copy else expression, False
            for select in expression.find_all(exp.Select):
                clause = select.args.get("qualify")
                if isinstance(clause, exp.Var):
                    clause.set("this", "\n" + clause.name.strip())
        return str(super().generate(expression, copy=copy, **opts))


def _mark_clauses(sql: str, tokens: list[Token]) -> tuple[list[Token], list[str]]:
    """Return tokens that DuckDB's parser reads, in which names stand for the clauses, and the texts of those.

    SELECT TOP 5 PRIVATE a FROM t        SELECT mark, a FROM t
    SELECT a FROM t TOP 5 PRIVATE        SELECT a FROM t QUALIFY mark
    """
    tokens = normalize_calls(tokens)
    # POSITION(? IN concat(?, a)) is STRPOS(concat(?, a), ?) now: the values would change places.
    marks = [token.start for token in tokens if token.token_type == TokenType.PLACEHOLDER]
    if marks != sorted(marks):
        raise ParseError("Write $1, $2 for ?: the text comes to stand before what is looked for in it.")
    clauses = list[str]()
    taken: dict[int, tuple[int, list[Token]]] = {}  # by where a clause begins: where it ends, and what is put there
    for start in _find_starts(tokens):
        end = next(at for at in range(start, len(tokens)) if _word_of(tokens, at) == "private") + 1
        if kind_of(tokens, start - 1) != "SELECT":
            # PER country: two tokens.
            end += 2 * (_word_of(tokens, end) == "per")
            if _word_of(tokens, end) == "with" and kind_of(tokens, end + 1) == "L_PAREN":
                end = _find_closing(tokens, end + 1)
            taken[start] = end, _mark_following(sql, tokens, start=start, end=end, clauses=clauses)
            continue
        mark = _mark(sql, tokens[start:end], clauses=clauses)
        distinct = tokens[end : end + 1] if kind_of(tokens, end) == "DISTINCT" else []
        end += len(distinct)
        # SELECT TOP 5 PRIVATE DISTINCT a becomes SELECT DISTINCT mark, a.
        taken[start] = end, [*distinct, mark, _make_like(mark, TokenType.COMMA, text=",")]
        nodes = split(nest(tokens[end:]).nodes, {"R_PAREN", "SEMICOLON"})[0]  # up to where the query ends
        options = [one for one, other in pairwise(nodes) if kinds_of((one, other)) == ["WITH", "L_PAREN"]]
        if options:
            start = next(at for at, token in enumerate(tokens) if token is options[-1])  # noqa: PLW2901 - its options
            end = _find_closing(tokens, start + 1)
            taken[start] = end, _mark_following(sql, tokens, start=start, end=end, clauses=clauses)
    marked: list[Token] = []
    at = 0
    while at < len(tokens):
        end, put = taken.get(at, (at + 1, []))
        marked += put or [_hide_function(tokens, at)]
        at = end
    return normalize_literals(marked), clauses


def _word_of(tokens: list[Token], at: int) -> str:
    """Return a word in lower case; "" for a quoted name, a string and what is none."""
    return "" if kind_of(tokens, at) in {"IDENTIFIER", "STRING"} else name_of(tokens, at)


def _find_starts(tokens: list[Token]) -> list[int]:
    """Return where clauses begin: at TOP, at LIMIT, or at ALL or PRIVATE alone."""
    starts = list(find_bare_clauses(tokens))
    kinds = kinds_of(tokens)
    for at in range(len(tokens)):
        if _word_of(tokens, at) == "top":
            # TOP 5 PRIVATE and TOP ? PRIVATE have one token between, TOP :k PRIVATE and TOP $1 PRIVATE two.
            ends = (end for end in (at + 2, at + 3) if _word_of(tokens, end) == "private")
            starts += [at] if any(_OF_K.issuperset(kinds[at + 1 : end]) for end in ends) else []
    return starts


def _mark_following(sql: str, tokens: list[Token], *, start: int, end: int, clauses: list[str]) -> list[Token]:
    """Return a substitute for a following clause; refuse to move a ? past another: their values would change places."""
    kinds = kinds_of(tokens)
    nodes = split(find_open_block(tokens[:start]).nodes, {"SEMICOLON"})[-1]
    moved = [first_token([node]).start for node in nodes if kind_of([node], 0) in {"ORDER_BY", "LIMIT"}]
    behind = [kinds[at] for at in range(start) if moved and tokens[at].start >= moved[-1]]
    if "PLACEHOLDER" in behind and "PLACEHOLDER" in kinds[start:end]:
        raise ParseError("Write $1, $2 for ?: TOP k PRIVATE comes to stand before ORDER BY and LIMIT.")
    mark = _mark(sql, tokens[start:end], clauses=clauses)
    return [_make_like(mark, TokenType.QUALIFY, text="QUALIFY"), mark]


def _mark(sql: str, clause: list[Token], *, clauses: list[str]) -> Token:
    """Add the text of a clause, and return the name that stands for it."""
    text, behind = "", clause[0].start
    for token in clause:
        text += " " * (token.start > behind) + sql[token.start : token.end + 1]
        behind = token.end + 1
    clauses.append(text)
    return _make_like(clause[0], TokenType.IDENTIFIER, text=f"{_MARK}{len(clauses) - 1}")


def _find_closing(tokens: list[Token], opening: int) -> int:
    """Return what follows the parenthesis that closes the one at tokens[opening]."""
    block = nest(tokens[opening:]).nodes[0]
    if not isinstance(block, Block) or block.closing is None:
        raise ParseError("The options of TOP k PRIVATE are not closed with ).")
    return opening + len(flatten([block]))


def _hide_function(tokens: list[Token], at: int) -> Token:
    """Return a token as the parser shall read it: a function of the language under a name that it does not know."""
    name = _word_of(tokens, at)
    if not name or kind_of(tokens, at + 1) != "L_PAREN":
        return tokens[at]
    is_hidden = name in _KEPT or NAMES.search(name) is not None  # quantiles, of which sqlglot makes others
    if name in {"sum", "avg"} or name in SPREADS:  # which take bounds, sqlglot's own one argument
        block = nest(tokens[at + 1 :]).nodes[0]
        is_hidden = is_hidden or (isinstance(block, Block) and "FARROW" in kinds_of(block.nodes))
    return _make_like(tokens[at], TokenType.VAR, text=FUNCTION_PREFIX + tokens[at].text) if is_hidden else tokens[at]


def _make_like(token: Token, kind: TokenType, *, text: str) -> Token:
    """Return another token at the same place, so that what is said of it points there."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _restore_calls(tree: exp.Expression) -> None:
    """Give functions their names again."""
    for call in list(tree.find_all(exp.Anonymous)):
        if isinstance(call.this, str) and call.this.startswith(FUNCTION_PREFIX):
            call.set("this", call.this.removeprefix(FUNCTION_PREFIX))
    for group in list(tree.find_all(exp.WithinGroup)):
        group.replace(_write_quantile(group))


def _write_quantile(group: exp.WithinGroup) -> exp.Expression:
    """Return PERCENTILE_CONT(x, 0.9) for an ordered-set aggregate, of which DuckDB's generator makes another form.

    Where the order is descending it is the quantile from the other end. Other aggregates are returned as they are.
    """
    call, order = group.this, group.expression
    ordered = order.expressions if isinstance(order, exp.Order) else []
    if not isinstance(call, exp.Anonymous) or NAMES.search(call.name) is None or len(ordered) != 1:
        return group
    # PERCENTILE_CONT(0.9, bounds ...) WITHIN GROUP (ORDER BY x): the quantile is the first argument.
    wanted, *bounds = call.expressions
    if ordered[0].args.get("desc"):
        if not (isinstance(wanted, exp.Literal) and not wanted.is_string):
            raise ParseError(f"Write {call.name} of an ascending order, or a number for the quantile.")
        # The 0.9 quantile from above is the 0.1 quantile; a Decimal keeps 1 - 0.9 from becoming 0.09999999999999998.
        wanted = exp.Literal.number(str(1 - Decimal(wanted.name)))
    return exp.Anonymous(this=call.this, expressions=[ordered[0].this, wanted, *bounds])


def _restore(tree: Tree, clauses: list[str]) -> Tree:
    """Return the tree with each clause in place of its mark, and the names of functions as they were.

    DuckDB's generator would add ON TRUE to a comma before UNNEST, which is a CROSS JOIN, and write - ~age without the
    space.
    """
    if not isinstance(tree, exp.Expression):
        return tree
    _restore_calls(tree)
    for mark in [each for each in tree.find_all(exp.Identifier) if each.name.startswith(_MARK)]:
        column = mark.parent
        holder = None if column is None else column.parent
        clause = exp.Var(this=f" {clauses[int(mark.name.removeprefix(_MARK))]}")
        if column is not None and isinstance(holder, exp.Select) and column.arg_key == "expressions":
            column.pop()
            holder.set("hint", clause)
        elif isinstance(holder, exp.Qualify) and isinstance(holder.parent, exp.Select):
            holder.replace(clause)
        else:  # beside AND, for example: its text would be lost
            raise ParseError("TOP k PRIVATE belongs at the end of a SELECT or right after the word SELECT.")
    for node in list(tree.find_all(exp.Join, exp.BitwiseNot)):
        if isinstance(node, exp.Join):
            if isinstance(node.this, exp.Unnest) and set(filter(node.args.get, node.args)) == {"this"}:
                node.set("kind", "CROSS")
            continue
        for inner in (node, node.this):
            if isinstance(inner, _SIGNS) and isinstance(inner.parent, _SIGNS):
                inner.replace(exp.Paren(this=inner.copy()))
    return tree
