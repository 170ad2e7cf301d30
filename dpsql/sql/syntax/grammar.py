"""The closed vocabulary: which words may stand where, before sqlglot's parser sees them.

sqlglot knows the words of thirty dialects and repairs what it can; DuckDB reserves words that sqlglot takes for
names. So each word is settled here: a keyword of our grammar stays one, a type name is one only where a type is due,
a function of the allow-list gets a name that sqlglot does not know, and any other word is a plain name, or refused
when DuckDB reserves it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.functions.allow_list import EVERY_AGGREGATE, FUNCTIONS, INSIDE, INTERVAL_ENDS, REFUSED
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.lexer import FUNCTION_PREFIX, STAND_IN, Statement, ascii_lower
from dpsql.sql.syntax.block import Block, Nodes, first_token, flatten, kind_of, last_token, nest, split, walk
from dpsql.sql.syntax.forms import ALL_ITEMS, ALL_OF, ANY_ITEMS, ANY_OF, STATED, normalize_expressions
from dpsql.sql.syntax.sqlglot_nodes import EVERY_COLUMN

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["BEFORE_OPERAND", "settle"]

_KEYWORDS = frozenset(
    "SELECT DISTINCT FROM WHERE GROUP_BY HAVING ORDER_BY LIMIT OFFSET ALIAS AND OR NOT IN IS NULL TRUE FALSE LIKE "
    "ILIKE BETWEEN ESCAPE CASE WHEN THEN ELSE END JOIN INNER LEFT RIGHT FULL SEMI ANTI OUTER CROSS ON "
    "USING WITH ASC DESC ALL UNION INTERSECT EXCEPT QUALIFY INTERVAL COLLATE EXISTS".split()
)
_OF_WINDOWS = frozenset(["OVER", "PARTITION_BY", "FILTER"])  # names elsewhere
_WORDS = _KEYWORDS | _OF_WINDOWS
_SYMBOLS = frozenset("L_PAREN R_PAREN COMMA DOT STAR PLUS DASH SLASH DIV MOD DPIPE EQ NEQ LT LTE GT GTE DCOLON".split())
_SYMBOLS |= frozenset("AMP PIPE TILDE IRLIKE PARAMETER L_BRACKET R_BRACKET COLON".split())  # PARAMETER is @, IRLIKE ~*
_RESERVED = frozenset(
    "with where variadic unpivot union true using trailing to then table symmetric summarize create as into do "
    "initially for describe desc window except offset in default column false collate returning constraint all "
    "case placing cast analyse intersect asc analyze check having fetch when and only asymmetric on any array "
    "both group pivot_longer primary lambda foreign lateral unique leading null distinct limit not from or order "
    "some pivot end pivot_wider qualify else references deferrable select show verbose struct full columns "
    "concurrently cross ilike collation try_cast generated anti by at semi asof freeze binary is authorization "
    "tuple glob isnull join overlaps tablesample left outer like unpack map natural similar notnull positional "
    "inner right".split()
)
_TYPES = {
    **dict.fromkeys(["boolean", "bool", "logical"], "BOOLEAN"),
    **dict.fromkeys(["tinyint", "int1"], "TINYINT"),
    **dict.fromkeys(["smallint", "int2", "short"], "SMALLINT"),
    **dict.fromkeys(["integer", "int", "int4", "signed"], "INT"),
    **dict.fromkeys(["bigint", "int8", "long"], "BIGINT"),
    **{name: name.upper() for name in ("utinyint", "usmallint")},
    "uinteger": "UINT",
    **dict.fromkeys(["decimal", "numeric"], "DECIMAL"),
    **dict.fromkeys(["double", "float8"], "DOUBLE"),
    **dict.fromkeys(["varchar", "text", "string", "char", "bpchar", "character varying"], "TEXT"),
    "date": "DATE",
    **dict.fromkeys(["timestamp", "datetime"], "TIMESTAMP"),
}
_SPECIAL_CALLS = frozenset(["cast", "try_cast", "extract", "count", "unnest", ANY_OF, ALL_OF, ANY_ITEMS, ALL_ITEMS])
_TYPED = frozenset(_TYPES.values())
_SIZES = {"TEXT": [["NUMBER"]], "DECIMAL": [["NUMBER"], ["NUMBER", "COMMA", "NUMBER"]]}
_EACH_PARTITION = (
    "For the top of each partition group by both columns and write TOP 3 PRIVATE PER country WITH (partitions = ['DE', "
    "'FR'])."
)
_ORDER = "Leave it out, or keep to the order SELECT, FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT."
_HINTS = {
    "asof": "Compare the times in WHERE: units are counted once.",
    "natural": "Name the columns: USING (a, b).",
    "positional": "Rows have no order; join them on a column.",
}
_LITERALS = frozenset(["STRING", "NUMBER", "NULL", "TRUE", "FALSE"])
_OPERATORS = _SYMBOLS - {"R_PAREN", "R_BRACKET", "STAR"}
_VALUES = frozenset(["NULL", "TRUE", "FALSE", "END", "ASC", "DESC", "ALL"])  # keywords that end an item
_BEFORE_LITERAL = _OPERATORS | _KEYWORDS - _VALUES - {"ALIAS"} | {"STAR", ""}
_STARTS = frozenset(
    ["CASE", "NOT", "NULL", "TRUE", "FALSE", "INTERVAL", "LEFT", "RIGHT", "EXISTS"]
)  # that begin an operand
_AFTER_NO_ITEM = frozenset(["COMMA", "R_PAREN", "R_BRACKET", ""]) | _KEYWORDS - _STARTS
BEFORE_OPERAND = _OPERATORS | _KEYWORDS - _VALUES | _OF_WINDOWS | {"STAR", ""}  # an operand or a name follows
_BEFORE_NO_ITEM = _OPERATORS | _KEYWORDS - _VALUES | {""}
_AFTER_NO_ALIAS = _SYMBOLS - {"L_PAREN"} | _KEYWORDS | _LITERALS | {""}
_NO_NAMES = _SYMBOLS - {"STAR"} | {"NUMBER", "STRING", ""} | _KEYWORDS
_BEFORE_STAR = frozenset(["SELECT", "DISTINCT", "COMMA", "DOT", "L_PAREN"])
_AFTER_STAR = frozenset(["COMMA", "R_PAREN", "R_BRACKET", ""]) | _KEYWORDS - _VALUES - {"CASE", "NOT", "INTERVAL"}
_SOURCES = {"FROM", "ON"}
_BEFORE_NAME = {  # the tokens before the name of `name: item`, by clause
    "SELECT": {"SELECT", "DISTINCT", "COMMA"},
    "FROM": {"FROM", "COMMA", "JOIN"},
    "JOIN": {"JOIN"},
}
_COMBINES = frozenset(["UNION", "INTERSECT", "EXCEPT"])
_INSIDE_ONLY = {
    "QUALIFY": _EACH_PARTITION,
    **dict.fromkeys(
        _COMBINES, "Put it into FROM: SELECT article FROM (SELECT ... UNION SELECT ...) AS all_of_them GROUP BY ..."
    ),
}
_MAY_FOLLOW: dict[str, set[str]] = {  # a keyword, and those that may stand last before it at the same level
    "WITH": {""},
    "SELECT": {"", "WITH", *_COMBINES},
    "FROM": {"", "SELECT"},
    "JOIN": _SOURCES,
    "ON": {"JOIN"},
    "USING": {"JOIN"},
    "WHERE": _SOURCES | {"FILTER"},
    "GROUP_BY": _SOURCES | {"WHERE"},
    "HAVING": _SOURCES | {"WHERE", "GROUP_BY"},
    "QUALIFY": _SOURCES | {"WHERE"},
    **dict.fromkeys(_COMBINES, _SOURCES | {"WHERE", "GROUP_BY", "HAVING", "QUALIFY"}),
    "PARTITION_BY": {"OVER"},
    "ORDER_BY": _SOURCES | {"WHERE", "GROUP_BY", "HAVING", "QUALIFY", "OVER", "PARTITION_BY"},
    "LIMIT": _SOURCES | {"WHERE", "GROUP_BY", "HAVING", "QUALIFY", "ORDER_BY"},
    "OFFSET": _SOURCES | {"WHERE", "GROUP_BY", "HAVING", "QUALIFY", "ORDER_BY", "LIMIT"},
    "WHEN": {"CASE", "THEN"},
    "THEN": {"WHEN"},
    "ELSE": {"THEN"},
}
_CLAUSES = _MAY_FOLLOW.keys() - {"WHEN", "THEN", "ELSE", "PARTITION_BY"}
_CLOSED_BY = {"L_PAREN": "", "CASE": "CASE", "L_BRACKET": "L_BRACKET"}  # what opens a level, and its first keyword
_OPEN_CLAUSES = frozenset(["OVER", "FILTER"])
_GROUPING_SETS = frozenset(["rollup", "cube", "grouping sets", "grouping", "grouping_id"])
_LONGEST_GROUPINGS = 40  # tokens
_MANY_GROUPINGS = 8  # of CUBE with three keys
_MEANING = "Write COUNT(DISTINCT ...) of the privacy unit, which DESCRIBE names, or COUNT(*), SUM or AVG."
_INSTEAD = {
    "mean": "Write AVG(x).",
    **dict.fromkeys(["count_if", "countif"], "Write COUNT(*) FILTER (WHERE x > 1), with the condition in it."),
    **dict.fromkeys(["to_timestamp", "to_date"], "Write try_strptime(x, '%Y-%m-%d'), with the format of the text."),
    "overlay": "Write left(x, 2) || 'new' || substring(x, 6), with the characters to keep before and behind.",
}
_VOLATILE = "Leave it out: it would differ from run to run, and answers have noise of their own."


def settle(statement: Statement, tokens: list[Token], *, aggregates: Collection[str] = ()) -> list[Token]:
    """Return the tokens with every word settled; raise at the first that has no place in our grammar.

    `aggregates` are functions that may be called besides those of the allow-list.
    """
    from sqlglot import Token, TokenType

    tokens, settled = normalize_expressions(statement, tokens), list[Token]()
    everything = INSIDE.union(aggregates)
    openers: list[str] = []
    levels = [""]
    kinds = ["", *(token.token_type.name for token in tokens), "", "", ""]  # each asked once: that takes most of it
    for index, token in enumerate(tokens):
        before, after = tokens[index - 1] if index else None, tokens[index + 1] if index + 1 < len(tokens) else None
        around = kinds[index], kinds[index + 1], kinds[index + 2]
        kind = around[1]
        _check_neighbours(statement, token, around=around, before=before, after=after)
        _check_sign(statement, tokens, kind=kind, index=index, level=levels[-1])
        _check_order(statement, token, around=around, levels=levels)
        inside = not _CLAUSES.isdisjoint(levels[1:])
        _check_place(statement, token, kind=kind, third=kinds[index + 4], inside=inside)
        if kind == "L_PAREN":
            openers.append(ascii_lower(before.text) if before is not None else "")
        elif kind == "R_PAREN" and openers:
            openers.pop()
        if kind in _SYMBOLS or kind in {"NUMBER", "STRING", "IDENTIFIER"}:
            settled.append(token)
            continue
        new_kind, text = _word(
            statement,
            token,
            around=around,
            after=after,
            in_cast=openers[-1:] in (["cast"], ["try_cast"]),
            besides=everything if inside else aggregates,
        )
        if new_kind in _TYPED:
            if kinds[index + 2] == "WITH" and kinds[index] == "DCOLON":  # TIME ZONE
                raise _no_zone(statement, token)
            _check_sizes(statement, token, kind=new_kind, rest=kinds[index + 2 : index + 7])
        same = (new_kind, text) == (kind, token.text)
        settled.append(
            token if same else Token(TokenType[new_kind], text, token.line, token.col, token.start, token.end)
        )
    if len(levels) > 1:
        hint, where = "Close it with ) or END.", statement.place(tokens[-1])
        raise Refusal("syntax", "A parenthesis or a CASE is not closed.", hint=hint, place=where)
    if levels[-1] == "JOIN":
        raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=statement.place(tokens[-1]))
    return settled


def _check_place(statement: Statement, token: Token, *, kind: str, third: str, inside: bool) -> None:
    """Refuse constructs outside subqueries that are allowed only inside, and an EXTRACT that DuckDB does not accept."""
    if kind in _INSIDE_ONLY and not inside:
        reason = "This word has a place in subqueries alone."
        raise Unsupported("keyword", reason, hint=_INSIDE_ONLY[kind], place=statement.place(token))
    if third != "FROM" and kind != "IDENTIFIER" and ascii_lower(token.text) == "extract":
        hint, where = "Such as EXTRACT(hour FROM ts).", statement.place(token)
        raise Refusal("syntax", "Write EXTRACT(part FROM x).", hint=hint, place=where)


def _check_sizes(statement: Statement, token: Token, *, kind: str, rest: list[str]) -> None:
    """Refuse a size of a type that sqlglot would drop in silence: text takes one number, DECIMAL one or two.

    `rest` are the kinds of what follows the type.
    """
    if rest[0] != "L_PAREN":
        return
    closed = rest[1 : rest.index("R_PAREN")] if "R_PAREN" in rest else None
    if closed not in _SIZES.get(kind, ()):
        hint = "Write VARCHAR, DECIMAL(10, 2) and the like."
        raise Unsupported("type", "This type is not read.", hint=hint, place=statement.place(token))


def _word(
    statement: Statement,
    token: Token,
    *,
    around: tuple[str, str, str],
    after: Token | None,
    in_cast: bool,
    besides: Collection[str],
) -> tuple[str, str]:
    """Return the token type and text of a word, by the tokens around it."""
    word, (previous, kind, following) = ascii_lower(" ".join(token.text.split())), around
    calls = following == "L_PAREN"
    if word in _TYPES and (previous == "DCOLON" or (previous == "ALIAS" and in_cast)):
        return _TYPES[word], token.text
    if word in {"date", "timestamp"} and after is not None and after.text.startswith(STAND_IN):
        return _TYPES[word], token.text
    if token.text == STATED:
        return "VAR", token.text
    _check_unsupported(statement, token, word=word, calls=calls, after=after)
    known = word in FUNCTIONS or word in besides or word in _SPECIAL_CALLS
    if calls and known:
        return "VAR", token.text if word in {"cast", "try_cast", "extract", "count"} else FUNCTION_PREFIX + word
    if word == "all" and previous == "ORDER_BY":
        return "VAR", EVERY_COLUMN
    if kind in _WORDS and _stands(kind, previous, calls=calls):
        return kind, token.text
    if calls and previous not in {"ALIAS", "R_PAREN"}:  # as in unnest([a, b]) x(item)
        raise _no_function(statement, token, word=word)
    if word in _RESERVED or kind == "SEMICOLON":
        hint = _HINTS.get(word, "Quote it with double quotes if it is a name.")
        raise Unsupported(
            "keyword", "This word has no place in a private query.", hint=hint, place=statement.place(token)
        )
    if not (word[:1].isalpha() or word[:1] == "_"):
        raise Unsupported(
            "operator",
            "This sign is not one of dpsql's.",
            hint="Leave it out, or quote it with double quotes if it is a name.",
            place=statement.place(token),
        )
    return "VAR", token.text


def _check_unsupported(statement: Statement, token: Token, *, word: str, calls: bool, after: Token | None) -> None:
    """Refuse grouping sets and time zones by their names."""
    if word in _GROUPING_SETS and calls:
        raise _no_grouping_sets(statement, token)
    if word == "at" and after is not None and ascii_lower(after.text) == "time":
        raise _no_zone(statement, token)


def _stands(kind: str, previous: str, *, calls: bool) -> bool:
    """Say whether a keyword is a keyword at its position, and not a name."""
    match kind:
        case "ALL":
            return previous == "GROUP_BY" or previous in _COMBINES
        case "OVER":
            return previous == "R_PAREN" and calls
        case "PARTITION_BY":
            return previous == "L_PAREN"
        case "EXISTS":
            return calls
        case "FILTER":
            return previous == "R_PAREN" and calls
    return True


def _no_zone(statement: Statement, token: Token) -> Unsupported:
    hint = "Shift a TIMESTAMP by its offset, ts + INTERVAL 1 HOUR, or ask the curator to store one in that zone."
    reason = "A TIMESTAMP WITH TIME ZONE is not computed with, which AT TIME ZONE reads or makes."
    return Unsupported("type", reason, hint=hint, place=statement.place(token))


def _no_grouping_sets(statement: Statement, token: Token) -> Unsupported:
    found = _list_groupings(statement, token)
    each = [f"one with GROUP BY {', '.join(keys)}" if keys else "one without for the total" for keys in found]
    hint = "Write a query for each grouping, with GROUP BY and its keys, and one without for the total."
    if each:
        hint = f"Write a query for each grouping: {' and '.join(filter(None, [', '.join(each[:-1]), each[-1]]))}."
    reason = "ROLLUP, CUBE and GROUPING SETS are not supported in a private query."
    return Unsupported("construct", reason, hint=hint, place=statement.place(token))


def _list_groupings(statement: Statement, token: Token) -> list[tuple[str, ...]]:
    """Return the keys of each grouping of ROLLUP, CUBE or GROUPING SETS; nothing where others are beside it."""
    for beside, at in walk(nest(statement.tokens).nodes):
        node = beside[at]
        if isinstance(node, Block) or node.start != token.start:
            continue
        block = next((each for each in beside[at : at + 3] if isinstance(each, Block)), None)
        if block is None or kind_of(beside, at - 1) != "GROUP_BY" or len(flatten(block.nodes)) > _LONGEST_GROUPINGS:
            return []
        if "COMMA" in {kind_of(beside, each) for each in range(at, at + 4)}:
            return []
        return _combine(
            ascii_lower(token.text).split()[0], [_read_keys(statement, part) for part in split(block.nodes)]
        )
    return []


def _combine(word: str, parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    match word:
        case "rollup":
            return [tuple(key for part in parts[:last] for key in part) for last in range(len(parts), -1, -1)]
        case "cube":
            chosen = [each for size in range(len(parts), -1, -1) for each in combinations(parts, size)]
            return [tuple(key for part in each for key in part) for each in chosen if len(chosen) <= _MANY_GROUPINGS]
    return parts


def _read_keys(statement: Statement, part: Nodes) -> tuple[str, ...]:
    """Return the keys of a grouping, as they are written, with or without parentheses."""
    only = part[0] if len(part) == 1 else None
    inside = only.nodes if isinstance(only, Block) else part
    keys = split(inside) if inside else []
    return tuple(statement.text[first_token(key).start : last_token(key).end + 1] for key in keys if key)


def _no_function(statement: Statement, token: Token, *, word: str) -> Refusal | Unsupported:
    if word in EVERY_AGGREGATE:
        reason = f"{word} is an aggregate that is not released: COUNT, SUM and AVG are."
        return Refusal("not-row-local", reason, hint=_INSTEAD.get(word, _MEANING), place=statement.place(token))
    if word in REFUSED:
        hint = _VOLATILE if word in {"random", "uuid"} else _EACH_PARTITION
        return Refusal("not-row-local", "This function cannot be used here.", hint=hint, place=statement.place(token))
    if word in INTERVAL_ENDS:
        reason = f"{word} is for the measures of a private query."
        hint = "Write it in the select list beside the measure: COUNT(DISTINCT user_id) AS n, value_low(n) AS n_low."
        return Refusal("not-row-local", reason, hint=hint, place=statement.place(token))
    if word in {"any", "all", "some"}:
        hint = "Write x = ANY (ARRAY['a', 'b']), x <> ALL (ARRAY['a', 'b']), or x IN ('a', 'b')."
        reason = "ANY and ALL compare with a list of values only, by = and <>."
        return Unsupported("construct", reason, hint=hint, place=statement.place(token))
    hint = _INSTEAD.get(
        word, f"{propose_name(word, ('count', 'sum', 'avg', *FUNCTIONS))}SHOW FUNCTIONS lists those that there are."
    )
    return Unsupported("function", "This function is not on the allow-list.", hint=hint, place=statement.place(token))


def _check_order(statement: Statement, token: Token, *, around: tuple[str, str, str], levels: list[str]) -> None:
    """Refuse clauses out of order, half a CASE and a * after a table, all of which sqlglot accepts silently.

    `levels` holds, for the statement and every open parenthesis or CASE, the keyword last seen at that level.
    """
    (previous, kind, _), good = around, True
    if kind in _CLOSED_BY:
        levels.append(previous if kind == "L_PAREN" and previous in _OPEN_CLAUSES else _CLOSED_BY[kind])
    elif kind in {"R_PAREN", "END", "R_BRACKET"}:
        last = levels.pop() if len(levels) > 1 else kind
        ends = "END" if last in {"THEN", "ELSE"} else "R_BRACKET" if last == "L_BRACKET" else "R_PAREN"
        good = ends == kind and last not in {"JOIN", "FILTER", "CASE", "WHEN", kind}
    elif kind == "COMMA" and levels[-1] == "ON":
        levels[-1] = "FROM"
    elif kind == "STAR":
        good = levels[-1] not in {"FROM", "JOIN"}
    elif kind in _MAY_FOLLOW and not (kind == "FROM" and previous == "DISTINCT"):
        good = levels[-1] in _MAY_FOLLOW[kind]
        crossed = kind == "JOIN" and previous == "CROSS"
        levels[-1] = "FROM" if crossed or kind == "USING" else kind
    if kind == "WITH" and not good and around[2] in {"ROLLUP", "CUBE"}:
        raise _no_grouping_sets(statement, token)
    if not good:
        is_qualify = kind == "QUALIFY" and len(levels) == 1
        raise Refusal(
            "syntax",
            "QUALIFY has a place in subqueries alone." if is_qualify else "This word is out of order here.",
            hint=_EACH_PARTITION if is_qualify else _ORDER,
            place=statement.place(token),
        )


def _check_sign(statement: Statement, tokens: list[Token], *, kind: str, index: int, level: str) -> None:
    """Refuse a : that gives no name, and a list that is none of unnest."""
    if kind not in {"COLON", "L_BRACKET"}:
        return
    before = tokens[max(index - 2, 0) : index]
    kinds = [token.token_type.name for token in before] if len(before) > 1 else ["", ""]
    names = kinds[0] in _BEFORE_NAME.get(level, ()) and _is_name(before[-1])
    unnests = kinds[1] == "L_PAREN" and ascii_lower(before[0].text) == "unnest"
    if not (names if kind == "COLON" else unnests):
        hint = (
            "Write a list as FROM t, unnest([a, b]) AS x(item), and a : after the name of an item: SELECT name: item."
        )
        reason = "This sign has no place here."
        raise Unsupported("keyword", reason, hint=hint, place=statement.place(tokens[index]))


def _is_name(token: Token) -> bool:
    return token.token_type.name == "IDENTIFIER" or ascii_lower(token.text) not in _RESERVED


def _check_neighbours(
    statement: Statement, token: Token, *, around: tuple[str, str, str], before: Token | None, after: Token | None
) -> None:
    """Refuse what sqlglot would repair in silence: empty list items, adjacent literals, names that call."""
    previous, kind, following = around
    typed = kind in _LITERALS and previous != "IDENTIFIER" and before is not None and ascii_lower(before.text) in _TYPES
    fault = _fault(kind, previous, following=following) or _absence(kind, previous, following=following)
    if kind == "STRING" and (typed and following == "DCOLON"):
        fault = "A typed literal may not be cast without parentheses."
    elif kind == "DOT" and following == "NUMBER" and after is not None and after.start != token.end + 1:
        fault = "A number has a gap in it."
    elif kind in _LITERALS and not typed and previous not in _BEFORE_LITERAL:
        fault = "There is a literal where an operator or a name is expected."
    if fault:
        raise Refusal(
            "syntax",
            fault,
            hint="Leave one of the two out, or write between them what is missing.",
            place=statement.place(token, after or token),
        )


def _fault(kind: str, previous: str, *, following: str) -> str:
    """Return what is wrong with a token between its neighbours, or nothing."""
    match kind:
        case "COMMA" if following in _AFTER_NO_ITEM or previous in _BEFORE_NO_ITEM:
            return "A list has an empty item."
        case "DOT" if following == "NUMBER" and previous in _BEFORE_LITERAL:
            return ""
        case "DOT" if previous in _NO_NAMES or following in _NO_NAMES:
            return "A dot must be between a table and a column."
        case "ALIAS" if previous in _BEFORE_NO_ITEM or following in _AFTER_NO_ALIAS:
            return "AS must be between an item and its name."
        case "STAR" if following in _AFTER_STAR and previous not in _BEFORE_STAR:
            return "A * must be alone or between two operands."
        case "STRING" | "NUMBER" if following in {"STRING", "NUMBER", "IDENTIFIER"}:
            return "Two literals stand side by side."
        case "IDENTIFIER" if following == "L_PAREN":
            return "A quoted name may not be called or followed by a list."
        case "WITH" if following == "L_PAREN":
            return "Options stand only after PRIVATE."
    return ""


def _absence(kind: str, previous: str, *, following: str) -> str:
    """Return what is missing after a token, or nothing."""
    match kind:
        case "SELECT" | "GROUP_BY" if following in _AFTER_NO_ITEM - {"DISTINCT", "ALL", "COMMA", "ALIAS"}:
            return "A list has no item."
        case "L_PAREN" if previous == "USING" and following == "R_PAREN":
            return "A list has no item."
        case "IN" if following not in {"L_PAREN", "STRING"}:
            return "IN must be followed by a list or a subquery."
    return ""
