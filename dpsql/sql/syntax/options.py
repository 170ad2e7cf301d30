"""Options of a private query: name = value in WITH (...)."""

from __future__ import annotations

import re
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.ir.literals import UnboundParameter
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import Option, OptionValue
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.block import flatten, nest, split
from dpsql.sql.syntax.parameters import Parameter, make_literal

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["OPTIONS", "read_options", "read_value", "split_options"]

_NAMES = (
    "assume delta domain epsilon fresh intervals k_bar known max_groups_contributed max_rows_contributed mechanism "
    "monotone partitions prefer"
)
OPTIONS = frozenset(_NAMES.split())
_DECIDES_COLUMNS = "intervals"  # the option that is no parameter, as columns are known before values are bound
MAX_LISTED = 1_000
_TYPES = {
    **dict.fromkeys(["delta", "epsilon"], DOUBLE),
    **dict.fromkeys(["k_bar", "max_groups_contributed", "max_rows_contributed"], BIGINT),
    **dict.fromkeys(["fresh", "known", "monotone"], BOOLEAN),
}  # types of parameters; those of the other options are text
_EXAMPLES = {
    "assume": "'zipf(1.0, 5000)'",
    "delta": "1e-8",
    "domain": "['DE', 'FR']",
    "epsilon": "0.05",
    "fresh": "true",
    "intervals": "true",
    "k_bar": "100",
    "known": "false",
    "max_groups_contributed": "3",
    "max_rows_contributed": "5",
    "mechanism": "auto",
    "monotone": "true",
    "partitions": "['DE', 'FR']",
    "prefer": "5",
}
_SOME_TEXT = Literal("1", TEXT, 1)  # reads as a value of most types of partitions
MAX_INTEGER_BITS = 64  # bits; Python does not even print those of more than 4,300 digits
_NUMBER = re.compile(r"([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def split_options(statement: Statement, inside: list[Token], *, start: Token, hint: str) -> list[list[Token]]:
    """Split the tokens at commas outside brackets; refuse an empty item."""
    items = [flatten(item) for item in split(nest(inside).nodes)]
    if not all(items):
        raise Refusal("option", "An option is missing.", hint=hint, place=statement.place(start))
    return items


def read_options(
    statement: Statement, items: list[list[Token]], *, parameter: Parameter
) -> MappingProxyType[str, Option]:
    """Return the options by name; `parameter` returns the value bound to a parameter."""
    options: dict[str, Option] = {}
    unbound: set[str] = set()  # options whose value is not known yet
    for item in items:
        name, option = _read_option(statement, item, parameter=parameter)
        if name in options or name in unbound:
            raise Refusal(
                "option", f"The option {name} is set twice.", hint="Set it once.", place=statement.place(item[0])
            )
        if option is None:
            unbound.add(name)
        else:
            options[name] = option
    return MappingProxyType(options)


def _read_option(statement: Statement, item: list[Token], *, parameter: Parameter) -> tuple[str, Option | None]:
    """Return the name and the value of one option, None for a value that is not known yet."""
    name, place = ascii_lower(item[0].text), statement.place(item[0], item[-1])
    if name == "penalty":
        hint = "Leave it out: 1 / epsilon is used. dpsql.mechanisms.FixedStableTopK takes any."
        raise Refusal("option", "The option penalty was removed in version 0.12.0.", hint=hint, place=place)
    if item[0].token_type.name == "IDENTIFIER" or name not in OPTIONS:
        hint = f"{propose_name(name, OPTIONS)}The options are {', '.join(sorted(OPTIONS))}."
        raise Refusal("option", "There is no such option.", hint=hint, place=place)
    if len(item) < 3 or item[1].token_type.name != "EQ":  # noqa: PLR2004 - a name, a sign and a value
        hint = "For example epsilon = 0.05."
        raise Refusal("option", f"Write {name} = value.", hint=hint, place=place)
    if name == _DECIDES_COLUMNS and any(statement.value(token.text) is not None for token in item[2:]):
        hint = f"Write {name} = true, or a level such as 0.9."
        reason = f"The value of {name} decides which columns there are, so it is written in the statement."
        raise Refusal("option", reason, hint=hint, place=place)
    is_unbound = _fill_unbound(statement, item[2:], wanted=_TYPES.get(name, TEXT), parameter=parameter)
    if is_unbound and name != "partitions":  # PER needs the partitions
        return name, None
    value, word = read_value(statement, item[2:], parameter=parameter)
    if value is None:
        hint = f"Write it as in {name} = {_EXAMPLES.get(name, 'NAME')}."
        raise Refusal("option", f"The value of {name} cannot be read.", hint=hint, place=place)
    return name, Option(value, place, word=word)


def _fill_unbound(statement: Statement, tokens: list[Token], *, wanted: Type, parameter: Parameter) -> bool:
    """Set the type of the parameters in a value that are not bound yet; return whether there are any."""
    values = [value for token in tokens if (value := statement.value(token.text)) is not None]
    bound = [parameter(value) for value in values if value.kind == "parameter"]
    unbound = [each for each in bound if isinstance(each, UnboundParameter)]
    for each in unbound:
        each.fill(wanted, such_as=_SOME_TEXT if wanted == TEXT else None)
        each.is_option = True
    return bool(unbound)


def read_value(statement: Statement, tokens: list[Token], *, parameter: Parameter) -> tuple[OptionValue | None, bool]:
    """Return the value, None if it is not valid, and whether it is a bare word."""
    kinds = [token.token_type.name for token in tokens]
    if kinds[0] == "L_BRACKET" and kinds[-1] == "R_BRACKET":
        return _read_list(statement, tokens, parameter=parameter), False
    if kinds == ["DOT", "NUMBER"] and tokens[0].end + 1 == tokens[1].start:
        return _parse_decimal(f".{tokens[1].text}"), False
    if len(tokens) != 1:
        return None, False
    value = statement.value(tokens[0].text)
    if value is not None:
        return (value.content, False) if value.kind == "string" else _convert_parameter(parameter(value), value.place)
    if kinds[0] == "NUMBER":
        return _parse_decimal(tokens[0].text), False
    word = tokens[0].text
    is_word = word.isascii() and word.replace("_", "").isalnum() and kinds[0] != "IDENTIFIER"
    return (ascii_lower(word), True) if is_word else (None, False)


def _read_list(statement: Statement, tokens: list[Token], *, parameter: Parameter) -> tuple[str, ...] | None:
    """Return the texts between brackets, None if an item is not a text."""
    values = [statement.value(token.text) for token in tokens[1:-1:2]]
    commas = all(token.token_type.name == "COMMA" for token in tokens[2:-1:2])
    texts: list[object] = [
        None if value is None else value.content if value.kind == "string" else parameter(value) for value in values
    ]
    texts = [text.literal().value if isinstance(text, UnboundParameter) else text for text in texts]
    place = statement.place(tokens[0], tokens[-1])
    return _check_texts(texts, place) if commas and len(tokens) % 2 == 1 else None


def _parse_decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _check_texts(values: list[object], place: Place) -> tuple[str, ...] | None:
    """Return the items of a list as texts that can be bound; None if the list is too long or has another value."""
    if len(values) > MAX_LISTED or not all(isinstance(value, str) for value in values):
        return None
    return tuple(str(make_literal(value, place).value) for value in values)


def _convert_parameter(value: object, place: Place) -> tuple[OptionValue | None, bool]:
    """Convert the value of a parameter to that of an option: a number, a text, a list of texts, true or false."""
    match value:
        case bool():
            return str(value).lower(), True
        case int() if value.bit_length() > MAX_INTEGER_BITS:
            return None, False
        case int() | float() | Decimal():
            return _parse_decimal(str(value)), False
        case str():
            return value, False
        case list() | tuple():
            return _check_texts(list(value), place), False
    return None, False
