"""TOP k PRIVATE: the one thing dpsql adds to SQL, lifted off the token stream.

    SELECT ... GROUP BY keys [ORDER BY ...] TOP k PRIVATE [WITH (name = value, ...)] [ORDER BY ...] [LIMIT n] [;]
    SELECT TOP k PRIVATE ... GROUP BY keys [ORDER BY ...] [LIMIT n] [WITH (name = value, ...)] [;]

What is left is a plain SELECT whose positions are those of the analyst's text. A clause inside a string, a quoted
name, a comment or a subquery is no clause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.query import Clause, Option, OptionValue
from dpsql.sql.text import Statement, Value, ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["OPTIONS", "Lifted", "lift"]

OPTIONS = frozenset(["epsilon", "delta", "k_bar", "mechanism", "max_groups_contributed", "domain", "fresh"])
_INTEGER = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
_CLAUSE_HINT = "End the query with TOP 10 PRIVATE."
Parameter = Callable[[Value], object]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A statement without its clause: the tokens of a plain SELECT, whether EXPLAIN stood before it, and the clause."""

    tokens: list[Token]
    clause: Clause
    explained: bool


def lift(statement: Statement, parameter: Parameter) -> Lifted:
    """Take the one clause off a statement; `parameter` gives the value bound to a parameter."""
    tokens = list(statement.tokens)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    explained = bool(tokens) and _is(tokens[0], "explain")
    tokens = tokens[explained:]
    _check_select(statement, tokens)
    start = _find(statement, tokens)
    if start + 2 >= len(tokens) or not _is(tokens[start + 2], "private"):
        wrong = tokens[min(start + 2, len(tokens) - 1)]
        reason, hint = "TOP must be followed by one number and PRIVATE.", "Write TOP 10 PRIVATE."
        raise Refusal("clause", reason, hint=hint, place=statement.place(tokens[start], wrong))
    k = _k(statement, tokens[start + 1], parameter=parameter)
    leading = start > 0 and tokens[start - 1].token_type.name == "SELECT"
    before, after = tokens[:start], tokens[start + 3 :]
    options, rest = _options(statement, after, leading=leading)
    if not leading:
        _check_around(statement, before, after=rest)
    place = statement.place(tokens[start], tokens[start + 2])
    return Lifted(before + rest, Clause(k, options, place), explained)


def _is(token: Token, word: str) -> bool:
    return token.token_type.name != "IDENTIFIER" and ascii_lower(token.text) == word


def _check_select(statement: Statement, tokens: list[Token]) -> None:
    if not tokens:
        raise Refusal("empty", "There is no statement.", hint=_CLAUSE_HINT)
    if tokens[0].token_type.name not in {"SELECT", "WITH"}:
        reason = "Only SELECT ... TOP k PRIVATE, EXPLAIN of one, and SHOW BUDGET are statements here."
        raise Refusal("not-a-query", reason, hint="Begin with SELECT or WITH.", place=statement.place(tokens[0]))
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            hint = "Send one statement at a time."
            raise Refusal("multiple", "There is more than one statement.", hint=hint, place=statement.place(token))


def _find(statement: Statement, tokens: list[Token]) -> int:
    """Return where the only outermost TOP stands that a number, a parameter or PRIVATE follows."""
    depth, found = 0, []
    for index, token in enumerate(tokens):
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        following = tokens[index + 1 : index + 3]
        if _is(token, "private_top") and following and following[0].token_type.name == "L_PAREN":
            hint = "Write TOP k PRIVATE at the end of the query instead of HAVING PRIVATE_TOP(k)."
            raise Unsupported("clause", "PRIVATE_TOP is not built yet.", hint=hint, place=statement.place(token))
        if _is(token, "top") and len(following) > 1 and _is(following[1], "private") and _is_k(following[0]):
            if depth:
                reason = "TOP k PRIVATE stands only at the outermost level."
                raise Refusal("clause", reason, hint=_CLAUSE_HINT, place=statement.place(token))
            found.append(index)
    if len(found) == 1:
        return found[0]
    if found:
        raise Refusal(
            "clause",
            "TOP k PRIVATE stands more than once.",
            hint="Keep one of them.",
            place=statement.place(tokens[found[1]]),
        )
    tops = [index for index, token in enumerate(tokens) if _is(token, "top")]
    if tops:
        reason = "TOP must be followed by one number and PRIVATE."
        raise Refusal("clause", reason, hint="Write TOP 10 PRIVATE.", place=statement.place(tokens[tops[-1]]))
    reason = "This query has no TOP k PRIVATE, and exact answers are not given."
    raise Refusal("not-private", reason, hint=_CLAUSE_HINT, place=statement.place(tokens[-1]))


def _is_k(token: Token) -> bool:
    return token.token_type.name in {"NUMBER", "STRING"} or _is(token, "adaptive")


