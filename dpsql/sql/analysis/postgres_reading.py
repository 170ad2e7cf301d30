r"""Differences of meaning between PostgreSQL and DuckDB in expressions of private and public queries.

A statement of the PostgreSQL port is analysed into the same typed nodes as any other: `LIKE 'a\_b'` becomes LIKE with
the escape that another surface writes as ESCAPE '\', and `/` of whole numbers the operator that is written // there.
So both have one identity, and one stored answer.

Differences of meaning between PostgreSQL and DuckDB in the SELECT around private queries, in DuckDB's syntax tree.

    a LIKE b               a LIKE b ESCAPE '\'
    a / b                  a // nullif(b, 0), whole for whole numbers; DuckDB's // of other numbers is its /
    sum(a)                 sum(a) + 0 as DECIMAL, where there is a division: the sum of a BIGINT is NUMERIC there
    EXTRACT(hour FROM ts)  as DOUBLE, where there is a division; so are round(a), trunc(a) and sign(a)
    a ~ 'b.c'              a dot is also found at the end of a line
    substring(a, 0, 3)     substring(a, 1, 2): the places before the first are counted
    ORDER BY a DESC        ORDER BY a DESC NULLS FIRST

An expression in a select list keeps the name that it has in DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.outer_columns import Tree, walk_tree
from dpsql.sql.ir.literals import Open, fill_unbound
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import BIGINT, TEXT, Call, Case, Cast, ColumnRef, Expression, Family, Literal, Scalar, children
from dpsql.sql.lexer import ScannedStatement, ascii_lower

BACKSLASH = Literal("\\", TEXT, 1)
_NUMERIC = frozenset(["date_part", "round", "trunc", "sign"])  # these return no integer there
_NUMERIC_WORDS = frozenset(["sum", "extract", *_NUMERIC])
_COMPUTED = re.compile(r"c\d+")  # the names of what subqueries compute
_SUMS = frozenset(["sum", "sum_sorted"])
_SMALLER = frozenset(["TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"])  # whose sum is a BIGINT there
_LIKES = {"~~": "like_escape", "!~~": "not_like_escape", "~~*": "ilike_escape", "!~~*": "not_ilike_escape"}
_UNFINISHED = r"(?s)^((?:[^\\]|\\.)*)\\$"  # a pattern that ends in an escape
_PATTERN_AND_OPTIONS = 3
_INTERVALS = re.compile(r"age|to_(?:second|minute|hour|day|week|month|quarter|year)s")
_OF_INTERVALS = frozenset(["+", "-", "*", "min", "max", "coalesce"])
_MOMENTS = frozenset(["now", "current_timestamp", "localtimestamp"])
_DOUBLE_FUNCTIONS = frozenset(["round", "trunc", "sign"])


def escape_by_backslash(pattern: Literal, escape: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """Return the escape of a LIKE: a backslash where none is written, and none where the written one is empty."""
    if escape:
        return () if escape[0].value == "" else escape
    return (BACKSLASH,) if "\\" in str(pattern.value) else ()


def divide_whole(left: Expression, right: Expression) -> tuple[str, Expression, Expression]:
    """Return the operator that `/` is, and its operands; a parameter of unknown type has that of the other side."""
    if isinstance(left, Open) and _is_whole(right):
        left = fill_unbound(left, BIGINT)
    if isinstance(right, Open) and _is_whole(left):
        right = fill_unbound(right, BIGINT)
    return "//" if _is_whole(left) and _is_whole(right) else "/", left, right


def _is_whole(expression: Expression) -> bool:
    """Return whether PostgreSQL gives an expression a type of integers, and not NUMERIC or DOUBLE PRECISION."""
    if expression.type.family is not Family.INTEGER or expression.type.name in {"HUGEINT", "UHUGEINT"}:
        return False
    match expression:
        case Cast(argument=Call(function="date_part" | "sum" | "sum_sorted") as inner):
            return _is_whole(inner) if inner.type.family is Family.INTEGER else _has_whole_sum(inner)
        case Call(function=function) if function in _NUMERIC:
            return False
        case Call(function=function) if function in _SUMS:
            return _has_whole_sum(expression)
        case Call(function="coalesce" | "greatest" | "least" | "+" | "-" | "*" | "//" | "%" | "neg" | "abs"):
            return all(_is_whole(each) for each in expression.arguments if each.type.family is Family.INTEGER)
        case Case():
            results = [result for _, result in expression.branches]
            return all(map(_is_whole, results))
        case Scalar():
            return _is_whole(expression.source.outputs[0])
    return True


def is_unsure(statement: ScannedStatement, operands: Iterable[Expression]) -> bool:
    """Return whether whole numbers that are divided may be NUMERIC in PostgreSQL, which their columns do not say.

    They are of a subquery, and the statement calls a function that is NUMERIC there and whole here.
    """
    if not any(map(_names_computed, operands)):
        return False
    return any(ascii_lower(token.text) in _NUMERIC_WORDS for token in statement.tokens)


def _names_computed(expression: Expression) -> bool:
    """Return whether an expression has a column of a subquery, unless it is cast."""
    if isinstance(expression, ColumnRef):
        return _COMPUTED.fullmatch(expression.name) is not None
    return not isinstance(expression, Cast) and any(map(_names_computed, children(expression)))


def _has_whole_sum(total: Call) -> bool:
    """Return whether a sum is a BIGINT in PostgreSQL: that of integers narrower than that."""
    return total.function in _SUMS and total.arguments[0].type.name in _SMALLER


def flag_pattern(pattern: str) -> str:
    """Return the options of a regular expression: in PostgreSQL a dot is also found at the end of a line."""
    return "s" if "." in pattern else ""


def adapt_arguments(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the arguments with which a function means what it means in PostgreSQL with these."""
    if function not in {"substring", "substr"}:
        return arguments
    numbers = [each.value for each in arguments[1:] if isinstance(each, Literal) and type(each.value) is int]
    if len(numbers) not in {1, 2} or len(numbers) != len(arguments) - 1:
        return arguments
    moved = zip(numbers, move_start(*numbers), strict=False)
    return (arguments[0], *(Literal(after, BIGINT) for _, after in moved))


