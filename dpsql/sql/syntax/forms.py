"""Other forms of the same SQL, put into those that the grammar has and that sqlglot reads as DuckDB does.

In the clauses of a statement, before its private query is looked for:

    [OFFSET m ROWS] FETCH FIRST n ROWS ONLY    LIMIT n [OFFSET m]
    OFFSET m LIMIT n                           LIMIT n OFFSET m
    LIMIT ALL                                  (nothing: all rows)
    LIMIT $1::INTEGER, LIMIT CAST($1 AS INT)   LIMIT $1
    GROUP BY (a, b), c                         GROUP BY a, b, c
    GROUP BY (1)                               GROUP BY 1
    COUNT(*) ... GROUP BY ()                   COUNT(*) ...                    one group of all rows
    TO_DATE('2026-01-31', 'YYYY-MM-DD')        (DATE '2026-01-31')             DuckDB has no function of two texts

In the expressions of a private query:

    DATE '2026-01-31'::VARCHAR                 (DATE '2026-01-31')::VARCHAR    what is cast is the date
    day + INTERVAL '1 day' x                   day + INTERVAL '1 day' AS x     x is no unit
    FROM reads TABLESAMPLE 100%                FROM reads                      all rows, each once, by any method
    , LATERAL unnest([a, b])                   , unnest([a, b])                it sees the tables before it either way
    SUBSTRING(x FROM 2 FOR 3)                  SUBSTRING(x, 2, 3)
    SUBSTRING(x FOR 3)                         SUBSTRING(x, 1, 3)
    TRIM(BOTH 'a' FROM x)                      TRIM(x, 'a')                    LEADING is LTRIM, and TRAILING is RTRIM
    POSITION('a' IN x)                         STRPOS(x, 'a')
    EXTRACT('hour' FROM x)                     EXTRACT(hour FROM x)
    x = ANY (ARRAY['a', 'b']::text[])          x IN ('a', 'b')
    x <> ALL (['a', 'b'])                      x NOT IN ('a', 'b')
    x = ANY (SELECT y FROM t)                  x IN (SELECT y FROM t)
    x = ANY ('{a,b}'), x = ANY ($1)            x = any of(...), as the items are in the value
    x LIKE ANY (ARRAY['a%', 'b%'])             x LIKE any item(...), in PostgreSQL
    SUM(x, contribution_bounds_per_group => (0, 5))    SUM(x, stated bounds (0, 5)), which sqlglot reads as an argument

The names of such calls hold a character that no statement can hold. FETCH, OFFSET and LIMIT are reserved words in
DuckDB, so no unquoted name can be mistaken for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.lexer import FUNCTION_PREFIX, Statement, Value, ascii_lower
from dpsql.sql.syntax.block import (
    Block,
    Node,
    Nodes,
    find_calls,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    make_token,
    name_of,
    nest,
    rewrite,
    split,
    walk,
    word_of,
)
from dpsql.sql.syntax.terms import is_alias_of_interval, unwrap

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "ALL_ITEMS",
    "ALL_OF",
    "ANY_ITEMS",
    "ANY_OF",
    "DATE_FUNCTIONS",
    "STATED",
    "find_aggregate_call",
    "find_array_values",
    "normalize_calls",
    "normalize_clauses",
    "normalize_expressions",
    "normalize_literals",
]

ANY_OF, ALL_OF = "any\0", "all\0"  # names that no statement can hold
ANY_ITEMS, ALL_ITEMS = "any item\0", "all item\0"
STATED = f"{FUNCTION_PREFIX}contribution_bounds\0"
_ROWS = frozenset(["row", "rows"])
_COUNTS = frozenset(["NUMBER", "STRING"])  # a parameter is a STRING
_INTEGERS = frozenset("smallint int2 integer int int4 bigint int8".split())
_AFTER_GROUPS = frozenset("HAVING WINDOW QUALIFY ORDER_BY LIMIT OFFSET FETCH UNION INTERSECT EXCEPT SEMICOLON".split())
_OF_CLAUSE = frozenset(["top", "private", "all"])
_DAY = "YYYY-MM-DD"
_FORMATS = {
    "to_timestamp": ("TIMESTAMP", {_DAY, f"{_DAY} HH24:MI:SS", f"{_DAY} HH24:MI:SS.MS", f"{_DAY} HH24:MI:SS.US"}),
    "to_date": ("DATE", {_DAY}),
}
DATE_FUNCTIONS = frozenset(_FORMATS)
_TYPED = frozenset(["date", "timestamp", "datetime"])
_ALL_ROWS = (["100", "%"], ["100", "percent"])
_AFTER_SAMPLE = frozenset(
    "COMMA WHERE GROUP_BY HAVING QUALIFY ORDER_BY LIMIT JOIN INNER LEFT RIGHT FULL SEMI ANTI CROSS ON USING UNION "
    "INTERSECT EXCEPT".split()
) | {""}
_CLAUSES = frozenset("SELECT FROM JOIN ON USING WHERE GROUP_BY HAVING ORDER_BY LIMIT OFFSET".split())
_CALLS = frozenset("substring trim position extract".split())
_TRIMS = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
_COMPARISONS = {("EQ", "any"): ANY_OF, ("EQ", "some"): ANY_OF, ("NEQ", "all"): ALL_OF}
_LIKES = frozenset(["LIKE", "ILIKE"])
_OF_VALUE = {"any": ANY_OF, "some": ANY_OF, "all": ALL_OF}
_OF_ITEMS = {"any": ANY_ITEMS, "some": ANY_ITEMS, "all": ALL_ITEMS}
_BOUNDS, _OF_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
_EXAMPLE = f"Write SUM(x, {_BOUNDS} => (0, 500))."
_BOUNDED = frozenset(["sum", "avg", "count"])


def normalize_clauses(tokens: Sequence[Token], statement: Statement | None = None) -> list[Token]:
    """Return the tokens with row limits and group lists in their plain form; dates too, with their `statement`."""
    found = list(tokens)
    kinds = {token.token_type.name for token in found}
    rules: list[Callable[[Nodes], Nodes]] = []
    if not kinds.isdisjoint(["LIMIT", "OFFSET", "FETCH"]):
        rules.append(_normalize_limits)
    if "GROUP_BY" in kinds and any(
        one.token_type.name in {"GROUP_BY", "COMMA"} and other.token_type.name == "L_PAREN"
        for one, other in pairwise(found)
    ):
        rules.append(_normalize_groups)
    if statement is not None and any(token.text[:3].lower() == "to_" for token in found):
        rules.append(partial(_type_dates, statement))
    return _apply(found, rules)


def normalize_expressions(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens of a private query with each expression in its plain form."""
    kinds, words = {token.token_type.name for token in tokens}, {ascii_lower(token.text) for token in tokens}
    rules: list[Callable[[Nodes], Nodes]] = []
    if statement.postgres and kinds & _LIKES:
        rules.append(_normalize_likes)
    if words & _TYPED or not kinds.isdisjoint(["INTERVAL", "LATERAL", "TABLE_SAMPLE"]):
        rules += [partial(_leave_out, statement), normalize_literals]
    if words & _CALLS:
        rules.append(partial(_normalize_calls, statement))
    if not words.isdisjoint(["any", "some", "all"]):
        rules.append(_normalize_comparisons)
    tokens = _apply(tokens, rules)
    return _state_bounds(statement, tokens) if "FARROW" in kinds else tokens


