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
    APPROX_COUNT_DISTINCT(x)                   COUNT(DISTINCT x)               noise is the only error
    SELECT TOP 5 a ... GROUP BY a              SELECT a ... GROUP BY a LIMIT 5 where standard SQL is read as private

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
    COUNT_IF(c), COUNTIF(c)                    COUNT(*) FILTER (WHERE c)       DuckDB, Snowflake, Spark; GoogleSQL
    COUNT_IF(c) FILTER (WHERE d)               COUNT(*) FILTER (WHERE (d) AND (c))
    IIF(c, x, y), IFF(c, x, y)                 IF(c, x, y)                     SQL Server; Snowflake
    SUM(x, contribution_bounds_per_group => (0, 5))    SUM(x, stated bounds (0, 5)), which sqlglot reads as an argument

The names of such calls hold a character that no statement can hold. FETCH, OFFSET and LIMIT are reserved words in
DuckDB, so no unquoted name can be mistaken for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.sql.lexer import ScannedStatement, Value, ascii_lower
from dpsql.sql.syntax.aggregate_forms import NAMES, state_bounds, write_quantiles
from dpsql.sql.syntax.block import (
    SET_OPERATIONS,
    Block,
    Form,
    Node,
    Nodes,
    apply_forms,
    enclose,
    find_calls,
    first_token,
    flatten,
    join,
    kind_of,
    kinds_of,
    make_token,
    name_of,
    nest,
    parentheses_at,
    rewrite,
    split,
    walk,
    word_of,
)
from dpsql.sql.syntax.select_list import is_alias_of_interval, unwrap

if TYPE_CHECKING:
    from sqlglot import Token

ANY_OF, ALL_OF = "any\0", "all\0"  # names that no statement can hold
ANY_ITEMS, ALL_ITEMS = "any item\0", "all item\0"
_COUNTS = frozenset(["NUMBER", "STRING"])  # a parameter is a STRING
_INTEGERS = frozenset("smallint int2 integer int int4 bigint int8".split())
_BEFORE_LIST = frozenset([("GROUP_BY", "L_PAREN"), ("COMMA", "L_PAREN")])
_AFTER_GROUPS = frozenset("HAVING WINDOW QUALIFY ORDER_BY LIMIT OFFSET FETCH UNION INTERSECT EXCEPT SEMICOLON".split())
_DAY = "YYYY-MM-DD"
_FORMATS = {
    "to_timestamp": ("TIMESTAMP", {_DAY, f"{_DAY} HH24:MI:SS", f"{_DAY} HH24:MI:SS.MS", f"{_DAY} HH24:MI:SS.US"}),
    "to_date": ("DATE", {_DAY}),
}
DATE_FUNCTIONS = frozenset(_FORMATS)
_EXPRESSIONS = re.compile(  # the words of the forms of expressions; ~~ is LIKE
    "date|timestamp|interval|lateral|sample|substring|trim|position|extract|any|some|all|like|~|=>|clamped|"
    "count_?if|iif|iff",
    re.IGNORECASE,
)
_TYPED = frozenset(["date", "timestamp", "datetime"])
_AFTER_SAMPLE = frozenset(
    "COMMA WHERE GROUP_BY HAVING QUALIFY ORDER_BY LIMIT JOIN INNER LEFT RIGHT FULL SEMI ANTI CROSS ON USING UNION "
    "INTERSECT EXCEPT".split()
) | {""}
_CLAUSES = frozenset("SELECT FROM JOIN ON USING WHERE GROUP_BY HAVING ORDER_BY LIMIT OFFSET".split())
_CALLS = frozenset("substring trim position extract".split())
_TRIMS = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
_COMPARISONS = {("EQ", "any"): ANY_OF, ("EQ", "some"): ANY_OF, ("NEQ", "all"): ALL_OF}
_LIKES = frozenset(["LIKE", "ILIKE"])
_QUANTIFIERS = {"any": (ANY_OF, ANY_ITEMS), "some": (ANY_OF, ANY_ITEMS), "all": (ALL_OF, ALL_ITEMS)}
_APPROXIMATE = "approx_count_distinct"

