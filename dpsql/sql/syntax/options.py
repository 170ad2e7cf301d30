"""The options of a private query: name = value in WITH (...), or name => value in PRIVATE_TOP(...)."""

from __future__ import annotations

import re
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.ir.statements import Option, OptionValue
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type
from dpsql.sql.ir.unbound_parameters import UnboundParameter
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.parameters import Parameter, make_literal

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["OPTIONS", "read_options", "split_options"]

_NAMES = "assume delta domain epsilon fresh k_bar max_groups_contributed mechanism monotone partitions penalty prefer"
OPTIONS = frozenset(_NAMES.split())
MAX_LISTED = 1_000
_TYPES = {
    **dict.fromkeys(["delta", "epsilon", "penalty"], DOUBLE),
    **dict.fromkeys(["k_bar", "max_groups_contributed"], BIGINT),
    **dict.fromkeys(["fresh", "monotone"], BOOLEAN),
}  # of a parameter; of the others it is a text
_SOME_TEXT = Literal("1", TEXT, 1)  # which a partition of most types may be
MAX_INTEGER_BITS = 64  # bits; Python does not even print those of more than 4,300 digits
_NUMBER = re.compile(r"([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
_SIGNS = {"EQ": "=", "FARROW": "=>"}


def split_options(statement: Statement, inside: list[Token], *, start: Token, hint: str) -> list[list[Token]]:
    """Split at the commas outside brackets; refuse an empty item."""
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
        raise Refusal("option", "An option is missing.", hint=hint, place=statement.place(start))
    return items


def read_options(
    statement: Statement, items: list[list[Token]], *, sign: str, parameter: Parameter
) -> MappingProxyType[str, Option]:
    """Return the options by name; `sign` is the token between name and value, `parameter` gives what is bound."""
    options: dict[str, Option] = {}
    later: set[str] = set()  # their values are not known yet
    for item in items:
        name, option = _option(statement, item, sign=sign, parameter=parameter)
        if name in options or name in later:
            raise Refusal(
                "option", f"The option {name} stands twice.", hint="Keep one of them.", place=statement.place(item[0])
            )
        if option is None:
            later.add(name)
        else:
            options[name] = option
    return MappingProxyType(options)


def _option(statement: Statement, item: list[Token], *, sign: str, parameter: Parameter) -> tuple[str, Option | None]:
    name, place = ascii_lower(item[0].text), statement.place(item[0], item[-1])
    if item[0].token_type.name == "IDENTIFIER" or name not in OPTIONS:
        hint = f"The options are {', '.join(sorted(OPTIONS))}."
        raise Refusal("option", "There is no such option.", hint=hint, place=place)
    if len(item) < 3 or item[1].token_type.name != sign:  # noqa: PLR2004 - a name, a sign and a value
        hint = f"For example epsilon {_SIGNS[sign]} 0.05."
        raise Refusal("option", f"Write {name} {_SIGNS[sign]} value.", hint=hint, place=place)
    is_later = _is_later(statement, item[2:], wanted=_TYPES.get(name, TEXT), parameter=parameter)
    if is_later and name != "partitions":  # without which PER cannot be read
        return name, None
    value, word = _value(statement, item[2:], parameter=parameter)
    if value is None:
        hint = "A value is a plain decimal number, a quoted text, a list of quoted texts, a word or a parameter."
        raise Refusal("option", f"The value of {name} cannot be read.", hint=hint, place=place)
    return name, Option(value, place, word=word)


def _is_later(statement: Statement, tokens: list[Token], *, wanted: Type, parameter: Parameter) -> bool:
    """Say whether the value is, or holds, a parameter whose value is not known yet, and of what type that is."""
    values = [value for token in tokens if (value := statement.value(token.text)) is not None]
    bound = [parameter(value) for value in values if value.kind == "parameter"]
    holes = [hole for hole in bound if isinstance(hole, UnboundParameter)]
    for hole in holes:
        hole.fill(wanted, such_as=_SOME_TEXT if wanted == TEXT else None)
        hole.is_option = True
    return bool(holes)


def _value(statement: Statement, tokens: list[Token], *, parameter: Parameter) -> tuple[OptionValue | None, bool]:
    """Return the value, or None if it cannot be read, and whether it is a bare word."""
    kinds = [token.token_type.name for token in tokens]
    if kinds[0] == "L_BRACKET" and kinds[-1] == "R_BRACKET":
        return _list(statement, tokens, parameter=parameter), False
    if kinds == ["DOT", "NUMBER"] and tokens[0].end + 1 == tokens[1].start:
        return _decimal(f".{tokens[1].text}"), False
    if len(tokens) != 1:
        return None, False
    value = statement.value(tokens[0].text)
    if value is not None:
        return (value.content, False) if value.kind == "string" else _given(parameter(value), value.place)
    if kinds[0] == "NUMBER":
        return _decimal(tokens[0].text), False
    word = tokens[0].text
    is_word = word.isascii() and word.replace("_", "").isalnum() and kinds[0] != "IDENTIFIER"
    return (ascii_lower(word), True) if is_word else (None, False)


def _list(statement: Statement, tokens: list[Token], *, parameter: Parameter) -> tuple[str, ...] | None:
    """Return the texts between brackets, or None."""
    values = [statement.value(token.text) for token in tokens[1:-1:2]]
    commas = all(token.token_type.name == "COMMA" for token in tokens[2:-1:2])
    texts = [
        None if value is None else value.content if value.kind == "string" else _text(parameter(value))
        for value in values
    ]
    place = statement.place(tokens[0], tokens[-1])
    return _texts(texts, place) if commas and len(tokens) % 2 == 1 else None


def _text(value: object) -> object:
    """Return what is bound, or a text for a parameter whose value is not known yet."""
    return value.literal().value if isinstance(value, UnboundParameter) else value


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _texts(values: list[object], place: Place) -> tuple[str, ...] | None:
    """Return the texts of a list, each of which must be one that can be bound; None if it holds anything else."""
    if len(values) > MAX_LISTED or not all(isinstance(value, str) for value in values):
        return None
    return tuple(str(make_literal(value, place).value) for value in values)


def _given(value: object, place: Place) -> tuple[OptionValue | None, bool]:
    """Return a parameter's value as an option's: a number as it prints, a text, a list of texts, true or false."""
    match value:
        case bool():
            return str(value).lower(), True
        case int() if value.bit_length() > MAX_INTEGER_BITS:
            return None, False
        case int() | float() | Decimal():
            return _decimal(str(value)), False
        case str():
            return value, False
        case list() | tuple():
            return _texts(list(value), place), False
    return None, False
