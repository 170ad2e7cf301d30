"""Outputs of private queries that meet in one expression of the SELECT around them, in DuckDB's syntax tree.

    SELECT x.s / x.n FROM (SELECT SUM(price) AS s, COUNT(*) AS n FROM reads PRIVATE) AS x        s and n meet

Values meet in arithmetic, in functions and in comparisons. They do not in AND, OR and NOT, nor in the condition and the
result of CASE: what only decides whether a value is shown is not computed with it.

A column is known by its name: what a subquery calls n is taken for every output that is called n somewhere in the
statement, so that measures are rather in one set than apart where both may be meant. `couple_measures` (`measures.py`)
makes the sets of what meets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import cast

from dpsql.sql.analysis.measures import couple_measures, is_released_number
from dpsql.sql.analysis.outer_columns import Tree
from dpsql.sql.ir.measures import Aggregate, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Expression, split_conjuncts
from dpsql.sql.lexer import ascii_lower

_Outputs = frozenset[tuple[int, int]]  # a private query by its number from 0, and the position of its output
_NONE: _Outputs = frozenset()
_APART = frozenset(["and", "or", "not", "||", "concat", "concat_ws", "coalesce"])  # these compute no number of two
_TRUTHS = frozenset(["CONJUNCTION", "COMPARISON", "BETWEEN"])
_MAX_PASSES = 10  # aliases of aliases


def couple_outputs(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> tuple[PrivateQuery, ...]:
    """Return the private queries with the sets of the outputs that meet in the SELECT.

    `tables` are the names under which it reads the answers.
    """
    walk = _walk(node, inners, tables=tables)
    found = list[PrivateQuery]()
    for number, inner in enumerate(inners):
        meetings = [{at for owner, at in each if owner == number} for each in walk.meetings]
        found.append(couple_measures(inner, [each for each in meetings if len(each) > 1]))
    return tuple(found)


def clip_shares(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> None:
    """Let the count of a part be at least 0 and at most that of the whole that divides it, in every quotient."""
    walk = _walk(node, inners, tables=tables)
    if walk.meetings:
        _clip_quotients(walk, node, inners=inners)


def _walk(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> _Walk:
    """Return a walk through the SELECT, with all that meets in it; none where no private query has two numbers."""
    walk = _Walk(defaultdict(lambda: _NONE), dict(zip(tables, inners, strict=True)))
    if not any(sum(is_released_number(inner, at) for at in range(len(inner.outputs))) > 1 for inner in inners):
        return walk
    for number, inner in enumerate(inners):
        for at, output in enumerate(inner.outputs):
            if is_released_number(inner, at):
                walk.names[ascii_lower(output.name)] |= {(number, at)}
    for _ in range(_MAX_PASSES):
        before = dict(walk.names)
        walk.find(node)
        if before == walk.names:
            break
    return walk


@dataclass(slots=True)
class _Walk:
    """One walk through a syntax tree; `names` are the outputs that a column of a name may be computed from."""

    names: dict[str, _Outputs]
    answers: dict[str, PrivateQuery]  # by the names of their tables
    meetings: set[_Outputs] = field(default_factory=set)

    def find(self, value: object) -> _Outputs:
        """Return the outputs that a part of the tree is computed from, and note those that meet in it."""
        if isinstance(value, list):
            return self._unite(value)
        if not isinstance(value, dict):
            return _NONE
        found = self._find(value)
        if found and (alias := value.get("alias")):
            self.names[ascii_lower(str(alias))] |= found
        return found

    def _unite(self, values: Iterable[object]) -> _Outputs:
        return _NONE.union(*map(self.find, values))

    def _find(self, node: Tree) -> _Outputs:
        kind, type_ = str(node.get("class", "")), str(node.get("type", ""))
        if kind == "COLUMN_REF":
            return self.names.get(ascii_lower(cast("list[str]", node["column_names"])[-1]), _NONE)
        if kind == "CASE":
            checks = cast("list[Tree]", node["case_checks"])
            self._unite(check["when_expr"] for check in checks)
            return self._unite([*(check["then_expr"] for check in checks), node["else_expr"]])
        if kind in {"FUNCTION", "WINDOW"}:
            arguments = map(unwrap, list_arguments(node))
            self._unite(each for part, each in node.items() if part not in {"arguments", "children"})
            return self._meet(self._unite(arguments), str(node["function_name"]))
        found = self._unite(node.values())
        if kind == "SUBQUERY":
            if node.get("subquery_type") != "SCALAR":
                return _NONE
            inner = cast("Tree", cast("Tree", node["subquery"])["node"])
            return self._unite(cast("list[object]", inner.get("select_list") or [])[:1])
        if kind in _TRUTHS or type_.startswith("COMPARE_"):
            self._meet(found, "and" if kind == "CONJUNCTION" else type_)
            return _NONE
        if "class" in node:
            return _NONE if type_ in {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"} else found
        # the names that a relation or CTE gives to its columns
        names = cast("list[str]", node.get("column_name_alias") or node.get("aliases") or [])
        for name, column in zip(names, self._list_columns(node), strict=False):
            self.names[ascii_lower(name)] |= column
        return _NONE if "select_list" in node or "from_table" in node or "sample" in node else found

    def _meet(self, found: _Outputs, function: str) -> _Outputs:
        if len(found) > 1 and ascii_lower(function) not in _APART:
            self.meetings.add(found)
        return found

    def _list_columns(self, node: Tree) -> Iterator[_Outputs]:
        """Yield what each column of a relation, a CTE or a query is computed from, as far as it is known."""
        answer = self.answers.get(str(node.get("table_name")))
        if answer is not None:
            yield from (self.names.get(ascii_lower(output.name), _NONE) for output in answer.outputs)
        inner = node.get("subquery") or node.get("query_node") or node.get("node")
        if isinstance(inner, dict):
            yield from self._list_columns(inner)
        for item in cast("list[Tree]", node.get("select_list") or []):
            if item.get("type") == "STAR" and isinstance(node.get("from_table"), dict):
                yield from self._list_columns(cast("Tree", node["from_table"]))
            else:
                yield self.find(item)


def list_arguments(node: Tree) -> list[object]:
    """Return the arguments of a function."""
    return cast("list[object]", node.get("arguments") or node.get("children") or [])


def _clip_quotients(walk: _Walk, value: object, *, inners: Sequence[PrivateQuery]) -> None:
    """Clip the quotients in a part of the tree."""
    if isinstance(value, list):
        for each in value:
            _clip_quotients(walk, each, inners=inners)
    if not isinstance(value, dict):
        return
    for each in value.values():
        _clip_quotients(walk, each, inners=inners)
    sides = [unwrap(each) for each in list_arguments(value)] if value.get("function_name") == "/" else []
    counts = [_list_released(walk, each) for each in sides]
    if [len(each) for each in counts] != [1, 1] or not is_product(sides[0]):
        return
    (part,), (whole,) = counts
    if _are_of_row(part, whole) and _are_shares(inners, walk.find(part), of=walk.find(whole)):
        zero = write_integer("0")
        least = write_call(value, "greatest", deepcopy(part), zero)
        most = write_call(value, "greatest", deepcopy(whole), zero)
        part.clear()
        part.update(write_call(value, "least", least, most))


def _are_of_row(part: Tree, whole: Tree) -> bool:
    """Say whether two columns are of one row: a.n and b.n are not, also where both relations are the same answer."""
    first, second = (cast("list[str]", each["column_names"])[:-1] for each in (part, whole))
    return list(map(ascii_lower, first)) == list(map(ascii_lower, second))


def _are_shares(inners: Sequence[PrivateQuery], parts: _Outputs, *, of: _Outputs) -> bool:
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


def unwrap(argument: object) -> Tree:
    """Return an argument of a function, which newer trees have a node around."""
    node = cast("Tree", argument)
    return cast("Tree", node["expression"]) if "class" not in node and "expression" in node else node


def _list_released(walk: _Walk, node: object) -> list[Tree]:
    """Return the columns in an expression that are one output of a private query each."""
    if isinstance(node, list):
        return [found for each in node for found in _list_released(walk, each)]
    if not isinstance(node, dict):
        return []
    if node.get("class") == "COLUMN_REF":
        return [node] if walk.find(node) else []
    return [found for each in node.values() for found in _list_released(walk, each)]


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
    if output.divisor is not None or rows.aggregate is not Aggregate.ROWS or rows.weight is None:
        return False
    wanted = set(split_conjuncts(rows.condition))
    others = [each for each in query.measures if each.weight == rows.weight and each != rows]
    return all(wanted <= set(_list_conditions(each)) for each in others)


def _list_conditions(measure: Measure) -> list[Expression]:
    """Return the conditions of the rows that a measure reads: a sum reads those that have a value."""
    present = () if measure.argument is None else is_present(measure.argument)
    return [*split_conjuncts(measure.condition), *present]
