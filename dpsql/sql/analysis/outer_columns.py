"""Columns of queries and relations in DuckDB's syntax tree, as far as its text says them.

    SELECT s.readers FROM (SELECT article, n AS readers FROM released) AS s JOIN topics USING (article)

Here s.readers is the output n of the private query, unchanged, and of its type. A column that is computed has a name
alone; where * stands for columns that are not known, none are.

This file has three parts: (1) `OuterColumns` and the walk over SELECTs; (2) from `type_parameters` on, the types of the
parameters of such a SELECT, from where they stand in it:

    WHERE n > $1        the type of n
    LIMIT $1            a whole number
    CAST($1 AS DATE)    a date

A client learns them before it binds values. A parameter anywhere else is of no known type. (3) From `couple_outputs`
on, outputs of private queries that meet in one expression:

    SELECT x.s / x.n FROM (SELECT SUM(price) AS s, COUNT(*) AS n FROM reads PRIVATE) AS x        s and n meet

Values meet in arithmetic, in functions and in comparisons. They do not in AND, OR and NOT, nor in the condition and the
result of CASE: what only decides whether a value is shown is not computed with it. A column is known by its name: what
a subquery calls n is taken for every output that is called n somewhere in the statement, so that measures are rather in
one set than apart where both may be meant. `couple_measures` (`measure_forms.py`) makes the sets of what meets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from dpsql.sql.analysis.measure_forms import couple_measures, is_released_number
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import BIGINT, DOUBLE, NULL, TEXT, Family, Literal, Type, parse_type
from dpsql.sql.lexer import ascii_lower

Tree = dict[str, object]
CTEs = Mapping[str, "tuple[Tree, CTEs] | None"]  # in scope, by name in lower case, each with those that it sees
_CHANGES_OF_STAR = ("exclude", "qualified_exclude", "replace", "rename")
_LEFT_ALONE = frozenset(["SEMI", "ANTI"])  # joins whose columns are those of the left side
_KEEPS_LEFT = frozenset(["LEFT", "FULL", "OUTER"])  # joins with rows for which the right side has none
_KEEPS_RIGHT = frozenset(["RIGHT", "FULL", "OUTER"])
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
Outputs = frozenset[tuple[int, int]]  # a private query by its number from 0, and the position of its output
_NONE: Outputs = frozenset()
_APART = frozenset(["and", "or", "not", "||", "concat", "concat_ws", "coalesce"])  # these compute no number of two
_TRUTHS = frozenset(["CONJUNCTION", "COMPARISON", "BETWEEN"])
_MAX_PASSES = 10  # aliases of aliases


@dataclass(frozen=True, slots=True)
class OuterColumn:
    """A column of a relation that is called `table`, which may be an `output` of a private query, both from 0.

    A column that `is_value` is a released value or computed from one, and so no key.
    """

    table: str
    name: str
    type: Type | None = None
    inner: int | None = None
    output: int = 0
    is_value: bool = False

    @property
    def computed(self) -> OuterColumn:
        """The column where it may have other values, such as NULL."""
        return replace(self, inner=None)


@dataclass(frozen=True, slots=True)
class OuterColumns:
    """Columns of all relations of a SELECT around private queries.

    `find_inner` returns the number, from 0, of the private query whose answer a table is, and `public` are the public
    tables by the last part of their paths.
    """

    inners: Sequence[PrivateQuery]
    public: Mapping[str, Table]
    find_inner: Callable[[Tree], int | None]

    def list_query(self, node: Tree, ctes: CTEs) -> list[OuterColumn] | None:
        """Return the columns of a query, in order; None where they are not known."""
        ctes = enter_ctes(node, ctes)
        if (sides := list_sides(node)) is not None:
            listed = [self.list_query(side, ctes) for side in sides]
            known = [each for each in listed if each is not None and len(each) == len(listed[0] or ())]
            return [_unite(column) for column in zip(*known, strict=True)] if len(known) == len(sides) else None
        if read_kind(node) != "SELECT_NODE":
            return None
        below = self.list_relation(cast("Tree", node["from_table"]), ctes)
        found = list[OuterColumn]()
        for item in cast("list[Tree]", node["select_list"]):
            if read_kind(item) == "STAR":
                if not is_plain_star(item) or below is None:
                    return None
                table = ascii_lower(str(item.get("relation_name") or ""))
                found += [each for each in below if table in {"", each.table}]
                continue
            column = find_column(item, below or ())
            if column is None:
                parts = (find_column(each, below or ()) for each in walk_tree(item))
                column = OuterColumn("", "", is_value=any(each is not None and each.is_value for each in parts))
            name = str(item.get("alias") or "") or (_read_names(item)[-1] if _read_names(item) else "")
            found.append(replace(column, name=name))
        return found if is_row_for_row(node) else [each.computed for each in found]

    def list_relation(self, relation: Tree, ctes: CTEs) -> list[OuterColumn] | None:
        """Return the columns of what FROM reads, in order; None where they are not known."""
        kind = read_kind(relation)
        if kind == "JOIN":
            form, join = str(relation["ref_type"]), str(relation["join_type"])
            left, right = (self.list_relation(cast("Tree", relation[side]), ctes) for side in ("left", "right"))
            if left is None or right is None or form == "NATURAL":
                return None
            if join in _LEFT_ALONE:
                return left
            # A column that may be NULL where the release has a value is no released column, only one of its type.
            if join in _KEEPS_RIGHT or form == "POSITIONAL":
                left = [each.computed for each in left]
            if join in _KEEPS_LEFT or form == "POSITIONAL":
                right = [each.computed for each in right]
            shared = {ascii_lower(str(name)) for name in cast("list[object]", relation.get("using_columns") or [])}
            return [*left, *(each for each in right if ascii_lower(each.name) not in shared)]
        if kind == "EMPTY":
            return []
        found: list[OuterColumn] | None = None
        if kind == "SUBQUERY":
            found = self.list_query(cast("Tree", cast("Tree", relation["subquery"])["node"]), ctes)
        elif kind == "BASE_TABLE":
            found = self._list_table(relation, ctes)
        if found is None:
            return None
        names = cast("list[str]", relation.get("column_name_alias") or [])
        table = ascii_lower(str(relation["alias"] or relation.get("table_name") or ""))
        return [replace(each, table=table) for each in _rename(found, names)]

    def _list_table(self, relation: Tree, ctes: CTEs) -> list[OuterColumn] | None:
        name = str(relation["table_name"])
        if not relation["schema_name"] and ascii_lower(name) in ctes:
            cte = ctes[ascii_lower(name)]
            found = None if cte is None else self.list_query(cast("Tree", cte[0]["query_node"]), cte[1])
            names = cast("list[str]", cte[0].get("aliases") or []) if cte is not None else []
            return None if found is None else _rename(found, names)
        if (inner := self.find_inner(relation)) is not None:
            typed = enumerate(zip(self.inners[inner].outputs, self.inners[inner].output_types, strict=True))
            return [OuterColumn("", out.name, type_, inner, at, out.key is None) for at, (out, type_) in typed]
        table = self.public.get(name)
        return None if table is None else [OuterColumn("", *column) for column in table.columns]


def list_sides(node: Tree) -> list[Tree] | None:
    """Return the queries whose rows are those of a UNION ALL; None for any other node."""
    is_union = read_kind(node) == "SET_OPERATION_NODE" and node.get("setop_type") == "UNION" and node.get("setop_all")
    return cast("list[Tree]", node.get("children") or [node["left"], node["right"]]) if is_union else None


def _unite(columns: Sequence[OuterColumn]) -> OuterColumn:
    """Return the column of a UNION ALL that has the values of several columns."""
    type_ = columns[0].type if len({each.type for each in columns}) == 1 else None
    return OuterColumn("", columns[0].name, type_, is_value=any(each.is_value for each in columns))


def find_column(node: Tree, columns: Iterable[OuterColumn]) -> OuterColumn | None:
    """Return the column that an expression is, among those of FROM; None for any other, and for one of two."""
    names = [ascii_lower(name) for name in _read_names(node)]
    found = [
        each for each in columns if names and ascii_lower(each.name) == names[-1] and names[:-1] in ([], [each.table])
    ]
    return found[0] if len(found) == 1 else None


def walk_selects(node: object, ctes: CTEs | None = None) -> Iterator[tuple[Tree, CTEs]]:
    """Yield every SELECT in a tree with the CTEs that it sees, each before those below it."""
    pending: list[tuple[object, CTEs]] = [(node, ctes or {})]
    while pending:
        value, seen = pending.pop()
        if isinstance(value, list):
            pending += [(each, seen) for each in reversed(value)]
        if not isinstance(value, dict):
            continue
        parts = dict(value)
        if read_kind(value).endswith("_NODE"):
            if read_kind(value) == "SELECT_NODE":
                yield value, seen
            if "cte_name" in value:  # what WITH RECURSIVE reads of itself
                # None hides a table or an outer CTE of the same name, and says that its columns are not known.
                seen = {**seen, ascii_lower(str(value["cte_name"])): None}
            for cte in list_ctes(value):
                pending.append((cte["value"], seen))
                seen = _add_cte(cte, seen)
            parts.pop("cte_map", None)
        pending += [(each, seen) for each in reversed(list(parts.values()))]


def walk_tree(value: object, *, enters: Callable[[Tree], bool] = lambda _: True) -> Iterator[Tree]:
    """Yield every node of a tree, each before those below it, which are left out where it does not `enter` them."""
    pending: list[object] = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending += reversed(each.values()) if enters(each) else ()
        elif isinstance(each, list):
            pending += reversed(each)


def is_in_select(node: Tree) -> bool:
    """Say whether a node is no query of its own, which has other names than the SELECT around it."""
    return not read_kind(node).endswith("_NODE")


def enter_ctes(node: Tree, ctes: CTEs) -> CTEs:
    """Return the CTEs in scope behind those of a query."""
    for cte in list_ctes(node):
        ctes = _add_cte(cte, ctes)
    return ctes


def _add_cte(cte: Tree, ctes: CTEs) -> CTEs:
    value = cast("Tree", cte["value"])
    node = cast("Tree", value["query_node"])
    is_known = read_kind(node) == "SELECT_NODE" or list_sides(node) is not None
    return {**ctes, ascii_lower(str(cte["key"])): (value, ctes) if is_known else None}


def list_ctes(node: Tree) -> list[Tree]:
    """Return the CTEs of a query, each with `key` and `value`."""
    found = node.get("cte_map")
    return cast("list[Tree]", found.get("map", [])) if isinstance(found, dict) else []


def read_kind(node: Tree) -> str:
    """Return the type of a node; other parts of the tree have a `type` that is none."""
    found = node.get("type")
    return found if isinstance(found, str) else ""


def is_row_for_row(node: Tree) -> bool:
    """Say whether a SELECT only chooses and computes from rows: it neither groups them nor makes them distinct."""
    modifiers = cast("list[Tree]", node.get("modifiers") or [])
    is_distinct = any(read_kind(each) == "DISTINCT_MODIFIER" for each in modifiers)
    return not (node.get("group_expressions") or node.get("having") or is_distinct)


def is_plain_star(star: Tree) -> bool:
    """Say whether * stands for all columns as they are."""
    return not any(star.get(part) for part in ("expr", "columns", *(f"{what}_list" for what in _CHANGES_OF_STAR)))


def _read_names(node: Tree) -> list[str]:
    return cast("list[str]", node.get("column_names") or []) if read_kind(node) == "COLUMN_REF" else []


def _rename(columns: Sequence[OuterColumn], names: Sequence[str]) -> list[OuterColumn]:
    """Return columns under the names that the first of them are given."""
    renamed = [replace(column, name=name) for column, name in zip(columns, names, strict=False)]
    return [*renamed, *columns[len(renamed) :]]


# Part 2: types of parameters.


def type_parameters(node: Tree, literals: Sequence[Literal], *, columns: OuterColumns, postgres: bool) -> None:
    """Fill the parameters without a value, which are open `literals` of $1, $2, ..., with what their places say.

    With `postgres`, the quotient of whole numbers is one.
    """
    for select, ctes in walk_selects(node):
        below = columns.list_relation(cast("Tree", select["from_table"]), enter_ctes(select, ctes)) or []
        for each in walk_tree(list(select.values()), enters=is_in_select):
            for member, type_ in _find_types(each, below, postgres=postgres):
                if read_kind(member) == "VALUE_PARAMETER":
                    fill_unbound(literals[int(str(member["identifier"])) - 1], type_)


def _find_types(node: Tree, columns: Sequence[OuterColumn], *, postgres: bool) -> Iterator[tuple[Tree, Type]]:
    """Yield the parts of an expression with the type that they have for it to make sense."""
    kind, parts = str(node.get("class", "")), list[object]()
    if read_kind(node) == "LIMIT_MODIFIER":
        yield from ((each, BIGINT) for each in (node["limit"], node["offset"]) if isinstance(each, dict))
    elif kind == "CAST":
        yield cast("Tree", node["child"]), _find_type(node, columns)
    elif kind == "FUNCTION":
        parts = [unwrap(each) for each in list_arguments(node)]
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
        wanted = cast("Tree", node.get("type_expr") or node["cast_type"])  # DuckDB 1.4 has the latter
        name = str(wanted.get("type_name") or wanted["id"]).upper()
        return parse_type(_OTHER_NAMES.get(name, name))
    if kind != "FUNCTION":
        return NULL
    if _name(node) in {"count", "count_star"}:
        return BIGINT
    parts = [unwrap(each) for each in list_arguments(node)]
    known = (_find_type(each, columns) for each in parts if _name(node) in _OF_ARGUMENT)
    return next((each for each in known if each.family is not Family.NULL), NULL)


def _name(node: Tree) -> str:
    return ascii_lower(str(node["function_name"]))


# Part 3: outputs that meet.


def couple_outputs(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> tuple[PrivateQuery, ...]:
    """Return the private queries with the sets of the outputs that meet in the SELECT.

    `tables` are the names under which it reads the answers.
    """
    walk = walk_outputs(node, inners, tables=tables)
    found = list[PrivateQuery]()
    for number, inner in enumerate(inners):
        meetings = [{at for owner, at in each if owner == number} for each in walk.meetings]
        found.append(couple_measures(inner, [each for each in meetings if len(each) > 1]))
    return tuple(found)


def walk_outputs(node: Tree, inners: Sequence[PrivateQuery], *, tables: Sequence[str]) -> OutputWalk:
    """Return a walk through the SELECT, with all that meets in it; none where no private query has two numbers."""
    walk = OutputWalk(defaultdict(lambda: _NONE), dict(zip(tables, inners, strict=True)))
    if not any(sum(is_released_number(inner, at) for at in range(len(inner.outputs))) > 1 for inner in inners):
        return walk
    for number, inner in enumerate(inners):
        for at, output in enumerate(inner.outputs):
            if is_released_number(inner, at):
                walk.names[ascii_lower(output.name)] |= {(number, at)}
    # In SELECT r / 2 FROM (SELECT s / n AS r ...) the name r is met before the expression that it is for: passes go on
    # until no name stands for more outputs than before.
    for _ in range(_MAX_PASSES):
        before = dict(walk.names)
        walk.find(node)
        if before == walk.names:
            break
    return walk


@dataclass(slots=True)
class OutputWalk:
    """One walk through a syntax tree; `names` are the outputs that a column of a name may be computed from."""

    names: dict[str, Outputs]
    answers: dict[str, PrivateQuery]  # by the names of their tables
    meetings: set[Outputs] = field(default_factory=set)

    def find(self, value: object) -> Outputs:
        """Return the outputs that a part of the tree is computed from, and note those that meet in it."""
        if isinstance(value, list):
            return self._unite(value)
        if not isinstance(value, dict):
            return _NONE
        found = self._find(value)
        if found and (alias := value.get("alias")):
            self.names[ascii_lower(str(alias))] |= found
        return found

    def _unite(self, values: Iterable[object]) -> Outputs:
        return _NONE.union(*map(self.find, values))

    def _find(self, node: Tree) -> Outputs:
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

    def _meet(self, found: Outputs, function: str) -> Outputs:
        if len(found) > 1 and ascii_lower(function) not in _APART:
            self.meetings.add(found)
        return found

    def _list_columns(self, node: Tree) -> Iterator[Outputs]:
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


def unwrap(argument: object) -> Tree:
    """Return an argument of a function, which newer trees have a node around."""
    node = cast("Tree", argument)
    return cast("Tree", node["expression"]) if "class" not in node and "expression" in node else node