def move_start(start: int, length: int = 0) -> tuple[int, int]:
    """Return where a substring begins in the text, and its length: PostgreSQL counts the places before the first."""
    moved = max(start, 1)
    return moved, max(start + length - moved, 0)


def read_as_postgres(
    nodes: Callable[[], Iterable[Tree]], values: Sequence[object], *, write: Callable[[Tree], str], place: Place | None
) -> bool:
    """Make DuckDB's syntax tree mean what its text means in PostgreSQL; return whether anything is divided in it.

    `nodes` yields all nodes of the tree, `values` are those of its parameters, and `write` returns the text of a
    SELECT. Raises `Refusal` for a pattern that PostgreSQL refuses.
    """
    found = list(nodes())
    calls = [node for node in found if str(node.get("type")) in {"FUNCTION", "WINDOW_AGGREGATE"}]  # others: no text
    divides = any(_name(node) == "/" for node in calls)
    changed = [node for node in calls if _is_other(node, values, divides=divides)]
    for select in [node for node in found if node.get("type") == "SELECT_NODE"] if changed else ():
        _name_items(select, {id(node) for node in changed}, write=write)
    for node in changed:
        _change(node, values, place=place)
    for node in found:
        if node.get("null_order") == "ORDER_DEFAULT" and node.get("type") == "DESCENDING":
            node["null_order"] = "NULLS FIRST"
    return divides


def _name(node: Tree) -> str:
    return ascii_lower(str(node["function_name"]))


def _arguments(node: Tree) -> list[Tree]:
    """Return the holders of the arguments of a call, each with its `expression`."""
    return cast("list[Tree]", node.get("arguments") or [])


