"""TOP k PRIVATE and its options, and WITH DIFFERENTIAL_PRIVACY: what makes a query private, taken off its tokens.

    SELECT ... GROUP BY keys [ORDER BY ...] TOP k PRIVATE [PER key] [WITH (name = value, ...)]
        [ORDER BY ...] [LIMIT n] [;]
    SELECT TOP k PRIVATE ... GROUP BY keys [ORDER BY ...] [LIMIT n] [WITH (name = value, ...)] [;]
    SELECT ... GROUP BY keys ORDER BY measure DESC LIMIT k PRIVATE [WITH (name = value, ...)] [;]

k is a number or ADAPTIVE. What is left is a plain SELECT whose positions are those of the analyst's text. A clause
inside a string, a quoted name or a comment is no clause; one inside a subquery of FROM, or a CTE, makes that the
private query. PER has no place in the form that leads, where it could be a column of that name with an alias.

    SELECT WITH DIFFERENTIAL_PRIVACY [OPTIONS (name = value, ...)] ... GROUP BY keys

says the same in the words of GoogleSQL. Without them the rest is standard SQL, which is read as private with any
setting, by an implied clause (`implied.py`). `put_header_options` gives that these options, `read_private` checks
privacy_unit_column, and `plan_within_terms` (`plan/planner.py`) makes epsilon and delta those of one item. SELECT WITH
ANONYMIZATION, the older words, are read as these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from dpsql.errors import Place, Refusal
from dpsql.sql.coercion import make_literal, read_whole_number
from dpsql.sql.ir.literals import UnboundParameter
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import Clause, Explained, Name, Option, OptionValue, StatedTotal
from dpsql.sql.ir.tree import BIGINT, BOOLEAN, DOUBLE, TEXT
from dpsql.sql.ir.tree import Literal as TypedLiteral
from dpsql.sql.lexer import Parameter, ScannedStatement, Value, ascii_lower
from dpsql.sql.syntax.aggregate_forms import OLD_AGGREGATES, read_anonymization
from dpsql.sql.syntax.block import (
    Block,
    Node,
    Nodes,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    name_of,
    nest,
    parentheses_at,
    split,
    word_of,
)
from dpsql.sql.syntax.forms import normalize_clauses
from dpsql.sql.syntax.grammar import BEFORE_OPERAND

if TYPE_CHECKING:
    from sqlglot import Token

MAX_DOUBLED = 8  # parentheses that stand directly in others, and mean nothing
MAX_LISTED = 1_000
_LISTED_NUMBER, _MOST_QUOTED = re.compile(r"-?[0-9.]+"), 20  # of a list in a hint
CLAUSE_HINT = "End the query with TOP 10 PRIVATE."
_NO_NAMES = frozenset(
    "and as between from group having ilike in is like limit not or order where with".split()
)  # what may follow a column
_LEADING_WORD = [[first, "VAR", "VAR", "L_PAREN"] for first in ("SELECT", "DISTINCT")]  # SELECT PRIVATE COUNT(
_AFTER_CLAUSE = frozenset(["R_PAREN", "ORDER_BY", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT"])
# every option, with a value for hints; "Add an option of a private query" in the contributing guide names other places
_OPTION_EXAMPLES = {
    "assume": "'zipf(1.0, 5000)'",
    "consent": "true",
    "delta": "1e-8",
    "domain": "['DE', 'FR']",
    "epsilon": "0.05",
    "evidence": "strict",
    "fresh": "true",
    "gate": "false",
    "intervals": "true",
    "k_bar": "100",
    "known": "false",
    "max_groups_contributed": "3",
    "max_items_contributed": "5",
    "max_rows_contributed": "5",
    "mechanism": "auto",
    "monotone": "true",
    "name": "'weekly'",
    "partitions": "['DE', 'FR']",
    "prefer": "5",
    "reuse": "true",
}
OPTIONS = frozenset(_OPTION_EXAMPLES)
_OPTION_TYPES = {
    **dict.fromkeys(["delta", "epsilon"], DOUBLE),
    **dict.fromkeys(["k_bar", *(f"max_{each}_contributed" for each in ("groups", "items", "rows"))], BIGINT),
    **dict.fromkeys(["consent", "fresh", "gate", "known", "monotone", "reuse"], BOOLEAN),
}  # types of parameters; those of the other options are text
_SOME_TEXT = TypedLiteral("1", TEXT, 1)  # reads as a value of most types of partitions
MAX_INTEGER_BITS = 64  # bits; Python does not even print those of more than 4,300 digits
_NUMBER = re.compile(r"([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")

_HEADER_HINT = "Write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) ..."
_HEADER_EXAMPLES = {
    "consent": "true",
    "delta": "1e-8",
    "domain": "['DE', 'FR']",
    "epsilon": "1",
    "group_selection_strategy": "PUBLIC_GROUPS",
    "max_groups_contributed": "3",
    "max_rows_contributed": "5",
    "min_privacy_units_per_group": "50",
    "name": "'weekly'",
    "privacy_unit_column": "user_id",
    "reuse": "true",
}
# which are options of the clause, too
_OWN_NAMES = frozenset(["consent", "domain", "max_groups_contributed", "max_rows_contributed", "name", "reuse"])
_STRATEGIES: Mapping[object, Literal["public", "threshold"]] = {
    "public_groups": "public",
    "laplace_threshold": "threshold",
}


@dataclass(frozen=True, slots=True)
class SplitStatement:
    """Statement split into the tokens of a plain SELECT, its clause, and whether it begins with EXPLAIN.

    Without a clause it may still read public tables.
    """

    tokens: list[Token]
    clause: Clause | None
    explained: Explained


def extract_clause(statement: ScannedStatement, parameter: Parameter) -> SplitStatement | None:
    """Take the one clause off a statement; `parameter` gives the value bound to a parameter.

    None where the clause is inside another SELECT.
    """
    tokens, explained = list_select_tokens(statement)
    clauses = find_clauses(statement, tokens)
    if len(clauses) > 1:
        raise several_queries(statement, clauses[1])
    if not clauses:
        return SplitStatement(tokens, None, explained)
    nodes = nest(tokens).nodes
    if clauses[0] not in nodes:
        return None
    return replace(split_clause(statement, nodes, start=clauses[0], parameter=parameter), explained=explained)


def list_select_tokens(statement: ScannedStatement, *, of_duckdb: bool = False) -> tuple[list[Token], Explained]:
    """Return the tokens of a SELECT, without parentheses around all of it, and which EXPLAIN stands before it.

    Raises `Refusal` for any other statement; one `of_duckdb` may also begin with FROM, VALUES or TABLE.
    """
    tokens = normalize_clauses(statement.tokens, statement)
    while kind_of(tokens, len(tokens) - 1) == "SEMICOLON":
        tokens.pop()
    is_explain = word_of(tokens, 0) == "explain"
    explained = Explained(is_explain + (is_explain and word_of(tokens, 1) == "verbose"))
    tokens = tokens[explained:]
    if kind_of(tokens, 0) == "L_PAREN":
        nodes = nest(tokens).nodes
        for _ in range(MAX_DOUBLED):
            only = parentheses_at(nodes, 0)
            if len(nodes) > 1 or only is None or only.closing is None:
                break
            nodes = only.nodes
        tokens = flatten(nodes)
    kinds = kinds_of(tokens)
    if of_duckdb and kinds and kinds[0] in {"FROM", "L_PAREN", "TABLE", "VALUES"}:
        return tokens, explained
    if not tokens:
        raise Refusal("empty", "There is no statement.", hint="Write one, such as SHOW TABLES.")
    is_select = kinds[0] in {"SELECT", "WITH"}
    if kinds[0] == "L_PAREN":  # a SELECT that a set operation combines with another
        first = next((kind for kind in kinds if kind != "L_PAREN"), "")
        is_select = first in {"SELECT", "WITH"} and not {"UNION", "INTERSECT", "EXCEPT"}.isdisjoint(kinds)
    if not is_select:
        reason = "Only SELECT, EXPLAIN, SHOW and DESCRIBE are statements here."
        hint = "Begin with SELECT or WITH; SHOW TABLES lists what can be asked."
        raise Refusal("not-a-query", reason, hint=hint, place=statement.place(tokens[0]))
    if "SEMICOLON" in kinds:
        where = statement.place(tokens[kinds.index("SEMICOLON")])
        raise Refusal(
            "multiple", "There is more than one statement.", hint="Send one statement at a time.", place=where
        )
    return tokens, explained


def find_clauses(statement: ScannedStatement, tokens: list[Token]) -> list[Token]:
    """Return the first token of each clause of a private query, in the order of the text."""
    tops, others, words = list[int](), list[int](), 0
    for at, token in enumerate(tokens):
        if token.text[:1] not in {"t", "T", "p", "P"}:  # as most
            continue
        word = word_of(tokens, at)
        words += word == "private"
        if word == "private_top" and kind_of(tokens, at + 1) == "L_PAREN":
            raise _refuse_call(statement, tokens, start=at)
        if word == "private" and kinds_of(tokens[at - 1 : at + 3]) in _LEADING_WORD:
            hint = "End the query with PRIVATE, or with TOP 10 PRIVATE where it has GROUP BY."
            raise Refusal("clause", "PRIVATE does not stand behind SELECT.", hint=hint, place=statement.place(token))
        if word == "top":
            is_k = kind_of(tokens, at + 1) in {"NUMBER", "STRING"} or word_of(tokens, at + 1) == "adaptive"
            (tops if is_k and word_of(tokens, at + 2) == "private" else others).append(at)
    if not tops:  # TOP may name a table, a CTE or a column of one
        names = {"FROM", "JOIN", "ALIAS", "DOT", "WITH"}
        others = [
            at
            for at in others
            if kind_of(tokens, at - 1) not in names and kind_of(tokens, at + 1) not in {"DOT", "ALIAS"}
        ]
        if others:
            reason = "TOP must be followed by one number, or ADAPTIVE, and PRIVATE."
            at = others[-1]
            hint = f"Write TOP {_propose_k(tokens, at)} PRIVATE."
            if words and kind_of(tokens, at - 1) in {"SELECT", "DISTINCT"}:  # SELECT TOP 5 city ... PRIVATE
                hint += " Leave PRIVATE out at the end."
            raise Refusal("clause", reason, hint=hint, place=statement.place(tokens[at]))
    # Each TOP k PRIVATE has the word once: another one may be a clause without TOP.
    bare = list(find_bare_clauses(tokens)) if words > len(tops) else []
    if tops and bare:  # beside TOP k PRIVATE, PRIVATE behind a subquery is the name of that
        bare = [at for at in bare if word_of(tokens, at) != "private" or kind_of(tokens, at - 1) != "R_PAREN"]
    return list(map(tokens.__getitem__, sorted([*tops, *bare])))


def _propose_k(tokens: list[Token], at: int) -> str:
    """Return the k of a hint: the number that is written behind a word, or 10."""
    number = first_token(tokens[at + 1 :] or tokens[at:])
    return number.text if re.fullmatch("[1-9][0-9]{0,8}", number.text) else "10"


def find_bare_clauses(tokens: list[Token]) -> Iterator[int]:
    """Yield where ALL PRIVATE, LIMIT n PRIVATE, or PRIVATE alone ends a query.

    PRIVATE is a name where an operand or a name is due, as after AND or AS, and where the query goes on behind it.
    """
    for at, token in enumerate(tokens):
        if token.text[:1] not in {"p", "P"} or word_of(tokens, at) != "private":
            continue
        before, kinds = kind_of(tokens, at - 1), kinds_of(tokens[at + 1 : at + 3])
        ends = not kinds or kinds[0] in _AFTER_CLAUSE or kinds == ["WITH", "L_PAREN"]
        if before in BEFORE_OPERAND or not (ends or word_of(tokens, at + 1) == "per"):
            continue
        if "top" in (word_of(tokens, at - 3), word_of(tokens, at - 2), word_of(tokens, at - 1)):
            continue  # of TOP k PRIVATE, TOP :name PRIVATE
        kinds = kinds_of(tokens[max(0, at - 2) : at])
        if kinds in (["LIMIT", "NUMBER"], ["LIMIT", "STRING"]):
            yield at - 2
        else:
            # ALL PRIVATE begins at ALL; in GROUP BY ALL PRIVATE that word is of GROUP BY.
            yield at - (before == "ALL" and kinds[0] not in {"GROUP_BY", "ORDER_BY"})


def several_queries(statement: ScannedStatement, second: Token) -> Refusal:
    """Return the refusal of a statement with several private queries that cannot be in one statement."""
    hint = "Keep one of them; ask each question in a statement of its own."
    reason = "The statement has more than one private query."
    return Refusal("clause", reason, hint=hint, place=statement.place(second))


def split_clause(statement: ScannedStatement, nodes: Nodes, *, start: Token, parameter: Parameter) -> SplitStatement:
    """Return a SELECT without the clause that begins at the token `start` among its nodes.

    LIMIT n PRIVATE means TOP n PRIVATE in a SELECT with groups.
    """
    at = nodes.index(start)
    word, is_limit = word_of(nodes, at), kind_of(nodes, at) == "LIMIT"
    is_bare = word in {"private", "all"}
    # TOP k PRIVATE and LIMIT k PRIVATE are three tokens, ALL PRIVATE two, PRIVATE one
    end = at + (3 if not is_bare else 2 if word == "all" else 1)
    before, after, limit = nodes[:at], nodes[end:], nodes[at : at + 2] if is_limit else ()
    leading = not (is_bare or is_limit) and kind_of(nodes, at - 1) == "SELECT"
    number = first_token(nodes[at + 1 :] or [start])
    value = statement.value(number.text)
    k = None if is_bare or is_limit else _read_k(statement, number, value=value, parameter=parameter)
    per = None
    if word_of(after, 0) == "per" and (is_bare or is_limit):
        hint, where = "Write TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR']).", first_token(after)
        raise Refusal("per", "PER is for the top of each partition.", hint=hint, place=statement.place(where))
    if word_of(after, 0) == "per":
        per, after = _read_per(statement, after, leading=leading)
    options: Mapping[str, Option] = MappingProxyType({})
    rest = after
    if "WITH" in kinds_of(after):
        options, rest = _read_options(statement, after, leading=leading, parameter=parameter)
    if is_limit:
        has_groups = "GROUP_BY" in kinds_of(before) or kinds_of(before[:2]) == ["SELECT", "DISTINCT"]
        is_last = has_groups and "LIMIT" not in kinds_of(flatten(rest))
        _check_around(statement, before if is_last else (*before, *limit), after=rest, clause=nodes[at:end])
        k = _read_k(statement, number, value=value, parameter=parameter)
    elif not leading:
        _check_around(statement, before, after=rest, clause=nodes[at:end])
    place = statement.place(start, first_token(nodes[end - 1 :]))
    shape: Literal["top", "all", "total"] = "top" if not is_bare else "all" if word == "all" else "total"
    clause = Clause(
        k,
        options,
        place,
        per=per,
        shape=shape,
        implied=is_limit,
        form="limit" if is_limit else "leading" if leading else "end",
        parameter="" if is_bare or value is None or value.kind != "parameter" else value.content,
    )
    # LIMIT n PRIVATE leaves LIMIT n behind, which cuts nothing of the first n groups.
    return SplitStatement(flatten((*before, *rest, *limit)), clause, explained=Explained.NO)


def _read_k(statement: ScannedStatement, token: Token, *, value: Value | None, parameter: Parameter) -> int | None:
    """Return k, written or bound; None where the word ADAPTIVE leaves it to the mechanism."""
    if word_of([token], 0) == "adaptive":
        return None
    if value is not None and (bound := read_whole_number(value, parameter, min_value=1)) is not None:
        return bound
    if token.token_type.name == "NUMBER" and re.fullmatch("[0-9]{1,9}", token.text) and int(token.text) > 0:
        return int(token.text)
    hint = "Write TOP 10 PRIVATE, or TOP ADAPTIVE PRIVATE."
    raise Refusal("k", "k must be a whole number of at least 1.", hint=hint, place=statement.place(token))


def _read_per(statement: ScannedStatement, after: Nodes, *, leading: bool) -> tuple[Name | None, Nodes]:
    """Return the name after PER, which follows PRIVATE, and the nodes after it."""
    name, word = name_of(after, 1), word_of(after, 1)
    # a quoted name, or a word that goes on with nothing before it
    is_name = bool(name) and (not word or ((word[:1].isalpha() or word[:1] == "_") and word not in _NO_NAMES))
    if leading and not is_name:
        return None, after  # a column of that name
    if leading:
        reason = "PER must be in the clause that ends the query."
        hint = "Write TOP 3 PRIVATE PER country after GROUP BY; a column named per and its alias, with AS between them."
        raise Refusal("per", reason, hint=hint, place=statement.place(first_token(after)))
    if not is_name:
        hint = "Write TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])."
        where = statement.place(first_token(after), first_token(after[1:] or after))
        raise Refusal("per", "PER names one key.", hint=hint, place=where)
    token = first_token(after[1:])
    return Name(token.text, statement.place(token)), after[2:]


def _check_around(statement: ScannedStatement, before: Nodes, *, after: Nodes, clause: Nodes) -> None:
    """Let only ORDER BY and LIMIT follow the clause, and no LIMIT stand before it."""
    if after and kind_of(after, 0) not in {"ORDER_BY", "LIMIT", "OFFSET"}:
        reason = "Only ORDER BY and LIMIT may follow TOP k PRIVATE and its options."
        words = "TOP" if not clause else _read_text(statement, clause)
        hint = f"Leave it out, or put it before {words.split()[0]}."
        if kind_of(after, 0) == "WHERE":
            hint = "Put it before GROUP BY."
        listed = after[kind_of(after, 0) == "WITH" :]
        if parentheses_at(listed, 0) is not None:
            hint = f"Write WITH before options: {words} WITH {_read_text(statement, listed[:1])}."
        elif word_of(listed, 0) in OPTIONS and kind_of(listed, 1) == "EQ":  # WITH epsilon = 0.1
            reason, kinds = "Options are in parentheses, behind WITH.", kinds_of(listed)
            end = next((at for at, kind in enumerate(kinds) if kind in {"ORDER_BY", "LIMIT", "OFFSET"}), len(kinds))
            hint = f"Write {words} WITH ({_read_text(statement, listed[:end])})."
        raise Refusal("clause", reason, hint=hint, place=statement.place(first_token(after)))
    kinds = kinds_of(before)
    if "LIMIT" in kinds:
        hint, where = "Write LIMIT after TOP k PRIVATE: it then cuts the released rows.", before[kinds.index("LIMIT") :]
        place = statement.place(first_token(where))
        raise Refusal("limit", "LIMIT may not stand before the clause.", hint=hint, place=place)


def _refuse_call(statement: ScannedStatement, tokens: list[Token], *, start: int) -> Refusal:
    """Return the refusal of PRIVATE_TOP(...) at tokens[start], with the statement to write where it is all of HAVING.

    ... HAVING PRIVATE_TOP(3, per => country, epsilon => 1) ...     ... TOP 3 PRIVATE PER country WITH (epsilon = 1) ...
    """
    inside = nest(tokens[start + 1 :]).nodes[0]
    assert isinstance(inside, Block)  # noqa: S101 - of the caller
    first, *named = split(inside.nodes)
    is_alone = kind_of(tokens, start - 1) == "HAVING" and inside.closing is not None
    per, options = "", list[str]()
    for item in named:
        is_alone = is_alone and kind_of(item, 1) == "FARROW" and len(item) > len(("name", "=>"))
        if is_alone and word_of(item, 0) == "per":
            per += f" PER {_read_text(statement, item[2:])}"
        elif is_alone:
            options.append(f"{_read_text(statement, item[:1])} = {_read_text(statement, item[2:])}")
    hint = "Leave it out, and end the query with TOP 10 PRIVATE WITH (epsilon = 0.05)."
    if is_alone and len(first) == 1 and inside.closing is not None:
        clause = f"TOP {_read_text(statement, first)} PRIVATE{per}"
        clause += f" WITH ({', '.join(options)})" if options else ""
        text = statement.text[: tokens[start - 1].start] + clause + statement.text[inside.closing.end + 1 :]
        hint = f"Write TOP k PRIVATE in its place: {text.strip().rstrip(';').rstrip()}"
    place = statement.place(tokens[start], last_token([inside]))
    return Refusal("clause", "PRIVATE_TOP(...) is not supported.", hint=hint, place=place)


def _read_text(statement: ScannedStatement, nodes: Nodes) -> str:
    return statement.text[first_token(nodes).start : last_token(nodes).end + 1]


def _read_options(
    statement: ScannedStatement, after: Nodes, *, leading: bool, parameter: Parameter
) -> tuple[Mapping[str, Option], Nodes]:
    """Return the options and the nodes without them: right after the clause, or at the end when it leads."""
    kinds = kinds_of(after)
    start = len(kinds) - 1 if leading else 0
    # In the form that leads the options end the statement, so that they are looked for from its end.
    while leading and start > 0 and kinds[start : start + 2] != ["WITH", "L_PAREN"]:
        start -= 1
    if kinds[start : start + 2] != ["WITH", "L_PAREN"]:
        return MappingProxyType({}), after
    hint, first = "Write WITH (epsilon = 0.05), or leave WITH out.", first_token(after[start:])
    options: dict[str, Option] = {}
    for name, tokens, place in list_options(statement, after[start + 1], start=first, names=OPTIONS, hint=hint):
        if not tokens:
            raise Refusal("option", f"Write {name} = value.", hint="For example epsilon = 0.05.", place=place)
        option = _read_option(statement, tokens, name=name, place=place, parameter=parameter)
        options |= {} if option is None else {name: option}
    rest = after[start + 2 :]
    if leading:
        _check_around(statement, (), after=rest, clause=())
    return MappingProxyType(options), (*after[:start], *rest)


def list_options(
    statement: ScannedStatement, block: Node, *, start: Token, names: frozenset[str], hint: str, of: str = ""
) -> Iterator[tuple[str, list[Token], Place]]:
    """Yield each option in parentheses: its name, the tokens of its value if there are any, and its place."""
    closing = block.closing if isinstance(block, Block) else None
    if closing is None or closing.token_type.name != "R_PAREN":
        tokens = flatten([block])
        kinds = kinds_of(tokens)
        if of or "R_PAREN" not in kinds:
            where = statement.place(start, None if of else tokens[-1])
            raise Refusal("option", "The options are not closed with ).", hint=hint, place=where)
        block = nest(tokens[1 : kinds.index("R_PAREN")])  # a bracket in a value is not closed: that cannot be read
    assert isinstance(block, Block)  # noqa: S101 - it is closed
    items = [flatten(item) for item in split(block.nodes)]
    if not all(items):
        raise Refusal("option", "An option is missing.", hint=hint, place=statement.place(start))
    known = set[str]()
    for item in items:
        name, place = ascii_lower(item[0].text), statement.place(item[0], item[-1])
        if name == "penalty" and not of:
            removed = "Leave it out: 1 / epsilon is used. dpsql.mechanisms.FixedStableTopK takes any."
            raise Refusal("option", "The option penalty was removed in version 0.12.0.", hint=removed, place=place)
        if item[0].token_type.name == "IDENTIFIER" or name not in names:
            listed = f"{propose_name(name, names)}The options{of} are {', '.join(sorted(names))}."
            raise Refusal("option", "There is no such option.", hint=listed, place=place)
        if name in known:
            where = place if of else statement.place(item[0])
            raise Refusal("option", f"The option {name} is set twice.", hint="Set it once.", place=where)
        known.add(name)
        yield name, item[2:] if kind_of(item, 1) == "EQ" else [], place


def _read_option(
    statement: ScannedStatement, tokens: list[Token], *, name: str, place: Place, parameter: Parameter
) -> Option | None:
    """Return the value of an option; None for one that is not known yet, as its parameters are not bound."""
    values = [value for token in tokens if (value := statement.value(token.text)) is not None]
    if name == "intervals" and values:  # no parameter, as columns are known before values are bound
        hint = f"Write {name} = true, or a level such as 0.9."
        reason = f"The value of {name} decides which columns there are, so it is written in the statement."
        raise Refusal("option", reason, hint=hint, place=place)
    bound = [parameter(value) for value in values if value.kind == "parameter"]
    unbound = [each for each in bound if isinstance(each, UnboundParameter)]
    for each in unbound:
        wanted = _OPTION_TYPES.get(name, TEXT)
        each.fill(wanted, such_as=_SOME_TEXT if wanted == TEXT else None)
        each.is_option = True
    if unbound and name != "partitions":  # PER needs the partitions
        return None
    content, word = read_value(statement, tokens, parameter=parameter)
    if content is None:
        raise _refuse_value(statement, tokens, name=name, example=_OPTION_EXAMPLES[name], place=place)
    return Option(content, place, word=word, parameter=_read_text(statement, tuple(tokens)) if bound else "")


def _refuse_value(
    statement: ScannedStatement, tokens: list[Token], *, name: str, example: str, place: Place
) -> Refusal:
    """Return the refusal of a value that cannot be read; a list of numbers is proposed as one of texts."""
    reason = f"The value of {name} cannot be read."
    if example.startswith("[") and kinds_of(tokens[:1]) == ["L_BRACKET"]:
        texts = [_read_text(statement, item) if item else "" for item in split(tuple(tokens[1:-1]))]
        if all(map(_LISTED_NUMBER.fullmatch, texts)):
            reason = f"Each value of {name} is a text in quotes, also where the key is a number."
            example = f"[{', '.join(repr(text) for text in texts[:_MOST_QUOTED])}]"
    return Refusal("option", reason, hint=f"Write it as in {name} = {example}.", place=place)


def read_value(  # noqa: C901 - a case for each form
    statement: ScannedStatement, tokens: list[Token], *, parameter: Parameter
) -> tuple[OptionValue | None, bool]:
    """Return the value, None if it is not valid, and whether it is a bare word."""
    kinds = kinds_of(tokens)
    if kinds[0] == "L_BRACKET" and kinds[-1] == "R_BRACKET":
        if len(tokens) % 2 == 0 or any(kind != "COMMA" for kind in kinds[2:-1:2]):
            return None, False
        texts = list[object]()
        for token in tokens[1:-1:2]:
            value = statement.value(token.text)
            text = None if value is None else value.content if value.kind == "string" else parameter(value)
            texts.append(text.literal().value if isinstance(text, UnboundParameter) else text)
        return _bind_texts(texts, statement.place(tokens[0], tokens[-1])), False
    if kinds == ["DOT", "NUMBER"] and tokens[0].end + 1 == tokens[1].start:
        return _parse_decimal(f".{tokens[1].text}"), False
    if len(tokens) != 1:
        return None, False
    value, word = statement.value(tokens[0].text), tokens[0].text
    if value is None and kinds[0] == "NUMBER":
        return _parse_decimal(word), False
    if value is None:
        is_word = word.isascii() and word.replace("_", "").isalnum() and kinds[0] != "IDENTIFIER"
        return (ascii_lower(word), True) if is_word else (None, False)
    match value.content if value.kind == "string" else parameter(value):
        case bool() as bound:
            return str(bound).lower(), True
        case int() as bound if bound.bit_length() > MAX_INTEGER_BITS:
            return None, False
        case int() | float() | Decimal() as bound:
            return _parse_decimal(str(bound)), False
        case str() as bound:
            return bound, False
        case list() | tuple() as bound:
            return _bind_texts(list(bound), value.place), False
    return None, False


def _parse_decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _bind_texts(values: list[object], place: Place) -> tuple[str, ...] | None:
    """Return the items of a list as texts that can be bound; None if the list is too long or has another value."""
    if len(values) > MAX_LISTED or not all(isinstance(value, str) for value in values):
        return None
    return tuple(str(make_literal(value, place).value) for value in values)


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
            options = _read_header(statement, block, start=tokens[end], parameter=parameter)
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
    epsilon, delta, fewest_units = map(options.get, ("epsilon", "delta", "min_privacy_units_per_group"))
    stated = StatedTotal(epsilon, delta, fewest_units, options.get("privacy_unit_column"), place)
    of_clause = MappingProxyType({name: option for name, option in options.items() if name in _OWN_NAMES})
    header = PrivacyHeader(tokens[start], place, of_clause, stated, strategy)
    return replace(statement, tokens=(*tokens[: start + 1], *tokens[end:])), header


def _read_header(statement: ScannedStatement, block: Node, *, start: Token, parameter: Parameter) -> dict[str, Option]:
    options: dict[str, Option] = {}
    names, of = frozenset(_HEADER_EXAMPLES), " of DIFFERENTIAL_PRIVACY"
    for name, tokens, place in list_options(statement, block, start=start, names=names, hint=_HEADER_HINT, of=of):
        value, word = read_value(statement, tokens, parameter=parameter) if tokens else (None, False)
        if name == "privacy_unit_column" and kinds_of(tokens) == ["IDENTIFIER"]:
            value, word = tokens[0].text, True
        if value is None or (name != "domain" and isinstance(value, tuple)):
            raise _refuse_value(statement, tokens, name=name, example=_HEADER_EXAMPLES[name], place=place)
        options[name] = Option(value, place, word=word)
    return options
