"""value_low and value_high in the SELECT around a private query: columns that the released table then has besides.

    SELECT x.a, value_low(x.n) FROM (FROM released) AS x     SELECT x.a, x."low of n" FROM "released with ends" AS x

The argument is a released measure of a private query that FROM of the same SELECT reads as it is. Stars leave the
columns out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import cast

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.evaluated_meetings import is_product, list_arguments, unwrap, write_call
from dpsql.sql.analysis.meeting_outputs import counts_all_rows, is_share
from dpsql.sql.functions.allow_list import INTERVAL_ENDS
from dpsql.sql.ir.statements import IntervalEnd, Output, PrivateQuery
from dpsql.sql.lexer import ascii_lower

__all__ = ["add_interval_ends", "add_ratio_ends"]

Tree = dict[str, object]
_LEVEL = 0.95
_HIDDEN = " in its interval"  # ends the names of these columns
_ADDED = "added_level"  # a key of calls that no one wrote: the level of their interval


@dataclass(frozen=True, slots=True)
class _Source:
    """A private query, by number from 0, that FROM reads under a name: `slot[key]` is the relation in the tree."""

    name: str
    inner: int
    slot: Tree
    key: str


def add_interval_ends(
    node: Tree,
    inners: Sequence[PrivateQuery],
    *,
    find_released: Callable[[Tree], int | None],
    path: Callable[[int], tuple[str, str, str]],
    place: Place | None,
) -> tuple[PrivateQuery, ...]:
    """Replace the calls in one SELECT of a syntax tree, not in those inside of it; return the queries with their ends.

    `find_released` returns the number, from 0, of the private query whose answer a relation is, and `path` where the
    evaluator has the answer of one with its ends. Raises `Refusal` for an argument that is no such measure.
    """
    found = tuple(inners)
    levels = [_find_level(inner) for inner in inners]
    calls = [call for part, value in node.items() if part not in {"from_table", "cte_map"} for call in _calls(value)]
    sources = list(_list_sources(node, "from_table", find_released=find_released)) if calls else []
    used = list[_Source]()
    for call in calls:
        quotient = _find_quotient(node, call, sources=sources, inners=found)
        if quotient is not None:
            level = cast("float", call.get(_ADDED, levels[quotient.source.inner]))
            found = _write_quotient_end(call, quotient, inners=found, level=level)
            used.append(quotient.source)
            continue
        source, at = _find_measure(call, sources, inners=found, place=place)
        output, is_high = found[source.inner].outputs[at], ascii_lower(str(call["function_name"])) == "value_high"
        hidden = f"{'high' if is_high else 'low'} of {output.name}{_HIDDEN}"
        end = IntervalEnd(is_high, levels[source.inner])
        found = _add_end(found, source.inner, end=replace(output, name=hidden, end=end))
        alias = call["alias"] or f"{ascii_lower(str(call['function_name']))}({output.name})"
        place_of_call = [call.get("query_location"), call.get("query_location_length")]
        call.clear()
        call.update(
            {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": alias, "column_names": [source.name, hidden]}
        )
        call.update(query_location=place_of_call[0], query_location_length=place_of_call[1])
        used.append(source)
    for source in {each.name: each for each in used}.values():
        _read_with_ends(node, source, names=[each.name for each in found[source.inner].outputs], path=path)
    return found


def add_ratio_ends(
    node: Tree, inners: Sequence[PrivateQuery], *, find_released: Callable[[Tree], int | None]
) -> tuple[int, ...]:
    """Add the ends of the 95 % intervals of the ratios that a query shows, for tables that people read.

    Returns the columns of these ratios, counted from the right, from -1, where a star is before them. Two columns for
    each, its low and its high end, are behind all others; `add_interval_ends` then writes what they are. Of a SELECT
    that makes groups of its rows, or is one side of a set operation, none are added.
    """
    modifiers = cast("list[Tree]", node.get("modifiers") or [])
    terms = [term for each in modifiers for term in cast("list[Tree]", each.get("orders") or [])]
    is_plain = node.get("type") == "SELECT_NODE" and not (node.get("group_expressions") or node.get("having"))
    if not is_plain or any(each["type"] == "DISTINCT_MODIFIER" for each in modifiers):
        return ()
    if any(cast("Tree", term["expression"]).get("class") == "STAR" for term in terms):  # ORDER BY ALL
        return ()
    items = cast("list[Tree]", node["select_list"])
    bare = [(at, _strip_rounding(item)) for at, item in enumerate(items)]
    quotients = [(at, item) for at, item in bare if item.get("function_name") == "/"]
    stars = [at for at, item in enumerate(items) if item.get("type") == "STAR"]
    sources = list(_list_sources(node, "from_table", find_released=find_released)) if quotients else []
    found, added = list[int](), list[Tree]()
    for at, item in quotients:
        ends = [{**write_call(item, name, _copy(item)), _ADDED: _LEVEL} for name in ("value_low", "value_high")]
        quotient = _find_quotient(node, ends[0], sources=sources, inners=inners)
        is_known = not stars or at < stars[0] or at > stars[-1]
        if quotient is None or not is_known or _is_monotone(inners[quotient.source.inner]):
            continue
        found.append(at if not stars or at < stars[0] else at - len(items))
        added += [_try(item, end) for end in ends]
    items += added
    return tuple(found)


def _strip_rounding(node: Tree) -> Tree:
    """Return an expression without ROUND and casts around it: the interval is that of the exact value."""
    while True:
        arguments = [unwrap(each) for each in list_arguments(node)]
        if node.get("class") == "CAST":
            node = cast("Tree", node["child"])
        elif node.get("function_name") == "round" and all(each.get("class") == "CONSTANT" for each in arguments[1:]):
            node = arguments[0]
        else:
            return node


def _copy(item: Tree) -> Tree:
    return {**deepcopy(item), "alias": ""}


def _try(like: Tree, call: Tree) -> Tree:
    """Return an expression that is NULL where a call fails: an end is no reason for an answer to fail."""
    place = {part: value for part, value in like.items() if part.startswith("query_location")}
    return {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": "", **place, "children": [call]}


def _is_monotone(inner: PrivateQuery) -> bool:
    option = inner.clause.options.get("monotone")
    return option is not None and option.value == "true"


@dataclass(frozen=True, slots=True)
class _Quotient:
    """A quotient of two measures of one private query: its node, and the positions of their outputs."""

    source: _Source
    node: Tree
    part: int
    whole: int


def _find_level(inner: PrivateQuery) -> float:
    """Return the level of the intervals of a query."""
    shown = (each.end.level for each in inner.outputs if each.end is not None and not each.name.endswith(_HIDDEN))
    return next(shown, _LEVEL)


def _add_end(inners: tuple[PrivateQuery, ...], at: int, *, end: Output) -> tuple[PrivateQuery, ...]:
    """Return the private queries, number `at` with one more column."""
    if end.name in [each.name for each in inners[at].outputs]:
        return inners
    inner = replace(inners[at], outputs=(*inners[at].outputs, end))
    return (*inners[:at], inner, *inners[at + 1 :])


def _find_quotient(
    node: Tree, call: Tree, *, sources: Sequence[_Source], inners: Sequence[PrivateQuery]
) -> _Quotient | None:
    """Return the quotient of two measures that a call is about, itself or by the name of an item; None for another."""
    arguments = list_arguments(call)
    expression = unwrap(arguments[0]) if len(arguments) == 1 else {}
    if expression.get("class") == "COLUMN_REF" and not _list_measures(expression, sources, inners=inners):
        name = ascii_lower(cast("list[str]", expression["column_names"])[-1])
        items = cast("list[Tree]", node.get("select_list") or [])
        expression = next((each for each in items if ascii_lower(str(each.get("alias") or "")) == name), {})
    if expression.get("function_name") != "/":
        return None
    sides = [unwrap(each) for each in list_arguments(expression)]
    found = [_list_measures(each, sources, inners=inners) for each in sides]
    if [len(each) for each in found] != [1, 1] or not is_product(sides[0]) or not _is_column(sides[1]):
        return None
    (source, part), (other, whole) = found[0][0], found[1][0]
    return _Quotient(source, expression, part, whole) if source is other else None


def _is_column(node: Tree) -> bool:
    """Say whether an expression is a column, perhaps within casts and NULLIF with a constant."""
    if node.get("class") == "CAST":
        return _is_column(cast("Tree", node["child"]))
    if node.get("function_name") == "nullif":
        first, *others = (unwrap(each) for each in list_arguments(node))
        return _is_column(first) and all(each.get("class") == "CONSTANT" for each in others)
    return node.get("class") == "COLUMN_REF"


def _is_negative(node: Tree) -> bool:
    """Say whether the constants of a product are below 0 together."""
    if node.get("class") == "CONSTANT":
        literal = cast("Tree", node.get("literal") or node.get("value") or {})
        return str(literal.get("text", literal.get("value", ""))).startswith("-")
    parts = [node["child"]] if node.get("class") == "CAST" else list_arguments(node)
    return sum(_is_negative(unwrap(each)) for each in parts) % 2 == 1


def _list_measures(
    value: object, sources: Sequence[_Source], *, inners: Sequence[PrivateQuery]
) -> list[tuple[_Source, int]]:
    """Return the released measures that are columns in an expression."""
    if isinstance(value, list):
        return [found for each in value for found in _list_measures(each, sources, inners=inners)]
    if not isinstance(value, dict):
        return []
    if value.get("class") != "COLUMN_REF":
        return _list_measures(list(value.values()), sources, inners=inners)
    names = [ascii_lower(name) for name in cast("list[str]", value["column_names"])]
    return [
        (source, at)
        for source in sources
        for at, output in enumerate(inners[source.inner].outputs)
        if ascii_lower(output.name) == names[-1] and names[-2:-1] in ([], [ascii_lower(source.name)])
        if output.key is None and output.end is None and output.divisor is None
    ]


def _write_quotient_end(
    call: Tree, quotient: _Quotient, *, inners: tuple[PrivateQuery, ...], level: float
) -> tuple[PrivateQuery, ...]:
    """Write the end of the interval of a quotient in place of a call; return the queries with the columns it reads.

    Each measure leaves its interval with half of the probability that the level leaves, as with an average. An end is
    NULL where the divisor may be 0, unless it counts every row of the others: then it is at least 1 where the quotient
    exists.
    """
    is_high, at = ascii_lower(str(call["function_name"])) == "value_high", quotient.source.inner
    like, names = quotient.node, dict[tuple[int, bool], Tree]()
    part_side = is_high is not _is_negative(unwrap(list_arguments(like)[0]))
    for output_at, side in ((quotient.part, part_side), (quotient.whole, False), (quotient.whole, True)):
        output = inners[at].outputs[output_at]
        hidden = f"{'high' if side else 'low'} of {output.name} at {level}{_HIDDEN}"
        inners = _add_end(inners, at, end=replace(output, name=hidden, end=IntervalEnd(side, (1.0 + level) / 2.0)))
        names[output_at, side] = {
            "class": "COLUMN_REF",
            "type": "COLUMN_REF",
            "alias": "",
            "column_names": [quotient.source.name, hidden],
        }
    zero, one = (
        cast(
            "Tree",
            {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": {"kind": "INTEGER", "text": text}},
        )
        for text in ("0", "1")
    )
    least, most = names[quotient.whole, False], names[quotient.whole, True]
    if counts_all_rows(inners[at], quotient.whole):
        wholes = [write_call(like, "greatest", each, one) for each in (least, most)]
    else:
        above = write_call(like, "nullif", write_call(like, "greatest", least, zero), zero)
        wholes = [above, write_call(like, "add", most, write_call(like, "multiply", above, zero))]
    part, ends = names[quotient.part, part_side], list[Tree]()
    for whole in wholes:
        clipped = part
        if is_share(inners[at], quotient.part, of=quotient.whole):
            clipped = write_call(like, "least", write_call(like, "greatest", part, zero), whole)
        ends.append(_divide(like, clipped, whole=whole))
    alias = call["alias"] or f"{ascii_lower(str(call['function_name']))}({like.get('alias') or 'ratio'})"
    found = write_call(like, "greatest" if is_high else "least", *ends)
    call.clear()
    call.update({**found, "alias": alias})
    return inners


def _divide(like: Tree, part: Tree, *, whole: Tree) -> Tree:
    """Return the quotient with other numbers in place of its measures, one on each side."""
    return {**write_call(like, "/", _put(unwrap(list_arguments(like)[0]), part), whole), "is_operator": True}


def _put(value: Tree, column: Tree) -> Tree:
    """Return a product with another column."""
    if value.get("class") == "COLUMN_REF":
        return column
    if value.get("class") == "CAST":
        return {**value, "child": _put(cast("Tree", value["child"]), column)}
    if value.get("class") != "FUNCTION":
        return value
    return {
        **value,
        "arguments": [
            {**cast("Tree", each), "expression": _put(unwrap(each), column)} for each in list_arguments(value)
        ],
    }


def _calls(value: object) -> Iterator[Tree]:
    """Yield the calls in an expression, but for those in its subqueries."""
    pending = [value]
    while pending:
        each = pending.pop()
        below = list(each) if isinstance(each, list) else []
        if isinstance(each, dict):
            if each.get("type") == "FUNCTION" and ascii_lower(str(each["function_name"])) in INTERVAL_ENDS:
                yield each
            elif not str(each.get("type", "")).endswith("_NODE"):
                below = list(each.values())
        pending += reversed(below)


def _list_sources(slot: Tree, key: str, *, find_released: Callable[[Tree], int | None]) -> Iterator[_Source]:
    """Yield the private queries that FROM reads as they are, each with the name that it has there."""
    relation = cast("Tree", slot[key])
    if relation.get("type") == "JOIN":
        yield from _list_sources(relation, "left", find_released=find_released)
        yield from _list_sources(relation, "right", find_released=find_released)
        return
    inner = find_released(relation)
    if inner is not None:
        yield _Source(str(relation["alias"] or relation.get("table_name") or "released"), inner, slot, key)


def _find_measure(
    call: Tree, sources: Sequence[_Source], *, inners: Sequence[PrivateQuery], place: Place | None
) -> tuple[_Source, int]:
    """Return the source, and the number of its output, that a call is about."""
    arguments = cast("list[Tree]", call["arguments"])
    expression = cast("Tree", arguments[0]["expression"]) if len(arguments) == 1 else {}
    names = [ascii_lower(name) for name in cast("list[str]", expression.get("column_names", []))]
    found = [
        (source, at)
        for source in sources
        for at, output in enumerate(inners[source.inner].outputs)
        if names and ascii_lower(output.name) == names[-1] and names[-2:-1] in ([], [ascii_lower(source.name)])
        if output.key is None and output.end is None
    ]
    if len(found) == 1:
        return found[0]
    function = ascii_lower(str(call["function_name"]))
    measures = [output.name for source in sources for output in inners[source.inner].outputs if _is_value(output)]
    hint = (
        f"Write {function}({measures[0]}), or write it in the private query."
        if measures
        else (f"Write {function} in the select list of the private query.")
    )
    reason = f"{function} takes one released measure of a private query that FROM reads as it is."
    raise Refusal("interval-end", reason, hint=hint, place=place)


def _is_value(output: Output) -> bool:
    return output.key is None and output.end is None


def _read_with_ends(
    node: Tree, source: _Source, *, names: Sequence[str], path: Callable[[int], tuple[str, str, str]]
) -> None:
    """Let FROM read the answer with its ends, and the stars of the SELECT leave them out."""
    catalog, schema, table = path(source.inner)
    source.slot[source.key] = {
        "type": "BASE_TABLE",
        "alias": source.name,
        "sample": None,
        "schema_name": schema,
        "table_name": table,
        "column_name_alias": [],
        "catalog_name": catalog,
        "at_clause": None,
        "qualified_name": {"path": [catalog, schema, table]},
    }
    hidden = [name for name in names if name.endswith(_HIDDEN)]
    for item in cast("list[Tree]", node["select_list"]):
        if item.get("type") == "STAR" and str(item.get("relation_name") or source.name) == source.name:
            item["exclude_list"] = [*cast("list[str]", item.get("exclude_list") or []), *hidden]
