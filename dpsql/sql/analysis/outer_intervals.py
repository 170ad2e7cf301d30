"""What the SELECT around private queries computes with noise: ends of intervals, and shares that are clipped.

This file has two parts: (1) value_low and value_high, as columns that the released table then has besides:

    SELECT x.a, value_low(x.n) FROM (FROM released) AS x     SELECT x.a, x."low of n" FROM "released with ends" AS x

The argument is a released measure of a private query that FROM of the same SELECT reads as it is. Stars leave the
columns out. (2) From `clip_shares` on, counts of a part of the rows that another count divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import cast

from dpsql.errors import Place, Refusal
from dpsql.sql.allow_list import HIGH_ENDS, INTERVAL_ENDS
from dpsql.sql.analysis.outer_columns import (
    CTEs,
    OuterColumn,
    OuterColumns,
    Outputs,
    OutputWalk,
    Tree,
    enter_ctes,
    find_column,
    is_in_select,
    is_plain_star,
    is_row_for_row,
    list_arguments,
    list_ctes,
    list_sides,
    read_kind,
    unwrap,
    walk_outputs,
    walk_selects,
    walk_tree,
)
from dpsql.sql.ir.measures import Aggregate, Measure, is_present
from dpsql.sql.ir.statements import IntervalEnd, Output, PrivateQuery
from dpsql.sql.ir.tree import Expression, split_conjuncts
from dpsql.sql.lexer import ascii_lower

_LEVEL = 0.95
_HIDDEN = " in its interval"  # ends the names of these columns
_ADDED = "added_level"  # a key of calls that no one wrote: the level of their interval
_UNNAMED = "unnamed_subquery"  # as DuckDB names the first of those without an alias
Path = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Source:
    """A relation of FROM with the rows of private query number `inner`: `slot[key]` is it in the tree."""

    name: str
    inner: int
    slot: Tree
    key: str
    ctes: CTEs
    columns: Sequence[OuterColumn]


def add_interval_ends(
    node: Tree, columns: OuterColumns, *, path: Callable[[int], Path], place: Place | None
) -> tuple[PrivateQuery, ...]:
    """Replace the calls in every SELECT of a syntax tree; return the private queries with the ends that are read.

    `path` returns where the evaluator has the answer of a private query, by number from 0, with its ends. Raises
    `Refusal` for an argument that is no such measure.
    """
    read = list[tuple[Tree, _Source]]()
    inners = tuple(columns.inners)
    for select, ctes in list(walk_selects(node)):
        parts = [value for part, value in select.items() if part not in {"from_table", "cte_map"}]
        below = walk_tree(parts, enters=lambda each: is_in_select(each) and not _is_end(each))
        calls = [each for each in below if _is_end(each)]
        if calls:
            _name_subqueries(cast("Tree", select["from_table"]))
            inners, used = _replace_calls(select, calls, columns=columns, ctes=enter_ctes(select, ctes), place=place)
            columns = replace(columns, inners=inners)
            read += [(select, source) for source in used]
    for select, source in read:
        hidden = [each.name for each in inners[source.inner].outputs if each.name.endswith(_HIDDEN)]
        _read_with_ends(select, source, hidden=hidden, path=path(source.inner))
    return inners


def _name_subqueries(relation: Tree) -> None:
    """Name the subqueries of FROM that have no alias, as DuckDB does: it would count them again without the named."""
    pending, number = [relation], 0
    while pending:
        each = pending.pop()
        if read_kind(each) == "JOIN":
            pending += [cast("Tree", each["right"]), cast("Tree", each["left"])]
        elif read_kind(each) == "SUBQUERY" and not each["alias"]:
            number += 1
            each["alias"] = _UNNAMED if number == 1 else f"{_UNNAMED}{number}"


def _replace_calls(
    node: Tree, calls: Sequence[Tree], *, columns: OuterColumns, ctes: CTEs, place: Place | None
) -> tuple[tuple[PrivateQuery, ...], list[_Source]]:
    """Replace the calls in one SELECT; return the private queries with their ends, and what is read with them."""
    found = tuple(columns.inners)
    levels = [
        next((each.end.level for each in inner.outputs if each.end and not each.name.endswith(_HIDDEN)), _LEVEL)
        for inner in found
    ]
    sources = list(_list_sources(node, "from_table", columns=columns, ctes=ctes))
    used = dict[str, _Source]()
    for call in calls:
        quotient = _find_quotient(node, call, sources=sources, inners=found)
        if quotient is not None:
            level = cast("float", call.get(_ADDED, levels[quotient.source.inner]))
            found = _write_quotient_end(call, quotient, inners=found, level=level)
            used[quotient.source.name] = quotient.source
            continue
        function, arguments = ascii_lower(str(call["function_name"])), [unwrap(each) for each in list_arguments(call)]
        measure = _find_output(arguments[0], sources, inners=found) if len(arguments) == 1 else None
        if measure is None:
            outputs = [output for source in sources for output in found[source.inner].outputs]
            names = [output.name for output in outputs if output.is_measure and output.end is None]
            hint = f"Write {function} in the select list of the private query."
            if names:
                hint = f"Write {function}({names[0]}), or write it in the private query."
            reason = f"{function} takes one released measure of a private query that FROM reads as it is."
            raise Refusal("interval-end", reason, hint=hint, place=place)
        source, at = measure
        output, is_high = found[source.inner].outputs[at], function in HIGH_ENDS
        at_level = f" at {call[_ADDED]}" if _ADDED in call else ""
        hidden = f"{'high' if is_high else 'low'} of {output.name}{at_level}{_HIDDEN}"
        end = IntervalEnd(is_high, cast("float", call.get(_ADDED, levels[source.inner])))
        found = _add_end(found, source.inner, end=replace(output, name=hidden, end=end))
        alias = call["alias"] or f"{function}({output.name})"
        column = {**_column(source.name, hidden, alias=str(alias)), **_place(call)}
        call.clear()
        call.update(column)
        used[source.name] = source
    return found, list(used.values())


def add_ratio_ends(node: Tree, columns: OuterColumns) -> tuple[int, ...]:
    """Add the ends of the 95 % intervals of the ratios that a query shows, and of all measures of a UNION ALL.

    Returns the columns of these values, counted from the right, from -1, where a star is before them. Two columns for
    each, its low and its high end, are behind all others; `add_interval_ends` then writes what they are. Of a SELECT
    that makes groups of its rows none are added, nor of any other set operation.
    """
    if _orders_by_all(node):
        return ()
    union = node if list_sides(node) is not None else _inline_union(node)
    if union is not None:
        return _add_union_ends(node, union, columns=columns)
    if read_kind(node) != "SELECT_NODE" or not is_row_for_row(node):
        return ()
    items = cast("list[Tree]", node["select_list"])
    stars = [at for at, item in enumerate(items) if item.get("type") == "STAR"]
    found = [
        (at, ends)
        for at, ends in _find_ends(node, columns, ctes=enter_ctes(node, {})).items()
        if not stars or at < stars[0] or at > stars[-1]
    ]
    number = len(items)
    items += [end for _, ends in found for end in ends]
    return tuple(at if not stars or at < stars[0] else at - number for at, _ in found)


def _orders_by_all(node: Tree) -> bool:
    modifiers = cast("list[Tree]", node.get("modifiers") or [])
    terms = [term for each in modifiers for term in cast("list[Tree]", each.get("orders") or [])]
    return any(cast("Tree", term["expression"]).get("class") == "STAR" for term in terms)


def _find_ends(node: Tree, columns: OuterColumns, *, ctes: CTEs, of_measures: bool = False) -> dict[int, list[Tree]]:
    """Return the ends of the ratios of a SELECT, and of its measures if wanted, by the numbers of their items."""
    items = cast("list[Tree]", node["select_list"])
    bare = [(at, _strip_rounding(item)) for at, item in enumerate(items)]
    bare = [(at, item) for at, item in bare if of_measures or item.get("function_name") == "/"]
    sources = list(_list_sources(node, "from_table", columns=columns, ctes=ctes)) if bare else []
    found = dict[int, list[Tree]]()
    for at, item in bare:
        call: Tree = {"class": "FUNCTION", "type": "FUNCTION", "alias": "", _ADDED: _LEVEL}
        calls = [{**call, "function_name": name, "arguments": [deepcopy(item)]} for name in ("value_low", "value_high")]
        quotient = _find_quotient(node, calls[0], sources=sources, inners=columns.inners)
        measure = None if quotient else _find_output(item, sources, inners=columns.inners)
        if quotient is None and measure is None:
            continue
        source = quotient.source if quotient is not None else cast("tuple[_Source, int]", measure)[0]
        monotone = columns.inners[source.inner].clause.options.get("monotone")
        if monotone is not None and monotone.value == "true":
            continue
        # NULL where a call fails: an end is no reason for an answer to fail
        tried = {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": "", **_place(item)}
        found[at] = [{**tried, "children": [end]} for end in calls]
    return found


def _inline_union(node: Tree) -> Tree | None:
    """Return the UNION ALL whose rows a SELECT reads, in its FROM, where a CTE of it is then written; or None."""
    if read_kind(node) != "SELECT_NODE" or not is_row_for_row(node):
        return None
    relation = cast("Tree", node["from_table"])
    if relation.get("column_name_alias") or relation.get("sample"):
        return None
    if read_kind(relation) == "BASE_TABLE" and not relation["schema_name"]:
        name = ascii_lower(str(relation["table_name"]))
        own = [each for each in list_ctes(node) if ascii_lower(str(each["key"])) == name]
        value = cast("Tree", own[0]["value"]) if own else {"aliases": [name]}
        if value.get("aliases") or list_sides(cast("Tree", value["query_node"])) is None:
            return None
        union = deepcopy(cast("Tree", value["query_node"]))
        node["from_table"] = _write_subquery(relation, union)
        return union
    below, _ = _find_query(relation, {})
    return below if below is not None and list_sides(below) is not None else None


def _add_union_ends(node: Tree, union: Tree, *, columns: OuterColumns) -> tuple[int, ...]:
    """Add the ends to each SELECT of a UNION ALL, and to the SELECT of it if that is not itself the `node`.

    A SELECT of it has NULL for those of columns that have none there.
    """
    ctes = enter_ctes(node, {})
    leaves = _list_leaves(union, ctes if union is node else enter_ctes(union, ctes))
    if leaves is None or not all(_write_stars(leaf, columns, ctes=seen) for leaf, seen in leaves):
        return ()
    own = [
        _find_ends(leaf, columns, ctes=seen, of_measures=True) if is_row_for_row(leaf) else {} for leaf, seen in leaves
    ]
    wanted = sorted({at for each in own for at in each})
    if union is not node and not _write_stars(node, columns, ctes=ctes):
        return ()
    names = columns.list_query(union, ctes) or []
    null: Tree = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "NULL_LITERAL", "text": ""}}
    for (leaf, _), ends in zip(leaves, own, strict=True):
        for at in wanted:
            pair = zip(ends.get(at) or [null, null], ("low", "high"), strict=True)
            cast("list[Tree]", leaf["select_list"]).extend(
                {**end, "alias": f"{name} of column {at}{_HIDDEN}"} for end, name in pair
            )
    if union is node:
        return tuple(wanted)
    found, items = list[int](), cast("list[Tree]", node["select_list"])
    for number, item in enumerate(list(items)):
        column = find_column(item, names) if item.get("class") == "COLUMN_REF" else None
        at = names.index(column) if column is not None else -1
        if at in wanted:
            found.append(number)
            items += [_column(f"{name} of column {at}{_HIDDEN}") for name in ("low", "high")]
    return tuple(found)


def _list_leaves(node: Tree, ctes: CTEs) -> list[tuple[Tree, CTEs]] | None:
    """Return the SELECTs of a UNION ALL with the CTEs that each sees; None where one of its sides is no such query."""
    sides = list_sides(node)
    if sides is None or _orders_by_all(node):
        return [(node, ctes)] if read_kind(node) == "SELECT_NODE" and not _orders_by_all(node) else None
    found = [_list_leaves(side, enter_ctes(side, ctes)) for side in sides]
    return None if None in found else [leaf for each in found for leaf in each or ()]


def _write_stars(node: Tree, columns: OuterColumns, *, ctes: CTEs) -> bool:
    """Write the columns of FROM in place of stars in a SELECT; return False where they are not known, or of a join."""
    items, written = cast("list[Tree]", node["select_list"]), list[Tree]()
    stars = [item for item in items if read_kind(item) == "STAR"]
    if stars and read_kind(cast("Tree", node["from_table"])) == "JOIN":
        return False
    for item in items:
        listed = columns.list_query({**node, "select_list": [item]}, ctes) if item in stars else []
        names = [ascii_lower(each.name) for each in listed or ()]
        if listed is None or len(set(names)) < len(names):
            return False
        written += [_column(each.name) for each in listed] if item in stars else [item]
    items[:] = written
    return True


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


def _place(node: Tree) -> Tree:
    """Return the parts of a node that say where its text is."""
    return {part: value for part, value in node.items() if part.startswith("query_location")}


def _column(*names: str, alias: str = "") -> Tree:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": alias, "column_names": list(names)}


@dataclass(frozen=True, slots=True)
class _Quotient:
    """A quotient of two measures of one private query: its node, and the positions of their outputs."""

    source: _Source
    node: Tree
    part: int
    whole: int


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
    columns = [each for each in walk_tree(value) if each.get("class") == "COLUMN_REF"]
    released = [found for each in columns if (found := _find_output(each, sources, inners=inners)) is not None]
    return [(source, at) for source, at in released if inners[source.inner].outputs[at].divisor is None]


def _find_output(
    node: Tree, sources: Sequence[_Source], *, inners: Sequence[PrivateQuery]
) -> tuple[_Source, int] | None:
    """Return the source of a column, and the number of the released value that it is; None for any other column."""
    found = [(source, column) for source in sources if (column := find_column(node, source.columns)) is not None]
    if len(found) != 1 or found[0][1].inner is None:
        return None
    ((source, column),) = found
    output = inners[source.inner].outputs[column.output]
    return (source, column.output) if output.is_measure and output.end is None else None


def _write_quotient_end(
    call: Tree, quotient: _Quotient, *, inners: tuple[PrivateQuery, ...], level: float
) -> tuple[PrivateQuery, ...]:
    """Write the end of the interval of a quotient in place of a call; return the queries with the columns it reads.

    Each measure leaves its interval with half of the probability that the level leaves, as with an average. An end is
    NULL where the divisor may be 0, unless it counts every row of the others: then it is at least 1 where the quotient
    exists.
    """
    is_high, at = ascii_lower(str(call["function_name"])) in HIGH_ENDS, quotient.source.inner
    like, names = quotient.node, dict[tuple[int, bool], Tree]()
    # -100 * n / m is low where n is high.
    part_side = is_high is not _is_negative(unwrap(list_arguments(like)[0]))
    for output_at, side in ((quotient.part, part_side), (quotient.whole, False), (quotient.whole, True)):
        output = inners[at].outputs[output_at]
        hidden = f"{'high' if side else 'low'} of {output.name} at {level}{_HIDDEN}"
        inners = _add_end(inners, at, end=replace(output, name=hidden, end=IntervalEnd(side, (1.0 + level) / 2.0)))
        names[output_at, side] = _column(quotient.source.name, hidden)
    zero, one = write_integer("0"), write_integer("1")
    least, most = names[quotient.whole, False], names[quotient.whole, True]
    if counts_all_rows(inners[at], quotient.whole):
        wholes = [write_call(like, "greatest", each, one) for each in (least, most)]
    else:
        # NULL where the least divisor is 0 or below; `most + above * 0` is then NULL too, so that GREATEST and LEAST of
        # the two quotients, which pass over NULL, have no end that only one of them gives.
        above = write_call(like, "nullif", write_call(like, "greatest", least, zero), zero)
        wholes = [above, write_call(like, "add", most, write_call(like, "multiply", above, zero))]
    part, ends = names[quotient.part, part_side], list[Tree]()
    for whole in wholes:
        clipped = part
        if is_share(inners[at], quotient.part, of=quotient.whole):
            clipped = write_call(like, "least", write_call(like, "greatest", part, zero), whole)
        quotient_of_ends = write_call(like, "/", _put(unwrap(list_arguments(like)[0]), clipped), whole)
        ends.append({**quotient_of_ends, "is_operator": True})
    alias = call["alias"] or f"{ascii_lower(str(call['function_name']))}({like.get('alias') or 'ratio'})"
    found = write_call(like, "greatest" if is_high else "least", *ends)
    call.clear()
    call.update({**found, "alias": alias})
    return inners


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


def _is_end(node: Tree) -> bool:
    """Say whether a node is a call of value_low or value_high."""
    return node.get("type") == "FUNCTION" and ascii_lower(str(node["function_name"])) in INTERVAL_ENDS


def _list_sources(slot: Tree, key: str, *, columns: OuterColumns, ctes: CTEs) -> Iterator[_Source]:
    """Yield what FROM reads that has the rows of one private query each, with the name that it has there."""
    relation = cast("Tree", slot[key])
    if read_kind(relation) == "JOIN":
        yield from _list_sources(relation, "left", columns=columns, ctes=ctes)
        yield from _list_sources(relation, "right", columns=columns, ctes=ctes)
        return
    inner = _find_inner(relation, columns, ctes=ctes)
    found = None if inner is None else columns.list_relation(relation, ctes)
    if inner is not None and found is not None:
        yield _Source(str(relation["alias"] or relation.get("table_name") or _UNNAMED), inner, slot, key, ctes, found)


def _find_inner(relation: Tree, columns: OuterColumns, *, ctes: CTEs) -> int | None:
    """Return the number of the private query whose rows a relation has, through SELECTs of one relation each."""
    if relation.get("column_name_alias"):
        return None
    below, inside = _find_query(relation, ctes)
    if below is None:
        return columns.find_inner(relation) if read_kind(relation) == "BASE_TABLE" else None
    if read_kind(below) != "SELECT_NODE" or not is_row_for_row(below):
        return None
    stars = [item for item in cast("list[Tree]", below["select_list"]) if read_kind(item) == "STAR"]
    if not all(map(is_plain_star, stars)):
        return None
    return _find_inner(cast("Tree", below["from_table"]), columns, ctes=enter_ctes(below, inside))


def _find_query(relation: Tree, ctes: CTEs) -> tuple[Tree | None, CTEs]:
    """Return the query of a subquery or of a CTE without other names for its columns, and the CTEs that it sees."""
    if read_kind(relation) == "SUBQUERY":
        return cast("Tree", cast("Tree", relation["subquery"])["node"]), ctes
    is_bare = read_kind(relation) == "BASE_TABLE" and not relation["schema_name"]
    cte = ctes.get(ascii_lower(str(relation["table_name"]))) if is_bare else None
    if cte is None or cte[0].get("aliases"):
        return None, ctes
    return cast("Tree", cte[0]["query_node"]), cte[1]


def _read_with_ends(node: Tree, source: _Source, *, hidden: Sequence[str], path: Path) -> None:
    """Let a relation of FROM read the answer with its ends, and the stars of the SELECT leave them out.

        FROM (SELECT n FROM "released 1") AS x      FROM (SELECT n, "low of n" FROM "released 1 with ends") AS x

    A CTE becomes a subquery, as others may read it, too.
    """
    for item in cast("list[Tree]", node["select_list"]):
        if item.get("type") == "STAR" and str(item.get("relation_name") or source.name) == source.name:
            # SELECT * FROM released becomes SELECT * EXCLUDE ("low of n in its interval") FROM "released with ends"
            item["exclude_list"] = [*cast("list[str]", item.get("exclude_list") or []), *hidden]
    slot, key, ctes = source.slot, source.key, source.ctes
    cast("Tree", slot[key])["alias"] = source.name
    while True:
        relation = cast("Tree", slot[key])
        below, inside = _find_query(relation, ctes)
        if below is None:
            break
        if read_kind(relation) != "SUBQUERY":
            # A CTE that is read twice may be read once with its ends and once without.
            below = deepcopy(below)
            slot[key] = _write_subquery(relation, below)
        items = cast("list[Tree]", below["select_list"])
        if not any(read_kind(item) == "STAR" for item in items):
            items += [_column(name) for name in hidden]
        slot, key, ctes = below, "from_table", enter_ctes(below, inside)
    relation["alias"] = relation["alias"] or relation["table_name"]
    relation["catalog_name"], relation["schema_name"], relation["table_name"] = path
    relation["qualified_name"] = {"path": list(path)}


def _write_subquery(relation: Tree, query: Tree) -> Tree:
    """Return a query as a subquery of FROM, in place of a CTE."""
    return {
        "type": "SUBQUERY",
        "alias": relation["alias"] or relation["table_name"],
        "sample": relation.get("sample"),
        **_place(relation),
        "column_name_alias": [],
        "subquery": {"node": query, "named_param_map": []},
    }


# Part 2: shares.


def clip_shares(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> None:
    """Let the count of a part be at least 0 and at most that of the whole that divides it, in every quotient."""
    walk = walk_outputs(node, inners, tables=tables)
    # the innermost first, and nothing that is written here
    for each in reversed(list(walk_tree(node)) if walk.meetings else []):
        _clip_quotient(walk, each, inners=inners)


def _clip_quotient(walk: OutputWalk, node: Tree, *, inners: Sequence[PrivateQuery]) -> None:
    """Clip the parts of a quotient of two counts; leave any other node as it is."""
    sides = [unwrap(each) for each in list_arguments(node)] if node.get("function_name") == "/" else []
    counts = [
        [each for each in walk_tree(side) if each.get("class") == "COLUMN_REF" and walk.find(each)] for side in sides
    ]
    if [len(each) for each in counts] != [1, 1] or not is_product(sides[0]):
        return
    (part,), (whole,) = counts
    if _are_of_row(part, whole) and _are_shares(inners, walk.find(part), of=walk.find(whole)):
        zero = write_integer("0")
        least = write_call(node, "greatest", deepcopy(part), zero)
        most = write_call(node, "greatest", deepcopy(whole), zero)
        part.clear()
        part.update(write_call(node, "least", least, most))


def _are_of_row(part: Tree, whole: Tree) -> bool:
    """Say whether two columns are of one row: a.n and b.n are not, also where both relations are the same answer."""
    first, second = (cast("list[str]", each["column_names"])[:-1] for each in (part, whole))
    return list(map(ascii_lower, first)) == list(map(ascii_lower, second))


def _are_shares(inners: Sequence[PrivateQuery], parts: Outputs, *, of: Outputs) -> bool:
    """Say whether a column counts some of the rows of another one, whichever output of its name each of them is."""
    pairs = [(number, at, whole) for number, at in parts for other, whole in of if number == other]
    is_whole = {number for number, _ in parts} <= {number for number, _ in of}
    return is_whole and all(is_share(inners[number], at, of=whole) for number, at, whole in pairs)


def write_integer(text: str) -> Tree:
    """Return a whole number."""
    literal: Tree = {"kind": "INTEGER", "text": text}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}


def write_call(like: Tree, function: str, *arguments: Tree) -> Tree:
    """Return the call of a function, in the form that another one has in the tree."""
    changed = {"function_name": function, "alias": "", "is_operator": False, "qualified_name": {"path": [function]}}
    call = {**like, **{name: value for name, value in changed.items() if name in like}}
    listed = "arguments" if "arguments" in like else "children"
    first = cast("list[Tree]", like[listed])[0]
    call[listed] = [{**first, "expression": each} if "class" not in first else each for each in arguments]
    return call


def is_product(node: Tree) -> bool:
    """Say whether an expression is a column times constants."""
    kind = node.get("class")
    if kind == "CAST":
        return is_product(cast("Tree", node["child"]))
    if kind == "FUNCTION" and node.get("function_name") == "*":
        return all(is_product(unwrap(each)) for each in list_arguments(node))
    return kind in {"COLUMN_REF", "CONSTANT"}


def is_share(query: PrivateQuery, part: int, *, of: int) -> bool:
    """Say whether an output counts some of the rows that another one counts."""
    outputs = query.outputs[part], query.outputs[of]
    if any(not each.is_measure or each.divisor is not None or each.end is not None for each in outputs):
        return False
    first, second = (query.measures[each.measure] for each in outputs)
    counts = first.aggregate is second.aggregate is Aggregate.ROWS and first.weight == second.weight
    return counts and set(split_conjuncts(second.condition)) <= set(split_conjuncts(first.condition))


def counts_all_rows(query: PrivateQuery, at: int) -> bool:
    """Say whether an output counts every row that the measures of its set read: then each unit counts 1 or more."""
    output = query.outputs[at]
    rows = query.measures[output.measure]
    # With a weight of its set, a unit with any row counts as one row or more (10.4 of docs/explanation/maths.md).
    if output.divisor is not None or rows.aggregate is not Aggregate.ROWS or rows.weight is None:
        return False
    wanted = set(split_conjuncts(rows.condition))
    others = [each for each in query.measures if each.weight == rows.weight and each != rows]
    return all(wanted <= set(_list_conditions(each)) for each in others)


def _list_conditions(measure: Measure) -> list[Expression]:
    """Return the conditions of the rows that a measure reads: a sum reads those that have a value."""
    present = () if measure.argument is None else is_present(measure.argument)
    return [*split_conjuncts(measure.condition), *present]
