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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import sqlglot
from sqlglot import Token, TokenType
from sqlglot import expressions as exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError

from dpsql.sql.functions.allow_list import FUNCTIONS, INTERVAL_ENDS
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.block import flatten, nest, rewrite
from dpsql.sql.syntax.clause import find_bare_clauses
from dpsql.sql.syntax.forms import DATE_FUNCTIONS, normalize_calls, normalize_literals

if TYPE_CHECKING:
    Node = exp.Expression

__all__ = ["Dpsql"]

_MARK = "dpsql\0clause "  # a name that no statement can hold
_LONGEST_K = 2  # tokens: a number, a word, ? or :name
_OF_K = frozenset([TokenType.NUMBER, TokenType.VAR, TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON])
_KEPT = DATE_FUNCTIONS.union(FUNCTIONS, INTERVAL_ENDS)
_BOUNDED = frozenset(["sum", "avg"])  # which take bounds: sqlglot's own take one argument
_SIGNS = (exp.Neg, exp.BitwiseNot)
Tree = TypeVar("Tree")


class Dpsql(DuckDB):
    """DuckDB's SQL with TOP k PRIVATE, ALL PRIVATE and PRIVATE, in all spellings."""

    def parse(self, sql: str, **opts: Any) -> list[Any]:  # noqa: ANN401 - sqlglot's own signature
        """Return the trees of the statements; raises sqlglot's `ParseError`."""
        marked = _Marked(sql)
        tokens = marked.tokens(self.tokenize(sql))
        return [_preserve_syntax(marked.restored(tree)) for tree in self.parser(**opts).parse(tokens, sql)]

    def parse_into(self, expression_type: Any, sql: str, **opts: Any) -> list[Any]:  # noqa: ANN401 - as above
        """Return the trees, read as the given kind of expression; raises sqlglot's `ParseError`."""
        marked = _Marked(sql)
        tokens = marked.tokens(self.tokenize(sql))
        return [
            _preserve_syntax(marked.restored(tree))
            for tree in self.parser(**opts).parse_into(expression_type, tokens, sql)
        ]

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


def _normalize_calls(tokens: list[Token]) -> list[Token]:
    """Return the tokens with commas in calls such as SUBSTRING(x FROM 2); refuse to move a ? past another."""
    found = normalize_calls(tokens)
    marks = [token.start for token in found if token.token_type == TokenType.PLACEHOLDER]
    if marks != sorted(marks):
        raise ParseError("Write $1, $2 for ?: the text comes to stand before what is looked for in it.")
    return found


def _preserve_syntax(tree: Tree) -> Tree:
    """Return the tree with what DuckDB's generator would write otherwise than it was.

    It would add ON TRUE to a comma before UNNEST, which is a CROSS JOIN, and write - ~age without the space.
    """
    for node in list(tree.find_all(exp.Join, exp.BitwiseNot)) if isinstance(tree, exp.Expression) else ():
        if isinstance(node, exp.Join):
            if isinstance(node.this, exp.Unnest) and set(filter(node.args.get, node.args)) == {"this"}:
                node.set("kind", "CROSS")
            continue
        for inner in (node, node.this):
            if isinstance(inner, _SIGNS) and isinstance(inner.parent, _SIGNS):
                inner.replace(exp.Paren(this=inner.copy()))
    return tree