_COUNTS_IF = frozenset(["count_if", "countif"])
CONDITIONAL_CALLS = _COUNTS_IF | {"iif", "iff"}

_ENDS = SET_OPERATIONS | {"SEMICOLON"}


def normalize_clauses(
    tokens: Sequence[Token], statement: ScannedStatement | None = None, *, text: str = ""
) -> list[Token]:
    """Return the tokens of a text in the plain form of its clauses; dates too, with the `statement` that they are."""
    kinds = kinds_of(tokens)
    forms: list[Form] = []
    if not {"LIMIT", "OFFSET", "FETCH"}.isdisjoint(kinds):
        forms.append(_read_limits)
    if "GROUP_BY" in kinds and not _BEFORE_LIST.isdisjoint(pairwise(kinds)):
        forms.append(_read_groups)
    words = (text if statement is None else statement.text).lower()
    if statement is not None and "to_" in words:
        forms.append(partial(_read_date, statement=statement))
    if _APPROXIMATE in words:
        forms.append(_read_approximate)
    return apply_forms(tokens, forms) if forms else list(tokens)


def normalize_expressions(statement: ScannedStatement, tokens: list[Token], *, quantiles: bool = False) -> list[Token]:
    """Return the tokens of a private query with each expression in its plain form, and its `quantiles` as calls."""
    if quantiles and NAMES.search(statement.text):
        tokens = write_quantiles(statement, tokens)
    if not _EXPRESSIONS.search(statement.text):
        return tokens
    kinds, words = set(kinds_of(tokens)), {ascii_lower(token.text) for token in tokens}
    forms: list[Form] = []
    if statement.postgres and kinds & _LIKES:
        forms.append(_read_like)
    if words & _TYPED or not kinds.isdisjoint(["INTERVAL", "LATERAL", "TABLE_SAMPLE"]):
        forms += [partial(_leave_out, statement=statement), _read_literal]
    if words & _CALLS:
        forms.append(partial(_read_call, statement=statement))
    if words & _QUANTIFIERS.keys():
        forms.append(_read_comparison)
    if words & CONDITIONAL_CALLS:
        forms.append(_read_conditional)
    tokens = apply_forms(tokens, forms)
    return state_bounds(statement, tokens) if "FARROW" in kinds else tokens


def normalize_calls(tokens: list[Token]) -> list[Token]:
    """Return the tokens with commas in calls such as SUBSTRING(x FROM 2), for other readers than dpsql's."""
    return apply_forms(tokens, [partial(_read_call, statement=None)])


def normalize_literals(tokens: list[Token]) -> list[Token]:
    """Return the tokens with DATE '...' in parentheses before a cast, and AS after INTERVAL '...'."""
    return apply_forms(tokens, [_read_literal])