def normalize_calls(tokens: list[Token]) -> list[Token]:
    """Return the tokens with commas in calls such as SUBSTRING(x FROM 2)."""
    has_any = any(ascii_lower(token.text) in _CALLS for token in tokens)
    return _apply(tokens, [partial(_normalize_calls, None)] if has_any else [])


def _apply(tokens: list[Token], rules: Sequence[Callable[[Nodes], Nodes]]) -> list[Token]:
    if not rules:
        return tokens
    block = nest(tokens)
    for rule in rules:
        block = rewrite(block, rule)
    return flatten(block.nodes)


def _normalize_limits(nodes: Nodes) -> Nodes:
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        offset, width = _read_offset(nodes, at)
        limit, more = _read_limit(nodes, at + width)
        if not width and more:
            offset, width = _read_offset(nodes, at + more)
        found += [*limit, *offset] if width + more else [nodes[at]]
        at += width + more or 1
    return tuple(found)


def _read_offset(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return OFFSET m and the number of its nodes; nothing and 0 if there is no OFFSET."""
    count, width = _read_count(nodes, at + 1)
    if kind_of(nodes, at) != "OFFSET" or not width:
        return (), 0
    return (nodes[at], *count), 1 + width + (word_of(nodes, at + 1 + width) in _ROWS)


def _read_limit(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return LIMIT n, nothing for all rows, and the number of its nodes."""
    if kind_of(nodes, at) == "LIMIT" and kind_of(nodes, at + 1) == "ALL":
        return (), 2
    count, width = _read_count(nodes, at + 1)
    if kind_of(nodes, at) == "LIMIT" and width:
        return (nodes[at], *count), 1 + width
    if kind_of(nodes, at) != "FETCH" or word_of(nodes, at + 1) not in {"first", "next"}:
        return (), 0
    count, width = _read_count(nodes, at + 2)
    if word_of(nodes, at + 2 + width) not in _ROWS or word_of(nodes, at + 3 + width) != "only":
        return (), 0
    fetch = first_token(nodes[at:])
    return (
        make_token("LIMIT", "LIMIT", beside=fetch),
        *(count or [make_token("NUMBER", "1", beside=fetch)]),
    ), 4 + width


def _read_count(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return a count and the number of its nodes with a cast to whole numbers; nothing and 0 for none.

    SQLAlchemy writes such casts for psycopg.
    """
    called = nodes[at + 1] if at + 1 < len(nodes) else None
    if word_of(nodes, at) == "cast" and isinstance(called, Block):
        inside = called.nodes
        is_count = kind_of(inside, 0) in _COUNTS and kind_of(inside, 1) == "ALIAS" and word_of(inside, 2) in _INTEGERS
        return (inside[:1], 2) if is_count and len(inside) == len(("n", "AS", "INT")) else ((), 0)
    if kind_of(nodes, at) not in _COUNTS:
        return (), 0
    is_cast = kind_of(nodes, at + 1) == "DCOLON" and word_of(nodes, at + 2) in _INTEGERS
    return nodes[at : at + 1], 3 if is_cast else 1


def _normalize_groups(nodes: Nodes) -> Nodes:
    for at in reversed([at for at, kind in enumerate(kinds_of(nodes)) if kind == "GROUP_BY"]):
        end = next((end for end in range(at + 1, len(nodes)) if _ends_groups(nodes, end, start=at + 1)), len(nodes))
        parts = split(nodes[at + 1 : end])
        if not any(kind_of(part, 0) == "L_PAREN" for part in parts):
            continue
        keys = [key for part in parts for key in _list_keys(part)]
        if keys:
            written: list[Node] = [nodes[at], *keys[0]]
            for key in keys[1:]:
                written += [make_token("COMMA", ",", beside=first_token(key or nodes[at:])), *key]
            nodes = (*nodes[:at], *written, *nodes[end:])
        elif _has_aggregate(nodes[:at]):  # a SELECT without one has a row of its own for GROUP BY ()
            nodes = (*nodes[:at], *nodes[end:])
    return nodes


def _ends_groups(nodes: Nodes, at: int, *, start: int) -> bool:
    """Say whether another clause begins, or TOP k PRIVATE, ALL PRIVATE or PRIVATE where no comma is before it."""
    if kind_of(nodes, at) in _AFTER_GROUPS:
        return True
    is_clause = at > start and name_of(nodes, at) in _OF_CLAUSE
    return is_clause and kind_of(nodes, at - 1) not in {"COMMA", "DOT", "IDENTIFIER"}


def _list_keys(part: Nodes) -> list[Nodes]:
    """Return the keys of an element of GROUP BY; none of an empty list."""
    found, waiting = list[Nodes](), [part]
    while waiting:
        part = waiting.pop()
        inside = unwrap(part)
        keys = split(inside)
        if inside is part or (inside and len(keys) == 1):
            found.append(inside if kinds_of(inside) == ["NUMBER"] else part)
        elif inside:
            waiting += reversed(keys)
    return found


def _has_aggregate(nodes: Nodes) -> bool:
    """Say whether the last SELECT among some nodes has an aggregate in its select list."""
    kinds = kinds_of(nodes)
    if "SELECT" not in kinds:
        return False
    select = nodes[len(kinds) - kinds[::-1].index("SELECT") :]
    return bool(find_calls(split(select, {"FROM"})[0]))


def _type_dates(statement: Statement, nodes: Nodes) -> Nodes:
    found: list[Node] = []
    word = ""  # the type, between the name of a call and its parentheses
    for at, node in enumerate(nodes):
        if word and isinstance(node, Block):
            literal = (make_token(word, word, beside=first_token(nodes[at - 1 :])), node.nodes[0])
            found.append(Block(node.opening, literal, node.closing))
            word = ""
            continue
        word = _find_date_type(statement, nodes, at)
        found += [] if word else [node]
    return tuple(found)


def _find_date_type(statement: Statement, nodes: Nodes, at: int) -> str:
    """Return the type of the literal for TO_DATE(...) or TO_TIMESTAMP(...); "" if there is no such call."""
    name, called = word_of(nodes, at), nodes[at + 1] if at + 1 < len(nodes) else None
    if name not in _FORMATS or not isinstance(called, Block) or kinds_of(called.nodes) != ["STRING", "COMMA", "STRING"]:
        return ""
    word, formats = _FORMATS[name]
    layout = statement.value(first_token(called.nodes[2:]).text)
    return word if layout is not None and layout.kind == "string" and layout.content in formats else ""


def normalize_literals(nodes: Nodes) -> Nodes:
    """Return nodes with DATE '...' in parentheses before a cast, and AS after INTERVAL '...'."""
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        if is_alias_of_interval(nodes, at):
            found.append(make_token("ALIAS", "AS", beside=first_token(nodes[at:])))
        if word_of(nodes, at) in _TYPED and kinds_of(nodes[at + 1 : at + 3]) == ["STRING", "DCOLON"]:
            found.append(_put_in_parentheses(nodes[at : at + 2]))
            at += 2
        else:
            found.append(nodes[at])
            at += 1
    return tuple(found)


def _put_in_parentheses(nodes: Nodes) -> Block:
    from sqlglot import Token, TokenType

    first, last = first_token(nodes), first_token(nodes[1:])
    opening = Token(TokenType.L_PAREN, "(", first.line, first.col, first.start, first.start)
    return Block(opening, nodes, Token(TokenType.R_PAREN, ")", last.line, last.col, last.end, last.end))


def _leave_out(statement: Statement, nodes: Nodes) -> Nodes:
    """Return nodes without LATERAL before unnest, and without samples of all rows; refuse any other sample."""
    found: list[Node] = []
    at, clause = 0, ""
    while at < len(nodes):
        kind = kind_of(nodes, at)
        clause = kind if kind in _CLAUSES else clause
        width = 0
        if kind == "LATERAL" and name_of(nodes, at + 1) == "unnest":
            width = int(kind_of(nodes, at - 1) in {"COMMA", "JOIN"})
        elif kind == "TABLE_SAMPLE" and name_of(nodes, at) == "tablesample" and clause in {"FROM", "JOIN"}:
            width = _measure_sample(nodes, at)
            if not width:
                hint = "Leave it out: a sample adds no privacy here. Only TABLESAMPLE 100% is accepted."
                where = statement.place(first_token(nodes[at:]))
                raise Unsupported("keyword", "Samples are not read.", hint=hint, place=where)
        if not width:
            found.append(nodes[at])
        at += width or 1
    return tuple(found)


def _measure_sample(nodes: Nodes, at: int) -> int:
    """Return how many nodes a sample of all rows has, 0 for another one."""
    method = int(word_of(nodes, at + 1) in {"system", "bernoulli"})
    size = nodes[at + 1 + method] if at + 1 + method < len(nodes) else None
    words, width = nodes[at + 1 : at + 3], 3
    if isinstance(size, Block):
        words, width = size.nodes, 2 + method
    is_all = [word_of(words, each) for each in range(len(words))] in _ALL_ROWS
    return width if is_all and kind_of(nodes, at + width) in _AFTER_SAMPLE else 0


def _normalize_calls(statement: Statement | None, nodes: Nodes) -> Nodes:
    """Return nodes with each call of standard SQL in its plain form; EXTRACT only where there is a statement."""
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        name, called = word_of(nodes, at), nodes[at + 1] if at + 1 < len(nodes) else None
        if name in _CALLS and isinstance(called, Block) and called.kind == "L_PAREN" and called.closing is not None:
            written, arguments = _read_call(statement, nodes, at, inside=called.nodes)
            head = first_token(nodes[at:])
            found.append(head if written == name else make_token("VAR", written, beside=head))
            found.append(called if arguments is called.nodes else Block(called.opening, arguments, called.closing))
            at += 2
        else:
            found.append(nodes[at])
            at += 1
    return tuple(found)


def _read_call(statement: Statement | None, nodes: Nodes, at: int, *, inside: Nodes) -> tuple[str, Nodes]:
    """Return the function that a call of standard SQL means, and its arguments with commas between them."""
    name, arguments = word_of(nodes, at), [inside]
    match name:
        case "substring":
            arguments = _split_substring(inside, beside=first_token(nodes[at:]))
        case "trim":
            side = word_of(inside, 0)
            parts = _split_once(inside[side in _TRIMS :], "FROM")
            arguments = [parts[1], *([parts[0]] if parts[0] else [])] if len(parts) > 1 else parts
            name = _TRIMS.get(side, "trim")
        case "position":
            arguments = _split_once(inside, "IN")[::-1]
            name = "strpos"
        case _:
            return name, _name_part(statement, inside)
    if not all(arguments) or (len(arguments) == 1 and (arguments[0] is inside or name not in _TRIMS.values())):
        return word_of(nodes, at), inside
    written = list[Node](arguments[0])
    for argument in arguments[1:]:
        written += [make_token("COMMA", ",", beside=first_token(argument)), *argument]
    return name, tuple(written)


def _split_once(nodes: Nodes, kind: str) -> list[Nodes]:
    """Return what stands before the first such word and behind it, or all."""
    kinds = kinds_of(nodes)
    return [nodes[: kinds.index(kind)], nodes[kinds.index(kind) + 1 :]] if kind in kinds else [nodes]


def _split_substring(nodes: Nodes, *, beside: Token) -> list[Nodes]:
    """Return the text, the start and the length, which may stand in any order."""
    found: dict[str, list[Node]] = {"": []}
    word = ""
    for at, node in enumerate(nodes):
        written = word_of(nodes, at)
        if written in {"from", "for"} and written not in found:
            word = written
            found[word] = []
        else:
            found[word].append(node)
    if len(found) == 1:
        return [nodes]
    start = found.get("from", [make_token("NUMBER", "1", beside=beside)])
    return [tuple(found[""]), tuple(start), *([tuple(found["for"])] if "for" in found else [])]


def _name_part(statement: Statement | None, nodes: Nodes) -> Nodes:
    """Return the arguments of EXTRACT with the part as a word where it is written as text."""
    if statement is None or kind_of(nodes, 1) != "FROM":
        return nodes
    first = first_token(nodes)
    value = statement.value(first.text)
    if value is None or value.kind != "string" or not value.content.isalpha():
        return nodes
    return (make_token("VAR", value.content, beside=first), *nodes[1:])


def _find_comparison(nodes: Nodes, at: int) -> tuple[str, Block | None]:
    """Return the function and the array of the comparison whose operator is a node; "" if there is none."""
    function = _COMPARISONS.get((kind_of(nodes, at), word_of(nodes, at + 1)), "")
    array = nodes[at + 2] if at + 2 < len(nodes) else None
    return (function, array) if function and isinstance(array, Block) and array.kind == "L_PAREN" else ("", None)


def find_array_values(statement: Statement, tokens: list[Token]) -> frozenset[Value]:
    """Return the texts and parameters that are the array of such a comparison."""
    found = set[Value]()
    for beside, at in walk(nest(tokens).nodes):
        _, array = _find_comparison(beside, at)
        inside = _strip_casts(array.nodes) if array is not None else ()
        value = statement.value(name_of(inside, 0)) if len(inside) == 1 else None
        found |= set() if value is None else {value}
    return frozenset(found)


def _normalize_comparisons(nodes: Nodes) -> Nodes:
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        function, array = _find_comparison(nodes, at)
        written = () if array is None else _write_comparison(nodes, at, function=function, array=array)
        found += written or [nodes[at]]
        at += 3 if written else 1
    return tuple(found)


def _write_comparison(nodes: Nodes, at: int, *, function: str, array: Block) -> Nodes:
    """Return the plain form of a comparison; nothing if it has none."""
    operator, quantifier, inside = nodes[at], first_token(nodes[at + 1 :]), _strip_casts(array.nodes)
    if kinds_of(inside) == ["STRING"]:
        return (operator, make_token("VAR", function, beside=quantifier), Block(array.opening, inside, array.closing))
    items = inside[1:] if kind_of(inside, 0) == "ARRAY" else inside
    block = items[0] if len(items) == 1 else None
    if isinstance(block, Block) and block.kind == "L_BRACKET" and block.nodes:
        inside = block.nodes
    elif kind_of(inside, 0) not in {"SELECT", "WITH", "FROM"}:
        return ()
    first = first_token([operator])
    negation = [make_token("NOT", "NOT", beside=first)] if function == ALL_OF else []
    return (*negation, make_token("IN", "IN", beside=first), Block(array.opening, inside, array.closing))


def _strip_casts(nodes: Nodes) -> Nodes:
    """Return an array without casts to arrays and without parentheses around it."""
    while True:
        nodes = unwrap(nodes)
        called = nodes[1] if len(nodes) == len(("CAST", "(...)")) else None
        if word_of(nodes, 0) == "cast" and isinstance(called, Block) and _ends_with_array(called.nodes):
            cast, sign = called.nodes, "ALIAS"
        elif _ends_with_array(nodes):
            cast, sign = nodes, "DCOLON"
        else:
            return nodes
        kinds = kinds_of(cast)
        if sign not in kinds:
            return nodes
        nodes = cast[: len(kinds) - 1 - kinds[::-1].index(sign)]


def _ends_with_array(nodes: Nodes) -> bool:
    last = nodes[-1] if nodes else None
    return isinstance(last, Block) and last.kind == "L_BRACKET" and not last.nodes


def _normalize_likes(nodes: Nodes) -> Nodes:
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        found.append(nodes[at])
        word, array = word_of(nodes, at + 1), nodes[at + 2] if at + 2 < len(nodes) else None
        at += 1
        if kind_of(nodes, at - 1) not in _LIKES or word not in _OF_VALUE or not isinstance(array, Block):
            continue
        inside, name = array.nodes, ""
        kinds = kinds_of(inside)
        if _ends_with_array(inside) and "DCOLON" in kinds:  # a cast, such as ::text[]
            inside = inside[: len(kinds) - 1 - kinds[::-1].index("DCOLON")]
        items = inside[1] if len(inside) == len(("ARRAY", "[...]")) else None
        if kinds_of(inside) == ["STRING"]:
            name = _OF_VALUE[word]
        elif kind_of(inside, 0) == "ARRAY" and isinstance(items, Block) and items.nodes:
            name, inside = _OF_ITEMS[word], items.nodes
        if name:
            quantifier = make_token("VAR", name, beside=first_token(nodes[at:]))
            found += [quantifier, Block(array.opening, inside, array.closing)]
            at += 2
    return tuple(found)


def _state_bounds(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with the bounds of each aggregate as a call; refuse any other name => value."""
    root = nest(tokens)
    called: dict[int, str] = {}
    inside: dict[int, Block] = {id(node): root for node in root.nodes}
    names: dict[int, Token] = {}
    for beside, at in walk(root.nodes):
        node = beside[at]
        if isinstance(node, Block):
            called[id(node)] = name_of(beside, at - 1)
            inside |= {id(each): node for each in node.nodes}
        elif node.token_type.name == "FARROW":
            block = inside[id(node)]
            _check_bounds(statement, beside, at, closed=block.closing is not None, called=called.get(id(block), ""))
            name = first_token(beside[at - 1 :])
            names[id(node)] = name
            names[id(name)] = name
    found: list[Token] = []
    for token in tokens:
        if id(token) not in names:
            found.append(token)
        elif names[id(token)] is token:
            found.append(make_token("VAR", STATED, beside=token))
    return found


def _check_bounds(statement: Statement, nodes: Nodes, at: int, *, closed: bool, called: str) -> None:
    """Refuse bounds that do not follow the argument of an aggregate, or that are not two of a group."""
    name = word_of(nodes, at - 1)
    place = statement.place(first_token(nodes[max(at - 1, 0) :]), first_token(nodes[at:]))
    if name == _OF_ROW:
        reason, hint = f"{_OF_ROW} is for quantiles.", f"Bounds of COUNT, SUM and AVG are of a group. {_EXAMPLE}"
        raise Refusal("option", reason, hint=hint, place=place)
    if name != _BOUNDS:
        hint = f"Leave it out. Only the bounds of an aggregate are written so. {_EXAMPLE}"
        raise Refusal("option", "There is no argument of this name.", hint=hint, place=place)
    if called not in _BOUNDED or kind_of(nodes, at - 2) != "COMMA":
        hint = f"Write them behind the argument of an aggregate. {_EXAMPLE}"
        raise Refusal("option", f"{_BOUNDS} is for COUNT, SUM and AVG.", hint=hint, place=place)
    bounds = nodes[at + 1] if at + 1 < len(nodes) else None
    is_pair = (
        isinstance(bounds, Block) and bounds.kind == "L_PAREN" and len(split(bounds.nodes)) == len(("low", "high"))
    )
    if not is_pair or not closed or at + 2 < len(nodes):
        reason = "Bounds are two numbers in parentheses, behind all other arguments."
        raise Refusal("option", reason, hint=_EXAMPLE, place=place)


def _list_bounded_calls(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    for beside, at in walk(nest(tokens).nodes):
        called = beside[at + 1] if at + 1 < len(beside) else None
        if name_of(beside, at) in _BOUNDED and isinstance(called, Block) and called.kind == "L_PAREN":
            yield first_token(beside[at:]), called.closing or tokens[-1]


def find_aggregate_call(tokens: Sequence[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the aggregate at or around a position in the text, if there is one."""
    beyond = next((token.start for token in tokens if token.start >= start), start)
    calls = [call for call in _list_bounded_calls(tokens) if call[0].start <= beyond]
    return calls[-1] if calls and calls[-1][1].end > start else None
