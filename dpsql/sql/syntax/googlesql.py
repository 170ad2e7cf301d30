"""SELECT WITH DIFFERENTIAL_PRIVACY [OPTIONS (name = value, ...)]: a private query in the words of GoogleSQL.

The words are removed from the tokens. The rest is standard SQL, which is read as private with any setting. The clause
is the implied one (`implied.py`); `put_header_options` gives it these options, `read_private` checks
privacy_unit_column, and `plan_within_terms` (`plan/planner.py`) makes epsilon and delta those of one item.
SELECT WITH ANONYMIZATION, the older words, are read as these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from dpsql.errors import Place, Refusal
from dpsql.sql.ir.statements import Option, StatedTotal
from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.aggregate_forms import OLD_AGGREGATES, read_anonymization
from dpsql.sql.syntax.block import Block, Node, flatten, kind_of, kinds_of, nest, word_of
from dpsql.sql.syntax.clause import list_options, read_value
from dpsql.sql.syntax.parameters import Parameter

if TYPE_CHECKING:
    from sqlglot import Token

_HINT = "Write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) ..."
_EXAMPLES = {
    "consent": "true",
    "delta": "1e-8",
    "domain": "['DE', 'FR']",
    "epsilon": "1",
    "group_selection_strategy": "PUBLIC_GROUPS",
    "max_groups_contributed": "3",
    "max_rows_contributed": "5",
    "min_privacy_units_per_group": "50",
    "privacy_unit_column": "user_id",
}
# which are options of the clause, too
_OWN_NAMES = frozenset(["consent", "domain", "max_groups_contributed", "max_rows_contributed"])
_STRATEGIES: Mapping[object, Literal["public", "threshold"]] = {
    "public_groups": "public",
    "laplace_threshold": "threshold",
}


@dataclass(frozen=True, slots=True)
class PrivacyHeader:
    """Words after the token `select` of a private query, and where they are.

    `options` are those of the clause, and `stated` those of the whole query. `strategy` says whether they are "public",
    are to pass a "threshold", or are read as in standard SQL, which is "".
    """

    select: Token
    place: Place
    options: Mapping[str, Option]
    stated: StatedTotal
    strategy: Literal["", "public", "threshold"]


def extract_header(statement: ScannedStatement, parameter: Parameter) -> tuple[ScannedStatement, PrivacyHeader | None]:
    """Return the statement without WITH DIFFERENTIAL_PRIVACY and its options, and these; None if it has none."""
    words = ascii_lower(statement.text)
    if "differential_privacy" not in words and "anon" not in words:  # as most statements
        return statement, None
    tokens = read_anonymization(statement.tokens) if "anon" in words else list(statement.tokens)
    starts = list[int]()
    for at in range(len(tokens)):
        word = word_of(tokens, at + 2) if kinds_of(tokens[at : at + 2]) == ["SELECT", "WITH"] else ""
        starts += [at] if word == "differential_privacy" else []
        name = word_of(tokens, at)
        if name in OLD_AGGREGATES and kind_of(tokens, at + 1) == "L_PAREN":
            hint = f"Write {OLD_AGGREGATES[name].upper()}(...) in its place."
            reason, place = f"{name.upper()} is for WITH ANONYMIZATION.", statement.place(tokens[at])
            raise Refusal("aggregate", reason, hint=hint, place=place)
    if not starts:
        return statement, None
    if len(starts) > 1:
        hint = "Write WITH DIFFERENTIAL_PRIVACY once, at the SELECT that aggregates private rows."
        place = statement.place(tokens[starts[1] + 1], tokens[starts[1] + 2])
        raise Refusal("clause", "The statement has more than one private query.", hint=hint, place=place)
    start, end = starts[0], starts[0] + len(("SELECT", "WITH", "DIFFERENTIAL_PRIVACY"))
    options: dict[str, Option] = {}
    if word_of(tokens, end) == "options":
        block = next(iter(nest(tokens[end + 1 :]).nodes), tokens[end])
        if not isinstance(block, Block) or block.nodes:
            options = _read_options(statement, block, start=tokens[end], parameter=parameter)
        end += 1 + len(flatten([block]))
    place = statement.place(tokens[start + 1], tokens[end - 1])
    written = options.get("group_selection_strategy")
    strategy: Literal["", "public", "threshold"] = ""
    if written is not None:
        value = ascii_lower(written.value) if isinstance(written.value, str) else ""
        if value not in _STRATEGIES:
            hint = "Write group_selection_strategy = LAPLACE_THRESHOLD, or PUBLIC_GROUPS where the groups are known."
            raise Refusal("option", "There is no such strategy.", hint=hint, place=written.place)
        strategy = _STRATEGIES[value]
    stated = StatedTotal(
        options.get("epsilon"),
        options.get("delta"),
        options.get("min_privacy_units_per_group"),
        options.get("privacy_unit_column"),
        place,
    )
    of_clause = MappingProxyType({name: option for name, option in options.items() if name in _OWN_NAMES})
    header = PrivacyHeader(tokens[start], place, of_clause, stated, strategy)
    return replace(statement, tokens=(*tokens[: start + 1], *tokens[end:])), header


def _read_options(statement: ScannedStatement, block: Node, *, start: Token, parameter: Parameter) -> dict[str, Option]:
    options: dict[str, Option] = {}
    listed = list_options(
        statement, block, start=start, names=frozenset(_EXAMPLES), hint=_HINT, of=" of DIFFERENTIAL_PRIVACY"
    )
    for name, tokens, place in listed:
        value, word = read_value(statement, tokens, parameter=parameter) if tokens else (None, False)
        if name == "privacy_unit_column" and kinds_of(tokens) == ["IDENTIFIER"]:
            value, word = tokens[0].text, True
        if value is None or (name != "domain" and isinstance(value, tuple)):
            hint = f"Write it as in {name} = {_EXAMPLES[name]}."
            raise Refusal("option", f"The value of {name} cannot be read.", hint=hint, place=place)
        options[name] = Option(value, place, word=word)
    return options