def _is_other(node: Tree, values: Sequence[object], *, divides: bool) -> bool:
    """Return whether a call means another thing in PostgreSQL."""
    name, arguments = _name(node), [cast("Tree", each["expression"]) for each in _arguments(node)]
    if name in _LIKES:
        pattern = _read_value(arguments[1], values)
        return not isinstance(pattern, str) or "\\" in pattern
    if name in {"substring", "substr"}:
        start = _read_value(arguments[1], values) if len(arguments) > 1 else None
        return isinstance(start, int) and start < 1
    if name == "regexp_matches":
        pattern = _read_value(arguments[1], values) if 1 < len(arguments) <= _PATTERN_AND_OPTIONS else None
        return isinstance(pattern, str) and bool(flag_pattern(pattern))
    return (name == "/" and not _is_interval(arguments[0])) or (
        divides and (name in {"sum", "date_part"} or (name in _DOUBLE_FUNCTIONS and len(arguments) == 1))
    )


def _change(node: Tree, values: Sequence[object], *, place: Place | None) -> None:  # noqa: C901 - one rule after another
    """Make a call mean in DuckDB what it means in PostgreSQL."""
    name, arguments = _name(node), _arguments(node)
    if name in _LIKES:
        pattern = _read_value(cast("Tree", arguments[1]["expression"]), values)
        if not isinstance(pattern, str):  # one from a row may end in the escape, which DuckDB would fail on
            ends = (_constant("STRING", _UNFINISHED), _constant("STRING", r"\1"))
            arguments[1]["expression"] = _call("regexp_replace", cast("Tree", arguments[1]["expression"]), *ends)
        elif (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            hint = "Write two backslashes for one, or ESCAPE '' where a backslash is no escape."
            raise Refusal("pattern", "The pattern of LIKE ends in an escape.", hint=hint, place=place)
        arguments.append(_argument(_constant("STRING", "\\")))
        _rename(node, _LIKES[name])
    elif name in {"substring", "substr"}:
        start, *lengths = (_read_value(cast("Tree", each["expression"]), values) for each in arguments[1:])
        numbers = [each for each in (start, *lengths) if isinstance(each, int)]
        if len(numbers) == len(arguments) - 1:
            for argument, number, moved in zip(arguments[1:], numbers, move_start(*numbers), strict=False):
                written = cast("Tree", argument["expression"])  # a parameter, too, which must stay in the text
                # substring(a, $1, $2) of 0 and 3 becomes substring(a, $1 + 1, $2 + -1).
                argument["expression"] = _call("+", written, _constant("INTEGER", str(moved - number)))
    elif name == "regexp_matches":
        options = "".join(str(_read_value(cast("Tree", each["expression"]), values)) for each in arguments[2:])
        arguments[2:] = [_argument(_constant("STRING", f"{options}s"))]
    elif name == "/":
        _rename(node, "//")
        divisor = cast("Tree", arguments[1]["expression"])
        # A literal or a bound value other than 0 needs no NULLIF; of anything else the value is known only to DuckDB.
        if not _read_value(divisor, values):
            arguments[1]["expression"] = _call("nullif", divisor, _constant("INTEGER", "0"))
    elif name == "sum":
        _wrap(node, lambda inner: _call("+", inner, _cast(_constant("INTEGER", "0"), "DECIMAL", 1, 0)))
    else:
        _wrap(node, lambda inner: _cast(inner, "DOUBLE"))


def _read_value(node: Tree, values: Sequence[object]) -> object:
    """Return the text or the whole number of a literal, or the value of a parameter; None for anything else."""
    literal = node.get("literal")
    if isinstance(literal, dict):
        text = str(literal.get("text"))
        return text if literal.get("kind") == "STRING" else int(text) if literal.get("kind") == "INTEGER" else None
    return values[int(str(node["identifier"])) - 1] if node.get("type") == "VALUE_PARAMETER" else None


def _name_items(select: Tree, changed: set[int], *, write: Callable[[Tree], str]) -> None:
    """Name the items of a select list that are about to change as DuckDB names them unchanged."""
    for item in cast("list[Tree]", select["select_list"]):
        if not item.get("alias") and any(id(each) in changed for each in walk_tree(item)):
            alone = dict.fromkeys(select)
            alone |= {"type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [item]}
            alone |= {"group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING"}
            alone["from_table"] = {"type": "EMPTY", "alias": "", "sample": None}
            # The column of SELECT a / b is called (a / b), and would else be called (a // nullif(b, 0)).
            item["alias"] = write(alone).removeprefix("SELECT ")


def _is_interval(node: Tree) -> bool:
    """Return whether a node is an INTERVAL, as far as the text alone says so; such a one has no // in DuckDB."""
    name, arguments = ascii_lower(str(node.get("function_name", ""))), _arguments(node)
    parts = [cast("Tree", each["expression"]) for each in arguments] if name in _OF_INTERVALS else []
    if any(map(_is_interval, parts)):
        return True
    for part in parts if name == "-" else ():  # the difference of two moments
        names = [part.get("function_name"), *cast("list[str]", part.get("column_names") or [])]
        if _read_cast(part).startswith("timestamp") or not _MOMENTS.isdisjoint(map(str, names)):
            return True
    return _INTERVALS.fullmatch(name) is not None or _read_cast(node) == "interval"


def _read_cast(node: Tree) -> str:
    """Return the type to which a node is cast, in lower case, or nothing."""
    wanted = node.get("type_expr")
    return ascii_lower(str(wanted.get("type_name"))) if isinstance(wanted, dict) else ""


def _rename(node: Tree, name: str) -> None:
    node["function_name"], node["qualified_name"] = name, {"path": [name]}


def _wrap(node: Tree, around: Callable[[Tree], Tree]) -> None:
    """Put a node around another one, in its place and under its alias."""
    inner, alias = {**node, "alias": ""}, node["alias"]
    node.clear()
    node.update(around(inner), alias=alias)


def _argument(expression: Tree) -> Tree:
    return {"name": "", "expression": expression}


def _constant(kind: str, text: str) -> Tree:
    literal = {"kind": kind, "text": text}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}


def _call(name: str, *arguments: Tree) -> Tree:
    return {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "function_name": name,
        "schema": "",
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": not name.isalpha() and "_" not in name,
        "export_state": False,
        "catalog": "",
        "arguments": [_argument(each) for each in arguments],
        "qualified_name": {"path": [name]},
    }


def _cast(child: Tree, type_: str, *sizes: int) -> Tree:
    wanted = {
        "class": "TYPE",
        "type": "TYPE",
        "alias": "",
        "catalog": "",
        "schema": "",
        "type_name": type_,
        "children": [_constant("INTEGER", str(size)) for size in sizes],
        "qualified_name": {"path": [type_]},
    }
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "alias": "",
        "child": child,
        "try_cast": False,
        "type_expr": wanted,
    }