def _k(statement: Statement, token: Token, *, parameter: Parameter) -> int:
    value = statement.value(token.text)
    if value is not None and value.kind == "parameter":
        bound = parameter(value)
        if type(bound) is int and bound > 0:
            return bound
    elif _is(token, "adaptive"):
        hint = "Give a number: TOP 10 PRIVATE."
        raise Unsupported("adaptive", "TOP ADAPTIVE PRIVATE is not built yet.", hint=hint, place=statement.place(token))
    elif token.token_type.name == "NUMBER" and _INTEGER.fullmatch(token.text) and int(token.text) > 0:
        return int(token.text)
    raise Refusal("k", "k must be a whole number of at least 1.", hint="TOP 10 PRIVATE.", place=statement.place(token))


def _check_around(statement: Statement, before: list[Token], *, after: list[Token]) -> None:
    """Let only ORDER BY and LIMIT follow the clause, and no LIMIT stand before it."""
    if after and after[0].token_type.name not in {"ORDER_BY", "LIMIT"}:
        reason = "Only ORDER BY and LIMIT may follow TOP k PRIVATE and its options."
        raise Refusal("clause", reason, hint="Put everything else before TOP.", place=statement.place(after[0]))
    depth = 0
    for token in before:
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if kind == "LIMIT" and depth == 0:
            hint = "Write LIMIT after TOP k PRIVATE: it then cuts the released rows."
            raise Refusal("limit", "LIMIT may not stand before the clause.", hint=hint, place=statement.place(token))


def _options(
    statement: Statement, after: list[Token], *, leading: bool
) -> tuple[MappingProxyType[str, Option], list[Token]]:
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
            hint="Write WITH (name = value, ...).",
            place=statement.place(after[start], after[-1]),
        )
    inside = after[start + 2 : end]
    options: dict[str, Option] = {}
    for item in _items(statement, inside, start=after[start]):
        name, option = _option(statement, item)
        if name in options:
            raise Refusal(
                "option", f"The option {name} stands twice.", hint="Keep one of them.", place=statement.place(item[0])
            )
        options[name] = option
    if leading:
        _check_around(statement, [], after=after[end + 1 :])
    return MappingProxyType(options), after[:start] + after[end + 1 :]


def _items(statement: Statement, inside: list[Token], *, start: Token) -> list[list[Token]]:
    """Split at the commas outside brackets."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        kind = token.token_type.name
        depth += (kind == "L_BRACKET") - (kind == "R_BRACKET")
        if kind == "COMMA" and depth == 0:
            items.append([])
        else:
            items[-1].append(token)
    if not all(items):
        hint = "Write WITH (name = value, ...)."
        raise Refusal("option", "An option is missing.", hint=hint, place=statement.place(start))
    return items


def _option(statement: Statement, item: list[Token]) -> tuple[str, Option]:
    name, place = ascii_lower(item[0].text), statement.place(item[0], item[-1])
    if item[0].token_type.name == "IDENTIFIER" or name not in OPTIONS:
        hint = f"The options are {', '.join(sorted(OPTIONS))}."
        raise Refusal("option", "There is no such option.", hint=hint, place=place)
    if len(item) < 3 or item[1].token_type.name != "EQ":  # noqa: PLR2004 - a name, a sign and a value
        raise Refusal("option", f"Write {name} = value.", hint="For example WITH (epsilon = 0.05).", place=place)
    value = _value(statement, item[2:])
    if value is None:
        hint = "A value is a plain decimal number, a quoted text, a list of quoted texts or a word."
        raise Refusal("option", f"The value of {name} cannot be read.", hint=hint, place=place)
    return name, Option(value, place, word=item[2].token_type.name not in {"NUMBER", "STRING", "L_BRACKET"})


def _value(statement: Statement, tokens: list[Token]) -> OptionValue | None:
    kinds = [token.token_type.name for token in tokens]
    if kinds[0] == "L_BRACKET" and kinds[-1] == "R_BRACKET":
        texts = [statement.value(token.text) for token in tokens[1:-1:2]]
        commas = all(token.token_type.name == "COMMA" for token in tokens[2:-1:2])
        if commas and len(tokens) % 2 == 1 and all(text is not None and text.kind == "string" for text in texts):
            return tuple(text.content for text in texts if text is not None)
        return None
    if kinds == ["DOT", "NUMBER"] and tokens[0].end + 1 == tokens[1].start:
        return Decimal(f".{tokens[1].text}") if _NUMBER.fullmatch(f".{tokens[1].text}") else None
    if len(tokens) != 1:
        return None
    value = statement.value(tokens[0].text)
    if value is not None:
        return value.content if value.kind == "string" else None
    if kinds[0] == "NUMBER":
        return Decimal(tokens[0].text) if _NUMBER.fullmatch(tokens[0].text) else None
    word = tokens[0].text
    return (
        ascii_lower(word) if word.isascii() and word.replace("_", "").isalnum() and kinds[0] != "IDENTIFIER" else None
    )
