"""The closed grammar: which words may stand where, before sqlglot's parser sees them, and what its tree may have.

sqlglot knows the words of thirty dialects and repairs what it can; DuckDB reserves words that sqlglot takes for
names. So each word is settled here: a keyword of our grammar stays one, a type name is one only where a type is due,
a function of the allow-list gets a name that sqlglot does not know, and any other word is a plain name, or refused
when DuckDB reserves it. `parse` makes a tree of settled words. Whoever reads a node of it refuses with `allow_only`
what it does not read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, cast

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.allow_list import FUNCTIONS, INSIDE, INTERVAL_ENDS, refuse_unknown
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import FUNCTION_PREFIX, STAND_IN, ScannedStatement, ascii_lower, make_place
from dpsql.sql.syntax.aggregate_forms import DESCENDING, QUANTILE, STATED, propose_quantile
from dpsql.sql.syntax.block import (
    EVERY_AGGREGATE,
    Block,
    Select,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    nest,
    read_text,
    split,
    walk,
)
from dpsql.sql.syntax.forms import ALL_ITEMS, ALL_OF, ANY_ITEMS, ANY_OF, normalize_expressions

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node

REFUSED = INSIDE | EVERY_AGGREGATE | {"last_value", "nth_value", "random", "uuid"}
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
_READ_CALLS = frozenset([STATED, QUANTILE, DESCENDING])
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
_NOTHING = frozenset[str]()
_NO_LIST = _NOTHING, _AFTER_NO_ITEM - {"DISTINCT", "ALL", "COMMA", "ALIAS"}, "A list has no item."
_BESIDE = _NOTHING, frozenset(["STRING", "NUMBER", "IDENTIFIER"]), "Two literals stand side by side."
_FAULTS = {  # of a kind: what may not stand before it or behind it, as sqlglot would repair it in silence
    "COMMA": (_BEFORE_NO_ITEM, _AFTER_NO_ITEM, "A list has an empty item."),
    "DOT": (_NO_NAMES, _NO_NAMES, "A dot must be between a table and a column."),
    "ALIAS": (_BEFORE_NO_ITEM, _AFTER_NO_ALIAS, "AS must be between an item and its name."),
    "STRING": _BESIDE,
    "NUMBER": _BESIDE,
    "IDENTIFIER": (_NOTHING, frozenset(["L_PAREN"]), "A quoted name may not be called or followed by a list."),
    "WITH": (_NOTHING, frozenset(["L_PAREN"]), "Options stand only after PRIVATE."),
    "SELECT": _NO_LIST,
    "GROUP_BY": _NO_LIST,
}
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
_ANY_VALUE = frozenset(["any_value", "arbitrary"])
_LONGEST_GROUPINGS = 40  # tokens
_MANY_GROUPINGS = 8  # of CUBE with three keys
UNIT_COUNT = "COUNT(DISTINCT ...) of the privacy unit, which DESCRIBE names,"
_MEANING = f"Write {UNIT_COUNT} or COUNT(*), SUM or AVG."
_CORR = (
    "corr is not released: it divides by two noisy deviations, and beside small ones it could be any number.",
    "Write COVAR_POP(x, y) AS c, STDDEV_POP(x) AS a, STDDEV_POP(y) AS b: columns of their own, each with an interval.",
)
_INSTEAD = {
    "mean": "Write AVG(x).",
    **dict.fromkeys(["count_if", "countif"], "Write COUNT(*) FILTER (WHERE x > 1), with the condition in it."),
    **dict.fromkeys(["to_timestamp", "to_date"], "Write try_strptime(x, '%Y-%m-%d'), with the format of the text."),
    "overlay": "Write left(x, 2) || 'new' || substring(x, 6), with the characters to keep before and behind.",
}
_VOLATILE = "Leave it out: it would differ from run to run, and answers have noise of their own."

MAX_LISTED = 256
MAX_COMBINED = 32  # each is nested in the one before
_LISTS = frozenset(["Select", "Group", "Order", "Window", "With"])

_NAMED = frozenset(["Alias", "Column"])
EVERY_COLUMN = "all\0columns"  # in ORDER BY ALL: a name that no statement can hold


def settle(statement: ScannedStatement, tokens: list[Token], *, aggregates: Collection[str] = ()) -> list[Token]:
    """Return the tokens with every word settled; raise at the first that has no place in our grammar.

    `aggregates` are functions that may be called besides those of the allow-list.
    """
    from sqlglot import Token, TokenType

    tokens, settled = normalize_expressions(statement, tokens, quantiles="median" in aggregates), list[Token]()
    everything = INSIDE.union(aggregates)
    openers: list[str] = []
    levels = [""]  # of the statement and each open parenthesis or CASE: the keyword last seen there
    kinds = ["", *kinds_of(tokens), "", "", ""]  # each asked once: that takes most of it
    for index, token in enumerate(tokens):
        before, after = tokens[index - 1] if index else None, tokens[index + 1] if index + 1 < len(tokens) else None
        near = kinds[index : index + 7]  # types of the token before, of this one, and of the five behind it
        kind = near[1]
        _check_neighbours(statement, token, near=near, before=before, after=after)
        if kind in {"COLON", "L_BRACKET"}:
            _check_sign(statement, tokens, kind=kind, index=index, level=levels[-1])
        _enter_level(statement, token, near=near, levels=levels)
        is_inside = not _CLAUSES.isdisjoint(levels[1:])
        if kind in _INSIDE_ONLY and not is_inside:
            reason = "This word has a place in subqueries alone."
            raise Unsupported("keyword", reason, hint=_INSIDE_ONLY[kind], place=statement.place(token))
        if kind == "L_PAREN":
            openers.append(ascii_lower(before.text) if before is not None else "")
        elif kind == "R_PAREN" and openers:
            openers.pop()
        if kind not in _SYMBOLS and kind not in {"NUMBER", "STRING", "IDENTIFIER"}:
            in_cast = openers[-1:] in (["cast"], ["try_cast"])
            besides = everything if is_inside else frozenset(aggregates)
            new = _settle_word(statement, token, near=near, after=after, in_cast=in_cast, besides=besides)
            if new != (kind, token.text):
                token = Token(TokenType[new[0]], new[1], token.line, token.col, token.start, token.end)  # noqa: PLW2901
        settled.append(token)
    if len(levels) > 1:
        hint, where = "Close it with ) or END.", statement.place(tokens[-1])
        raise Refusal("syntax", "A parenthesis or a CASE is not closed.", hint=hint, place=where)
    if levels[-1] == "JOIN":
        raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=statement.place(tokens[-1]))
    return settled


def _check_neighbours(
    statement: ScannedStatement, token: Token, *, near: list[str], before: Token | None, after: Token | None
) -> None:
    """Refuse what sqlglot would repair in silence: empty list items, adjacent literals, names that call."""
    previous, kind, following = near[:3]
    not_before, not_after, fault = _FAULTS.get(kind, (_NOTHING, _NOTHING, ""))
    if previous not in not_before and following not in not_after:
        fault = ""
    is_typed = kind in _LITERALS and previous != "IDENTIFIER" and before is not None and _fold(before) in _TYPES
    match kind:
        case "DOT" if following == "NUMBER":
            fault = "" if previous in _BEFORE_LITERAL else fault
            if after is not None and after.start != token.end + 1:
                fault = "A number has a gap in it."
        case "STAR" if following in _AFTER_STAR and previous not in _BEFORE_STAR:
            fault = "A * must be alone or between two operands."
        case "L_PAREN" if previous == "USING" and following == "R_PAREN":
            fault = "A list has no item."
        case "IN" if following not in {"L_PAREN", "STRING"}:
            fault = "IN must be followed by a list or a subquery."
        case "STRING" if is_typed and following == "DCOLON":
            fault = "A typed literal may not be cast without parentheses."
        case "STRING" | "NUMBER" | "NULL" | "TRUE" | "FALSE" if not is_typed and previous not in _BEFORE_LITERAL:
            fault = "There is a literal where an operator or a name is expected."
    if fault:
        hint = "Leave one of the two out, or write between them what is missing."
        raise Refusal("syntax", fault, hint=hint, place=statement.place(token, after or token))


def _fold(token: Token) -> str:
    return ascii_lower(token.text)


def _check_sign(statement: ScannedStatement, tokens: list[Token], *, kind: str, index: int, level: str) -> None:
    """Refuse a : that gives no name, and a list that is none of unnest."""
    before = tokens[max(index - 2, 0) : index]
    kinds = kinds_of(before) if len(before) > 1 else ["", ""]
    is_good = kinds[1] == "L_PAREN" and _fold(before[0]) == "unnest"
    if kind == "COLON":
        is_name = bool(before) and (kinds[1] == "IDENTIFIER" or _fold(before[-1]) not in _RESERVED)
        is_good = kinds[0] in _BEFORE_NAME.get(level, ()) and is_name
    if not is_good:
        hint = (
            "Write a list as FROM t, unnest([a, b]) AS x(item), and a : after the name of an item: SELECT name: item."
        )
        place = statement.place(tokens[index])
        raise Unsupported("keyword", "This sign has no place here.", hint=hint, place=place)


def _enter_level(statement: ScannedStatement, token: Token, *, near: list[str], levels: list[str]) -> None:
    """Refuse clauses out of order, half a CASE and a * after a table, all of which sqlglot accepts silently.

    Keeps `levels` up to date.
    """
    previous, kind, following = near[:3]
    is_good = True
    if kind in _CLOSED_BY:
        levels.append(previous if kind == "L_PAREN" and previous in _OPEN_CLAUSES else _CLOSED_BY[kind])
    elif kind in {"R_PAREN", "END", "R_BRACKET"}:
        last = levels.pop() if len(levels) > 1 else kind
        ends = "END" if last in {"THEN", "ELSE"} else "R_BRACKET" if last == "L_BRACKET" else "R_PAREN"
        is_good = ends == kind and last not in {"JOIN", "FILTER", "CASE", "WHEN", kind}
    # FROM a JOIN b ON a.x = b.x, c: behind the comma another JOIN may follow, as behind FROM.
    elif kind == "COMMA" and levels[-1] == "ON":
        levels[-1] = "FROM"
    elif kind == "STAR":
        is_good = levels[-1] not in {"FROM", "JOIN"}
    elif kind in _MAY_FOLLOW and not (kind == "FROM" and previous == "DISTINCT"):
        is_good = levels[-1] in _MAY_FOLLOW[kind]
        crossed = kind == "JOIN" and previous == "CROSS"
        # CROSS JOIN b and JOIN b USING (x) want no ON, which a level "JOIN" has to have before it ends.
        levels[-1] = "FROM" if crossed or kind == "USING" else kind
    if is_good:
        return
    if kind == "WITH" and following in {"ROLLUP", "CUBE"}:
        raise _no_grouping_sets(statement, token)
    reason, hint = "This word is out of order here.", _ORDER
    if kind == "QUALIFY" and len(levels) == 1:
        reason, hint = "QUALIFY has a place in subqueries alone.", _EACH_PARTITION
    raise Refusal("syntax", reason, hint=hint, place=statement.place(token))


def _settle_word(  # noqa: C901, PLR0912 - each kind of word
    statement: ScannedStatement,
    token: Token,
    *,
    near: list[str],
    after: Token | None,
    in_cast: bool,
    besides: frozenset[str],
) -> tuple[str, str]:
    """Return the token type and text of a word; `near` are the types of the tokens from the one before it on."""
    previous, kind, following, *others = near
    word, calls = ascii_lower(" ".join(token.text.split())), following == "L_PAREN"
    if word == "extract" and others[1] != "FROM":
        hint, where = "Such as EXTRACT(hour FROM ts).", statement.place(token)
        raise Refusal("syntax", "Write EXTRACT(part FROM x).", hint=hint, place=where)
    is_type = word in _TYPES and (previous == "DCOLON" or (previous == "ALIAS" and in_cast))
    if is_type or (word in {"date", "timestamp"} and after is not None and after.text.startswith(STAND_IN)):
        if following == "WITH" and previous == "DCOLON":  # TIME ZONE
            raise _no_zone(statement, token)
        # sqlglot would drop a size in silence
        size = others[: others.index("R_PAREN")] if "R_PAREN" in others else None
        if calls and size not in _SIZES.get(_TYPES[word], ()):
            hint, where = "Write VARCHAR, DECIMAL(10, 2) and the like.", statement.place(token)
            raise Unsupported("type", "This type is not read.", hint=hint, place=where)
        return _TYPES[word], token.text
    if token.text in _READ_CALLS:
        return "VAR", token.text
    if word in _GROUPING_SETS and calls:
        raise _no_grouping_sets(statement, token)
    if word == "at" and after is not None and _fold(after) == "time":
        raise _no_zone(statement, token)
    if calls and word in _ANY_VALUE and besides.issuperset(INSIDE):  # any value of a group, such as the least one
        return "VAR", f"{FUNCTION_PREFIX}min"
    if calls and (word in FUNCTIONS or word in besides or word in _SPECIAL_CALLS):
        return "VAR", token.text if word in {"cast", "try_cast", "extract", "count"} else FUNCTION_PREFIX + word
    if word == "all" and previous == "ORDER_BY":
        return "VAR", EVERY_COLUMN
    is_keyword = kind in _WORDS  # and no name at its position
    match kind:
        case "ALL":
            is_keyword = previous == "GROUP_BY" or previous in _COMBINES
        case "OVER" | "FILTER":
            is_keyword = previous == "R_PAREN" and calls
        case "PARTITION_BY":
            is_keyword = previous == "L_PAREN"
        case "EXISTS":
            is_keyword = calls
    if is_keyword:
        return kind, token.text
    if calls and previous not in {"ALIAS", "R_PAREN"}:  # as in unnest([a, b]) x(item)
        if word in EVERY_AGGREGATE and besides.issuperset(INSIDE):
            raise _not_of_each_unit(statement, token, word=word)
        raise _no_function(statement, token, word=word)
    if word in _RESERVED or kind == "SEMICOLON":
        hint, where = _HINTS.get(word, "Quote it with double quotes if it is a name."), statement.place(token)
        raise Unsupported("keyword", "This word has no place in a private query.", hint=hint, place=where)
    if not (word[:1].isalpha() or word[:1] == "_"):
        hint, where = "Leave it out, or quote it with double quotes if it is a name.", statement.place(token)
        raise Unsupported("operator", "This sign is not one of dpsql's.", hint=hint, place=where)
    return "VAR", token.text


def _no_zone(statement: ScannedStatement, token: Token) -> Unsupported:
    hint = "Shift a TIMESTAMP by its offset, ts + INTERVAL 1 HOUR, or ask the curator to store one in that zone."
    reason = "A TIMESTAMP WITH TIME ZONE is not computed with, which AT TIME ZONE reads or makes."
    return Unsupported("type", reason, hint=hint, place=statement.place(token))


def _no_grouping_sets(statement: ScannedStatement, token: Token) -> Unsupported:
    hint = "Write a query for each grouping, with GROUP BY and its keys, and one without for the total."
    queries = [
        f"one with GROUP BY {', '.join(keys)}" if keys else "one without for the total"
        for keys in _list_groupings(statement, token)
    ]
    if queries:
        hint = f"Write a query for each grouping: {' and '.join(filter(None, [', '.join(queries[:-1]), queries[-1]]))}."
    reason = "ROLLUP, CUBE and GROUPING SETS are for the GROUP BY of a private query itself."
    return Unsupported("construct", reason, hint=hint, place=statement.place(token))


def _not_of_each_unit(statement: ScannedStatement, token: Token, *, word: str) -> Refusal:
    reason = f"{word} is not computed in a subquery: COUNT, SUM, AVG, MIN and MAX are."
    hint = _INSTEAD.get(word, "Write AVG(x), MIN(x) or MAX(x) there.")
    return Refusal("not-row-local", reason, hint=hint, place=statement.place(token))


def _list_groupings(statement: ScannedStatement, token: Token) -> list[tuple[str, ...]]:
    """Return the keys of each grouping of ROLLUP, CUBE or GROUPING SETS; nothing where others are beside it."""
    places = walk(nest(statement.tokens).nodes)
    same = ((beside, at) for beside, at in places if getattr(beside[at], "start", None) == token.start)
    beside, at = next(same, ((), 0))
    block = next((node for node in beside[at : at + 3] if isinstance(node, Block)), None)
    if block is None or kind_of(beside, at - 1) != "GROUP_BY" or len(flatten(block.nodes)) > _LONGEST_GROUPINGS:
        return []
    if "COMMA" in kinds_of(beside[at : at + 4]):
        return []
    parts = list[tuple[str, ...]]()
    for part in split(block.nodes):
        only = part[0] if len(part) == 1 else None
        keys = split(only.nodes if isinstance(only, Block) else part)
        parts.append(tuple(statement.text[first_token(key).start : last_token(key).end + 1] for key in keys if key))
    chosen: list[Sequence[tuple[str, ...]]] = [[part] for part in parts]
    match _fold(token).split()[0]:
        case "rollup":
            chosen = [parts[:last] for last in range(len(parts), -1, -1)]
        case "cube":
            chosen = [each for size in range(len(parts), -1, -1) for each in combinations(parts, size)]
            chosen = chosen if len(chosen) <= _MANY_GROUPINGS else []
    return [tuple(key for part in each for key in part) for each in chosen]


def _no_function(statement: ScannedStatement, token: Token, *, word: str) -> Refusal | Unsupported:
    code, place = "not-row-local", statement.place(token)
    if word in {"min", "max"}:
        reason = f"{word} is the value of one unit alone, and is not released: a quantile near it is."
        return Refusal(code, reason, hint=propose_quantile(statement, token), place=place)
    if word == "corr":
        return Refusal(code, _CORR[0], hint=_CORR[1], place=place)
    if word in SPREADS:
        reason = f"{word} is for the rows of private tables, in the select list of a private query."
        hint = "Select it there, or write AVG(x * x) - AVG(x) * AVG(x) over public tables."
        return Refusal(code, reason, hint=hint, place=place)
    if word in EVERY_AGGREGATE:
        reason = (
            f"{word} is an aggregate that is not released: COUNT, SUM, AVG, quantiles, VARIANCE, STDDEV and COVAR are."
        )
        return Refusal(code, reason, hint=_INSTEAD.get(word, _MEANING), place=place)
    if word in REFUSED:
        hint = _VOLATILE if word in {"random", "uuid"} else _EACH_PARTITION
        return Refusal(code, "This function cannot be used here.", hint=hint, place=place)
    if word in INTERVAL_ENDS:
        reason = f"{word} is for the measures of a private query."
        hint = "Write it in the select list beside the measure: COUNT(DISTINCT user_id) AS n, value_low(n) AS n_low."
        return Refusal(code, reason, hint=hint, place=place)
    if word in {"any", "all", "some"}:
        hint = "Write x = ANY (ARRAY['a', 'b']), x <> ALL (ARRAY['a', 'b']), or x IN ('a', 'b')."
        reason = "ANY and ALL compare with a list of values only, by = and <>."
        return Unsupported("construct", reason, hint=hint, place=place)
    return refuse_unknown(word, place, known=("count", "sum", "avg", *SPREADS, *FUNCTIONS), hint=_INSTEAD.get(word, ""))


def parse(statement: ScannedStatement, tokens: list[Token]) -> Node:
    """Parse the tokens as one SELECT."""
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.errors import ParseError
    from sqlglot.expressions import Select

    where: Place | None = None
    try:
        dialect = DuckDB()
        if statement.postgres:
            dialect.NULL_ORDERING = "nulls_are_large"  # last where an order rises, and first where it falls
        trees = dialect.parser().parse(tokens, statement.text)
        if len(trees) == 1 and isinstance(trees[0], Select):
            _check_breadth(statement, trees[0])
            return trees[0]
    except Refusal:
        raise
    except ParseError as error:
        where = _find_fault(statement, error.errors)
    except Exception:  # noqa: BLE001 - a parser may fail in any way on hostile text
        where = None
    hint = "Check commas, parentheses and keywords up to here, and nest less deeply."
    raise Refusal("syntax", "This is not a SELECT that dpsql can read.", hint=hint, place=where)


def _check_breadth(statement: ScannedStatement, tree: Node) -> None:
    """Refuse long lists of keys, columns, tables and CTEs; some checks are quadratic in their length."""
    combined = 0
    for node in tree.walk():
        kind, reason, hint = type(node).__name__, "", ""
        if kind in {"Union", "Intersect", "Except"}:
            combined += 1
            if combined > MAX_COMBINED:
                reason = f"At most {MAX_COMBINED} UNION, INTERSECT and EXCEPT are allowed in a statement."
                hint = "Combine fewer subqueries."
        elif kind in _LISTS:
            for part in node.args.values():
                if isinstance(part, list) and len(part) > MAX_LISTED:
                    reason, hint = f"This list may have at most {MAX_LISTED} items.", "Shorten the list."
        if reason:
            raise Refusal("too-long", reason, hint=hint, place=place(statement, cast("Node", node)))


def _find_fault(statement: ScannedStatement, faults: list[dict[str, object]]) -> Place | None:
    """Return the place of the fault that sqlglot reports by line and last column."""
    line, column = (faults[0].get("line"), faults[0].get("col")) if faults else (None, None)
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    end = sum(len(part) + 1 for part in statement.text.split("\n")[: line - 1]) + column
    starts = [token.start for token in statement.tokens if token.start < end <= token.end + 1]
    return make_place(statement.text, starts[0] if starts else end - 1, end=end)


def place(statement: ScannedStatement, node: Node) -> Place | None:
    """Return the place of the smallest fragment that covers `node`, or its parent if `node` has no position."""
    spans = [below.meta for below in node.walk() if "start" in below.meta]
    if not spans:
        outer = cast("Node | None", node.parent)
        return None if outer is None or type(outer).__name__ == "Select" else place(statement, outer)
    return make_place(statement.text, min(span["start"] for span in spans), end=max(span["end"] for span in spans) + 1)


def allow_only(statement: ScannedStatement, node: Node, *allowed: str) -> None:
    """Refuse a node with any argument other than the `allowed` ones."""
    for name, value in node.args.items():
        if name not in allowed and value is not None and value is not False and value != []:
            hint = "Leave this part out, or write it in another way."
            where = place(statement, node)
            raise Unsupported("construct", "This construct is not supported.", hint=hint, place=where)


def find_every_column(statement: ScannedStatement, order: Node) -> Node | None:
    """Return the term of ORDER BY ALL; None for another list."""
    terms = order.expressions
    (term, *others) = [term for term in terms if term.this.name == EVERY_COLUMN] or [None]
    if term is None:
        return None
    if others or len(terms) > 1 or type(term.this).__name__ != "Column":
        hint = "Write ORDER BY ALL alone, or name the columns: ORDER BY 1, 2."
        raise Refusal("order", "ALL stands alone in ORDER BY.", hint=hint, place=place(statement, order))
    allow_only(statement, term, "this", "desc", "nulls_first")
    return cast("Node", term)


def read_direction(term: Node) -> tuple[bool, bool]:
    """Return whether a term of ORDER BY falls, and whether it has NULL first."""
    return bool(term.args.get("desc")), bool(term.args.get("nulls_first"))


def is_unnest(node: Node) -> bool:
    """Return whether a node is unnest(...)."""
    return type(node).__name__ == "Anonymous" and node.this == f"{FUNCTION_PREFIX}unnest"


def pair_items_with_text(statement: ScannedStatement, select: Node, *, tokens: list[Token]) -> list[tuple[Node, str]]:
    """Pair the items of the outermost select list with their text, the name of an item without an alias."""
    if all(type(item).__name__ in _NAMED for item in select.expressions):  # as most: the text is not needed
        return [(item, item.name) for item in select.expressions]
    nodes = nest(tokens).nodes
    kinds = kinds_of(nodes)
    items = Select(nodes[kinds.index("SELECT") :]).items if "SELECT" in kinds else []
    if len(items) != len(select.expressions):
        hint, where = "Check its commas and parentheses.", place(statement, select)
        raise Refusal("syntax", "The select list cannot be read.", hint=hint, place=where)
    texts = [read_text(statement, item) if item else "" for item in items]
    return list(zip(select.expressions, texts, strict=True))
