"""Calls that standard SQL writes with words between their arguments, in their plain form.

SUBSTRING(x FROM 2 FOR 3)        SUBSTRING(x, 2, 3)
SUBSTRING(x FOR 3)               SUBSTRING(x, 1, 3)
TRIM(BOTH 'a' FROM x)            TRIM(x, 'a'); LEADING is LTRIM, and TRAILING is RTRIM
POSITION('a' IN x)               STRPOS(x, 'a')
EXTRACT('hour' FROM x)           EXTRACT(hour FROM x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.token_scan import find_closing, kind_of, split_at

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["normalize_standard_calls"]

_CALLS = frozenset("substring trim position extract".split())
_TRIMS = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
_SIDES = 2


def normalize_standard_calls(tokens: list[Token], statement: Statement | None = None) -> list[Token]:
    """Return the tokens with each of these calls in its plain form; EXTRACT only where there is a `statement`."""
    if not any(ascii_lower(token.text) in _CALLS for token in tokens):
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        name = "" if kind_of(tokens, at) == "IDENTIFIER" else ascii_lower(tokens[at].text)
        if name in _CALLS and kind_of(tokens, at + 1) == "L_PAREN":
            close = find_closing(tokens, at + 1)
            inner = normalize_standard_calls(tokens[at + 2 : close - 1], statement)
            if kind_of(tokens, close - 1) == "R_PAREN":
                found += _write_call(statement, tokens[at : at + 2], inner=inner, name=name)
                at = close - 1
                continue
        found.append(tokens[at])
        at += 1
    return found


def _write_call(statement: Statement | None, head: list[Token], *, inner: list[Token], name: str) -> list[Token]:
    """Return a call up to its closing parenthesis: its name and opening parenthesis, and its arguments."""
    called, opening = head
    match name:
        case "substring":
            arguments = _split_substring(called, inner)
        case "trim":
            name, arguments = _split_trim(inner)
        case "position":
            arguments = _split_at_word(inner, "in")[::-1]
            name = "strpos"
        case _:
            return [called, opening, *_name_part(statement, inner)]
    if len(arguments) < _SIDES and name not in _TRIMS.values():
        return [*head, *inner]
    if not all(arguments) or (len(arguments) == 1 and arguments[0] is inner):
        return [*head, *inner]
    written = [_like(called, "VAR", text=name) if name != ascii_lower(called.text) else called, opening]
    for number, argument in enumerate(arguments):
        written += [_like(argument[0], "COMMA", text=","), *argument] if number else argument
    return written


def _split_substring(called: Token, inner: list[Token]) -> list[list[Token]]:
    """Return the text, the start and the length, which may stand in any order."""
    found: dict[str, list[Token]] = {"": []}
    word, depth = "", 0
    for at, token in enumerate(inner):
        depth += (kind_of(inner, at) == "L_PAREN") - (kind_of(inner, at) == "R_PAREN")
        written = ascii_lower(token.text)
        if not depth and written in {"from", "for"} and token.token_type.name != "IDENTIFIER" and written not in found:
            word = written
            found[word] = []
        else:
            found[word].append(token)
    if len(found) == 1:
        return [inner]
    start = found.get("from", [_like(called, "NUMBER", text="1")])
    return [found[""], start, *([found["for"]] if "for" in found else [])]


def _split_trim(inner: list[Token]) -> tuple[str, list[list[Token]]]:
    """Return the function that trims these sides, and its text and characters."""
    first = ascii_lower(inner[0].text) if kind_of(inner, 0) not in {"", "IDENTIFIER"} else ""
    parts = _split_at_word(inner[first in _TRIMS :], "from")
    if len(parts) < _SIDES:
        return _TRIMS.get(first, "trim"), [inner] if first not in _TRIMS else parts
    characters, text = parts
    return _TRIMS.get(first, "trim"), [text, *([characters] if characters else [])]


def _split_at_word(inner: list[Token], word: str) -> list[list[Token]]:
    """Return what stands before the first such word outside of parentheses and behind it, or all."""
    parts = split_at(inner, (0, len(inner)), kinds={word.upper()})
    if len(parts) < _SIDES:
        return [inner]
    (_, end) = parts[0]
    return [inner[:end], inner[end + 1 :]]


def _name_part(statement: Statement | None, inner: list[Token]) -> list[Token]:
    """Return the arguments of EXTRACT with the part as a word where it is written as text."""
    value = statement.value(inner[0].text) if statement is not None and kind_of(inner, 1) == "FROM" else None
    if value is None or value.kind != "string" or not value.content.isalpha():
        return inner
    return [_like(inner[0], "VAR", text=value.content), *inner[1:]]


def _like(token: Token, kind: str, *, text: str) -> Token:
    """Return a token at the place of another one, so that errors about it point there."""
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)
