"""Engine SQL as DuckDB reads it: templates with named slots, and the `Writer`.

The `Writer` parenthesises everything and binds every value. Templates are written where they are needed, so that a
reader sees the query:

    compose(
        '''
        SELECT {keys}, system.main.count() AS dpsql_count
        FROM ({pairs})
        WHERE {condition}
        GROUP BY {keys}
        ''',
        keys=["dpsql_key_1", "dpsql_key_2"], pairs=pairs, condition="",
    )

is SELECT dpsql_key_1, dpsql_key_2, system.main.count() AS dpsql_count FROM (...) GROUP BY dpsql_key_1, dpsql_key_2.

What fills a slot is SQL already: a name that dpsql made, a quoted name, a number, or an expression of a `Writer`, which
binds every value of the analyst as a parameter. It is never the text of an analyst. Functions are written by their
qualified names, so that no macro can stand in for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

from dpsql.dialects import quote_name, quote_path
from dpsql.dialects.duckdb_releases import release
from dpsql.sql.ir.tree import (
    DATE,
    NULL,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Collate,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scalar,
    Scan,
    Sorted,
    Try,
    Type,
    Window,
    find_collations,
    walk,
)

_SLOT = re.compile(r"\{(\w+)\}")


def compose(template: str, **slots: str | int | Iterable[str]) -> str:
    """Return a template as one line, its slots filled; the parts of a list are separated by commas.

    A line of the template is left out if one of its slots is empty, as that of WHERE is without a condition.
    """
    filled = dict[str, str]()
    for name, slot in slots.items():
        filled[name] = slot if isinstance(slot, str) else f"{slot:d}" if isinstance(slot, int) else ", ".join(slot)
    text, is_open = "", True
    for line, names in _split_lines(template):
        if all(map(filled.__getitem__, names)):
            text += ("" if is_open or line[0] == ")" else " ") + line.format_map(filled)
            is_open = line[-1] == "("
    return text


@cache
def _split_lines(template: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the lines of a template, each with the names of its slots."""
    lines = list(filter(None, map(str.strip, template.splitlines())))
    return tuple(zip(lines, map(tuple, map(_SLOT.findall, lines)), strict=True))


def sort_nulls_last(names: Iterable[str]) -> str:
    """Return the terms that sort by the names in order, NULL last."""
    return ", ".join([f"{name} ASC NULLS LAST" for name in names])


_MANY = 16  # values from which one parameter is faster than one each
_INFIX = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "||", "&", "|"])
_ADDED = "system.main.list_aggregate(system.main.list_sort(system.main.list({{0}}), 'ASC', 'NULLS FIRST'), '{}')"
_FORMS = {
    "count_star": "system.main.count()",
    "count_distinct": "system.main.count(DISTINCT {0})",
    "is_distinct": "({0} IS DISTINCT FROM {1})",
    "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
    "is_null": "({0} IS NULL)",
    "is_true": "({0} IS TRUE)",
    "is_false": "({0} IS FALSE)",
    "not": "(NOT {0})",
    "neg": "(-{0})",
    "~": "(~{0})",
    "between": "({0} BETWEEN {1} AND {2})",
    "sum_sorted": _ADDED.format("sum"),
    "avg_sorted": _ADDED.format("avg"),
}


def format_direction(term: Sorted) -> str:
    """Return the direction of an ORDER BY term, with the position of NULLs."""
    return f"{'DESC' if term.descending else 'ASC'} NULLS {'FIRST' if term.nulls_first else 'LAST'}"