@dataclass(slots=True)
class _Marked:
    """One text whose clauses are marks in the tokens, so that a parser that does not know them reads the rest."""

    sql: str
    clauses: list[str] = field(default_factory=list)

    def tokens(self, tokens: list[Token]) -> list[Token]:
        """Return tokens that DuckDB's parser reads."""
        tokens = _normalize_calls(tokens)
        taken: dict[int, tuple[int, list[Token]]] = {}
        for start in _starts(tokens):
            taken |= self._taken(tokens, start)
        marked: list[Token] = []
        at = 0
        while at < len(tokens):
            end, put = taken.get(at, (at + 1, [_plain(tokens, at)]))
            marked += put
            at = end
        return flatten(rewrite(nest(marked), normalize_literals).nodes)

    def restored(self, tree: Tree) -> Tree:
        """Return the tree with each clause in place of its mark, and the names of functions as they were."""
        if not isinstance(tree, exp.Expression):
            return tree
        for call in list(tree.find_all(exp.Anonymous)):
            if isinstance(call.this, str) and call.this.startswith(FUNCTION_PREFIX):
                call.set("this", call.this.removeprefix(FUNCTION_PREFIX))
        for mark in list(tree.find_all(exp.Identifier)):
            if mark.name.startswith(_MARK):
                self._place(mark)
        return tree

    def _place(self, mark: Node) -> None:
        column = mark.parent
        holder = None if column is None else column.parent
        clause = exp.Var(this=f" {self.clauses[int(mark.name.removeprefix(_MARK))]}")
        if column is not None and isinstance(holder, exp.Select) and column.arg_key == "expressions":
            column.pop()
            holder.set("hint", clause)
        elif isinstance(holder, exp.Qualify) and isinstance(holder.parent, exp.Select):
            holder.replace(clause)
        else:  # beside AND, for example: its text would be lost
            raise ParseError("TOP k PRIVATE belongs at the end of a SELECT or right after the word SELECT.")

    def _taken(self, tokens: list[Token], start: int) -> dict[int, tuple[int, list[Token]]]:
        """Return, by where they begin, what is taken out for the clause at tokens[start]: up to where, and the mark."""
        end = next(at for at in range(start, len(tokens)) if _is(tokens[at], "private")) + 1
        if start and tokens[start - 1].token_type == TokenType.SELECT:
            return self._leading(tokens, start, end=end)
        if _is_at(tokens, end, word="per"):
            end += 2
        if _is_at(tokens, end, word="with") and _opens(tokens, end + 1):
            end = _closing(tokens, end + 1)
        return self._sorted(tokens, start, end=end)

    def _leading(self, tokens: list[Token], start: int, *, end: int) -> dict[int, tuple[int, list[Token]]]:
        mark = self._mark(tokens, start, end=end)
        put = [mark, _like(mark, TokenType.COMMA, text=",")]
        if end < len(tokens) and tokens[end].token_type == TokenType.DISTINCT:
            put, end = [tokens[end], *put], end + 1
        taken = {start: (end, put)}
        options = [
            at for at in _level(tokens, end) if tokens[at].token_type == TokenType.WITH and _opens(tokens, at + 1)
        ]
        if options:
            taken |= self._sorted(tokens, options[-1], end=_closing(tokens, options[-1] + 1))
        return taken

    def _sorted(self, tokens: list[Token], start: int, *, end: int) -> dict[int, tuple[int, list[Token]]]:
        """Return a substitute for a following clause: QUALIFY and a mark."""
        self._check_order(tokens, start, end=end)
        mark = self._mark(tokens, start, end=end)
        return {start: (end, [_like(mark, TokenType.QUALIFY, text="QUALIFY"), mark])}

    def _check_order(self, tokens: list[Token], start: int, *, end: int) -> None:
        """Refuse to move a ? past another: the values that are bound to them would change places."""
        kinds = [token.token_type for token in tokens]
        behind = next((at for at in _level(tokens, start, step=-1) if kinds[at] in _AFTER_CLAUSE), start)
        if TokenType.PLACEHOLDER in kinds[behind:start] and TokenType.PLACEHOLDER in kinds[start:end]:
            raise ParseError("Write $1, $2 for ?: TOP k PRIVATE comes to stand before ORDER BY and LIMIT.")

    def _mark(self, tokens: list[Token], start: int, *, end: int) -> Token:
        text, behind = "", tokens[start].start
        for token in tokens[start:end]:
            text += " " * (token.start > behind) + self.sql[token.start : token.end + 1]
            behind = token.end + 1
        self.clauses.append(text)
        return _like(tokens[start], TokenType.IDENTIFIER, text=f"{_MARK}{len(self.clauses) - 1}")


_AFTER_CLAUSE = frozenset([TokenType.ORDER_BY, TokenType.LIMIT])


def _starts(tokens: list[Token]) -> Iterator[int]:
    """Yield where clauses begin: at TOP, at LIMIT, or at ALL or PRIVATE alone."""
    yield from find_bare_clauses(tokens)
    for at, token in enumerate(tokens):
        leads = _is(token, "top") and any(
            _is_at(tokens, at + 1 + length, word="private")
            and _OF_K.issuperset(part.token_type for part in tokens[at + 1 : at + 1 + length])
            for length in range(1, _LONGEST_K + 1)
        )
        if leads:
            yield at


def _plain(tokens: list[Token], at: int) -> Token:
    """Return a token as the parser shall read it: a function of the language under a name that it does not know."""
    token, name = tokens[at], ascii_lower(tokens[at].text)
    if token.token_type == TokenType.IDENTIFIER or not _opens(tokens, at + 1):
        return token
    if name in _KEPT or (name in _BOUNDED and _has_named_argument(tokens, at + 2)):
        return _like(token, TokenType.VAR, text=FUNCTION_PREFIX + token.text)
    return token


def _has_named_argument(tokens: list[Token], start: int) -> bool:
    """Say whether name => value is among the arguments that begin at tokens[start]."""
    return any(tokens[at].token_type == TokenType.FARROW for at in _level(tokens, start))


def _level(tokens: list[Token], start: int, *, step: int = 1) -> Iterable[int]:
    """Yield where the tokens stand that are as deep in parentheses as tokens[start], going on to where these end."""
    depth = 0
    for at in range(start, len(tokens) if step > 0 else -1, step):
        kind = tokens[at].token_type
        depth += step * ((kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN))
        if depth < 0 or (kind == TokenType.SEMICOLON and not depth):
            return
        if not depth:
            yield at


def _closing(tokens: list[Token], opening: int) -> int:
    """Return what follows the parenthesis that closes the one at tokens[opening]."""
    found = [at for at in _level(tokens, opening) if tokens[at].token_type == TokenType.R_PAREN]
    if not found:
        raise ParseError("The options of TOP k PRIVATE are not closed with ).")
    return found[0] + 1


def _is_at(tokens: list[Token], at: int, *, word: str) -> bool:
    return at < len(tokens) and _is(tokens[at], word)


def _opens(tokens: list[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].token_type == TokenType.L_PAREN


def _is(token: Token, word: str) -> bool:
    return token.token_type not in {TokenType.IDENTIFIER, TokenType.STRING} and ascii_lower(token.text) == word


def _like(token: Token, kind: TokenType, *, text: str) -> Token:
    """Return another token at the same place, so that what is said of it points there."""
    return Token(kind, text, token.line, token.col, token.start, token.end)