def _read_limits(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write LIMIT before OFFSET, and FETCH FIRST as LIMIT."""
    offset, width = _read_offset(nodes, at)
    limit, more = _read_limit(nodes, at + width)
    if not width and more:
        offset, width = _read_offset(nodes, at + more)
    return (*limit, *offset), width + more


def _read_offset(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return OFFSET m and the number of its nodes; nothing and 0 if there is no OFFSET."""
    count, width = _read_count(nodes, at + 1)
    if kind_of(nodes, at) != "OFFSET" or not width:
        return (), 0
    return (nodes[at], *count), 1 + width + (word_of(nodes, at + 1 + width) in {"row", "rows"})


def _read_limit(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return LIMIT n, nothing for all rows, and the number of its nodes."""
    if kind_of(nodes, at) == "LIMIT":
        count, width = _read_count(nodes, at + 1)
        if kind_of(nodes, at + 1) == "ALL":
            return (), 2
        return ((nodes[at], *count), 1 + width) if width else ((), 0)
    if kind_of(nodes, at) != "FETCH" or word_of(nodes, at + 1) not in {"first", "next"}:
        return (), 0
    count, width = _read_count(nodes, at + 2)
    if word_of(nodes, at + 2 + width) not in {"row", "rows"} or word_of(nodes, at + 3 + width) != "only":
        return (), 0
    fetch = first_token(nodes[at:])
    number = count or (make_token("NUMBER", "1", beside=fetch),)
    return (make_token("LIMIT", "LIMIT", beside=fetch), *number), 4 + width


def _read_count(nodes: Nodes, at: int) -> tuple[Nodes, int]:
    """Return a count and the number of its nodes with a cast to whole numbers; nothing and 0 for none.

    SQLAlchemy writes such casts for psycopg.
    """
    called = parentheses_at(nodes, at + 1)
    if word_of(nodes, at) == "cast" and called is not None:
        inside = called.nodes
        is_count = kind_of(inside, 0) in _COUNTS and kind_of(inside, 1) == "ALIAS" and word_of(inside, 2) in _INTEGERS
        return (inside[:1], 2) if is_count and len(inside) == len(("n", "AS", "INT")) else ((), 0)
    if kind_of(nodes, at) not in _COUNTS:
        return (), 0
    is_cast = kind_of(nodes, at + 1) == "DCOLON" and word_of(nodes, at + 2) in _INTEGERS
    return nodes[at : at + 1], 3 if is_cast else 1


def _read_groups(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write GROUP BY without parentheses around its keys."""
    if kind_of(nodes, at) != "GROUP_BY":
        return (), 0
    end = at + 1
    while end < len(nodes) and kind_of(nodes, end) not in _AFTER_GROUPS:  # or TOP k PRIVATE, ALL PRIVATE, PRIVATE
        is_word = name_of(nodes, end) in {"top", "private", "all"} and end > at + 1
        if is_word and kind_of(nodes, end - 1) not in {"COMMA", "DOT", "IDENTIFIER"}:
            break
        end += 1
    waiting, keys = split(nodes[at + 1 : end])[::-1], list[Nodes]()
    if not any(kind_of(part, 0) == "L_PAREN" for part in waiting):
        return (), 0
    while waiting:
        part = waiting.pop()
        if not part:  # a comma too many: the grammar refuses it
            return (), 0
        inside = unwrap(part)
        listed = split(inside)
        if inside is part or (inside and len(listed) == 1):
            keys.append(inside if kinds_of(inside) == ["NUMBER"] else part)
        elif inside:
            waiting += reversed(listed)
    if keys:
        return (nodes[at], *join(keys)), end - at
    # GROUP BY () is one group of all rows; a SELECT without an aggregate would have a row for it, too
    kinds = kinds_of(nodes[:at])
    last = len(kinds) - kinds[::-1].index("SELECT") if "SELECT" in kinds else at
    return (), end - at if find_calls(split(nodes[last:at], {"FROM"})[0]) else 0


def _read_date(nodes: Nodes, at: int, *, statement: ScannedStatement) -> tuple[Sequence[Node], int]:
    """Write (DATE '...') for TO_DATE('...', 'YYYY-MM-DD')."""
    name, called = word_of(nodes, at), parentheses_at(nodes, at + 1)
    if name not in _FORMATS or called is None or kinds_of(called.nodes) != ["STRING", "COMMA", "STRING"]:
        return (), 0
    word, formats = _FORMATS[name]
    layout = statement.value(first_token(called.nodes[2:]).text)
    if layout is None or layout.kind != "string" or layout.content not in formats:
        return (), 0
    literal = (make_token(word, word, beside=first_token(nodes[at:])), called.nodes[0])
    return [Block(called.opening, literal, called.closing)], 2


def _read_approximate(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write COUNT(DISTINCT x) for APPROX_COUNT_DISTINCT(x)."""
    called = parentheses_at(nodes, at + 1)
    if name_of(nodes, at) != _APPROXIMATE or called is None:
        return (), 0
    name = first_token(nodes[at:])
    distinct = make_token("DISTINCT", "DISTINCT", beside=called.opening or name)
    counted = Block(called.opening, (distinct, *called.nodes), called.closing)
    return [make_token("VAR", "count", beside=name), counted], 2


def read_top_as_limit(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with LIMIT n in place of TOP n in every SELECT that has groups and no LIMIT.

    TOP n stands behind SELECT, or behind the groups, as TOP n PRIVATE without its last word. TOP n PRIVATE itself is a
    clause of dpsql and stays, and so does what has another meaning: PERCENT, WITH TIES, and TOP beside a LIMIT. Where
    standard SQL is read as private, LIMIT says how many groups are wanted.
    """
    return flatten(rewrite(nest(tokens), partial(_move_top, tokens[-1])).nodes)


def _move_top(last: Token, nodes: Nodes) -> Nodes:
    """Return the nodes of a block with the TOP of its first SELECT at the end of that."""
    start = next((at for at, kind in enumerate(kinds_of(nodes)) if kind == "SELECT"), len(nodes))
    end = next((at for at in range(start, len(nodes)) if kind_of(nodes, at) in _ENDS), len(nodes))
    top = start + 1 + (kind_of(nodes, start + 1) == "DISTINCT")
    if word_of(nodes, top) != "top":
        top = next((at for at in range(top, end) if _ends_groups(nodes, at, end=end)), end)
    number = nodes[top + 1 : top + 2]
    if top == end or kinds_of(unwrap(number)) not in (["NUMBER"], ["STRING"]):
        return nodes
    if word_of(nodes, top + 2) in {"private", "percent"} or kind_of(nodes, top + 2) in {"WITH", "PERCENT"}:
        return nodes
    inside = kinds_of(nodes[start:end])
    has_groups = "GROUP_BY" in inside or inside[1:2] == ["DISTINCT"]
    if not has_groups or not {"LIMIT", "OFFSET", "FETCH"}.isdisjoint(inside):
        return nodes
    # SELECT TOP (5) a FROM t GROUP BY a becomes SELECT a FROM t GROUP BY a LIMIT 5.
    limit: list[Node] = [make_token("LIMIT", "LIMIT", beside=last), *flatten(unwrap(number))]
    return (*nodes[:top], *nodes[top + 2 : end], *limit, *nodes[end:])


def _ends_groups(nodes: Nodes, at: int, *, end: int) -> bool:
    """Say whether TOP n is at a place where it ends the query, or ORDER BY follows."""
    is_last = at + 2 == end or kind_of(nodes, at + 2) == "ORDER_BY"
    is_behind = "GROUP_BY" in kinds_of(nodes[:at])
    return word_of(nodes, at) == "top" and kind_of(nodes, at + 1) == "NUMBER" and is_last and is_behind


def _read_literal(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write DATE '...' in parentheses before a cast, and AS before the alias of INTERVAL '...'."""
    from sqlglot import Token, TokenType

    written: list[Node] = []
    if is_alias_of_interval(nodes, at):
        written.append(make_token("ALIAS", "AS", beside=first_token(nodes[at:])))
    if word_of(nodes, at) in _TYPED and kinds_of(nodes[at + 1 : at + 3]) == ["STRING", "DCOLON"]:
        first, last = first_token(nodes[at:]), first_token(nodes[at + 1 :])
        opening = Token(TokenType.L_PAREN, "(", first.line, first.col, first.start, first.start)
        closing = Token(TokenType.R_PAREN, ")", last.line, last.col, last.end, last.end)
        return [*written, Block(opening, nodes[at : at + 2], closing)], 2
    return [*written, nodes[at]], 1


def _leave_out(nodes: Nodes, at: int, *, statement: ScannedStatement) -> tuple[Sequence[Node], int]:
    """Write nothing for LATERAL before unnest, and for samples of all rows; refuse any other sample."""
    kind = kind_of(nodes, at)
    if kind == "LATERAL" and name_of(nodes, at + 1) == "unnest":
        return (), int(kind_of(nodes, at - 1) in {"COMMA", "JOIN"})
    if kind != "TABLE_SAMPLE" or name_of(nodes, at) != "tablesample":
        return (), 0
    if next((each for each in kinds_of(nodes[:at])[::-1] if each in _CLAUSES), "") not in {"FROM", "JOIN"}:
        return (), 0
    # TABLESAMPLE 100%, TABLESAMPLE SYSTEM (100 PERCENT)
    method = int(word_of(nodes, at + 1) in {"system", "bernoulli"})
    size = nodes[at + 1 + method] if at + 1 + method < len(nodes) else None
    words, width = (size.nodes, 2 + method) if isinstance(size, Block) else (nodes[at + 1 : at + 3], 3)
    is_all = [word_of(words, each) for each in range(len(words))] in (["100", "%"], ["100", "percent"])
    if not is_all or kind_of(nodes, at + width) not in _AFTER_SAMPLE:
        hint = "Leave it out: a sample adds no privacy here. Only TABLESAMPLE 100% is accepted."
        raise Unsupported("keyword", "Samples are not read.", hint=hint, place=statement.place(first_token(nodes[at:])))
    return (), width


def _read_call(nodes: Nodes, at: int, *, statement: ScannedStatement | None) -> tuple[Sequence[Node], int]:
    """Write commas in a call of standard SQL; EXTRACT is changed only where there is a statement."""
    word, called = word_of(nodes, at), parentheses_at(nodes, at + 1)
    if word not in _CALLS or called is None or called.closing is None:
        return (), 0
    inside, head = called.nodes, first_token(nodes[at:])
    name, arguments = word, [inside]
    match word:
        case "substring":
            arguments = _split_substring(inside, beside=head)
        case "trim":
            side = word_of(inside, 0)
            parts = _split_once(inside[side in _TRIMS :], "FROM")
            arguments = [parts[1], *([parts[0]] if parts[0] else [])] if len(parts) > 1 else parts
            name = _TRIMS.get(side, "trim")
        case "position":
            arguments = _split_once(inside, "IN")[::-1]
            name = "strpos"
        case "extract" if statement is not None and kind_of(inside, 1) == "FROM":  # the part may be a text
            part = statement.value(first_token(inside).text)
            if part is not None and part.kind == "string" and part.content.isalpha():
                arguments = [(make_token("VAR", part.content, beside=first_token(inside)), *inside[1:])]
    is_same = len(arguments) == 1 and (arguments[0] is inside or name not in {*_TRIMS.values(), "extract"})
    if is_same or not all(arguments):
        return (), 0
    function = head if name == word else make_token("VAR", name, beside=head)
    return [function, Block(called.opening, join(arguments), called.closing)], 2


def _split_once(nodes: Nodes, kind: str) -> list[Nodes]:
    """Return what stands before the first such word and behind it, or all."""
    kinds = kinds_of(nodes)
    return [nodes[: kinds.index(kind)], nodes[kinds.index(kind) + 1 :]] if kind in kinds else [nodes]


def _split_substring(nodes: Nodes, *, beside: Token) -> list[Nodes]:
    """Return the text, the start and the length, which may stand in any order."""
    parts: dict[str, list[Node]] = {"": []}
    word = ""
    for at, node in enumerate(nodes):
        written = word_of(nodes, at)
        if written in {"from", "for"} and written not in parts:
            word = written
            parts[word] = []
        else:
            parts[word].append(node)
    if len(parts) == 1:
        return [nodes]
    start = parts.get("from", [make_token("NUMBER", "1", beside=beside)])
    return [tuple(parts[""]), tuple(start), *([tuple(parts["for"])] if "for" in parts else [])]


def find_array_values(statement: ScannedStatement, tokens: list[Token]) -> frozenset[Value]:
    """Return the texts and parameters that are the array of a comparison with ANY or ALL."""
    values = set[Value]()
    for beside, at in walk(nest(tokens).nodes):
        _, array = _find_comparison(beside, at)
        inside = _strip_casts(array.nodes) if array is not None else ()
        value = statement.value(name_of(inside, 0)) if len(inside) == 1 else None
        values |= set() if value is None else {value}
    return frozenset(values)


def _find_comparison(nodes: Nodes, at: int) -> tuple[str, Block | None]:
    """Return the function and the array of the comparison whose operator is a node; "" if there is none."""
    function = _COMPARISONS.get((kind_of(nodes, at), word_of(nodes, at + 1)), "")
    return (function, parentheses_at(nodes, at + 2)) if function else ("", None)


def _read_comparison(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write IN for = ANY, and NOT IN for <> ALL."""
    function, array = _find_comparison(nodes, at)
    if array is None:
        return (), 0
    operator, quantifier, inside = first_token(nodes[at:]), first_token(nodes[at + 1 :]), _strip_casts(array.nodes)
    if kinds_of(inside) == ["STRING"]:
        # x = ANY ($1) or x = ANY ('{a,b}'): which items there are is known when the value is bound.
        call = make_token("VAR", function, beside=quantifier)
        return (operator, call, Block(array.opening, inside, array.closing)), 3
    items = inside[1:] if kind_of(inside, 0) == "ARRAY" else inside
    block = items[0] if len(items) == 1 else None
    if isinstance(block, Block) and block.kind == "L_BRACKET" and block.nodes:
        inside = block.nodes
    elif kind_of(inside, 0) not in {"SELECT", "WITH", "FROM"}:
        return (), 0
    negation = [make_token("NOT", "NOT", beside=operator)] if function == ALL_OF else []
    return (*negation, make_token("IN", "IN", beside=operator), Block(array.opening, inside, array.closing)), 3


def _strip_casts(nodes: Nodes) -> Nodes:
    """Return an array without casts to arrays and without parentheses around it."""
    while True:
        nodes = unwrap(nodes)
        called = parentheses_at(nodes, 1) if len(nodes) == len(("CAST", "(...)")) else None
        cast, sign = nodes, "DCOLON"
        if word_of(nodes, 0) == "cast" and called is not None:
            cast, sign = called.nodes, "ALIAS"
        kinds = kinds_of(cast)
        if not _ends_with_array(cast) or sign not in kinds:
            return nodes
        nodes = cast[: len(kinds) - 1 - kinds[::-1].index(sign)]


def _ends_with_array(nodes: Nodes) -> bool:
    last = nodes[-1] if nodes else None
    return isinstance(last, Block) and last.kind == "L_BRACKET" and not last.nodes


def _read_like(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write LIKE ANY and LIKE ALL as functions."""
    word, array = word_of(nodes, at + 1), nodes[at + 2] if at + 2 < len(nodes) else None
    if kind_of(nodes, at) not in _LIKES or word not in _QUANTIFIERS or not isinstance(array, Block):
        return (), 0
    of_value, of_items = _QUANTIFIERS[word]
    inside, kinds = array.nodes, kinds_of(array.nodes)
    if _ends_with_array(inside) and "DCOLON" in kinds:  # a cast, such as ::text[]
        inside = inside[: len(kinds) - 1 - kinds[::-1].index("DCOLON")]
    items, name = inside[1] if len(inside) == len(("ARRAY", "[...]")) else None, of_value
    if kind_of(inside, 0) == "ARRAY" and isinstance(items, Block) and items.nodes:
        name, inside = of_items, items.nodes
    elif kinds_of(inside) != ["STRING"]:
        return (), 0
    quantifier = make_token("VAR", name, beside=first_token(nodes[at + 1 :]))
    return (nodes[at], quantifier, Block(array.opening, inside, array.closing)), 3


def _read_conditional(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write FILTER for COUNT_IF, and IF for IIF; bounds that are stated in COUNT_IF are those of COUNT(*)."""
    name, called = word_of(nodes, at), parentheses_at(nodes, at + 1)
    if name not in CONDITIONAL_CALLS or called is None:
        return (), 0
    head = first_token(nodes[at:])
    if name not in _COUNTS_IF:
        return (make_token("VAR", "if", beside=head), called), 2
    condition, *rest = split(called.nodes)
    is_named = len(rest) == 1 and kind_of(rest[0], 1) == "FARROW"
    if not condition or kind_of(condition, 0) in {"DISTINCT", "STAR"} or not (is_named or not rest):
        return (), 0
    counted: list[Node] = [make_token("STAR", "*", beside=first_token(condition))]
    if is_named:
        counted += [make_token("COMMA", ",", beside=first_token(rest[0])), *rest[0]]
    filtered, width = parentheses_at(nodes, at + 3) if kind_of(nodes, at + 2) == "FILTER" else None, 2
    if filtered is not None and kind_of(filtered.nodes, 0) == "WHERE":
        both = make_token("AND", "AND", beside=head)
        condition, width = (enclose(filtered.nodes[1:], beside=head), both, enclose(condition, beside=head)), 4
    where = Block(called.opening, (make_token("WHERE", "WHERE", beside=head), *condition), called.closing)
    count = make_token("VAR", "count", beside=head), Block(called.opening, tuple(counted), called.closing)
    return (*count, make_token("FILTER", "FILTER", beside=head), where), width
