"""A private query inside another SELECT, cut out at its parentheses; a name for its answer is left in its place.

    SELECT ... FROM (<private query>) AS x ...          WITH x AS (<private query>) SELECT ... FROM x ...

Each part is then read like a statement of its own: the inner one as any private query, with the CTEs that stand before
it, and the outer one as a query over the released table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.lexer import Statement

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["MAX_DOUBLED", "RELEASED", "extract_private_query", "find_last_clause", "find_visible_ctes"]

MAX_DOUBLED = 8  # parentheses that stand directly in others, and mean nothing
RELEASED = "released\0"  # a name that no statement can hold
_STANDS_FOR = (("SELECT", "SELECT"), ("STAR", "*"), ("FROM", "FROM"), ("IDENTIFIER", RELEASED))
_CLAUSES = frozenset("SELECT FROM JOIN ON USING WHERE GROUP_BY HAVING ORDER_BY LIMIT OFFSET".split())
_FROM = frozenset("FROM JOIN ON USING".split())
_NAME_AND_AS = 2  # the tokens between WITH, or a comma, and the parentheses of a CTE


def extract_private_query(statement: Statement, tokens: list[Token], *, start: int) -> tuple[list[Token], list[Token]]:
    """Return the outer SELECT, which reads the table `RELEASED`, and the private query whose clause is tokens[start].

    Refuses a clause that is neither in a subquery of FROM nor in a CTE.
    """
    openings = _openings(tokens, start)
    first, closing = openings[-1] + 1, _closing(tokens, start)
    for _ in range(MAX_DOUBLED):
        if closing is None or not _is_doubled(tokens, openings, closing=closing):
            break
        tokens = [*tokens[: openings[-1]], *tokens[openings[-1] + 1 : closing], *tokens[closing + 1 :]]
        openings.pop()
        start, first, closing = start - 1, first - 1, closing - 1
    if closing is None or not _is_source(tokens, openings[-1]):
        hint = "Write the private query in FROM, or as a CTE: SELECT * FROM (SELECT ... TOP 10 PRIVATE) AS x LIMIT 5."
        reason = "TOP k PRIVATE must be at the outermost level, in a subquery of FROM, or in a CTE."
        raise Refusal("clause", reason, hint=hint, place=statement.place(tokens[start]))
    inner, seen = tokens[first:closing], find_visible_ctes(tokens, openings[0])
    if seen and inner[0].token_type.name == "WITH":
        inner = [*seen, _like(tokens[start], "COMMA", text=","), *inner[1:]]
    elif seen:
        inner = [*seen, *inner]
    return [
        *tokens[:first],
        *(_like(tokens[start], kind, text=text) for kind, text in _STANDS_FOR),
        *tokens[closing:],
    ], inner


def _openings(tokens: list[Token], start: int) -> list[int]:
    """Return where the parentheses open that are not closed before tokens[start], the outermost first."""
    openings: list[int] = []
    for at, token in enumerate(tokens[:start]):
        kind = token.token_type.name
        if kind == "L_PAREN":
            openings.append(at)
        elif kind == "R_PAREN" and openings:
            openings.pop()
    return openings


def _closing(tokens: list[Token], start: int) -> int | None:
    """Return where the innermost parenthesis around tokens[start] closes, if it does."""
    depth = 1
    for at in range(start, len(tokens)):
        kind = tokens[at].token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if not depth:
            return at
    return None


def _is_doubled(tokens: list[Token], openings: list[int], *, closing: int) -> bool:
    """Say whether the innermost parentheses stand directly in others, where FROM takes a subquery."""
    closes = [token.token_type.name for token in tokens[closing + 1 : closing + 2]]
    return openings[-2:-1] == [openings[-1] - 1] and closes == ["R_PAREN"]


def _is_source(tokens: list[Token], opening: int) -> bool:
    """Say whether a parenthesis opens where FROM takes a subquery, or WITH one; what is read decides in the end."""
    kinds = [token.token_type.name for token in tokens[:opening]]
    match kinds[-2:]:
        case [before, "FROM"]:
            return before != "DISTINCT"  # IS DISTINCT FROM is an operator
        case [_, "JOIN"]:
            return True
        case [_, "ALIAS"]:
            return kinds[0] == "WITH" and kinds[-3:-2] in (["WITH"], ["COMMA"])
        case [_, "COMMA"]:
            return find_last_clause(kinds) in _FROM
    return False


def find_last_clause(kinds: list[str]) -> str:
    """Return the last keyword that begins a clause at the level at which the tokens end."""
    depth = 0
    for kind in reversed(kinds):
        depth += (kind == "R_PAREN") - (kind == "L_PAREN")
        if depth < 0:
            break
        if not depth and kind in _CLAUSES:
            return kind
    return ""


def find_visible_ctes(tokens: list[Token], opening: int) -> list[Token]:
    """Return WITH and the CTEs that are visible in a subquery that begins, or is nested, at `opening`."""
    if tokens[0].token_type.name != "WITH":
        return []
    depth, end = 0, opening - _NAME_AND_AS
    for at, token in enumerate(tokens[:opening]):
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if not depth and kind == "SELECT":
            end = at
            break
    seen = tokens[: max(end, 1)]
    if seen[-1].token_type.name == "COMMA":
        seen.pop()
    return seen if len(seen) > 1 else []


def _like(token: Token, kind: str, *, text: str) -> Token:
    """Return a token at the place of another one, so that errors about it point there."""
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)