def read_sums_as_numeric(table: Tree, inner: PrivateQuery) -> None:
    """Let FROM read the sums of a released table as NUMERIC where they are that in PostgreSQL: those of a BIGINT."""
    names = list[str]()
    for output in inner.outputs:
        argument = inner.measures[output.measure].argument
        is_released = output.is_measure and output.divisor is None and output.end is None
        if is_released and argument is not None and argument.type.family is Family.INTEGER:
            names += [] if argument.type.name in _SMALLER else [output.name]
    if not names or table.get("column_name_alias"):
        return
    source = dict(table)
    table.clear()
    column: Tree = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": ""}
    replaced = [{"key": name, "value": _cast({**column, "column_names": [name]}, "DECIMAL", 38, 0)} for name in names]
    star: Tree = {
        "class": "STAR",
        "type": "STAR",
        "alias": "",
        "relation_name": "",
        "replace_list": replaced,
        "columns": False,
        "expr": None,
    }
    star |= {"exclude_list": [], "qualified_exclude_list": [], "rename_list": []}
    select: Tree = {
        "type": "SELECT_NODE",
        "modifiers": [],
        "cte_map": {"map": []},
        "select_list": [star],
        "from_table": source,
    }
    select |= {"where_clause": None, "group_expressions": [], "group_sets": [], "having": None, "sample": None}
    select |= {"aggregate_handling": "STANDARD_HANDLING", "qualify": None}
    table.update(
        type="SUBQUERY",
        alias=source["alias"],
        sample=None,
        subquery={"node": select, "named_param_map": []},
        column_name_alias=[],
    )
