"""Expressions: sqlglot's nodes matched, one class at a time, into typed nodes of our own.

Operators whose precedence sqlglot and DuckDB see differently are never next to each other here: a comparison, IS, IN,
BETWEEN or LIKE may hold another only in parentheses.

Signs of whole numbers: ~, & and |, and @, which is abs; a shift is refused, since few of them are in range.

DuckDB gives the signs between two operands one precedence, below arithmetic and above comparisons, and so does sqlglot,
but for ||, which needs parentheses beside them. ~ and @ take in DuckDB all the arithmetic that follows, which sqlglot
leaves outside: so nothing may follow their operand but what both put outside. An operator before ~ binds in DuckDB
weaker than any before that, so it is the only one, as in flags & ~4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import (
    FUNCTIONS,
    INTERVAL_ENDS,
    TAKES_INTERVAL,
    call,
    cap_length,
    date_part,
    find_max_length,
    refuse_unknown,
    type_longer_text,
)
from dpsql.sql.analysis import predicates
from dpsql.sql.analysis.postgres_reading import adapt_arguments, divide_whole, flag_pattern, is_unsure
from dpsql.sql.analysis.reader import Read, Reader
from dpsql.sql.coercion import (
    arithmetic,
    combine_integers,
    convert,
    convert_to_text,
    make_literal,
    negate,
    number,
    shift_date,
    unify_for_comparison,
    unify_types,
)
from dpsql.sql.ir.literals import Open, UnboundParameter, fill_unbound, truncate_to_date
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    NULL,
    TEXT,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Collate,
    Derived,
    Expression,
    Family,
    Literal,
    Scalar,
    Type,
    find_integer_type,
    find_longest,
    is_aggregate,
    strip_casts,
)
from dpsql.sql.ir.tree import decimal as decimal_type
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.aggregate_forms import DESCENDING, QUANTILE, STATED
from dpsql.sql.syntax.grammar import REFUSED, allow_only, is_unnest

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


LIKE_A_LITERAL = 2_500  # characters of a parameter, so that all of them fit into one message to the engine
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "IntDiv": "//", "Mod": "%"}
_CASTS = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": Type(Family.INTEGER, "TINYINT"),
    "SMALLINT": Type(Family.INTEGER, "SMALLINT"),
    "INT": Type(Family.INTEGER, "INTEGER"),
    "BIGINT": BIGINT,
    "UTINYINT": Type(Family.INTEGER, "UTINYINT"),
    "USMALLINT": Type(Family.INTEGER, "USMALLINT"),
    "UINT": Type(Family.INTEGER, "UINTEGER"),
    "DOUBLE": DOUBLE,
    "TEXT": TEXT,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
}
_INTERVAL = re.compile(r"(-?[0-9]{1,6}) ?(second|minute|hour|day|week|month|quarter|year)s?")
_PARTS = {"hour": "minute", "minute": "second"}
_SIZES = frozenset(map(str, range(39)))
_PLAIN_OPERANDS = frozenset(["Column", "Literal", "Paren", "Cast", "TryCast", "Anonymous"])
BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|"}
_PREFIXED = frozenset(["BitwiseNot", "Abs", "Neg"])
_BINARY = BITWISE.keys() | frozenset("Add Sub Mul Div IntDiv Mod DPipe".split())


def _literal(reader: Reader, node: Node) -> Expression:
    reader.count_literals(1)
    if not node.is_string:
        return number(node.this, reader.at(node))
    value = reader.statement.value(node.this)
    if value is None:
        hint = "Write it in single quotes."
        raise Refusal("syntax", "This text cannot be read.", hint=hint, place=reader.place(node))
    if value.kind == "parameter":
        given = make_literal(reader.bound[value], value.place)
        reader.literals += (given.longest or 0) // LIKE_A_LITERAL
        return given
    return Literal(value.content, TEXT, len(value.content))


def _null(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node)
    return Literal(None, NULL)


def _boolean(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this")
    return Literal(bool(node.this), BOOLEAN)


def _paren(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this")
    return reader.read(node.this)


def _negative(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this")
    argument = reader.read(node.this)
    if isinstance(argument, Open):
        argument.hole.otherwise = DOUBLE
        return argument
    if isinstance(argument, Literal) and argument.type.is_number:
        negative = negate(argument, reader.at(node))
        # -2147483648 is an INTEGER, although 2147483648 without its sign is a BIGINT.
        if type(node.this.unnest()).__name__ == "Literal" and isinstance(negative.value, int):
            return Literal(negative.value, find_integer_type(negative.value) or BIGINT)
        return negative
    if argument.type.is_number:
        return Call("neg", (argument,), argument.type)
    raise Refusal("type", "Minus takes a number.", hint="Cast it with CAST(x AS DOUBLE).", place=reader.place(node))


def _arithmetic(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression", "typed", "safe")
    operator = _ARITHMETIC[type(node).__name__]
    where = reader.at(node)
    left = reader.read(node.this)
    if type(node.expression).__name__ == "Interval":
        return shift_date(left, operator, interval=_interval(reader, node.expression), where=where)
    if type(node.expression).__name__ == "Mul" and type(node.expression.this).__name__ == "Interval":
        return _read_short_bucket(reader, node.expression, left=left, operator=operator)
    right = reader.read(node.expression)
    if operator == "/" and reader.statement.postgres:
        operator, left, right = divide_whole(left, right)
        if operator == "//" and is_unsure(reader.statement, (left, right)):
            hint = "Write CAST(x AS DOUBLE) / 2, or CAST(x AS BIGINT) / 2 for a whole number."
            reason = "This may be a whole number in dpsql and NUMERIC in PostgreSQL."
            raise Unsupported("type", reason, hint=hint, place=where)
    return arithmetic(left, operator, right=right, where=where)


def _read_short_bucket(reader: Reader, node: Node, *, left: Expression, operator: str) -> Expression:
    """Return time_bucket for what tools write in PostgreSQL, and refuse any other product with an INTERVAL.

    date_trunc('hour', ts) + INTERVAL '15 minutes' * FLOOR(EXTRACT(minute FROM ts) / 15) is time_bucket(INTERVAL '15
    minutes', ts), since 15 divides 60; so it is with a minute and its seconds.
    """
    allow_only(reader.statement, node, "this", "expression")
    width, steps = _interval(reader, node.this), reader.read(node.expression)
    number, unit = str(width.value).split()
    match left, steps:
        case (
            Call(function="date_trunc", arguments=(Literal(value="hour" | "minute" as whole), time)),
            Call(function="floor", arguments=(Call(function="/", arguments=(part, Literal(value=divisor))),)),
        ) if (operator, unit, time.type) == ("+", _PARTS[str(whole)], TIMESTAMP) and divisor == int(number) > 0:
            match strip_casts(part):
                case Call(function="date_part", arguments=(Literal(value=name), of)) if (name, of) == (unit, time):
                    if not 60 % int(number):  # so that the whole hour begins a bucket
                        return Call("time_bucket", (width, time), TIMESTAMP)
    hint = "Write time_bucket(INTERVAL '15 minutes', ts) for times rounded down to quarters of an hour."
    raise Unsupported("interval", "An INTERVAL is not multiplied.", hint=hint, place=reader.place(node))


def _interval(reader: Reader, node: Node) -> Literal:
    allow_only(reader.statement, node, "this", "unit")
    amount, unit = node.this, node.args.get("unit")
    while type(amount).__name__ == "Paren":
        amount = amount.this
    written, literal = "", str(amount.this) if type(amount).__name__ == "Literal" else ""
    value = reader.statement.value(literal)
    bound = None if value is None or value.kind == "string" else reader.bound[value]
    if value is None:
        written = literal if literal.isdigit() else ""
    elif value.kind == "string":
        written = value.content
    elif isinstance(bound, UnboundParameter):  # it counts units that follow it, or else names them itself
        some = Literal(1, BIGINT) if unit is not None else Literal("1 day", TEXT, len("1 day"))
        bound.fill(some.type, such_as=some)
        written = str(bound.literal().value)
    elif isinstance(bound, str):
        written = bound
    elif type(bound) is int and abs(bound) < 1 << 63:
        written = str(bound)
    spelled = f"{written.strip()} {unit.name}" if unit is not None else written.strip()
    found = _INTERVAL.fullmatch(spelled.lower())
    if not found:
        hint = "Write INTERVAL '7 days' or INTERVAL 7 DAY."
        raise Unsupported("interval", "This INTERVAL is not read.", hint=hint, place=reader.place(node))
    return Literal(f"{found[1]} {found[2]}", INTERVAL)


def _joined_text(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression", "safe")
    if {type(node.this).__name__, type(node.expression).__name__} & (_ARITHMETIC.keys() | BITWISE.keys()):
        raise _two_ways(reader, node, hint="Put the arithmetic in parentheses.")
    left, right = (fill_unbound(reader.operand(side), TEXT) for side in (node.this, node.expression))
    if NULL in {left.type, right.type}:
        hint = "Cast it with CAST(NULL AS VARCHAR)."
        raise Unsupported("type", "|| takes text.", hint=hint, place=reader.place(node))
    left, right = cap_length(convert_to_text(left)), cap_length(convert_to_text(right))
    return type_longer_text(
        "||", (left, right), longest=find_max_length(left) + find_max_length(right), place=reader.at(node)
    )


def _cast(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "to", "safe")
    wanted, argument = _read_cast_type(reader, node), reader.read(node.this)
    if isinstance(argument, Literal) and argument.type in {TEXT, NULL}:
        literal = convert(argument, wanted, place=reader.at(node))
        return Cast(literal, wanted) if wanted.is_number else literal  # its type was said: it gives way to none
    if isinstance(argument, Literal) and argument.type == TIMESTAMP and wanted == DATE and argument.value is not None:
        return truncate_to_date(argument)
    if wanted == TEXT and argument.type != TEXT:
        return convert_to_text(argument)
    return Cast(argument, wanted, argument.longest if wanted == TEXT else None)


def _read_cast_type(reader: Reader, node: Node) -> Type:
    target = node.args["to"]
    allow_only(reader.statement, target, "this", "expressions", "nested")
    kind = target.this.name if hasattr(target.this, "name") else str(target.this)
    sizes = list[int]()
    for size in target.expressions:
        allow_only(reader.statement, size, "this")
        allow_only(reader.statement, size.this, "this", "is_string")
        if type(size.this).__name__ == "Literal" and not size.this.is_string and str(size.this.this) in _SIZES:
            sizes.append(int(str(size.this.this)))
    if kind == "DECIMAL" and len(sizes) == len(target.expressions) <= 2:  # noqa: PLR2004 - width and scale
        width, scale = (*sizes, *(18, 3)[len(sizes) :]) if sizes else (18, 3)
        scale = 0 if len(sizes) == 1 else scale
        if 0 <= scale <= width and 1 <= width <= 18:  # noqa: PLR2004 - the widest that fits 64 bits
            return decimal_type(width, scale)
    elif kind in _CASTS and (not target.expressions or (kind == "TEXT" and len(sizes) == len(target.expressions) == 1)):
        return _CASTS[kind]
    hint = "Types are BOOLEAN, INTEGER, BIGINT, DOUBLE, DECIMAL(10, 2), VARCHAR, DATE, TIMESTAMP and smaller integers."
    raise Unsupported("type", "Casts to this type are not read.", hint=hint, place=reader.place(node))


def _case(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "ifs", "default")
    subject = None if node.this is None else reader.read(node.this)
    conditions, results = [], []
    for branch in node.args["ifs"]:
        allow_only(reader.statement, branch, "this", "true")
        if subject is None:
            conditions.append(reader.condition(branch.this))
        else:
            reader.copy(subject, node)
            sides = unify_for_comparison((subject, reader.operand(branch.this)), reader.at(branch))
            conditions.append(Call("=", sides, BOOLEAN))
        results.append(reader.read(branch.args["true"]))
    if node.args.get("default") is not None:
        results.append(reader.read(node.args["default"]))
    results = list(unify_types(results, reader.at(node)))
    if results[0].type == NULL:
        reason = "A CASE needs at least one result with a type."
        hint = "Cast one of them, such as CAST(NULL AS VARCHAR)."
        raise Refusal("type", reason, hint=hint, place=reader.place(node))
    default = results[len(conditions)] if len(results) > len(conditions) else None
    return Case(tuple(zip(conditions, results, strict=False)), default, results[0].type, find_longest(results))


def _function(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expressions")
    name = str(node.this).removeprefix(FUNCTION_PREFIX)
    if is_unnest(node):
        reason, hint = "unnest has no place here.", "Write FROM t, unnest([a, b]) AS x(item), and use x.item."
        raise Unsupported("unnest", reason, hint=hint, place=reader.place(node))
    if node.this == STATED:
        reason = "Bounds are stated of the measures that a private query releases, and of nothing inside it."
        raise Refusal("option", reason, hint="Leave them out here.", place=reader.place(node))
    if node.this in {QUANTILE, DESCENDING}:
        reason = "Quantiles are released by a private query, and computed nowhere inside it."
        hint = "Write it in the select list of the query that ends in PRIVATE."
        raise Refusal("not-row-local", reason, hint=hint, place=reader.place(node))
    if name in REFUSED:
        reason = "This function has no place here."
        hint = "Aggregates stand in the select list, HAVING and ORDER BY, none in another; windows in subqueries alone."
        raise Unsupported("function", reason, hint=hint, place=reader.place(node))
    if name in INTERVAL_ENDS:
        reason = f"{name} stands in the select list of a private query, HAVING and ORDER BY."
        hint = "Write COUNT(DISTINCT user_id) AS n, value_low(n) AS n_low, and use the alias."
        raise Unsupported("function", reason, hint=hint, place=reader.place(node))
    if name not in FUNCTIONS:  # `settle` of `syntax/grammar.py` has refused every other word before
        raise refuse_unknown(name, reader.place(node))
    arguments = tuple(
        _interval(reader, argument)
        if name in TAKES_INTERVAL and type(argument).__name__ == "Interval"
        else reader.read(argument)
        for argument in node.expressions
    )
    if reader.statement.postgres:
        arguments = adapt_arguments(name, arguments)
    if name == "nullif" and arguments:
        reader.copy(arguments[0], node)
    return call(name, arguments, place=reader.at(node), accepts_pattern=reader.accepts_pattern, now=reader.now)


def _scalar(reader: Reader, node: Node) -> Expression:
    """Return (SELECT ...) of public tables: one value, the same for every row."""
    allow_only(reader.statement, node, "this")
    with reader.correlating(correlates=False):
        inside = reader.subquery(node.this)
    if inside.table.private_table is not None:
        hint = "Compute it for each privacy unit in a subquery of FROM, and join that on the unit."
        reason = "A subquery in place of a value may not read a private table."
        raise Refusal("subquery-private", reason, hint=hint, place=reader.place(node))
    source, inner = inside.source, inside.source.body.source
    # one that aggregates all rows as one group, and leaves none out, has one row for certain
    is_one_row = isinstance(inner, Derived) and not inner.grouping and all(map(is_aggregate, inner.outputs))
    if len(source.outputs) != 1 or not is_one_row or source.body.where is not None:
        hint = "Such as (SELECT max(low) FROM prices), without GROUP BY; for several rows write x IN (SELECT ...)."
        reason = "A subquery in place of a value must select one aggregate, and nothing else."
        raise Unsupported("subquery", reason, hint=hint, place=reader.place(node))
    return reader.computed(Scalar(source, source.outputs[0].type, source.outputs[0].longest), node)


def _regexp_like(reader: Reader, node: Node) -> Expression:
    """Return x ~ pattern, PostgreSQL's operator for a search; other operators beside it would be read in two ways.

    In a statement of the PostgreSQL port it may be ~* too, and finds what it finds there.
    """
    allow_only(reader.statement, node, "this", "expression")
    sides = node.this, node.expression
    if any(type(side).__name__ not in _PLAIN_OPERANDS for side in sides):
        raise _two_ways(reader, node, hint="Put parentheses around what is on the left and on the right of ~.")
    arguments = tuple(map(reader.read, sides))
    flags = "i" if type(node).__name__ == "RegexpILike" else ""
    if reader.statement.postgres and isinstance(arguments[1], Literal):
        flags += flag_pattern(str(arguments[1].value))
    if flags:
        arguments = (*arguments, Literal(flags, TEXT, len(flags)))
    accepts, now = reader.accepts_pattern, reader.now
    return call("regexp_matches", arguments, place=reader.at(node), accepts_pattern=accepts, now=now)


def _extract(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression")
    argument = reader.read(node.expression)
    if type(node.this).__name__ != "Var" or argument.type.family not in {Family.DATE, Family.TIMESTAMP}:
        reason, hint = "EXTRACT takes a part FROM a date or time stamp.", "Write EXTRACT(hour FROM ts)."
        raise Refusal("type", reason, hint=hint, place=reader.place(node))
    return date_part(node.this.name.lower(), argument, place=reader.at(node))


def _collate(reader: Reader, node: Node) -> Expression:
    """Return a key compared by its bytes, which every key is; elsewhere two collations could meet, and DuckDB fails."""
    allow_only(reader.statement, node, "this", "expression")
    named, holder = node.expression, node.parent
    name = ascii_lower(named.name) if type(named).__name__ in {"Identifier", "Var"} else ""
    block = node.parent_select
    is_key = type(holder).__name__ in {"Select", "Alias", "Group"} and block is not None and block.parent is None
    if name not in {"c", "posix"} or type(node.this).__name__ not in {"Column", "Paren", "Anonymous"} or not is_key:
        hint = 'Write COLLATE "C" after a key, or lower() or upper() to fold case.'
        raise Unsupported("collation", "This COLLATE is not read.", hint=hint, place=reader.place(node))
    argument = reader.read(node.this)
    if argument.type != TEXT:
        raise Refusal("type", "COLLATE takes text.", hint="Cast it to VARCHAR.", place=reader.place(node))
    return Collate(argument, TEXT, argument.longest)


def _bitwise(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression")
    if "DPipe" in {type(node.this).__name__, type(node.expression).__name__}:
        raise _two_ways(reader, node)
    left, right = _whole(reader, node.this), _whole(reader, node.expression)
    return combine_integers(left, BITWISE[type(node).__name__], right=right, where=reader.at(node))


def _prefix_sign(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this")
    # DuckDB reads some operators around ~ and @ otherwise. One that follows the operand is inside. One before ~ comes
    # last, so that a - b * ~c is (a - b) * ~c, and so two before it are refused. Before @ there is none, nor ~.
    below: object = node
    above: Any = node.parent
    most, before = (1, _BINARY) if type(node).__name__ == "BitwiseNot" else (0, _BINARY | {"BitwiseNot"})
    while type(above).__name__ in _PREFIXED | _BINARY:
        most -= type(above).__name__ in before
        if most < 0 or (type(above).__name__ in _BINARY and above.this is below):
            raise _two_ways(reader, node)
        below, above = above, above.parent
    if type(node).__name__ == "BitwiseNot":
        argument = _whole(reader, node.this)
        return Call("~", (argument,), argument.type)
    argument = fill_unbound(reader.read(node.this), DOUBLE)
    if argument.type.is_number:
        return Call("abs", (argument,), argument.type)
    raise Refusal("type", "@ takes a number.", hint="Cast it with CAST(x AS DOUBLE).", place=reader.place(node))


def _whole(reader: Reader, node: Node) -> Expression:
    """Return an operand, which must be a whole number."""
    argument = fill_unbound(reader.read(node), BIGINT)
    if argument.type.family is Family.INTEGER:
        return argument
    hint = "Cast it with CAST(x AS BIGINT)."
    raise Refusal("type", "~, & and | take whole numbers.", hint=hint, place=reader.place(node))


def _two_ways(reader: Reader, node: Node, *, hint: str = "Put one of them in parentheses.") -> Refusal:
    return Refusal("precedence", "These operators can be read in two ways.", hint=hint, place=reader.place(node))


READERS: Mapping[str, Read] = {
    "Collate": _collate,
    "Column": Reader.read_name,
    "Literal": _literal,
    "Null": _null,
    "Boolean": _boolean,
    "Paren": _paren,
    "Subquery": _scalar,
    **predicates.READERS,
    **dict.fromkeys(BITWISE, _bitwise),
    **dict.fromkeys(["BitwiseNot", "Abs"], _prefix_sign),
    "Neg": _negative,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    "DPipe": _joined_text,
    **dict.fromkeys(["Cast", "TryCast"], _cast),
    "Case": _case,
    "Anonymous": _function,
    "Extract": _extract,
    **dict.fromkeys(["RegexpLike", "RegexpILike"], _regexp_like),
}
