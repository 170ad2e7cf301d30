"""Statements over the small catalog, from PostgreSQL's words to SQLite's; and what their columns are called and are.

Nothing here guards anything: what SQLite may do with the words is decided where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from dpsql.server.catalog.minimal_tables import RELATIONS, type_named
from dpsql.server.catalog.query_result import CatalogError
from dpsql.server.catalog.statement_guard import private_table_error
from dpsql.sql.lexer import ascii_lower

__all__ = ["BUILT_IN", "PREFIX", "Translated", "cannot", "translated"]

PREFIX = "fn_"  # our own functions, distinct from those of SQLite
BUILT_IN = frozenset(
    "count max min coalesce ifnull nullif lower upper length substr substring trim ltrim rtrim replace like "
    "row_number group_concat".split()
)
_BOOLEAN, _BIGINT, _INTEGER, _OID, _TEXT = 16, 20, 23, 26, 25
_NUMBERS = {20, 21, 23, 26}
_TYPED = {
    "CurrentUser": "current_user",
    "SessionUser": "session_user",
    "CurrentSchema": "current_schema",
    "CurrentCatalog": "current_database",
    "CurrentDatabase": "current_database",
    "CurrentRole": "current_user",
    "Version": "version",
    "CurrentVersion": "version",
}
_PLAIN_ARRAY = re.compile(r"""\{("?)[^",{}\\]*\1(?:,("?)[^",{}\\]*\2)*\}""")
_IDENTIFIERS = {"regclass", "regtype", "regnamespace", "regproc"}
_TRUTHS = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement for SQLite, the OIDs of its parameters, and its columns so far as it names them itself."""

    sql: str
    parameters: tuple[int, ...]
    names: tuple[str, ...] | None
    types: tuple[int, ...]
    by_name: Mapping[str, int]


def cannot() -> CatalogError:
    """Return the refusal of what only a PostgreSQL could answer."""
    hint = "Ask the curator to install dpsql[bi] on the server: an empty PostgreSQL then answers tools."
    return CatalogError("0A000", "The built-in catalog cannot answer this statement.", hint=hint)


def translated(
    sql: str, functions: Mapping[str, int], *, tables: Collection[str], given: tuple[int, ...] = ()
) -> Translated:
    """Return a statement in SQLite's words; `functions` are ours with their types, `given` types of its parameters.

    `tables` are those of the policy, which it may not read.

    Raises `CatalogError`.
    """
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
        if not isinstance(tree, exp.Query):
            raise cannot()
        known = _placed(tree, tables)
        parameters = _parameters(tree, known, given=given)
        types = _Types(known, functions)
        selected = tree.selects
        starred = any(item.is_star for item in selected)
        names = None if starred else tuple(map(_name, selected))
        told = tuple(map(types.of, selected))
        spoken = _spoken(tree)
    except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError):
        raise cannot() from None
    return Translated(spoken, parameters, names, told, {name: oid for of in known.values() for name, oid in of.items()})


def _placed(tree: exp.Query, tables: Collection[str]) -> dict[str, Mapping[str, int]]:
    """Let every table name one of ours, and return the columns of each by what the statement calls it."""
    defined = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    known: dict[str, Mapping[str, int]] = {}
    for table in list(tree.find_all(exp.Table)):
        name, schema = table.name.lower(), table.db.lower()
        if isinstance(table.this, exp.Func):  # one that returns rows, some of which are our relations
            name = table.this.name.lower()
        if not schema and name in defined:
            continue
        key = f"information_schema.{name}" if schema == "information_schema" else name
        if table.name in tables:
            raise private_table_error()
        if key not in RELATIONS or schema not in {"", "pg_catalog", "information_schema"}:
            raise cannot()
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.set("this", exp.to_identifier(key, quoted=True))
        table.set("db", None)
        table.set("catalog", None)
        known[table.alias.lower()] = RELATIONS[key]
    return known