@dataclass(slots=True)
class Writer:
    """Writer of one statement, which collects its parameters in the order of their numbers."""

    native: ClassVar[bool] = True  # whether the statement is for DuckDB, with its fastest forms
    semi: ClassVar[str] = "SEMI"  # join with a relation of distinct rows and no column of its own
    wide: ClassVar[str] = "HUGEINT"  # type of whole numbers in which products of sums fit
    parameters: list[object] = field(default_factory=list)

    @property
    def lists(self) -> bool:
        """Whether the groups of a unit are ranked in lists and not by windows, with the forms of `list_form`."""
        return False

    def list_form(self, form: str, *operands: str) -> str:
        """Return one of the engine's forms that make a list of rows and read it."""
        raise NotImplementedError(form, operands)

    def finished(self, sql: str) -> str:
        """Return the whole statement as the engine reads it."""
        return sql

    def draw(self, names: Sequence[str], unit: str, *, salts: tuple[int, int]) -> str:
        """Return the 64-bit draw that orders the groups of a unit.

        The parts are hashed apart and once more together, since DuckDB's hash of several values only XORs in the last:
        an uneven draw.
        """
        # hash(xor(hash(xor(hash(hash(keys)), salt 1)), hash(xor(hash(unit), salt 2))))
        group = f"system.main.hash({', '.join(names)})"
        mixed = ", ".join(
            f"system.main.hash(system.main.xor(system.main.hash({part}), CAST({self.bind(salt)} AS UBIGINT)))"
            for part, salt in zip((group, unit), salts, strict=True)
        )
        return f"system.main.hash(system.main.xor({mixed}))"

    def divide_wide(self, left: str, right: str) -> str:
        """Return the quotient of two `wide` numbers, not negative and above 0, exactly and rounded down."""
        return f"({left} // {right})"

    def gather(self, rows: str, names: Sequence[str], *, unit: str) -> str:  # noqa: ARG002 - for other engines
        """Return a SELECT of unit and `names` as it is: DuckDB brings the rows of a unit together by itself."""
        return rows

    def listed(self, values: Sequence[int]) -> str:
        """Return a list of whole numbers as `looked_up` wants it."""
        return f"CAST({self.bind(list(values))} AS INTEGER[])"

    def looked_up(self, listed: str, position: str) -> str:
        """Return the expression for the number at a position, counted from 1."""
        return f"system.main.list_extract({listed}, {position})"

    def list_times(self, values: Sequence[Expression], name: str) -> str | None:
        """Return the SQL for rows of many times, which one parameter holds; None where each value needs its own."""
        types = {value.type if isinstance(value, Literal) else None for value in values}
        if len(values) < _MANY or types not in ({DATE}, {TIMESTAMP}):
            return None
        # (VALUES ('2026-01-01'), ('2026-01-02'), ...) becomes SELECT unnest(CAST($1 AS DATE[])) AS dpsql_key_1
        listed = self.bind([value.value for value in values if isinstance(value, Literal)])
        return f"SELECT unnest(CAST({listed} AS {values[0].type}[])) AS {name}"

    def bind(self, value: object) -> str:
        """Return the placeholder of a new parameter."""
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def expression(self, expression: Expression) -> str:
        """Return an expression as text."""
        match expression:
            case ColumnRef():
                return f"t{expression.relation}.{quote_name(expression.name)}"
            case Literal(value=value, type=type_):
                return "NULL" if type_ == NULL else f"CAST({self.bind(value)} AS {type_})"
            case Call():
                return self._call(expression)
            case Cast():
                return f"TRY_CAST({self.expression(expression.argument)} AS {expression.type})"
            case Try():
                return f"TRY({self.expression(expression.argument)})"
            case Collate():
                return f"({self.expression(expression.argument)} COLLATE C)"
            case Scalar() | Exists():
                selected = f"({self._select(expression.source)})"
                return selected if isinstance(expression, Scalar) else f"(EXISTS {selected})"
            case Case(branches=branches, default=default):
                parts = [f"WHEN {self.expression(when)} THEN {self.expression(then)}" for when, then in branches]
                parts += [] if default is None else [f"ELSE {self.expression(default)}"]
                return f"(CASE {' '.join(parts)} END)"
            case Window():
                return self._window(expression)
            case _:
                return self._among(expression)

    def check_order(self, type_: Type) -> None:
        """Raise `Unsupported` if the engine sorts values of a type in another order; it is DuckDB's."""

    def ordered(self, expression: Expression) -> str:
        """Return what ORDER BY sorts by."""
        return self.expression(expression)

    def _window(self, window: Window) -> str:
        call = Call(window.function, window.arguments, window.type)
        parts = [f"PARTITION BY {', '.join(map(self.expression, window.partition))}"] if window.partition else []
        if window.order:
            parts.append(self._order(window.order))
        # sum(x) OVER (PARTITION BY t1.a ORDER BY t1.b ASC NULLS LAST)
        over = f" OVER ({' '.join(parts)})"
        return self._extreme(call, over) if self._copies_subquery(call) else f"{self._call(call)}{over}"

    def _order(self, order: tuple[Sorted, ...]) -> str:
        return f"ORDER BY {', '.join(f'{self.ordered(term.expression)} {format_direction(term)}' for term in order)}"

    def _among(self, test: In | InQuery) -> str:
        if isinstance(test, InQuery):
            sought, found = self.meeting((test.argument, *test.source.outputs))
            return f"({self.expression(sought)} IN ({self._select(replace(test.source, outputs=(found,)))}))"
        argument, *choices = map(self.expression, self.meeting((test.argument, *test.choices)))
        return f"({argument} IN ({', '.join(choices)}))"

    def meeting(self, operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
        """Return the operands of one operation as they go together in the engine.

        Text that may be of several collations is compared by its bytes; DuckDB refuses to compare it otherwise.
        """
        # name = title, of the collations NOCASE and DE, becomes (name COLLATE C) = (title COLLATE C)
        collations = list(map(find_collations, operands))
        if len(frozenset[str]().union(*collations)) < 2:  # noqa: PLR2004 - one goes with itself, and with text of none
            return operands
        return tuple(
            Collate(operand, operand.type, operand.longest) if names - {"C"} else operand
            for operand, names in zip(operands, collations, strict=True)
        )

    def _copies_subquery(self, call: Call) -> bool:
        """Say whether DuckDB would copy a subquery to find the least or greatest text under a collation, and fail."""
        if not self.native or call.function not in {"min", "max"} or call.type.family is not Family.TEXT:
            return False
        return any(isinstance(part, InQuery | Exists | Scalar) for each in call.arguments for part in walk(each))

    def _extreme(self, call: Call, over: str = "") -> str:
        """Return the least or greatest text found as bytes, whose order is that of COLLATE C."""
        # max((SELECT ...)) becomes decode(max(encode((SELECT ...))))
        (argument,) = map(self.expression, call.arguments)
        return f"system.main.decode(system.main.{call.function}(system.main.encode({argument})){over})"

    def _call(self, call: Call) -> str:
        if self._copies_subquery(call):
            return self._extreme(call)
        together = call.arguments if call.function == "coalesce" else self.meeting(call.arguments)
        written = list(map(self.expression, together))
        if call.function in _INFIX:
            return f"({written[0]} {call.function} {written[1]})"
        if call.function in {"and", "or"}:
            return f"({f' {call.function.upper()} '.join(written)})"
        if call.function in {"like", "ilike"}:
            escape = f" ESCAPE {written[2]}" if len(written) > 2 else ""  # noqa: PLR2004 - the optional third operand
            return f"({written[0]} {call.function.upper()} {written[1]}{escape})"
        if call.function in _FORMS:
            return _FORMS[call.function].format(*written)
        if call.function == "coalesce":
            return f"COALESCE({', '.join(written)})"
        named = f"system.main.{call.function}({', '.join(written)})"
        cast = release().casts.get(call.function)
        return named if cast is None else f"CAST({named} AS {cast})"

    def relation(self, relation: Relation) -> str:
        """Return an item of FROM as text."""
        match relation:
            case Scan():
                return f"{quote_path(relation.path)} AS t{relation.number}"
            case Derived():
                return f"({self._select(relation)}) AS t{relation.number}"
            case Combined():
                branches = f" {relation.kind} ".join(f"({self._select(branch)})" for branch in relation.branches)
                return f"({branches}) AS t{relation.number}"
            case Cut():
                order = f" {self._order(relation.order)}" if relation.order else ""
                rows = f"{order} LIMIT {relation.limit:d} OFFSET {relation.offset:d}"
                return f"(SELECT * FROM {self.relation(relation.source)}{rows}) AS t{relation.number}"  # noqa: S608 - nothing in it is the analyst's text
            case Numbered():  # (VALUES (1), (2), (3)) AS t2(c1)
                rows = ", ".join(f"({each:d})" for each in range(1, relation.count + 1))
                return f"(VALUES {rows}) AS t{relation.number}(c1)"
            case Joined(kind="CROSS"):
                return f"({self.relation(relation.left)} CROSS JOIN {self.relation(relation.right)})"
            case Joined():  # (visits AS t1 LEFT JOIN cities AS t2 ON t1.city = t2.name)
                left, right = self.relation(relation.left), self.relation(relation.right)
                on = "" if relation.on is None else f" ON {self.expression(relation.on)}"
                return f"({left} {relation.kind} JOIN {right}{on})"

    def _select(self, derived: Derived) -> str:
        outputs = ", ".join(
            f"{self.expression(output)} AS c{index}" for index, output in enumerate(derived.outputs, start=1)
        )
        groups = f" GROUP BY {derived.grouping}" if derived.grouping else ""
        return f"SELECT {outputs} {self.body(derived.body)}{groups}"

    def select(self, columns: Sequence[str], body: FromWhere, *, where: str = "", distinct: bool = False) -> str:
        """Return SELECT of columns that are SQL already; `where` is one more condition on the rows of the body."""
        return f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(columns)} {self.body(body, where)}"

    def body(self, body: FromWhere, where: str = "") -> str:
        """Return FROM and WHERE as text, with one more condition that is SQL already if there is one."""
        source = self.relation(body.source)
        conditions = [] if body.where is None else [self.expression(body.where)]
        conditions += [where] if where else []
        return f"FROM {source} WHERE {' AND '.join(conditions)}" if conditions else f"FROM {source}"
