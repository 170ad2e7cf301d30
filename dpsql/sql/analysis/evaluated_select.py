"""SELECT in DuckDB's own SQL around the answers of private queries: which tables it reads, as DuckDB parsed it.

It is post-processing of releases, and runs where only released and public rows are. So nothing of what it computes is
restricted; restricted is what it reads. DuckDB's syntax tree is walked by a closed list of its nodes: every table in it
is a CTE, a released answer, a public table of the policy or one of a few table functions, and anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.evaluated_intervals import add_interval_ends
from dpsql.sql.analysis.outer_select import HOME
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import EvaluatedQuery, OutputMeasure, PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import FromWhere, Literal, Scan, stored_column
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.private_spans import name_released

__all__ = ["SelectParser", "find_strangers", "read_evaluated", "released_path"]

Tree = dict[str, object]
_NODES = frozenset(["SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"])
_RELATIONS = frozenset(["BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION", "PIVOT"])
_TABLE_FUNCTIONS = frozenset(["unnest", "range", "generate_series", "repeat", "json_each", "json_tree"])
_FORBIDDEN_FUNCTIONS = frozenset("current_setting getenv getvariable nextval currval query query_table".split())
_COLUMN_OF_SCHEMA = 3
_MAX_LEVELS = 200


class SelectParser(Protocol):
    """Parser and printer of DuckDB, in the evaluator."""

    def parse(self, text: str) -> str:
        """Return the syntax trees of the statements of a text as JSON, or why there are none, in the same form."""
        ...

    def write(self, tree: str) -> str:
        """Return the statement of a syntax tree."""
        ...


@dataclass(slots=True)
class _Walk:
    """One walk through a syntax tree; it renames the tables that it finds, and lists the public ones."""

    catalog: Catalog
    inners: Sequence[PrivateQuery]
    place: Place | None
    public: dict[str, Table] = field(default_factory=dict)  # by the name under which the evaluator has it
    names: set[str] = field(default_factory=set)  # words that may be columns
    takes_all: bool = False


def read_evaluated(  # noqa: PLR0913 - the parts of a statement
    text: str,
    inners: tuple[PrivateQuery, ...],
    *,
    parameters: tuple[Literal, ...],
    parser: SelectParser,
    catalog: Catalog,
    place: Place | None,
    explained: bool = False,
) -> EvaluatedQuery:
    """Return a SELECT that reads the answers of private queries by `name_released`; raise `Refusal` or `Unsupported`.

    `parameters` are the values of $1, $2 and so on.
    """
    node = _parse(text, parser, place=place)
    walk = _Walk(catalog, inners, place)
    _drop_unused_ctes(node)
    _visit_query(walk, node, ctes=frozenset(), level=0)
    beside = tuple((_public_path(name), _fetch(table, walk)) for name, table in walk.public.items())
    measures = tuple(_find_measures(node, inners))
    visible = tuple(len(inner.outputs) for inner in inners)
    for select in list(_list_selects(node)):
        ctes = _map_ctes(select)
        inners = add_interval_ends(
            select,
            inners,
            find_released=partial(_find_released, ctes=ctes, number=len(inners)),
            path=lambda at: released_path(at + 1, with_ends=True),
            place=place,
        )
    tree = json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})
    return EvaluatedQuery(
        inners=inners,
        sql=parser.write(tree),
        parameters=tuple(each.value for each in parameters),
        beside=beside,
        measures=measures,
        visible=visible,
        is_empty=_is_empty(node),
        place=place,
        explained=explained,
    )


def find_strangers(
    text: str, names: Collection[str], *, columns: Collection[str], parser: SelectParser
) -> frozenset[str]:
    """Return the bare columns of a SELECT that are none of its outputs, in lower case, and "*"; none without a tree.

    An output that has the name of one of the `columns` of a table counts as that column, but where it is all of a term
    of ORDER BY. What is in a subquery or a lambda is left out.
    """
    found = json.loads(parser.parse(text))
    if found["error"]:
        return frozenset()
    node = cast("Tree", found["statements"][0]["node"])
    modifiers = cast("list[Tree]", node.get("modifiers") or [])
    terms = [
        cast("Tree", term["expression"])
        for modifier in modifiers
        for term in cast("list[Tree]", modifier.get("orders") or [])
    ]
    alone = [term for term in terms if term.get("type") == "COLUMN_REF"]
    others = [term for term in terms if term.get("type") != "COLUMN_REF"]
    found_names = set(_list_bare([others, *(node.get(part) for part in ("select_list", "where_clause", "qualify"))]))
    outputs = set(names) - {"*"}
    return frozenset((found_names - (outputs - set(columns))) | (set(_list_bare(alone)) - outputs))


def _list_bare(value: object) -> Iterator[str]:
    """Yield the columns of an expression that are written without a table, and "*"."""
    if isinstance(value, list):
        for each in value:
            yield from _list_bare(each)
    if not isinstance(value, dict) or value.get("class") in {"SUBQUERY", "LAMBDA"}:
        return
    if value.get("class") == "STAR":
        yield "*"
    if value.get("type") == "COLUMN_REF":
        columns = cast("list[str]", value["column_names"])
        yield from [ascii_lower(columns[-1])] if len(columns) == 1 else []
    for each in value.values():
        yield from _list_bare(each)


def _parse(text: str, parser: SelectParser, *, place: Place | None) -> Tree:
    found = json.loads(parser.parse(text))
    if found["error"]:
        reason = str(found.get("error_message", "")).split("\n", maxsplit=1)[0].rstrip(".!")
        hint = "Around a private query write DuckDB's SQL: one SELECT."
        raise Refusal("syntax", f"DuckDB cannot read the SELECT: {reason}.", hint=hint, place=place)
    statements = found["statements"]
    if len(statements) != 1:
        hint = "Send one statement at a time."
        raise Refusal("multiple", "There is more than one statement.", hint=hint, place=place)
    return cast("Tree", statements[0]["node"])


def _children(value: object) -> Iterator[Tree]:
    """Yield the nodes directly below one."""
    if isinstance(value, dict):
        for each in value.values():
            yield from [each] if isinstance(each, dict) else _children(each) if isinstance(each, list) else []
    elif isinstance(value, list):
        for each in value:
            yield from [each] if isinstance(each, dict) else _children(each)


def _list_ctes(node: Tree) -> list[Tree]:
    """Return the CTEs of a query, each with `key` and `value`."""
    found = node.get("cte_map")
    return cast("list[Tree]", found.get("map", [])) if isinstance(found, dict) else []


def _drop_unused_ctes(node: Tree) -> None:
    """Take out the CTEs that nothing reads any more; those of the private queries may read private tables."""
    for child in list(_children(node)):
        _drop_unused_ctes(child)
    ctes = _list_ctes(node)
    if not ctes:
        return
    rest = {name: value for name, value in node.items() if name != "cte_map"}
    wanted, pending = set[str](), _list_names(rest)
    while pending:
        wanted |= pending
        read = [cte for cte in ctes if ascii_lower(str(cte["key"])) in pending]
        pending = {name for cte in read for name in _list_names(cte)} - wanted
    node["cte_map"] = {"map": [cte for cte in ctes if ascii_lower(str(cte["key"])) in wanted]}


def _list_names(node: Tree) -> set[str]:
    """Return the bare names of all tables in a node."""
    found = {ascii_lower(str(node["table_name"]))} if node.get("type") == "BASE_TABLE" else set[str]()
    return found.union(*map(_list_names, _children(node)))


def _visit_query(walk: _Walk, node: Tree, *, ctes: frozenset[str], level: int) -> None:
    """Check a query node, and all below it, in which the names of `ctes` mean CTEs."""
    if node.get("type") not in _NODES or level > _MAX_LEVELS:
        raise _refuse_node(walk)
    seen = set(ctes)
    for cte in _list_ctes(node):
        value = cast("Tree", cte["value"])
        name = ascii_lower(str(cte["key"]))
        inner = cast("Tree", value["query_node"])
        recursive = inner.get("type") == "RECURSIVE_CTE_NODE"
        _visit_query(walk, inner, ctes=frozenset(seen | {name} if recursive else seen), level=level + 1)
        seen.add(name)
    if node.get("type") in {"CTE_NODE", "RECURSIVE_CTE_NODE"}:
        seen.add(ascii_lower(str(node.get("ctename") or node.get("cte_name") or "")))
    for part, child in node.items():
        if part != "cte_map":
            _visit(walk, child, ctes=frozenset(seen), level=level + 1)


def _visit(walk: _Walk, value: object, *, ctes: frozenset[str], level: int) -> None:
    if isinstance(value, list):
        for each in value:
            _visit(walk, each, ctes=ctes, level=level + 1)
        return
    if not isinstance(value, dict):
        return
    if level > _MAX_LEVELS:
        raise _refuse_node(walk)
    kind = str(value.get("type", ""))
    if kind.endswith("_NODE"):
        _visit_query(walk, value, ctes=ctes, level=level)
        return
    if "class" in value:
        _visit_expression(walk, value, kind=kind)
    elif "sample" in value:
        _visit_relation(walk, value, kind=kind, ctes=ctes)
    for each in value.values():
        _visit(walk, each, ctes=ctes, level=level + 1)


def _visit_expression(walk: _Walk, node: Tree, *, kind: str) -> None:
    if kind == "COLUMN_REF":
        names = [str(name) for name in cast("list[object]", node["column_names"])]
        walk.names.update(map(ascii_lower, names))
        if len(names) >= _COLUMN_OF_SCHEMA and walk.catalog.find(names[1], names[0]) is not None:
            node["column_names"] = names[1:]
    elif kind in {"STAR", "POSITIONAL_REFERENCE"}:
        walk.takes_all = True
    elif kind == "FUNCTION" and ascii_lower(str(node["function_name"])) in _FORBIDDEN_FUNCTIONS:
        reason = f"{str(node['function_name']).upper()} is not computed around a private query."
        hint = "Leave it out: there are no settings and no other tables."
        raise Refusal("function", reason, hint=hint, place=walk.place)


def _visit_relation(walk: _Walk, node: Tree, *, kind: str, ctes: frozenset[str]) -> None:
    if kind not in _RELATIONS:
        raise _refuse_node(walk)
    if kind == "JOIN":
        walk.names.update(ascii_lower(str(name)) for name in cast("list[object]", node.get("using_columns") or []))
        walk.takes_all |= node.get("ref_type") == "NATURAL"
    elif kind == "TABLE_FUNCTION":
        function = ascii_lower(str(cast("Tree", node["function"])["function_name"]))
        if function not in _TABLE_FUNCTIONS:
            reason = f"The table function {function} is not run around a private query."
            hint = f"Those that are: {', '.join(sorted(_TABLE_FUNCTIONS))}."
            raise Refusal("function", reason, hint=hint, place=walk.place)
    elif kind == "BASE_TABLE":
        _rename(walk, node, ctes=ctes)


def _rename(walk: _Walk, node: Tree, *, ctes: frozenset[str]) -> None:
    """Give a table the path at which the evaluator has it; refuse a private one, and one that is not there."""
    name, schema = str(node["table_name"]), str(node["schema_name"])
    if not schema and ascii_lower(name) in ctes:
        return
    path = next(
        (released_path(at) for at in range(1, len(walk.inners) + 1) if name == name_released(at) and not schema), None
    )
    if path is None:
        table = walk.catalog.find(name, "" if schema == "main" else schema)
        if table is None:
            hint = "SHOW TABLES lists the tables of the policy."
            raise Refusal("unknown-table", f'There is no table "{name}" here.', hint=hint, place=walk.place)
        if table.privacy_unit is not None:
            reason = "A SELECT over the answer of a private query may read no private table besides."
            hint = "Ask about the table inside, where TOP k PRIVATE is, or in a statement of its own."
            raise Refusal("wrapping", reason, hint=hint, place=walk.place)
        walk.public[table.name] = table
        path = _public_path(table.name)
    node["alias"] = node["alias"] or name
    node["catalog_name"], node["schema_name"], node["table_name"] = path
    node["qualified_name"] = {"path": list(path)}


def released_path(number: int, *, with_ends: bool = False) -> tuple[str, str, str]:
    """Return where the evaluator has the answer of a private query, numbered from 1, without or with hidden columns."""
    return (*HOME, f"released {number} with ends" if with_ends else f"released {number}")


def _public_path(name: str) -> tuple[str, str, str]:
    return (*HOME, f"public {name}")


def _fetch(table: Table, walk: _Walk) -> PublicQuery:
    """Return the query for the columns of a public table that the SELECT may name; a constant where it names none."""
    wanted = [
        (name, type_)
        for name, type_ in table.columns
        if walk.takes_all or ascii_lower(name) in walk.names or ascii_lower(table.name.rpartition(".")[2]) in walk.names
    ]
    outputs = tuple(stored_column(1, name, type_=type_) for name, type_ in wanted) or (Literal(1, BIGINT),)
    return PublicQuery(
        names=tuple(name for name, _ in wanted) or ("1",),
        outputs=outputs,
        distinct=False,
        body=FromWhere(Scan(1, table.path), None),
        keys=None,
        by_all=False,
        having=None,
        order=(),
        limit=None,
        offset=0,
    )


def _find_measures(node: Tree, inners: Sequence[PrivateQuery]) -> Iterator[OutputMeasure]:
    """Yield which columns are released ones, unchanged: those of a SELECT that only chooses columns and rows."""
    if node.get("type") != "SELECT_NODE" or node.get("group_expressions") or node.get("having"):
        return
    source = _find_released(cast("Tree", node["from_table"]), ctes=_map_ctes(node), number=len(inners))
    if source is None:
        return
    names = [output.name for output in inners[source].outputs]
    at = 0
    for item in cast("list[Tree]", node["select_list"]):
        if item.get("type") == "STAR":
            if item.get("expr") or item.get("exclude_list") or item.get("columns"):
                return
            yield from (OutputMeasure(at + each, source, each) for each in range(len(names)))
            at += len(names)
            continue
        named = cast("list[str]", item["column_names"])[-1:] if item.get("type") == "COLUMN_REF" else []
        wanted = [ascii_lower(name) for name in named]
        for each in (each for each, name in enumerate(names) if ascii_lower(name) in wanted):
            yield OutputMeasure(at, source, each)
        at += 1


def _map_ctes(node: Tree) -> dict[str, Tree]:
    """Return the CTEs of a query by their names in lower case."""
    return {ascii_lower(str(cte["key"])): cast("Tree", cte["value"]) for cte in _list_ctes(node)}


def _list_selects(node: Tree) -> Iterator[Tree]:
    """Yield every SELECT in a tree, outer ones first."""
    if node.get("type") == "SELECT_NODE":
        yield node
    for child in _children(node):
        yield from _list_selects(child)


def _find_released(relation: Tree, *, ctes: Mapping[str, Tree], number: int) -> int | None:
    """Return the number, from 0, of the answer that FROM reads as its only relation; None for anything else."""
    inner: Tree | None = None
    if relation.get("type") == "SUBQUERY":
        inner = cast("Tree", cast("Tree", relation["subquery"])["node"])
    elif relation.get("type") == "BASE_TABLE" and not relation["schema_name"]:
        cte = ctes.get(ascii_lower(str(relation["table_name"])), {})
        inner = None if cte.get("aliases") else cast("Tree | None", cte.get("query_node"))
    elif relation.get("type") == "BASE_TABLE":
        return next((at for at in range(number) if relation["table_name"] == released_path(at + 1)[-1]), None)
    if inner is None or inner.get("type") != "SELECT_NODE" or relation.get("column_name_alias"):
        return None
    stars = cast("list[Tree]", inner["select_list"])
    is_plain = [each.get("type") for each in stars] == ["STAR"] and not stars[0].get("exclude_list")
    return _find_released(cast("Tree", inner["from_table"]), ctes={}, number=number) if is_plain else None


def _is_empty(node: Tree) -> bool:
    """Say whether the text alone shows that no row is selected: LIMIT 0, or WHERE 1 = 0, without an aggregate."""
    for modifier in cast("list[Tree]", node.get("modifiers") or []):
        limit = modifier.get("limit")
        if modifier.get("type") == "LIMIT_MODIFIER" and isinstance(limit, dict) and _read_constant(limit) == "0":
            return True
    return False


def _read_constant(node: Tree) -> str | None:
    literal = node.get("literal")
    return str(literal.get("text")) if isinstance(literal, dict) else None


def _refuse_node(walk: _Walk) -> Unsupported:
    reason = "Around a private query only SELECT over released and public rows is run."
    hint = "Leave out DESCRIBE, SHOW and statements that change tables."
    return Unsupported("wrapping", reason, hint=hint, place=walk.place)