def _parameters(tree: exp.Query, known: Mapping[str, Mapping[str, int]], *, given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the type of each parameter: as the client says, else as a cast or the column beside it does, else text."""
    found: dict[int, int] = {}
    for each in tree.find_all(exp.Parameter):
        number, beside = int(each.name), each.parent
        oid = _TEXT
        if isinstance(beside, exp.Cast):
            oid = _TEXT if _type_name(beside) in _IDENTIFIERS else _cast_to(beside)
        elif isinstance(beside, exp.Binary):
            other = beside.right if beside.left is each else beside.left
            oid = _Types(known, {}).of(other)
        found[number] = oid if found.get(number, _TEXT) == _TEXT else found[number]
    most = max([*found, len(given)], default=0)
    told = [given[at] if at < len(given) and given[at] else found.get(at + 1, _TEXT) for at in range(most)]
    return tuple(told)


def _spoken(tree: exp.Query) -> str:
    """Return the words for SQLite, what is inside of something before the thing itself."""
    for node in reversed(list(tree.walk())):
        if isinstance(node, exp.Alias):  # a name may be one that SQLite has another use for
            node.set("alias", exp.to_identifier(node.alias, quoted=True))
        said = _step(node)
        if said is not node:
            node.replace(said)
    return tree.sql("sqlite", unsupported_level=ErrorLevel.IGNORE)


def _step(node: exp.Expr) -> exp.Expr:  # noqa: C901 - a case for each thing that SQLite says otherwise
    match node:
        case exp.Dot() if node.name != "*" and isinstance(node.expression, exp.Func):
            return node.expression
        case exp.Anonymous():
            return _call(node.name.lower(), *node.expressions)
        case exp.Column() if not node.table and not node.this.quoted and node.name.lower() == "user":
            return _call("current_user")
        case exp.Column() if node.db:
            return exp.column(node.this, table=node.args["table"])
        case exp.Parameter():
            return exp.Placeholder(this=f"p{node.name}")
        case exp.Boolean():
            return exp.Literal.number(int(node.this))
        case exp.Collate():
            found: exp.Expr = node.this
            return found
        case exp.RegexpLike():
            return _call("regexp", node.this, node.expression)
        case exp.Operator():
            return _operator(node)
        case exp.Cast():
            return _cast(node)
        case exp.ByteString():
            return exp.Literal.string(node.this)
        case _ if type(node).__name__ in _TYPED:
            return _call(_TYPED[type(node).__name__])
    return _without_array(node)


def _without_array(node: exp.Expr) -> exp.Expr:
    """Return a substitute for an array: stored arrays are those of keys, indexes and privileges, which have no rows."""
    match node:
        case exp.EQ() if isinstance(node.expression, exp.Any):
            return _among(node.this, node.expression.this)
        case exp.NEQ() if node.expression.name.lower() == f"{PREFIX}all" and node.expression.expressions:
            return exp.Not(this=_among(node.this, node.expression.expressions[0]))
        case exp.ArrayAgg():
            most = exp.Max(this=node.this.this if isinstance(node.this, exp.Order) else node.this)
            return _call("nullif", most, most.copy())
        case exp.Bracket() | exp.Explode():
            return exp.null()
        case exp.Array() if node.find_ancestor(exp.Any, exp.All) is None:
            return exp.null()
    return node


def _call(name: str, *values: exp.Expr) -> exp.Expr:
    own = name if name.startswith(PREFIX) or name in BUILT_IN else f"{PREFIX}{name}"
    return exp.Anonymous(this=own, expressions=list(values))


def _operator(node: exp.Operator) -> exp.Expr:
    """Return what OPERATOR(pg_catalog.~) and its like mean."""
    left, right = node.this, node.expression
    sign = str(node.args["operator"]).rpartition(".")[2]
    right = right.this if isinstance(right, exp.Collate) else right
    made: dict[str, Callable[[], exp.Expr]] = {
        "~": lambda: _call("regexp", left, right),
        "!~": lambda: exp.Not(this=_call("regexp", left, right)),
        "=": lambda: exp.EQ(this=left, expression=right),
    }
    if sign not in made:
        raise cannot()
    return made[sign]()


def _among(value: exp.Expr, listed: exp.Expr) -> exp.Expr:
    """Return x = ANY (ARRAY[...]) as IN; arrays that are stored belong to what is not here."""
    inner = listed.unnest()
    if isinstance(inner, exp.Literal) and _PLAIN_ARRAY.fullmatch(inner.name):
        spelled = inner.name.strip("{}").split(",")
        return exp.In(this=value, expressions=[exp.Literal.string(each.strip('"')) for each in spelled])
    if isinstance(inner, exp.Placeholder | exp.Literal):
        raise cannot()
    listed_here = isinstance(inner, exp.Array) and not isinstance(next(iter(inner.expressions), None), exp.Query)
    return exp.In(this=value, expressions=inner.expressions) if listed_here else exp.Literal.number(0)


def _type_name(node: exp.Cast) -> str:
    """Return the name of the type of a cast, without a schema."""
    return node.to.sql("postgres").lower().rpartition(".")[2]


def _cast_to(node: exp.Cast) -> int:
    name = _type_name(node)
    known = type_named(name)
    if name in _IDENTIFIERS:  # of a text it is looked up, and of a number the name is
        return _OID if isinstance(node.this, exp.Literal | exp.Parameter) else _TEXT
    return known.oid if known else _TEXT


def _cast(node: exp.Cast) -> exp.Expr:
    """Return a cast as SQLite has it: its values know their types, but for whole numbers and names of objects."""
    name = _type_name(node)
    if name in _IDENTIFIERS:
        return _call(name, node.this)
    if "[" in name:
        return _inner(node)
    return exp.cast(node.this, "int", copy=False) if _cast_to(node) in _NUMBERS else _inner(node)


def _inner(node: exp.Cast) -> exp.Expr:
    inner: exp.Expr = node.this
    return inner


def _name(item: exp.Expr) -> str:
    """Return what PostgreSQL calls a column."""
    if item.alias:
        return _folded(item.args["alias"])
    inner = item.unnest()
    while isinstance(inner, exp.Dot | exp.Cast):
        inner = inner.expression if isinstance(inner, exp.Dot) else inner.this
    if isinstance(inner, exp.Column):
        return _folded(inner.this)
    if isinstance(inner, exp.Case):
        return "case"
    if isinstance(inner, exp.Exists):
        return "exists"
    if isinstance(inner, exp.Anonymous):
        return inner.name.lower()
    return _TYPED.get(type(inner).__name__) or (inner.key if isinstance(inner, exp.AggFunc) else "?column?")


def _folded(name: exp.Expr) -> str:
    return name.name if name.args.get("quoted") else ascii_lower(name.name)


@dataclass(frozen=True, slots=True)
class _Types:
    """Types of a statement's expressions, from the relations that it reads and the known functions."""

    known: Mapping[str, Mapping[str, int]]
    functions: Mapping[str, int]

    def of(self, node: exp.Expr) -> int:
        """Return the OID of the type of an expression; what is not known is text."""
        node = node.this if isinstance(node, exp.Alias) else node
        node = node.unnest() if isinstance(node, exp.Paren) else node
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Dot() if isinstance(node.expression, exp.Func):
                return self.of(node.expression)
            case exp.Cast():
                return _cast_to(node)
            case exp.Count():
                return _BIGINT
            case exp.Literal():
                return _TEXT if node.is_string else _INTEGER
            case exp.Neg() | exp.Max() | exp.Min() | exp.Coalesce():
                return self.of(node.this)
            case exp.Subquery() | exp.Select():
                return self.of(node.selects[0]) if node.selects else _TEXT
            case exp.Case():
                branches = [branch.args["true"] for branch in node.args["ifs"]]
                return self.of(next((each for each in branches if not isinstance(each, exp.Null)), branches[0]))
            case exp.Anonymous():
                return self.functions.get(node.name.lower(), _TEXT)
        name = _TYPED.get(type(node).__name__)
        return self.functions.get(name, _TEXT) if name else _BOOLEAN if isinstance(node, _TRUTHS) else _TEXT

    def _column(self, node: exp.Column) -> int:
        name, table = node.name.lower(), node.table.lower()
        if table in self.known:
            return self.known[table].get(name, _TEXT)
        return next((columns[name] for columns in self.known.values() if name in columns), _TEXT)
