"""SELECT in DuckDB's own SQL around the answers of private queries: which tables it reads, as DuckDB parsed it.

It is post-processing of releases, and runs where only released and public rows are. So nothing of what it computes is
restricted; restricted is what it reads. DuckDB's syntax tree is walked by a closed list of its nodes: every table in it
is a CTE, a released answer, a public table of the policy or one of a few table functions, and anything else is refused.

A SELECT that only calls DETERMINISTIC functions returns the same from the same rows, whenever it is run. They are known
by a list, as DuckDB calls some readings of the clock consistent. Another SELECT is run each time, so a function that is
missing here costs time alone.

`rewrite_format` is PostgreSQL's reading of formats: TO_CHAR, TO_TIMESTAMP and TO_DATE with a format become strftime and
strptime. A date is compared as its midnight.

    to_char(ts, 'YYYY-MM-DD HH24:MI')        strftime(ts, '%Y-%m-%d %H:%M')
    to_date('2026-01-02', 'YYYY-MM-DD')      strptime('2026-01-02', '%Y-%m-%d')
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.outer_columns import OuterColumns, Tree, couple_outputs, list_ctes, type_parameters, walk_tree
from dpsql.sql.analysis.outer_columns import read_kind as _kind
from dpsql.sql.analysis.outer_intervals import add_interval_ends, add_ratio_ends, clip_shares
from dpsql.sql.analysis.postgres_reading import read_as_postgres, read_sums_as_numeric
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.scope import propose_name, refuse_stored
from dpsql.sql.ir.statements import Explained, OuterSelect, OutputMeasure, PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import BIGINT, FromWhere, Literal, Scan, stored_column
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.spans import name_released

_HOME = ("memory", "dpsql evaluator")  # where the evaluator has the released and the public tables
_NODES = frozenset(["SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"])
_RELATIONS = frozenset(["BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION", "PIVOT"])
_TABLE_FUNCTIONS = frozenset(["unnest", "range", "generate_series", "repeat", "json_each", "json_tree"])
_FORBIDDEN_FUNCTIONS = frozenset(
    "current_setting getenv getvariable nextval currval setval query query_table current_query write_log sleep_ms "
    "pg_sleep json_serialize_plan json_serialize_sql json_deserialize_sql".split()
)
_PATH = ("catalog_name", "schema_name", "table_name")
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "COMPARE_EQUAL": operator.eq,
    "COMPARE_NOTEQUAL": operator.ne,
    "COMPARE_LESSTHAN": operator.lt,
    "COMPARE_LESSTHANOREQUALTO": operator.le,
    "COMPARE_GREATERTHAN": operator.gt,
    "COMPARE_GREATERTHANOREQUALTO": operator.ge,
}
_MAX_LEVELS = 500  # of JSON: a function in a function is two
DETERMINISTIC = frozenset(
    """
    + - * / // % ** ^ || ~~ !~~ ~~* !~~* & | << >> ~ !
    abs array_contains array_extract array_length avg bool_and bool_or ceil ceiling char_length concat concat_ws
    contains count count_star date_diff date_part date_trunc datediff datepart datetrunc day dense_rank exp
    first_value floor generate_series greatest if ifnull instr isnan lag last_value lead least left len length
    like_escape list_aggregate list_avg list_contains list_count list_extract list_max list_min list_sort list_sum
    list_value ln log log10 lower lpad ltrim max md5 median min mod month not_like_escape nullif power pow
    quantile_cont quantile_disc quarter range rank regexp_extract regexp_full_match regexp_matches regexp_replace
    repeat replace reverse right round row row_number rpad rtrim sign split_part sqrt starts_with stddev stddev_pop
    stddev_samp strftime string_split string_to_array strlen struct_extract struct_pack strptime substr substring
    sum to_days to_hours to_minutes to_months to_seconds to_years trim trunc ucase lcase unnest upper var_pop
    var_samp variance week weekday year
    """.split()
)
_CLOCK_OR_USER = ("current_", "local", "user", "session_user", "now", "today")  # beginnings of words without ( )
PATTERNS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "Mon": "%b",
    "FMMonth": "%B",
    "DDD": "%j",
    "DD": "%d",
    "Dy": "%a",
    "FMDay": "%A",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
}
_WITH_FORMAT = {"to_char": "strftime", "to_timestamp": "strptime", "to_date": "strptime"}
ASK_INSIDE = "where TOP k PRIVATE is"  # `outer_select.py` knows the hint by these words
_TOKEN = re.compile(f'({"|".join(sorted(PATTERNS, key=len, reverse=True))})|"([^"]*)"|([^A-Za-z"])')


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
    released: list[tuple[int, Tree]] = field(default_factory=list)  # tables that stand for private queries, from 1
    names: set[str] = field(default_factory=set)  # words that may be columns
    takes_all: bool = False


def read_outer_tree(  # noqa: PLR0913 - the parts of a statement
    text: str,
    inners: tuple[PrivateQuery, ...],
    *,
    parameters: tuple[Literal, ...],
    parser: SelectParser,
    catalog: Catalog,
    place: Place | None,
    explained: Explained = Explained.NO,
    postgres: bool = False,
) -> OuterSelect:
    """Return a SELECT that reads the answers of private queries by `name_released`; raise `Refusal` or `Unsupported`.

    `parameters` are the values of $1, $2 and so on. A private query in a CTE that nothing reads is left out. With
    `postgres`, the text means what it means in PostgreSQL.
    """
    node = _parse(text, parser, place=place)
    walk = _Walk(catalog, inners, place)
    nodes = list(walk_tree(node))
    unknown = any(_kind(each).endswith("_NODE") and _kind(each) not in _NODES for each in nodes)
    if unknown or _kind(node) not in _NODES:
        raise _refuse_node(walk)
    # a CTE that nothing reads any more is taken out; those of the private queries may read private tables
    for query in reversed([each for each in nodes if list_ctes(each)]):
        ctes = {ascii_lower(str(cte["key"])): cte for cte in list_ctes(query)}
        wanted = set[str]()
        pending = _list_names({part: value for part, value in query.items() if part != "cte_map"})
        while pending:
            wanted |= pending
            pending = {name for each in pending & ctes.keys() for name in _list_names(ctes[each])} - wanted
        query["cte_map"] = {"map": [cte for name, cte in ctes.items() if name in wanted]}
    _visit(walk, node)
    values = tuple(each.value for each in parameters)
    read = sorted({number for number, _ in walk.released})
    for number, table in walk.released:
        _set_path(table, released_path(read.index(number) + 1))
    # A private query that only an unread CTE names is not run; those left are numbered from 1 again, in their order.
    inners = tuple(inners[number - 1] for number in read)
    beside = tuple((_public_path(name), _fetch(table, walk)) for name, table in walk.public.items())
    columns = OuterColumns(inners, {_public_path(name)[-1]: table for name, table in walk.public.items()}, _find_inner)
    type_parameters(node, parameters, columns=columns, postgres=postgres)
    divides = False
    if postgres:
        divides = read_as_postgres(
            partial(walk_tree, node), values, write=partial(_write, parser=parser, place=place), place=place
        )
    listed = list(enumerate(columns.list_query(node, {}) or ()))
    is_empty = bool(inners) and not _reads_released(node, values, number=len(inners))
    visible = tuple(len(inner.outputs) for inner in inners)
    tables = [released_path(number)[-1] for number in range(1, len(inners) + 1)]
    coupled: tuple[PrivateQuery, ...] | None = None
    with suppress(RecursionError):
        coupled = couple_outputs(node, inners, tables=tables)
    if coupled is None:
        raise _refuse_depth(place)
    columns = replace(columns, inners=coupled)
    ratios = () if postgres else add_ratio_ends(node, columns)  # PostgreSQL's clients show no table of ours
    inners = add_interval_ends(node, columns, path=lambda at: released_path(at + 1, with_ends=True), place=place)
    clip_shares(node, inners, tables=tables)
    if divides:
        paths = {
            released_path(at + 1, with_ends=ends): inner for at, inner in enumerate(inners) for ends in (False, True)
        }
        for table in [each for each in walk_tree(node) if _kind(each) == "BASE_TABLE"]:
            path = cast("tuple[str, str, str]", tuple(table[part] for part in _PATH))
            if path in paths:
                read_sums_as_numeric(table, paths[path])
    return OuterSelect(
        inners=inners,
        sql=_write(node, parser, place=place),
        parameters=values,
        beside=beside,
        measures=tuple(OutputMeasure(at, each.inner, each.output) for at, each in listed if each.inner is not None),
        values=tuple(at for at, each in listed if each.is_value),
        visible=visible,
        is_empty=is_empty,
        place=place,
        explained=explained,
        is_deterministic=not any(map(_may_change, walk_tree(node))),
        ratios=ratios,
        aliases=_list_aliases(node),
    )


def find_ungrouped(
    text: str, names: Collection[str], *, columns: Collection[str], parser: SelectParser
) -> frozenset[str]:
    """Return the bare columns of a SELECT that are none of its outputs, in lower case, and "*"; none without a tree.

    An output that has the name of one of the `columns` of a table counts as that column, but where it is all of a term
    of ORDER BY. What is in a subquery or a lambda is left out.
    """
    found: Tree = {"error": True}
    with suppress(RecursionError):
        found = json.loads(parser.parse(text))
    if found["error"]:
        return frozenset()
    node = cast("Tree", cast("list[Tree]", found["statements"])[0]["node"])
    modifiers = cast("list[Tree]", node.get("modifiers") or [])
    terms = [
        cast("Tree", term["expression"])
        for modifier in modifiers
        for term in cast("list[Tree]", modifier.get("orders") or [])
    ]
    terms = [term for term in terms if term.get("class") != "STAR"]  # ORDER BY ALL
    alone = [term for term in terms if term.get("type") == "COLUMN_REF"]
    others = [term for term in terms if term.get("type") != "COLUMN_REF"]
    found_names = set(_list_bare([others, *(node.get(part) for part in ("select_list", "where_clause", "qualify"))]))
    outputs = set(names) - {"*"}
    return frozenset((found_names - (outputs - set(columns))) | (set(_list_bare(alone)) - outputs))


def _list_bare(value: object) -> Iterator[str]:
    """Yield the columns of an expression that are written without a table, and "*"."""
    for each in walk_tree(value, enters=lambda node: node.get("class") not in {"SUBQUERY", "LAMBDA"}):
        if each.get("class") == "STAR":
            yield "*"
        if each.get("type") == "COLUMN_REF":
            columns = cast("list[str]", each["column_names"])
            yield from [ascii_lower(columns[-1])] if len(columns) == 1 else []


def _parse(text: str, parser: SelectParser, *, place: Place | None) -> Tree:
    found: Tree | None = None
    with suppress(RecursionError):
        found = json.loads(parser.parse(text))
    if found is None:
        raise _refuse_depth(place)
    if found["error"]:
        reason = str(found.get("error_message", "")).split("\n", maxsplit=1)[0].rstrip(".!")
        if "depth limit" in reason:
            raise _refuse_depth(place)
        hint = "Around a private query write DuckDB's SQL: one SELECT."
        raise Refusal("syntax", f"DuckDB cannot read the SELECT: {reason}.", hint=hint, place=place)
    statements = cast("list[Tree]", found["statements"])
    if len(statements) != 1:
        hint = "Send one statement at a time."
        raise Refusal("multiple", "There is more than one statement.", hint=hint, place=place)
    node = cast("Tree", statements[0]["node"])
    level: list[object] = [node]
    for _ in range(_MAX_LEVELS):
        level = [below for value in level for below in _values(value) if isinstance(below, dict | list)]
        if not level:
            return node
    raise _refuse_depth(place)


def _write(node: Tree, parser: SelectParser, *, place: Place | None) -> str:
    tree: str | None = None
    with suppress(RecursionError):
        tree = json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})
    if tree is None:
        raise _refuse_depth(place)
    return parser.write(tree)


def _values(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _list_names(node: Tree) -> set[str]:
    """Return the bare names of all tables in a node."""
    tables = (each for each in walk_tree(node) if _kind(each) == "BASE_TABLE")
    return {ascii_lower(str(table["table_name"])) for table in tables}


def _visit(walk: _Walk, node: Tree) -> None:
    """Check a query, and all below it, where the names of CTEs in scope mean those."""
    # A list in place of recursion: `_parse` lets 500 levels of JSON through.
    pending: list[tuple[object, frozenset[str]]] = [(node, frozenset())]
    while pending:
        value, ctes = pending.pop()
        if not isinstance(value, dict):
            pending += [(below, ctes) for below in reversed(list(_values(value)))]
            continue
        kind = _kind(value)
        parts = list(value.values())
        if kind.endswith("_NODE"):
            ctes = _enter_ctes(walk, value, pending=pending, ctes=ctes)
            hidden = {"cte_map", "select_list"} if _is_released(value) else {"cte_map"}
            parts = [below for part, below in value.items() if part not in hidden]
        elif "class" in value:
            _visit_expression(walk, value, kind=kind)
        elif "sample" in value:
            _visit_relation(walk, value, kind=kind, ctes=ctes)
        pending += [(below, ctes) for below in reversed(parts)]


def _is_released(node: Tree) -> bool:
    """Say whether a query stands for a private one, as FROM "dpsql released 1" does: its star is of no public table."""
    table = cast("Tree", node.get("from_table") or {})
    is_star = [_kind(each) for each in cast("list[Tree]", node.get("select_list") or [])] == ["STAR"]
    return is_star and not table.get("schema_name") and str(table.get("table_name")).startswith(name_released(1)[:-1])


def _enter_ctes(
    walk: _Walk, node: Tree, *, pending: list[tuple[object, frozenset[str]]], ctes: frozenset[str]
) -> frozenset[str]:
    """Add the CTEs of a query to what is `pending`; return the names in scope behind them."""
    seen = ctes
    for cte in list_ctes(node):
        inner = cast("Tree", cast("Tree", cte["value"])["query_node"])
        if _kind(inner) not in _NODES:
            raise _refuse_node(walk)
        name = ascii_lower(str(cte["key"]))
        # WITH t AS (SELECT * FROM t) reads the table t: only a recursive CTE sees its own name.
        pending.append((inner, seen | {name} if _kind(inner) == "RECURSIVE_CTE_NODE" else seen))
        seen |= {name}
    if _kind(node) in {"CTE_NODE", "RECURSIVE_CTE_NODE"}:
        seen |= {ascii_lower(str(node.get("ctename") or node.get("cte_name") or ""))}
    return seen


def _visit_expression(walk: _Walk, node: Tree, *, kind: str) -> None:
    if kind == "COLUMN_REF":
        names = [str(name) for name in cast("list[object]", node["column_names"])]
        walk.names.update(map(ascii_lower, names))
        # the table has no schema where the SELECT is run; a part after the column is a field of it
        for before in (2, 1):
            if len(names) > before + 1 and walk.catalog.find_path(names[: before + 1]) is not None:
                names = names[before:]
                break
        node["column_names"] = names
    elif kind in {"STAR", "POSITIONAL_REFERENCE"}:
        walk.takes_all = True
    elif ascii_lower(str(node.get("function_name", ""))) in _FORBIDDEN_FUNCTIONS:
        reason = f"{str(node['function_name']).upper()} is not computed around a private query."
        hint = "Leave it out: there are no settings and no other tables, and nothing waits."
        raise Unsupported("function", reason, hint=hint, place=walk.place)
    elif kind == "FUNCTION":
        rewrite_format(node, walk.place)


def _may_change(node: Mapping[str, object]) -> bool:
    """Say whether a node takes a sample, reads the clock, or calls a function that is not listed."""
    if node.get("sample"):
        return True
    columns = node.get("column_names")
    if isinstance(columns, list):
        return any(ascii_lower(str(name)).startswith(_CLOCK_OR_USER) for name in columns)
    function = node.get("function_name")
    return function is not None and ascii_lower(str(function)) not in DETERMINISTIC


def rewrite_format(node: Tree, place: Place | None) -> None:
    """Make strftime or strptime of a call with PostgreSQL's format in DuckDB's tree; leave any other call as it is.

    Raises `Unsupported` for a format that is no literal, or has a pattern that DuckDB lacks.
    """
    arguments = cast("list[Tree]", node.get("arguments") or [])
    function = ascii_lower(str(node["function_name"]))
    if function not in _WITH_FORMAT or len(arguments) != len(("value", "format")):
        return
    instead = _WITH_FORMAT[function]
    literal = cast("Tree", arguments[1]["expression"]).get("literal")
    text = literal.get("text") if isinstance(literal, dict) and literal.get("kind") == "STRING" else None
    form = None if text is None else translate_format(str(text))
    if form is None or not isinstance(literal, dict):
        hint = f"Write {instead}(x, '%Y-%m-%d'), or {function} with a literal of {', '.join(sorted(PATTERNS))}."
        raise Unsupported("function", f"This format of {function.upper()} is not known.", hint=hint, place=place)
    literal["text"] = form
    node["function_name"] = instead
    node["qualified_name"] = {"path": [instead]}


def translate_format(text: str) -> str | None:
    """Return a format of TO_CHAR as one of strftime; None for one that has no equal."""
    found, at = "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        pattern, quoted, other = token.groups()
        found += PATTERNS[pattern] if pattern else (quoted if quoted is not None else other).replace("%", "%%")
        at = token.end()
    return found


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
            raise Unsupported("function", reason, hint=hint, place=walk.place)
    elif kind == "BASE_TABLE":
        _rename(walk, node, ctes=ctes)


def _rename(walk: _Walk, node: Tree, *, ctes: frozenset[str]) -> None:
    """Give a table the path at which the evaluator has it; refuse a private one, and one that is not there."""
    name, schema = str(node["table_name"]), str(node["schema_name"])
    if not schema and ascii_lower(name) in ctes:
        return
    node["alias"] = node["alias"] or name
    numbers = range(1, len(walk.inners) + 1)
    number = next((at for at in numbers if name == name_released(at) and not schema), None)
    if number is not None:
        walk.released.append((number, node))
        return
    table = walk.catalog.find(name, schema, database=str(node["catalog_name"]))
    if table is None:
        near = propose_name(name, [table.name for table in walk.catalog.tables])
        hint = f"{near}SHOW TABLES lists the tables of the policy."
        raise Refusal("unknown-table", f'There is no table "{name}" here.', hint=hint, place=walk.place)
    if table.privacy_unit is not None:
        reason = "A SELECT over the answer of a private query may read no private table besides."
        hint = f"Ask about the table inside, {ASK_INSIDE}, or in a statement of its own."
        raise Refusal("wrapping", reason, hint=hint, place=walk.place)
    if table.has_ended:
        raise refuse_stored(table, walk.place)
    walk.public[table.name] = table
    _set_path(node, _public_path(table.name))


def _set_path(node: Tree, path: tuple[str, str, str]) -> None:
    node["catalog_name"], node["schema_name"], node["table_name"] = path
    node["qualified_name"] = {"path": list(path)}


def released_path(number: int, *, with_ends: bool = False) -> tuple[str, str, str]:
    """Return where the evaluator has the answer of a private query, numbered from 1, without or with hidden columns."""
    return (*_HOME, f"released {number} with ends" if with_ends else f"released {number}")


def _public_path(name: str) -> tuple[str, str, str]:
    return (*_HOME, f"public {name}")


def _fetch(table: Table, walk: _Walk) -> PublicQuery:
    """Return the query for the columns of a public table that the SELECT may name; a constant where it names none."""
    takes_all = walk.takes_all or bool(table.stored_kind) or ascii_lower(table.name.rpartition(".")[2]) in walk.names
    wanted = [(name, type_) for name, type_ in table.columns if takes_all or ascii_lower(name) in walk.names]
    outputs = tuple(stored_column(1, name, type_=type_) for name, type_ in wanted) or (Literal(1, BIGINT),)
    names = tuple(name for name, _ in wanted) or ("1",)
    return PublicQuery(names=names, outputs=outputs, body=FromWhere(Scan(1, table.path), None))


def _find_inner(table: Tree) -> int | None:
    """Return the number, from 0, of the private query whose answer a table is; None for any other."""
    path = tuple(table[part] for part in _PATH)
    is_released = path[:2] == _HOME and str(path[2]).startswith("released ")
    return int(str(path[2]).split()[1]) - 1 if is_released else None


def _list_aliases(node: Tree) -> tuple[str | None, ...]:
    """Return the aliases of the columns of a query, up to the first star."""
    while _kind(node) == "SET_OPERATION_NODE":
        node = cast("Tree", (node.get("children") or [node["left"]])[0])  # type: ignore[index]
    items = cast("list[Tree]", node.get("select_list") or [])
    stars = [at for at, item in enumerate(items) if _kind(item) == "STAR"]
    return tuple(str(item.get("alias") or "") or None for item in items[: stars[0] if stars else None])


def _reads_released(root: Tree, values: Sequence[object], *, number: int) -> bool:
    """Say whether the answer can depend on released rows; not where LIMIT 0, or WHERE 1 = 0, is around all of them."""
    paths = {released_path(at) for at in range(1, number + 1)}
    pending: list[tuple[object, dict[str, tuple[object, dict[str, object]]]]] = [(root, {})]
    visited = set[int]()
    while pending:
        value, ctes = pending.pop()
        if not isinstance(value, dict):
            pending += [(below, ctes) for below in _values(value)]
            continue
        if id(value) in visited:
            continue
        visited.add(id(value))
        kind, parts = _kind(value), dict(value)
        if kind == "BASE_TABLE":
            if (value["catalog_name"], value["schema_name"], value["table_name"]) in paths:
                return True
            read = None if value["schema_name"] else ctes.get(ascii_lower(str(value["table_name"])))
            pending += [] if read is None else [cast("tuple[object, dict[str, Any]]", read)]
        elif kind in _NODES:
            if _selects_none(value, values):
                continue
            for cte in list_ctes(value):
                seen = cast("dict[str, object]", ctes)
                ctes = {**ctes, ascii_lower(str(cte["key"])): (cast("Tree", cte["value"])["query_node"], seen)}
            parts.pop("cte_map", None)
            if _is_true(parts.get("where_clause")) is False:
                # SELECT count(*), (SELECT n FROM released) FROM t WHERE 1 = 0 has a row, which reads the answer.
                del parts["where_clause"], parts["from_table"]
        pending += [(below, ctes) for below in parts.values()]
    return False


def _selects_none(node: Tree, values: Sequence[object]) -> bool:
    """Say whether a query ends in LIMIT 0."""
    for modifier in cast("list[Tree]", node.get("modifiers") or []):
        limit = modifier.get("limit") if _kind(modifier) == "LIMIT_MODIFIER" else None
        if not isinstance(limit, dict):
            continue
        if limit.get("class") == "PARAMETER":
            value = values[int(str(limit["identifier"])) - 1]
            return type(value) is int and value == 0
        return _read_constant(limit) == ("INTEGER", "0")
    return False


def _is_true(node: object) -> bool | None:
    """Return whether a condition holds, where the text alone decides it; NULL does not hold. None for any other."""
    if not isinstance(node, dict):
        return None
    kind = _kind(node)
    if kind == "VALUE_CONSTANT":
        kind, text = _read_constant(node) or ("", "")
        return False if kind == "NULL_LITERAL" else text == "true" if kind == "BOOLEAN" else None
    if kind == "OPERATOR_NOT":
        found = _is_true(cast("list[object]", node["children"])[0])
        return None if found is None else not found
    if kind == "CONJUNCTION_AND":
        return False if any(_is_true(child) is False for child in cast("list[object]", node["children"])) else None
    if kind == "CONJUNCTION_OR":
        return False if all(_is_true(child) is False for child in cast("list[object]", node["children"])) else None
    if kind in _COMPARED:
        left, right = (_read_constant(cast("Tree", node[side])) for side in ("left", "right"))
        if left is not None and right is not None and left[0] == right[0] == "INTEGER":
            return _COMPARED[kind](int(left[1]), int(right[1]))
    return None


def _read_constant(node: Tree) -> tuple[str, str] | None:
    """Return kind and text of a literal."""
    literal = node.get("literal")
    return (str(literal.get("kind")), str(literal.get("text"))) if isinstance(literal, dict) else None


def _refuse_depth(place: Place | None) -> Refusal:
    hint = "Nest fewer subqueries and functions in each other, and shorten long sums."
    return Refusal("too-large", "The SELECT around the private query nests too deeply.", hint=hint, place=place)


def _refuse_node(walk: _Walk) -> Unsupported:
    reason = "Around a private query only SELECT over released and public rows is run."
    hint = "Leave out DESCRIBE, SHOW and statements that change tables."
    return Unsupported("wrapping", reason, hint=hint, place=walk.place)
