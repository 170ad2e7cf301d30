"""SELECT WITH DIFFERENTIAL_PRIVACY [OPTIONS (name = value, ...)]: a private query in the words of GoogleSQL.

The words are removed from the tokens. The rest is standard SQL, which is read as private with any setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from dpsql.errors import Place, Refusal
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import Option, OptionValue, QueryTerms
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.block import Block, flatten, kind_of, nest, word_of
from dpsql.sql.syntax.options import read_value, split_options
from dpsql.sql.syntax.parameters import Parameter

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["PrivacyHeader", "extract_header"]

_HINT = "Write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) ..."
_NAMES = (
    "delta",
    "domain",
    "epsilon",
    "group_selection_strategy",
    "max_groups_contributed",
    "min_privacy_units_per_group",
    "privacy_unit_column",
)
_EXAMPLES = {
    "delta": "1e-8",
    "domain": "['DE', 'FR']",
    "epsilon": "1",
    "group_selection_strategy": "PUBLIC_GROUPS",
    "max_groups_contributed": "3",
    "min_privacy_units_per_group": "50",
    "privacy_unit_column": "user_id",
}
_OWN_NAMES = frozenset(["domain", "max_groups_contributed"])  # which are options of the clause, too
_STRATEGIES: Mapping[object, Literal["public", "threshold"]] = {
    "public_groups": "public",
    "laplace_threshold": "threshold",
}
_OLD_AGGREGATES = frozenset("anon_avg anon_count anon_percentile_cont anon_quantiles anon_sum anon_var_pop".split())
_RELEASED = frozenset("avg count sum".split())
_PAIR = 2


@dataclass(frozen=True, slots=True)
class PrivacyHeader:
    """Words after the token `select` of a private query, and where they are.

    `options` are those of the clause, and `terms` those of the whole query. `groups` says whether they are "public",
    are to pass a "threshold", or are read as in standard SQL, which is "".
    """

    select: Token
    place: Place
    options: Mapping[str, Option]
    terms: QueryTerms
    groups: Literal["", "public", "threshold"]


def extract_header(statement: Statement, parameter: Parameter) -> tuple[Statement, PrivacyHeader | None]:
    """Return the statement without WITH DIFFERENTIAL_PRIVACY and its options, and these; None if it has none."""
    words = ascii_lower(statement.text)
    if "differential_privacy" not in words and "anon" not in words:  # as most statements
        return statement, None
    tokens = list(statement.tokens)
    _refuse_old_words(statement, tokens)
    starts = [at for at in range(len(tokens) - _PAIR) if _begins(tokens, at, word="differential_privacy")]
    if not starts:
        return statement, None
    if len(starts) > 1:
        hint = "Write WITH DIFFERENTIAL_PRIVACY once, at the SELECT that aggregates private rows."
        place = statement.place(tokens[starts[1] + 1], tokens[starts[1] + _PAIR])
        raise Refusal("clause", "The statement has more than one private query.", hint=hint, place=place)
    start, end = starts[0], starts[0] + _PAIR + 1
    items: list[list[Token]] = []
    if word_of(tokens, end) == "options":
        block = next(iter(nest(tokens[end + 1 :]).nodes), None)
        if not isinstance(block, Block) or block.closing is None:
            raise Refusal(
                "option", "The options are not closed with ).", hint=_HINT, place=statement.place(tokens[end])
            )
        inside = flatten(block.nodes)
        items = split_options(statement, inside, start=tokens[end], hint=_HINT) if inside else []
        end += 1 + len(flatten([block]))
    place = statement.place(tokens[start + 1], tokens[end - 1])
    found = _read_items(statement, items, parameter=parameter)
    options: dict[str, Option] = {name: option for name, option in found.items() if name in _OWN_NAMES}
    header = PrivacyHeader(
        tokens[start],
        place,
        MappingProxyType(options),
        QueryTerms(
            found.get("epsilon"),
            found.get("delta"),
            found.get("min_privacy_units_per_group"),
            found.get("privacy_unit_column"),
            place,
        ),
        _read_strategy(found.get("group_selection_strategy")),
    )
    return replace(statement, tokens=(*tokens[: start + 1], *tokens[end:])), header


def _read_items(statement: Statement, items: list[list[Token]], *, parameter: Parameter) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for item in items:
        name, place = ascii_lower(item[0].text), statement.place(item[0], item[-1])
        if item[0].token_type.name == "IDENTIFIER" or name not in _NAMES:
            hint = f"{propose_name(name, _NAMES)}The options of DIFFERENTIAL_PRIVACY are {', '.join(_NAMES)}."
            raise Refusal("option", "There is no such option.", hint=hint, place=place)
        if name in found:
            raise Refusal("option", f"The option {name} is set twice.", hint="Set it once.", place=place)
        value, word = None, False
        if len(item) > _PAIR and item[1].token_type.name == "EQ":
            value, word = _read_value(statement, item[_PAIR:], name=name, parameter=parameter)
        if value is None or (name != "domain" and isinstance(value, tuple)):
            hint = f"Write it as in {name} = {_EXAMPLES[name]}."
            raise Refusal("option", f"The value of {name} cannot be read.", hint=hint, place=place)
        found[name] = Option(value, place, word=word)
    return found


def _read_value(
    statement: Statement, tokens: list[Token], *, name: str, parameter: Parameter
) -> tuple[OptionValue | None, bool]:
    """Return the value, None if it is not valid, and whether it is a name or a bare word."""
    if name == "privacy_unit_column" and [token.token_type.name for token in tokens] == ["IDENTIFIER"]:
        return tokens[0].text, True
    return read_value(statement, tokens, parameter=parameter)


def _read_strategy(option: Option | None) -> Literal["", "public", "threshold"]:
    if option is None:
        return ""
    value = ascii_lower(option.value) if isinstance(option.value, str) else ""
    if value not in _STRATEGIES:
        hint = "Write group_selection_strategy = LAPLACE_THRESHOLD, or PUBLIC_GROUPS where the groups are known."
        raise Refusal("option", "There is no such strategy.", hint=hint, place=option.place)
    return _STRATEGIES[value]


def _refuse_old_words(statement: Statement, tokens: list[Token]) -> None:
    """Refuse what GoogleSQL had before DIFFERENTIAL_PRIVACY."""
    for at, token in enumerate(tokens):
        if _begins(tokens, at, word="anonymization"):
            place = statement.place(tokens[at + 1], tokens[at + _PAIR])
            raise Refusal("clause", "WITH ANONYMIZATION is not supported.", hint=_HINT, place=place)
        name = ascii_lower(token.text)
        if name in _OLD_AGGREGATES and word_of(tokens, at) == name and kind_of(tokens, at + 1) == "L_PAREN":
            plain = name.removeprefix("anon_")
            hint = "Count or add: COUNT(*), COUNT(DISTINCT unit), SUM and AVG are released."
            if plain in _RELEASED:
                hint = f"Write {plain.upper()}(...) in its place."
            raise Refusal("aggregate", f"{name.upper()} is not supported.", hint=hint, place=statement.place(token))


def _begins(tokens: list[Token], at: int, *, word: str) -> bool:
    """Say whether tokens[at] is a SELECT with WITH and a word behind it."""
    return [kind_of(tokens, at), kind_of(tokens, at + 1)] == ["SELECT", "WITH"] and word_of(tokens, at + _PAIR) == word
