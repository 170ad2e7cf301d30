"""TOP k PRIVATE: the one thing dpsql adds to SQL, lifted off the token stream.

    SELECT ... GROUP BY keys [ORDER BY ...] TOP k PRIVATE [PER key] [WITH (name = value, ...)]
        [ORDER BY ...] [LIMIT n] [;]
    SELECT TOP k PRIVATE ... GROUP BY keys [ORDER BY ...] [LIMIT n] [WITH (name = value, ...)] [;]
    SELECT ... GROUP BY keys ORDER BY measure DESC LIMIT k PRIVATE [WITH (name = value, ...)] [;]

k is a number or ADAPTIVE. What is left is a plain SELECT whose positions are those of the analyst's text. A clause
inside a string, a quoted name or a comment is no clause; one inside a subquery of FROM, or a CTE, makes that the
private query. PER has no place in the form that leads, where it could be a column of that name with an alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.ir.statements import Clause, Name, Option
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.block import Block, flatten, kind_of, kinds_of, last_token, nest, split
from dpsql.sql.syntax.forms import normalize_clauses
from dpsql.sql.syntax.grammar import BEFORE_OPERAND
from dpsql.sql.syntax.options import read_options, split_options
from dpsql.sql.syntax.parameters import Parameter, read_whole_number
from dpsql.sql.syntax.split_statement import MAX_DOUBLED, extract_private_query

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "CLAUSE_HINT",
    "SplitStatement",
    "extract_clause",
    "find_bare_clauses",
    "find_clauses",
    "list_select_tokens",
    "several_queries",
    "split_clause",
]

CLAUSE_HINT = "End the query with TOP 10 PRIVATE."
_INTEGER = re.compile(r"[0-9]{1,9}")
_WITH_HINT = "Write WITH (epsilon = 0.05), or leave WITH out."
_PAIR = 3  # a name, a sign and a value
_NO_NAMES = frozenset(
    "and as between from group having ilike in is like limit not or order where with".split()
)  # what may follow a column
_LONGEST_TOP = 3  # tokens: TOP, and a number, or : and a name
_BEFORE_RELATION = frozenset(["FROM", "JOIN", "ALIAS", "DOT", "WITH"])
_AFTER_CLAUSE = frozenset(["R_PAREN", "ORDER_BY", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT"])
_BEGINS_OF_DUCKDB = frozenset(["FROM", "L_PAREN", "TABLE", "VALUES"])
_CALL_HINT = "Leave it out, and end the query with TOP 10 PRIVATE WITH (epsilon = 0.05)."


@dataclass(frozen=True, slots=True)
class SplitStatement:
    """Statement split into the tokens of a plain SELECT, its clause, and whether it begins with EXPLAIN.

    Without a clause it may still read public tables. If the clause is inside another SELECT, `outer` is that SELECT,
    with a table in place of the private query.
    """

    tokens: list[Token]
    clause: Clause | None
    explained: bool
    outer: list[Token] | None = None


def extract_clause(statement: Statement, parameter: Parameter) -> SplitStatement:
    """Take the one clause off a statement; `parameter` gives the value bound to a parameter."""
    tokens, explained = list_select_tokens(statement)
    starts = find_clauses(statement, tokens)
    if len(starts) > 1:
        raise several_queries(statement, tokens[starts[1]])
    start = starts[0] if starts else None
    if start is None:
        return SplitStatement(tokens, None, explained)
    if _is_inside(tokens, start):
        outer, inner = extract_private_query(statement, tokens, start=start)
        _check_select(statement, inner)
        at = next(at for at, token in enumerate(inner) if token is tokens[start])
        found = split_clause(statement, inner, start=at, parameter=parameter)
        return replace(found, explained=explained, outer=outer)
    return replace(split_clause(statement, tokens, start=start, parameter=parameter), explained=explained)


def list_select_tokens(statement: Statement, *, of_duckdb: bool = False) -> tuple[list[Token], bool]:
    """Return the tokens of a SELECT, without parentheses around all of it, and whether EXPLAIN stands before it.

    Raises `Refusal` for any other statement; one `of_duckdb` may also begin with FROM, VALUES or TABLE.
    """
    tokens = normalize_clauses(statement.tokens, statement)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    explained = bool(tokens) and _is(tokens[0], "explain")
    tokens = _bare(tokens[explained:])
    if not (of_duckdb and tokens and tokens[0].token_type.name in _BEGINS_OF_DUCKDB):
        _check_select(statement, tokens)
    return tokens, explained


def find_clauses(statement: Statement, tokens: list[Token]) -> list[int]:
    """Return where the clauses of private queries begin, in the order of the text."""
    tops = _find(statement, tokens)
    return sorted([*tops, *(at for at in find_bare_clauses(tokens) if not tops or not _is_alias(tokens, at))])


def _bare(tokens: list[Token]) -> list[Token]:
    """Return the tokens without parentheses around all of them."""
    for _ in range(MAX_DOUBLED):
        if not tokens or tokens[0].token_type.name != "L_PAREN":
            break
        depth, end = 0, 0
        for end, token in enumerate(tokens):  # noqa: B007 - where the first closes
            depth += (token.token_type.name == "L_PAREN") - (token.token_type.name == "R_PAREN")
            if not depth:
                break
        if depth or end < len(tokens) - 1:
            break
        tokens = tokens[1:-1]
    return tokens


def split_clause(statement: Statement, tokens: list[Token], *, start: int, parameter: Parameter) -> SplitStatement:
    """Return a SELECT without the clause that begins at tokens[start], at its outermost level."""
    if _is(tokens[start], "private") or _is(tokens[start], "all"):
        return _taken_bare(statement, tokens, start=start, parameter=parameter)
    if tokens[start].token_type.name == "LIMIT":
        return _taken_limit(statement, tokens, start=start, parameter=parameter)
    if start + 2 >= len(tokens) or not _is(tokens[start + 2], "private"):
        wrong = tokens[min(start + 2, len(tokens) - 1)]
        reason, hint = "TOP must be followed by one number, or ADAPTIVE, and PRIVATE.", "Write TOP 10 PRIVATE."
        raise Refusal("clause", reason, hint=hint, place=statement.place(tokens[start], wrong))
    k = _k(statement, tokens[start + 1], parameter=parameter)
    leading = start > 0 and tokens[start - 1].token_type.name == "SELECT"
    before, after = tokens[:start], tokens[start + 3 :]
    per, after = _per(statement, after, leading=leading)
    options, rest = _options(statement, after, leading=leading, parameter=parameter)
    if not leading:
        _check_around(statement, before, after=rest)
    place = statement.place(tokens[start], tokens[start + 2])
    return SplitStatement(before + rest, Clause(k, options, place, per=per), explained=False)


def _taken_bare(statement: Statement, tokens: list[Token], *, start: int, parameter: Parameter) -> SplitStatement:
    """Return a SELECT without ALL PRIVATE, or PRIVATE alone, which begins at tokens[start]."""
    is_all = _is(tokens[start], "all")
    end = start + is_all
    before, after = tokens[:start], tokens[end + 1 :]
    _check_no_per(statement, after)
    options, rest = _options(statement, after, leading=False, parameter=parameter)
    _check_around(statement, before, after=rest)
    place = statement.place(tokens[start], tokens[end])
    return SplitStatement(
        before + rest, Clause(None, options, place, shape="all" if is_all else "total"), explained=False
    )


def _taken_limit(statement: Statement, tokens: list[Token], *, start: int, parameter: Parameter) -> SplitStatement:
    """Return a SELECT with groups whose LIMIT n at tokens[start] is followed by PRIVATE: it means TOP n PRIVATE."""
    limit, private = tokens[start : start + 2], tokens[start + 2]
    before, after = tokens[:start], tokens[start + 3 :]
    _check_no_per(statement, after)
    options, rest = _options(statement, after, leading=False, parameter=parameter)
    again = any(token.token_type.name == "LIMIT" for token in rest)
    _check_around(statement, before if _has_groups(before) and not again else [*before, *limit], after=rest)
    k, place = _k(statement, limit[1], parameter=parameter), statement.place(limit[0], private)
    return SplitStatement([*before, *rest, *limit], Clause(k, options, place, implied=True), explained=False)


def _check_no_per(statement: Statement, after: list[Token]) -> None:
    if after and _is(after[0], "per"):
        hint = "Write TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])."
        raise Refusal("per", "PER is for the top of each partition.", hint=hint, place=statement.place(after[0]))


def _has_groups(tokens: list[Token]) -> bool:
    """Say whether there is a GROUP BY outside of parentheses, or a SELECT DISTINCT."""
    depth, kinds = 0, [token.token_type.name for token in tokens]
    for kind in kinds:
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if kind == "GROUP_BY" and not depth:
            return True
    return kinds[:2] == ["SELECT", "DISTINCT"]


def _refuse_call(statement: Statement, tokens: list[Token], *, start: int) -> Refusal:
    """Return the refusal of PRIVATE_TOP(...) at tokens[start], with the statement to write where it is all of HAVING.

    ... HAVING PRIVATE_TOP(3, per => country, epsilon => 1) ...     ... TOP 3 PRIVATE PER country WITH (epsilon = 1) ...
    """
    inside = nest(tokens[start + 1 :]).nodes[0]
    assert isinstance(inside, Block)  # noqa: S101 - of the caller
    items = [flatten(item) for item in split(inside.nodes)]
    named = [item for item in items[1:] if kinds_of(item[1:2]) == ["FARROW"] and len(item) >= _PAIR]
    is_alone = kind_of(tokens, start - 1) == "HAVING" and inside.closing is not None
    hint = _CALL_HINT
    if is_alone and len(items[0]) == 1 and len(named) == len(items) - 1 and inside.closing is not None:
        per = "".join(f" PER {_read_text(statement, item[2:])}" for item in named if _is(item[0], "per"))
        options = [
            f"{_read_text(statement, item[:1])} = {_read_text(statement, item[2:])}"
            for item in named
            if not _is(item[0], "per")
        ]
        clause = f"TOP {_read_text(statement, items[0])} PRIVATE{per}"
        clause += f" WITH ({', '.join(options)})" if options else ""
        text = statement.text[: tokens[start - 1].start] + clause + statement.text[inside.closing.end + 1 :]
        hint = f"Write TOP k PRIVATE in its place: {text.strip().rstrip(';').rstrip()}"
    place = statement.place(tokens[start], last_token([inside]))
    return Refusal("clause", "PRIVATE_TOP(...) is not supported.", hint=hint, place=place)


def _read_text(statement: Statement, tokens: list[Token]) -> str:
    return statement.text[tokens[0].start : tokens[-1].end + 1]


def _per(statement: Statement, after: list[Token], *, leading: bool) -> tuple[Name | None, list[Token]]:
    """Return the name after PER, which may follow PRIVATE, and the tokens after it."""
    if not after or not _is(after[0], "per"):
        return None, after
    named = len(after) > 1 and _is_name(after[1])
    if leading and not named:
        return None, after  # a column of that name
    if leading:
        hint = "Write TOP 3 PRIVATE PER country after GROUP BY; a column named per and its alias, with AS between them."
        raise Refusal(
            "per", "PER must be in the clause that ends the query.", hint=hint, place=statement.place(after[0])
        )
    if not named:
        hint = "Write TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])."
        raise Refusal(
            "per", "PER names one key.", hint=hint, place=statement.place(after[0], after[min(1, len(after) - 1)])
        )
    return _name(statement, after[1]), after[2:]


def _is_name(token: Token) -> bool:
    """Say whether the token is a quoted name, or a word that goes on with nothing before it."""
    if token.token_type.name == "IDENTIFIER":
        return True
    word = ascii_lower(token.text)
    return (word[:1].isalpha() or word[:1] == "_") and word not in _NO_NAMES


def _name(statement: Statement, token: Token) -> Name:
    return Name(token.text, statement.place(token))


def _is(token: Token, word: str) -> bool:
    return ascii_lower(token.text) == word and token.token_type.name != "IDENTIFIER"


def _check_select(statement: Statement, tokens: list[Token]) -> None:
    if not tokens:
        raise Refusal("empty", "There is no statement.", hint="Write one, such as SHOW TABLES.")
    if tokens[0].token_type.name not in {"SELECT", "WITH"} and not _is_combined(tokens):
        reason = "Only SELECT, EXPLAIN, SHOW TABLES, SHOW FUNCTIONS, SHOW BUDGET and DESCRIBE are statements here."
        raise Refusal(
            "not-a-query",
            reason,
            hint="Begin with SELECT or WITH; SHOW TABLES lists what can be asked.",
            place=statement.place(tokens[0]),
        )
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            hint = "Send one statement at a time."
            raise Refusal("multiple", "There is more than one statement.", hint=hint, place=statement.place(token))


def _is_combined(tokens: list[Token]) -> bool:
    """Say whether a statement begins with a SELECT in parentheses, which a set operation combines with another."""
    kinds = [token.token_type.name for token in tokens]
    first = next((kind for kind in kinds if kind != "L_PAREN"), "")
    is_select = kinds[0] == "L_PAREN" and first in {"SELECT", "WITH"}
    return is_select and not {"UNION", "INTERSECT", "EXCEPT"}.isdisjoint(kinds)


def _find(statement: Statement, tokens: list[Token]) -> list[int]:
    """Return the positions of TOP."""
    found = []
    for index, token in enumerate(tokens):
        following = tokens[index + 1 : index + 3]
        if _is(token, "private_top") and kind_of(following, 0) == "L_PAREN":
            raise _refuse_call(statement, tokens, start=index)
        if len(following) > 1 and _is(token, "top") and _is(following[1], "private") and _is_k(following[0]):
            found.append(index)
    if found:
        return found
    tops = [index for index, token in enumerate(tokens) if _is(token, "top") and not _is_relation(tokens, index)]
    if tops:
        reason = "TOP must be followed by one number, or ADAPTIVE, and PRIVATE."
        raise Refusal("clause", reason, hint="Write TOP 10 PRIVATE.", place=statement.place(tokens[tops[-1]]))
    return []


def _is_relation(tokens: list[Token], at: int) -> bool:
    """Say whether tokens[at] names a table or a CTE, or a column of one."""
    before, after = (tokens[each].token_type.name if 0 <= each < len(tokens) else "" for each in (at - 1, at + 1))
    return before in _BEFORE_RELATION or after in {"DOT", "ALIAS"}


def several_queries(statement: Statement, second: Token) -> Refusal:
    """Return the refusal of a statement with several private queries that cannot be in one statement."""
    hint = "Keep one of them; ask each question in a statement of its own."
    reason = "The statement has more than one private query."
    return Refusal("clause", reason, hint=hint, place=statement.place(second))


def _is_alias(tokens: list[Token], at: int) -> bool:
    """Say whether PRIVATE at tokens[at] can name the subquery that ends before it."""
    return _is(tokens[at], "private") and tokens[at - 1].token_type.name == "R_PAREN"


def find_bare_clauses(tokens: list[Token]) -> Iterator[int]:
    """Yield where ALL PRIVATE, LIMIT n PRIVATE, or PRIVATE alone ends a query.

    PRIVATE is a name where an operand or a name is due, as after AND or AS, and where the query goes on behind it.
    """
    for at, token in enumerate(tokens):
        before = tokens[at - 1].token_type.name if at else ""
        if not _is(token, "private") or before in BEFORE_OPERAND or not _ends_query(tokens, at + 1):
            continue
        if any(_is(each, "top") for each in tokens[max(0, at - _LONGEST_TOP) : at]):
            continue
        kinds = [token.token_type.name for token in tokens[max(0, at - 2) : at]]
        if kinds in (["LIMIT", "NUMBER"], ["LIMIT", "STRING"]):
            yield at - 2
        else:
            yield at - (before == "ALL" and kinds[0] not in {"GROUP_BY", "ORDER_BY"})


def _ends_query(tokens: list[Token], at: int) -> bool:
    """Say whether a query ends at tokens[at], or its options, order or limit begin there, or PER."""
    kinds = [token.token_type.name for token in tokens[at : at + 2]]
    return not kinds or kinds[0] in _AFTER_CLAUSE or kinds == ["WITH", "L_PAREN"] or _is(tokens[at], "per")


def _is_inside(tokens: list[Token], index: int) -> bool:
    """Say whether a parenthesis is open at tokens[index]."""
    kinds = [token.token_type.name for token in tokens[:index]]
    return kinds.count("L_PAREN") > kinds.count("R_PAREN")


def _is_k(token: Token) -> bool:
    return token.token_type.name in {"NUMBER", "STRING"} or _is(token, "adaptive")


def _k(statement: Statement, token: Token, *, parameter: Parameter) -> int | None:
    """Return k, written or bound; None where the word ADAPTIVE leaves it to the mechanism."""
    if _is(token, "adaptive"):
        return None
    given = read_whole_number(statement.value(token.text), parameter, min_value=1)
    if given is not None:
        return given
    if token.token_type.name == "NUMBER" and _INTEGER.fullmatch(token.text) and int(token.text) > 0:
        return int(token.text)
    hint = "Write TOP 10 PRIVATE, or TOP ADAPTIVE PRIVATE."
    raise Refusal("k", "k must be a whole number of at least 1.", hint=hint, place=statement.place(token))


def _check_around(statement: Statement, before: list[Token], *, after: list[Token]) -> None:
    """Let only ORDER BY and LIMIT follow the clause, and no LIMIT stand before it."""
    if after and after[0].token_type.name not in {"ORDER_BY", "LIMIT", "OFFSET"}:
        reason = "Only ORDER BY and LIMIT may follow TOP k PRIVATE and its options."
        hint = "Leave it out, or put it before TOP."
        if after[0].token_type.name == "L_PAREN":
            hint = "Write WITH before options: TOP 10 PRIVATE WITH (max_groups_contributed = 5)."
        raise Refusal("clause", reason, hint=hint, place=statement.place(after[0]))
    depth = 0
    for token in before:
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if kind == "LIMIT" and depth == 0:
            hint = "Write LIMIT after TOP k PRIVATE: it then cuts the released rows."
            raise Refusal("limit", "LIMIT may not stand before the clause.", hint=hint, place=statement.place(token))


def _options(
    statement: Statement, after: list[Token], *, leading: bool, parameter: Parameter
) -> tuple[Mapping[str, Option], list[Token]]:
    """Return the options and the tokens without them: right after the clause, or at the end when it leads."""
    kinds = [token.token_type.name for token in after]
    if leading:
        starts = [at for at in range(len(kinds) - 1) if kinds[at : at + 2] == ["WITH", "L_PAREN"]]
        start = starts[-1] if starts else len(after)
    else:
        start = 0 if kinds[:2] == ["WITH", "L_PAREN"] else len(after)
    if start == len(after):
        return MappingProxyType({}), after
    end = kinds.index("R_PAREN", start) if "R_PAREN" in kinds[start:] else len(after)
    if end == len(after):
        raise Refusal(
            "option",
            "The options are not closed with ).",
            hint=_WITH_HINT,
            place=statement.place(after[start], after[-1]),
        )
    items = split_options(statement, after[start + 2 : end], start=after[start], hint=_WITH_HINT)
    options = read_options(statement, items, parameter=parameter)
    if leading:
        _check_around(statement, [], after=after[end + 1 :])
    return options, after[:start] + after[end + 1 :]
