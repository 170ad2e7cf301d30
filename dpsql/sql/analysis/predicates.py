"""Predicates: comparisons, AND, OR, NOT, IS, IN, BETWEEN and LIKE; IN (SELECT ...) and EXISTS (SELECT ...).

sqlglot and DuckDB give some of them different precedence, so that one may hold another only in parentheses.

From `_in_query` on, the last two of them, which are conditions on the existence of a row. Over public tables every
condition is allowed, also on the outer row. Over private tables the condition may depend only on rows of the unit of
the outer row: a tie at the top of the subquery's WHERE ensures this, or the unit itself is looked up among units. The
lookup must reveal only whether the unit exists: NULL among the units, which makes IN uncertain for every row in SQL, is
excluded, and for a row without a unit the result is always NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.postgres_reading import BACKSLASH, escape_by_backslash
from dpsql.sql.analysis.reader import Inside, Read, Reader
from dpsql.sql.coercion import MAX_PARAMETER_BYTES, make_literal, parse_text_array, unify_for_comparison
from dpsql.sql.ir.literals import UnboundParameter, fill_unbound
from dpsql.sql.ir.scope import ScopeTable, add_ties, compare_by_bytes, find_unit, link_units
from dpsql.sql.ir.tree import (
    BOOLEAN,
    NULL,
    TEXT,
    Call,
    Case,
    Collate,
    ColumnRef,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Literal,
)
from dpsql.sql.lexer import FUNCTION_PREFIX
from dpsql.sql.syntax.forms import ALL_ITEMS, ALL_OF, ANY_ITEMS, ANY_OF
from dpsql.sql.syntax.grammar import allow_only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


_ESCAPES = frozenset("!#$&*+-./:;<=>?@[\\]^`{|}~")  # one byte, and no letter: ILIKE folds the pattern, not the escape
_SOME_ESCAPE = Literal("!", TEXT, 1)
_ANY = FUNCTION_PREFIX + ANY_OF
_QUANTIFIERS = frozenset([_ANY, FUNCTION_PREFIX + ALL_OF])
_ANY_LISTS = frozenset([_ANY, FUNCTION_PREFIX + ANY_ITEMS])
_LISTS = _QUANTIFIERS | _ANY_LISTS | {FUNCTION_PREFIX + ALL_ITEMS}
_ARRAY_HINT = "Write an array of one dimension as ARRAY['a', 'b'] or '{a,b}', or bind a list."
_COMPARISONS = {
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "is_not_distinct",
    "NullSafeNEQ": "is_distinct",
}
_HINT = (
    "Look the privacy unit up, unit IN (SELECT unit FROM t), or tie the subquery in WHERE: EXISTS (SELECT 1 FROM t "
    "WHERE t.unit = r.unit AND ...)."
)


def _logic(reader: Reader, node: Node) -> Expression:
    """AND and OR, flattened, so that a long chain is no deep one."""
    kind, parts, rest = type(node), [], [node]
    while rest:
        part = rest.pop()
        if type(part) is kind:
            allow_only(reader.statement, part, "this", "expression")
            rest += [part.expression, part.this]
        else:
            parts.append(reader.condition(part))
    if kind.__name__ == "And" or reader.negated:
        reader.conjoin(len(parts), node)
    return Call(kind.__name__.lower(), tuple(parts), BOOLEAN)


def _not(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this")
    with reader.negating():
        return Call("not", (reader.condition(node.this),), BOOLEAN)


def _comparison(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression")
    call = node.expression
    if type(call).__name__ == "Anonymous" and call.name in _QUANTIFIERS:
        # x = ANY (array) or x <> ALL (array), whose array is a text or a parameter
        allow_only(reader.statement, call, "this", "expressions")
        argument, items = reader.operand(node.this), _read_items(reader, call.expressions[0])
        found: Expression = Literal(False, BOOLEAN)  # noqa: FBT003 - the value; without items none is equal
        if items:
            argument, *choices = unify_for_comparison((argument, *items), reader.at(node))
            found = In(argument, tuple(choices))
        return found if call.name == _ANY else Call("not", (found,), BOOLEAN)
    sides = reader.operand(node.this), reader.operand(node.expression)
    return Call(_COMPARISONS[type(node).__name__], unify_for_comparison(sides, reader.at(node)), BOOLEAN)


def _read_items(reader: Reader, node: Node) -> list[Literal]:
    """Return the items of an array in a text or in a value that is bound."""
    value = reader.statement.value(node.this)
    given = None if value is None else reader.bound[value] if value.kind == "parameter" else value.content
    if value is None:
        raise Refusal("syntax", "This array cannot be read.", hint=_ARRAY_HINT, place=reader.place(node))
    if isinstance(given, UnboundParameter):
        given.is_array = True
        return [given.literal()]
    if given is None:  # nothing is known to be equal to an item of it, or not
        return [Literal(None, NULL)]
    items = read_array(given, value.place)
    reader.count_literals(len(items))
    return [make_literal(item, value.place) for item in items]


def read_array(value: object, place: Place) -> Sequence[object]:
    """Return the items of an array, which may be in PostgreSQL's text format; raise `Refusal` for any other value."""
    items = parse_text_array(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise Refusal("literal", "This value does not read as an array.", hint=_ARRAY_HINT, place=place)
    return items


def _is(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "expression")
    against = type(node.expression).__name__
    if against == "Null":
        return Call("is_null", (reader.operand(node.this),), BOOLEAN)
    if against != "Boolean":
        reason = "IS takes NULL, TRUE, FALSE or DISTINCT FROM."
        hint = "Write = or IS NOT DISTINCT FROM for other values."
        raise Unsupported("construct", reason, hint=hint, place=reader.place(node))
    value = fill_unbound(reader.operand(node.this), BOOLEAN)
    if value.type not in {BOOLEAN, NULL}:
        hint = "Write a comparison in parentheses."
        raise Refusal("type", "IS TRUE takes a BOOLEAN.", hint=hint, place=reader.place(node))
    return Call("is_true" if node.expression.this else "is_false", (value,), BOOLEAN)


def _in(reader: Reader, node: Node) -> Expression:
    if node.args.get("query") is not None:
        return _in_query(reader, node)
    allow_only(reader.statement, node, "this", "expressions")
    parts = (reader.operand(node.this), *(reader.operand(choice) for choice in node.expressions))
    argument, *choices = unify_for_comparison(parts, reader.at(node))
    if len(choices) == 1 and isinstance(choices[0], InQuery | Exists):  # DuckDB takes it for argument IN (SELECT ...)
        hint = "Write = and the condition in parentheses."
        raise Refusal("precedence", "This IN can be read in two ways.", hint=hint, place=reader.place(node))
    return In(argument, tuple(choices))


def _between(reader: Reader, node: Node) -> Expression:
    allow_only(reader.statement, node, "this", "low", "high")
    parts = [reader.operand(node.args[name]) for name in ("this", "low", "high")]
    return Call("between", unify_for_comparison(parts, reader.at(node)), BOOLEAN)


def _like(reader: Reader, node: Node) -> Expression:
    """LIKE and ILIKE with a pattern that is written out, with or without ESCAPE."""
    escape: tuple[Literal, ...] = ()
    like = node
    if type(node).__name__ == "Escape":
        allow_only(reader.statement, node, "this", "expression")
        like, escape = node.this, (_quoted(reader, node.expression),)
    allow_only(reader.statement, like, "this", "expression", "negate")
    if type(like.expression).__name__ == "Anonymous" and like.expression.name in _LISTS and not escape:
        return _like_list(reader, like)
    subject, pattern = fill_unbound(reader.operand(like.this), TEXT), _pattern(reader, like.expression)
    return _match(reader, like, subject=subject, pattern=pattern, escape=escape)


def _like_list(reader: Reader, node: Node) -> Expression:
    """Return LIKE of any or all items of an array as conditions joined by OR or AND."""
    call, subject = node.expression, fill_unbound(reader.operand(node.this), TEXT)
    allow_only(reader.statement, call, "this", "expressions")
    if call.name in _QUANTIFIERS:
        items = [fill_unbound(item, TEXT) for item in _read_items(reader, call.expressions[0])]
        patterns = [item for item in items if isinstance(item, Literal) and isinstance(item.value, str)]
        if len(patterns) < len(items):
            raise _unquoted(reader, node)
    else:
        patterns = [_pattern(reader, each) for each in call.expressions]
    is_any = call.name in _ANY_LISTS
    if not patterns:
        return Literal(not is_any, BOOLEAN)
    for _ in patterns[1:]:
        reader.copy(subject, node)
    reader.conjoin(len(patterns), node)
    parts = tuple(_match(reader, node, subject=subject, pattern=each, escape=()) for each in patterns)
    return parts[0] if len(parts) == 1 else Call("or" if is_any else "and", parts, BOOLEAN)


def _match(
    reader: Reader, node: Node, *, subject: Expression, pattern: Literal, escape: tuple[Literal, ...]
) -> Expression:
    """Return LIKE or ILIKE, as the node says, of a pattern with or without an escape."""
    if subject.type.family is not Family.TEXT:
        raise Refusal("type", "LIKE takes text.", hint="Cast it to VARCHAR.", place=reader.place(node))
    if reader.statement.postgres:
        escape = escape_by_backslash(pattern, escape)
    sign = str(escape[0].value) if escape else ""
    # '10!%' ESCAPE '!' is well formed; '10!' is not, and DuckDB fails on it in the rows that match up to its end.
    well = rf"(?:[^{re.escape(sign)}]|{re.escape(sign)}.)*" if sign in _ESCAPES else None
    if escape and (well is None or re.fullmatch(well, str(pattern.value), re.DOTALL) is None):
        reason = "The escape must be one punctuation sign, and stand only before a character."
        hint = "For example LIKE '10!%' ESCAPE '!'."
        if escape[0] is BACKSLASH:
            hint = "Write two backslashes for one, or ESCAPE '' where a backslash is no escape."
        raise Refusal("pattern", reason, hint=hint, place=reader.place(node))
    name = "ilike" if type(node).__name__ == "ILike" else "like"
    if escape:  # a collation folds the pattern but not the escape, and DuckDB raises on rows where they then clash
        subject = Collate(subject, TEXT, subject.longest)
    found = Call(name, (subject, pattern, *escape), BOOLEAN)
    return Call("not", (found,), BOOLEAN) if node.args.get("negate") else found


def _pattern(reader: Reader, node: Node) -> Literal:
    """Return a pattern that is written out, whole or in parts between ||, such as '%' || ? || '%', or in UPPER."""
    texts = _texts(fill_unbound(reader.read(node), TEXT))
    if texts is None:
        raise _unquoted(reader, node)
    whole = "".join(texts)
    if len(whole.encode()) > MAX_PARAMETER_BYTES:
        reason = f"A pattern may have at most {MAX_PARAMETER_BYTES} bytes."
        raise Refusal("too-large", reason, hint="Look for a shorter text.", place=reader.place(node))
    return Literal(whole, TEXT, len(whole))


def _texts(expression: Expression) -> list[str] | None:
    """Return the quoted texts that || puts together, in another case if they are ASCII; None for anything else."""
    match expression:
        case Literal(value=str() as text) if expression.type == TEXT:
            return [text]
        case Call(function="||", arguments=(left, right)):
            before, after = _texts(left), _texts(right)
            return None if before is None or after is None else before + after
        case Call(function="upper" | "lower" as function, arguments=(argument,)):
            texts = _texts(argument)
            if texts is not None and "".join(texts).isascii():  # of other letters engines make different things
                return [text.upper() if function == "upper" else text.lower() for text in texts]
    return None


def _quoted(reader: Reader, node: Node) -> Literal:
    literal = fill_unbound(reader.read(node), TEXT, such_as=_SOME_ESCAPE)
    if isinstance(literal, Literal) and isinstance(literal.value, str) and literal.type == TEXT:
        return literal
    raise _unquoted(reader, node)


def _unquoted(reader: Reader, node: Node) -> Unsupported:
    reason, hint = "The pattern must be a quoted text.", "Write it in single quotes; parts of it may stand between ||."
    return Unsupported("pattern", reason, hint=hint, place=reader.place(node))


# Conditions on the existence of a row.


def _in_query(reader: Reader, node: Node) -> Expression:
    """Return x IN (SELECT ...)."""
    allow_only(reader.statement, node, "this", "query")
    allow_only(reader.statement, node.args["query"], "this")
    argument, inside = reader.operand(node.this), reader.subquery(node.args["query"].this)
    if len(inside.source.outputs) != 1:
        hint = "Select the one column to compare with."
        raise Refusal("subquery", "This subquery must have one column.", hint=hint, place=reader.place(node))
    if inside.table.private_table is not None and not inside.tied:
        tied = _tie_by_link(reader, inside, argument=argument)
        if tied is None:
            return _unit_among_units(reader, node, argument=argument, inside=inside)
        inside = replace(inside, source=tied)
    output = reader.computed(inside.source.outputs[0], node)
    left, right = unify_for_comparison((argument, output), reader.at(node))
    return InQuery(left, replace(inside.source, outputs=(right,)))


def _exists(reader: Reader, node: Node) -> Expression:
    """Return EXISTS (SELECT ...)."""
    allow_only(reader.statement, node, "this")
    inside = reader.subquery(node.this, has_list=False)
    if inside.table.private_table is None or inside.tied:
        return Exists(inside.source)
    tied = _tie_by_link(reader, inside)
    if tied is None:
        raise _untied(reader, node)
    return Exists(tied)


def _tie_by_link(reader: Reader, inside: Inside, *, argument: Expression | None = None) -> Derived | None:
    """Return the subquery over rows of the outer row's unit alone, where a key of a link looks them up; else None."""
    linked = inside.linked
    if argument is not None:
        # unit IN (SELECT unit ...) needs no tie: `_unit_among_units` looks the unit itself up.
        if find_unit(argument, (*reader.scope.units, *reader.scope.outer_units)) is not None:
            return None
        if not linked and inside.unit is not None and reader.correlates:
            (column,) = inside.table.columns
            rows = ScopeTable("", (column, inside.unit))
            outside = (*reader.scope.tables, *reader.scope.outer_tables)
            linked = tuple(link_units((argument, column.expression), outside, right=(rows,)))
    if not linked:
        return None
    body = inside.source.body
    return replace(inside.source, body=FromWhere(body.source, add_ties(body.where, linked)))


def _unit_among_units(reader: Reader, node: Node, *, argument: Expression, inside: Inside) -> Expression:
    """Return unit IN (SELECT unit ...), which is never NULL where the unit is there."""
    (output,) = inside.table.columns
    unit = find_unit(argument, (*reader.scope.units, *reader.scope.outer_units))
    if unit is None or not output.is_unit or unit.expression.type != output.expression.type:
        raise _untied(reader, node)
    # unit IN (SELECT u FROM t)   =>   unit IN (SELECT c1 FROM (SELECT u FROM t) WHERE c1 IS NOT NULL)
    source, (column,) = inside.source, inside.source.outputs
    found = ColumnRef(source.number, "c1", column.type, column.longest)
    there = Call("not", (Call("is_null", (found,), BOOLEAN),), BOOLEAN)
    among = InQuery(
        compare_by_bytes(unit.expression), Derived(source.number, (compare_by_bytes(found),), FromWhere(source, there))
    )
    # Without the CASE below, NULL IN (no unit at all) would be FALSE, which says that the subquery is empty.
    if not unit.absent:  # where it is NULL the row has no unit
        return among
    return Case(((Call("is_null", (unit.expression,), BOOLEAN), Literal(None, BOOLEAN)),), among, BOOLEAN)


def _untied(reader: Reader, node: Node) -> Refusal:
    reason = "This subquery reads rows of other privacy units than the row's own."
    return Refusal("subquery-private", reason, hint=_HINT, place=reader.place(node))


READERS: Mapping[str, Read] = {
    "And": _logic,
    "Or": _logic,
    "Not": _not,
    **dict.fromkeys(_COMPARISONS, _comparison),
    "Is": _is,
    "In": _in,
    "Exists": _exists,
    "Between": _between,
    **dict.fromkeys(["Like", "ILike", "Escape"], _like),
}
