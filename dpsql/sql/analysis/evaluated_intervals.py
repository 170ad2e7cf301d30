"""value_low and value_high in the SELECT around a private query: columns that the released table then has besides.

    SELECT x.a, value_low(x.n) FROM (FROM released) AS x     SELECT x.a, x."low of n" FROM "released with ends" AS x

The argument is a released measure of a private query that FROM of the same SELECT reads as it is. Stars leave the
columns out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from dpsql.errors import Place, Refusal
from dpsql.sql.functions.allow_list import INTERVAL_ENDS
from dpsql.sql.ir.statements import IntervalEnd, Output, PrivateQuery
from dpsql.sql.lexer import ascii_lower

__all__ = ["add_interval_ends"]

Tree = dict[str, object]
_LEVEL = 0.95
_HIDDEN = " in its interval"  # ends the names of these columns


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
    calls = [call for part, value in node.items() if part not in {"from_table", "cte_map"} for call in _calls(value)]
    sources = list(_list_sources(node, "from_table", find_released=find_released)) if calls else []
    used = list[_Source]()
    for call in calls:
        source, at = _find_measure(call, sources, inners=found, place=place)
        output, is_high = found[source.inner].outputs[at], ascii_lower(str(call["function_name"])) == "value_high"
        hidden = f"{'high' if is_high else 'low'} of {output.name}{_HIDDEN}"
        ends = found[source.inner].outputs
        if hidden not in [each.name for each in ends]:
            level = next((each.end.level for each in ends if each.end is not None), _LEVEL)
            end = replace(output, name=hidden, end=IntervalEnd(is_high, level))
            inner = replace(found[source.inner], outputs=(*ends, end))
            found = (*found[: source.inner], inner, *found[source.inner + 1 :])
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
