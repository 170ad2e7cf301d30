"""Types of the parameters of a SELECT around private queries, from where they stand in DuckDB's syntax tree.

    WHERE n > $1        the type of n
    LIMIT $1            a whole number
    CAST($1 AS DATE)    a date

A client learns them before it binds values. A parameter anywhere else is of no known type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from dpsql.sql.analysis.outer_columns import (
    OuterColumn,
    OuterColumns,
    Tree,
    enter_ctes,
    find_column,
    read_kind,
    walk_selects,
)
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import BIGINT, DOUBLE, NULL, TEXT, Family, Type, parse_type
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.lexer import ascii_lower

__all__ = ["type_parameters"]

_ARITHMETIC = frozenset(["+", "-", "*", "%", "/", "//"])
_OF_ONE_TYPE = frozenset(["OPERATOR_COALESCE", "OPERATOR_NULLIF", "COMPARE_IN", "COMPARE_NOT_IN"])
_OF_ARGUMENT = frozenset(["coalesce", "greatest", "least", "max", "min", "nullif", "sum", *_ARITHMETIC])
_OF_TEXTS = frozenset(
    "~~ !~~ ~~* !~~* || concat contains ends_with like_escape lower ltrim regexp_matches replace rtrim starts_with "
    "trim upper".split()
)
_OTHER_NAMES = {"TEXT": "VARCHAR", "STRING": "VARCHAR", "INT": "INTEGER", "INT4": "INTEGER", "INT8": "BIGINT"}
_OTHER_NAMES |= {"FLOAT": "DOUBLE", "REAL": "DOUBLE", "FLOAT4": "DOUBLE", "FLOAT8": "DOUBLE", "BOOL": "BOOLEAN"}
_LITERALS = {"INTEGER": BIGINT, "STRING": TEXT}


def type_parameters(node: Tree, literals: Sequence[Literal], columns: OuterColumns, *, postgres: bool) -> None:
    """Fill the parameters without a value, which are open `literals` of $1, $2, ..., with what their places say.

    With `postgres`, the quotient of whole numbers is one.
    """
    for select, ctes in walk_selects(node):
        below = columns.list_relation(cast("Tree", select["from_table"]), enter_ctes(select, ctes)) or []
        for each in _list_expressions(select):
            for member, type_ in _find_types(each, below, postgres=postgres):
                if read_kind(member) == "VALUE_PARAMETER":
                    fill_unbound(literals[int(str(member["identifier"])) - 1], type_)


def _list_expressions(select: Tree) -> Iterator[Tree]:
    """Yield the nodes of a SELECT, but for those of SELECTs in it."""
    pending: list[object] = list(select.values())
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict) and not read_kind(each).endswith("_NODE"):
            yield each
            pending += each.values()


def _find_types(node: Tree, columns: Sequence[OuterColumn], *, postgres: bool) -> Iterator[tuple[Tree, Type]]:
    """Yield the parts of an expression with the type that they have for it to make sense."""
    kind, parts = str(node.get("class", "")), list[object]()
    if read_kind(node) == "LIMIT_MODIFIER":
        yield from ((each, BIGINT) for each in (node["limit"], node["offset"]) if isinstance(each, dict))
    elif kind == "CAST":
        yield cast("Tree", node["child"]), _find_type(node, columns)
    elif kind == "FUNCTION":
        parts = [each["expression"] for each in cast("list[Tree]", node["arguments"])]
        if _name(node) in _OF_TEXTS:
            yield from ((cast("Tree", each), TEXT) for each in parts)
        elif _name(node) == "round":
            yield from ((cast("Tree", each), BIGINT) for each in parts[1:])
        parts = parts if _name(node) in _OF_ARGUMENT else []
    elif kind == "COMPARISON":
        parts = [node["left"], node["right"]]
    elif kind == "BETWEEN":
        parts = [node["input"], node["lower"], node["upper"]]
    elif read_kind(node) in _OF_ONE_TYPE:
        parts = cast("list[object]", node["children"])
    members = cast("list[Tree]", parts)
    known = [type_ for type_ in (_find_type(each, columns) for each in members) if type_.family is not Family.NULL]
    if known:
        is_quotient = kind == "FUNCTION" and _name(node) == "/" and not postgres
        yield from ((each, DOUBLE if is_quotient and known[0].is_number else known[0]) for each in members)


def _find_type(node: Tree, columns: Sequence[OuterColumn]) -> Type:
    """Return the type of an expression; NULL where it is not known."""
    kind = str(node.get("class", ""))
    if kind == "COLUMN_REF":
        found = find_column(node, columns)
        return NULL if found is None or found.type is None else found.type
    if kind == "CONSTANT":
        return _LITERALS.get(str(cast("Tree", node.get("literal") or {}).get("kind")), NULL)
    if kind == "CAST":
        name = str(cast("Tree", node["type_expr"])["type_name"]).upper()
        return parse_type(_OTHER_NAMES.get(name, name))
    if kind != "FUNCTION":
        return NULL
    if _name(node) in {"count", "count_star"}:
        return BIGINT
    parts = [cast("Tree", each["expression"]) for each in cast("list[Tree]", node["arguments"])]
    known = (_find_type(each, columns) for each in parts if _name(node) in _OF_ARGUMENT)
    return next((each for each in known if each.family is not Family.NULL), NULL)


def _name(node: Tree) -> str:
    return ascii_lower(str(node["function_name"]))
