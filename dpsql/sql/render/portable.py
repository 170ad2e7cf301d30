"""The writer for engines that are not DuckDB: the same statement, each call in the form that the engine's dialect has.

The statement is first written as DuckDB's, with a mark for every form. sqlglot reads it, the marks become the forms,
and sqlglot writes the tree for the engine: its quotes, its types, its order of NULLs. What has no form is refused.

A unit's groups are drawn by the dialect's own keyed hash, under the session's salts. Where it has none, unit and keys
become one text, from which each of them could be read again, and its digest is the draw.

The input of `translate` comes only from the writers of this package: marks become forms, the few functions that the
rewriter itself uses become standard ones, and parameters get the syntax of the engine's client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from functools import cache, reduce
from typing import TYPE_CHECKING, ClassVar, cast

from dpsql.dialects import DUCKDB, Dialect
from dpsql.errors import Unsupported
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import (
    BOOLEAN,
    NULL,
    TEXT,
    Call,
    Cast,
    Collate,
    ColumnRef,
    Combined,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Relation,
    Try,
    Type,
    Window,
    children,
    is_aggregate,
    join_conjuncts,
    walk,
)
from dpsql.sql.render.duckdb import Writer

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


MARK = "dpsql_form_"
_MAX_EXPRESSION_LENGTH = 100_000  # characters of one expression in the engine's SQL
_OPERANDS = re.compile(r"\{(\d*)(\*?)\}")


def translate(sql: str, forms: Sequence[str], *, dialect: Dialect) -> str:
    """Return a statement of the portable writer in the SQL of `dialect`, its `forms` put for their marks."""
    from sqlglot import expressions as exp
    from sqlglot import parse_one
    from sqlglot.errors import ErrorLevel, UnsupportedError

    tree = parse_one(sql, read="duckdb")
    if "condition as value" in dialect.lacks:
        for test in tree.find_all(exp.Exists, exp.In, exp.Anonymous):
            queries = isinstance(test, exp.Exists) or test.args.get("query") is not None
            if isinstance(test, exp.Anonymous):  # the mark of a form, with a subquery as an operand
                queries = queries or any(isinstance(each, exp.Subquery) for each in test.expressions)
            if queries and not isinstance(test.find_ancestor(exp.Select, exp.Where), exp.Where):
                reason = f"{dialect.name} takes EXISTS and IN (SELECT ...) in WHERE alone."
                raise Unsupported("engine-lacks", reason, hint="Join the other table instead.")
    for at, node in reversed(list(enumerate(tree.walk(bfs=False)))):  # operands before what they stand in
        _adapt(cast("Node", node), forms, dialect=dialect, at=at)
    for having in tree.find_all(exp.Having) if "HAVING" in dialect.lacks else ():
        # SELECT g AS n, count(*) ... HAVING n > 1 is written with the table of FROM, of which there is one
        source = having.parent.args.get("from_") if having.parent is not None else None
        for column in having.find_all(exp.Column):
            if source is not None and not column.table:
                column.set("table", exp.to_identifier(source.this.alias_or_name))
    try:
        return str(tree.sql(dialect=dialect.sqlglot, identify=True, unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError:
        pass
    hint = "docs/reference/engines.md lists what each engine answers."
    raise Unsupported("engine-lacks", f"{dialect.name} cannot run a statement of this form.", hint=hint)


@cache
def translate_type(dialect: Dialect, type_: Type) -> str:
    """Return a type as the engine names it."""
    from sqlglot.expressions import DataType

    if type_.name in dialect.types:
        return dialect.types[type_.name]
    return str(DataType.build(type_.name, dialect="duckdb").sql(dialect=dialect.sqlglot))


def _adapt(node: Node, forms: Sequence[str], *, dialect: Dialect, at: int) -> None:
    """Put the engine's own for node number `at`, whose operands have been adapted."""
    from sqlglot import expressions as exp

    match node:
        case exp.Parameter() | exp.Placeholder():  # $1 becomes %s, say
            node.replace(exp.Var(this=dialect.parameter.replace("{n}", node.name)))
        # with the form CAST({0} AS bigint) dpsql_form_3(t1.a) becomes CAST("t1"."a" AS bigint)
        case exp.Anonymous() if node.name.startswith(MARK):
            operands = [operand.sql(dialect=dialect.sqlglot, identify=True) for operand in node.expressions]
            node.replace(exp.Var(this=_filled(forms[int(node.name.removeprefix(MARK))], operands)))
        # system.main.count(), which no macro can stand in for, becomes COUNT(*)
        case exp.Dot(this=exp.Dot()):
            call = node.expression
            node.replace(exp.func(call.name, *(call.expressions or [exp.Star()] * (call.name == "count"))))
        case exp.DataType() if (own := dialect.types.get(node.sql(dialect="duckdb"))) is not None:
            node.replace(exp.Var(this=own))
        case exp.NullSafeEQ() | exp.NullSafeNEQ():  # which binds less than AND in some engines
            node.replace(exp.Paren(this=node.copy()))
        case exp.Ordered(this=exp.Literal() as position) if "ordinal NULLS" in dialect.lacks:
            position.replace(exp.column(f"c{position.name}"))  # as the writer names its outputs
        case exp.IntDiv() if "//" in dialect.lacks:
            node.replace(exp.Div(this=node.this, expression=node.expression))
        case exp.CTE():
            node.set("materialized", dialect.materialized or None)
        case exp.Subquery(this=exp.Select() | exp.SetOperation()) if (
            isinstance(node.parent, exp.From | exp.Join) and not node.alias
        ):
            name = exp.to_identifier(f"dpsql_rows_{at}")  # not every engine does without one
            node.set("alias", exp.TableAlias(this=name))
        case _:
            pass


def _filled(form: str, operands: Sequence[str]) -> str:
    """Return a form with its operands in it: {0}, or {1*} for all from number 1 on."""

    def operand(found: re.Match[str]) -> str:
        at = int(found[1] or 0)
        return ", ".join(operands[at:]) if found[2] else operands[at]

    filled = _OPERANDS.sub(operand, form)
    if len(filled) > _MAX_EXPRESSION_LENGTH:  # a form may name an operand twice, and so what is nested in it grows
        hint = "Compute a part of it in a subquery in FROM."
        raise Unsupported(
            "engine-lacks", "An expression is nested too deeply to be written for this engine.", hint=hint
        )
    return filled


_NOT_FINITE = {"nan": "NaN", "inf": "infinity", "-inf": "infinity"}  # by which dialects lack a DOUBLE
_PRINTED = frozenset(["BOOLEAN", "DATE", "TIMESTAMP"])  # an engine's own CAST may fail, or print otherwise
_MAX_WEIGHTS = 1_024
_DIVIDE_WIDE = "(({0} - {0} % {1}) / {1})"  # exact in DECIMAL: what is divided is a multiple
_CONTEXT = Context(prec=40)
_OF_LITERAL = frozenset(
    ["date_part", "date_trunc", "date_diff", "date_sub"]
)  # a constant argument selects the form of these
_BY_LITERAL = frozenset(["round", "strftime"])  # these may have a form for some values of their last operand alone
_COMPUTED = re.compile(r"c\d+")  # the names of what subqueries compute
_WITHOUT_COMMA = frozenset(["BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP"])  # as engines print them


def writer_for(dialect: Dialect, types: Mapping[str, Type] | None = None) -> Writer:
    """Return the writer of statements for an engine of this dialect; `types` are those of the columns of pairs."""
    return Writer() if dialect is DUCKDB else PortableWriter(dialect=dialect, types=types or {})


@dataclass(slots=True)
class PortableWriter(Writer):
    """Writes one statement for an engine of `dialect`; `forms` are those behind the marks, in their order.

    `types` are those of keys and unit, by the names of their columns.
    """

    native: ClassVar[bool] = False
    semi: ClassVar[str] = "INNER"  # which all engines have
    wide: ClassVar[str] = "DECIMAL(38, 0)"
    dialect: Dialect = DUCKDB
    types: Mapping[str, Type] = field(default_factory=dict)
    forms: list[str] = field(default_factory=list)
    read: set[int] = field(default_factory=set)  # relations that the SELECT being written reads columns of
    made: set[int] = field(default_factory=set)  # and those that are its own

    def finished(self, sql: str) -> str:
        """Return the statement for the engine. Raises `Unsupported` for a statement that it cannot run."""
        return translate(sql, self.forms, dialect=self.dialect)

    def expression(self, expression: Expression) -> str:
        """Return an expression as text, with marks for its forms."""
        match expression:
            case Try():  # a form gives NULL where the call would fail
                return self.expression(expression.argument)
            case Cast(argument=argument, type=type_):
                return self._form("cast", (argument,), type_=type_, families=(*_words([argument]), _word(type_)))
            case Collate():
                return self._collate(expression)
            case ColumnRef():
                return self._column(expression)
            case Literal(value=float() as value) if (word := _NOT_FINITE.get(f"{value}")) in self.dialect.lacks:
                raise self._lacking(f"{word}")
            case Literal(type=type_) if type_ != NULL and self.dialect.form("literal", (_word(type_),)) is not None:
                return self._in_form("literal", self.bind(expression.value), type_=type_)
            # x BETWEEN 1 AND 5 becomes (x >= 1 AND x <= 5)
            case Call(function="between", arguments=operands) if self.dialect.form("between", _words(operands)) is None:
                ends = Call(">=", operands[:2], BOOLEAN), Call("<=", (operands[0], operands[2]), BOOLEAN)
                return self.expression(Call("and", ends, BOOLEAN))
            case Call(function="is_distinct" | "is_not_distinct" as name, arguments=sides):
                if self.dialect.form(name, _words(sides)) is not None:
                    return self._form(name, sides, type_=BOOLEAN)
                # what is equal differs, so that it is written by the engine's equality:
                # x IS DISTINCT FROM y becomes (NOT COALESCE(x = y, x IS NULL AND y IS NULL))
                equal, (left, right) = self.expression(Call("=", sides, BOOLEAN)), map(self.expression, sides)
                same = f"COALESCE({equal}, {left} IS NULL AND {right} IS NULL)"
                return same if name == "is_not_distinct" else f"(NOT {same})"
            case _:
                return Writer.expression(self, expression)

    def check_order(self, type_: Type) -> None:
        """Raise `Unsupported` if the engine sorts values of a type in another order."""
        if (what := f"ORDER BY {_word(type_)}") in self.dialect.lacks:
            raise self._lacking(what)

    def ordered(self, expression: Expression) -> str:
        """Return what ORDER BY sorts by, so that it comes in DuckDB's order. Raises `Unsupported` where it cannot."""
        self.check_order(expression.type)
        by_bytes = canonicalize(expression) if expression.type == TEXT else expression
        return self._in_form("order", self.expression(by_bytes), type_=expression.type)

    def relation(self, relation: Relation) -> str:
        """Return an item of FROM as text; refuse what the engine joins or combines otherwise."""
        if isinstance(relation, Joined | Combined) and relation.kind in self.dialect.lacks:
            raise self._lacking(relation.kind)
        if not isinstance(relation, Joined):
            self.made.add(relation.number)
            return Writer.relation(self, relation)
        if f"{relation.kind} unequal" in self.dialect.lacks and _has_no_equality(relation):
            raise self._lacking(f"{relation.kind} JOIN without an equality of its two sides")
        left, right = self.relation(relation.left), self.relation(relation.right)
        if isinstance(relation.right, Joined):  # those on the left stand without parentheses, which few engines need
            if "nested" in self.dialect.lacks:
                raise self._lacking("join in parentheses")
            right = f"({right})"
        on = "" if relation.on is None else f" ON {self.expression(relation.on)}"
        return f"{left} {relation.kind} JOIN {right}{on}"

    def body(self, body: FromWhere, where: str = "") -> str:
        """Return FROM and WHERE as text, with SEMI and ANTI JOIN as conditions if the engine lacks these joins."""
        if "SEMI" in self.dialect.lacks:
            # FROM a SEMI JOIN b ON a.x = b.x WHERE a.y > 1 becomes
            # FROM a WHERE (EXISTS (SELECT TRUE FROM b WHERE a.x = b.x)) AND a.y > 1
            source, conditions = _move_semi_joins_to_where(body.source)
            body = FromWhere(source, join_conjuncts([*conditions, *([] if body.where is None else [body.where])]))
        return Writer.body(self, body, where)

    def _select(self, derived: Derived) -> str:
        outer = self.read, self.made
        self.read, self.made = set(), set()
        if derived.grouping == "ALL":  # which few engines have: all outputs without an aggregate, but no constants
            parts = [walk(output) for output in derived.outputs]
            keys = [
                str(at)
                for at, nodes in enumerate(parts, start=1)
                if not any(map(is_aggregate, nodes))
                and not all(isinstance(node, Literal) for node in nodes if not children(node))
            ]
            derived = replace(derived, grouping=", ".join(keys))
        text = Writer._select(self, derived)  # noqa: SLF001 - the class above; super() does not work with slots
        beyond = self.read - self.made
        if beyond and "correlated" in self.dialect.lacks:
            raise self._lacking("subquery that names the row outside")
        self.read, self.made = outer[0] | beyond, outer[1]
        return text

    def meeting(self, operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
        """Return the operands as they are: every form of a dialect says by itself how text is compared."""
        return operands

    def _collate(self, expression: Collate) -> str:
        """Return text as the engine compares it by its bytes."""
        argument = expression.argument
        if isinstance(argument, ColumnRef) and self._compares_by_bytes(argument):
            return self.expression(argument)
        return self._form("canonical", (argument,), type_=expression.type)

    def _column(self, column: ColumnRef) -> str:
        self.read.add(column.relation)
        text = self._in_form("column", Writer.expression(self, column), type_=column.type)
        return text if self._compares_by_bytes(column) else self._in_form("collated", text, type_=column.type)

    def _compares_by_bytes(self, column: ColumnRef) -> bool:
        """Say whether the engine compares a column by its bytes: one that is stored without a collation.

        What a subquery computes, c1 and so on, has a collation that the engine chose.
        """
        is_stored = _COMPUTED.fullmatch(column.name) is None
        return "collated TEXT" in self.dialect.forms and is_stored and not column.type.collations

    def _among(self, test: In | InQuery) -> str:
        """Return IN; where the engine's IN takes NULL for a value, as equalities or by its form."""
        if isinstance(test, In) and self.dialect.form("in", _words([test.argument])) is not None:
            return self._form("in", (test.argument, *test.choices), type_=BOOLEAN, families=_words([test.argument]))
        if isinstance(test, In) and "IN" in self.dialect.lacks:
            # x IN (1, 2) becomes (x = 1 OR x = 2)
            equal = (self.expression(Call("=", (test.argument, choice), BOOLEAN)) for choice in test.choices)
            return f"({' OR '.join(equal)})"
        if isinstance(test, InQuery) and "IN" in self.dialect.lacks:
            form, argument = self._found("in_query", _words([test.argument])), self.expression(test.argument)
            outer, self.read = self.read, set()
            source = self._select(test.source)
            if self.read and "correlated IN" in self.dialect.lacks:
                raise self._lacking("IN over a subquery that names the row outside")
            self.read |= outer
            return self._marked(form, (argument, f"({source})"))
        return Writer._among(self, test)  # noqa: SLF001 - as above

    @property
    def lists(self) -> bool:
        """Whether the engine ranks faster in lists than by windows."""
        return "list" in self.dialect.forms

    def list_form(self, form: str, *operands: str) -> str:
        """Return one of the engine's forms that make a list of rows and read it."""
        return self._marked(self.dialect.forms[form], operands)

    def draw(self, names: Sequence[str], unit: str, *, salts: tuple[int, int]) -> str:
        """Return the hash by which a unit's groups are taken in order."""
        if "mix" not in self.dialect.forms:
            return self._digest(names, unit, salts=salts)
        # mix(mix(hash(key 1, salt 1), hash(key 2, salt 1)), hash(unit, salt 2)), with hash('', salt 2) for a NULL key
        signed = [salt - (1 << 64) if salt >> 63 else salt for salt in salts]  # the numbers of the same 64 bits
        of_keys, of_unit = (f"CAST({self.bind(salt)} AS BIGINT)" for salt in signed)
        of_null = self._marked(self._found("keyed_hash", (_word(TEXT),)), ("''", of_unit))
        hashes = [f"COALESCE({self._keyed_hash(name, of_keys)}, {of_null})" for name in names]
        mix = self.dialect.forms["mix"]
        return reduce(lambda *both: self._marked(mix, both), [*hashes, self._keyed_hash(unit, of_unit)])

    def divide_wide(self, left: str, right: str) -> str:
        """Return the quotient of two `wide` numbers, not negative and above 0, exactly and rounded down."""
        form = self.dialect.forms.get("divide_wide", _DIVIDE_WIDE)
        return self._marked(form, (left, right))

    def gather(self, rows: str, names: Sequence[str], *, unit: str) -> str:
        """Return a SELECT of unit and `names` so that the engine brings the rows of each unit together."""
        form = self.dialect.forms.get("gather")
        return rows if form is None else f"SELECT {self._marked(form, (unit, *names))} FROM ({rows})"  # noqa: S608 - nothing in it is the analyst's text

    def listed(self, values: Sequence[int]) -> str:
        """Return a list of whole numbers as `looked_up` wants it: written out, since few clients bind lists."""
        if len(values) > _MAX_WEIGHTS:
            reason = f"{self.dialect.name} is given at most {_MAX_WEIGHTS} weights."
            hint = "Ask for fewer max_groups_contributed, or for mechanism = limited_domain."
            raise Unsupported("engine-lacks", reason, hint=hint)
        return ", ".join(f"{value:d}" for value in values)

    def list_times(self, values: Sequence[Expression], name: str) -> str | None:  # noqa: ARG002 - as the base has it
        """Return nothing: few clients bind lists."""
        return None

    def looked_up(self, listed: str, position: str) -> str:
        """Return the expression for the one of the numbers at a position, counted from 1."""
        return self._marked(self._found("lookup", ()), (position, listed))

    def _keyed_hash(self, name: str, salt: str) -> str:
        """Return the hash of a column, as text where the dialect has none for its type."""
        form = self.dialect.form("keyed_hash", (_word(self.types[name]),)) if name in self.types else None
        if form is not None:
            return self._marked(form, (name, salt))
        return self._marked(self._found("keyed_hash", (_word(TEXT),)), (f"CAST({name} AS VARCHAR)", salt))

    def _digest(self, names: Sequence[str], unit: str, *, salts: tuple[int, int]) -> str:
        """Return the digest of unit and keys as one text, each between a comma and the next; NULL is a semicolon.

        What may contain a comma is hashed before, unless it is the last.
        """
        # md5(salts || unit || ',' || key 1 || ',' || key 2), or ';' for a key that is NULL
        words = {name: _word(type_) for name, type_ in self.types.items()}
        salt = self.bind("".join(f"{each:016x}" for each in salts))
        parts = [
            self._in_form("digested", f"CAST({salt} AS VARCHAR)", type_=TEXT),
            self._text(unit, hashed=words.get(unit) not in _WITHOUT_COMMA),
        ]
        for at, name in enumerate(names, 1):
            text = self._text(name, hashed=at < len(names) and words.get(name) not in _WITHOUT_COMMA)
            parts.append(f"COALESCE(',' || {text}, ';')")
        return self._hash(" || ".join(parts))

    def _text(self, name: str, *, hashed: bool) -> str:
        family = _word(self.types[name]) if name in self.types else ""
        form = self.dialect.form("cast", (family, "TEXT")) if family in _PRINTED else None
        text = f"CAST({name} AS VARCHAR)" if form is None else self._marked(self._typed(form, TEXT), (name,))
        text = self._in_form("digested", text, type_=TEXT)
        return self._hash(text) if hashed else text

    def _hash(self, text: str) -> str:
        return self._marked(self.dialect.forms.get("draw TEXT") or self._found("md5", (_word(TEXT),)), (text,))

    def _call(self, call: Call) -> str:
        name, arguments = call.function, call.arguments
        if name in {"and", "or"}:
            return f"({f' {name.upper()} '.join(map(self.expression, arguments))})"
        if name in _OF_LITERAL and isinstance(arguments[0], Literal):
            name, arguments = f"{name}.{arguments[0].value}", arguments[1:]
        if name in _BY_LITERAL and isinstance(arguments[-1], Literal):
            own = f"{name}.{arguments[-1].value}"
            if self.dialect.form(own, _words(arguments[:-1])) is not None:
                name, arguments = own, arguments[:-1]
        if name in {"like", "ilike"} and f"{name}_backslash TEXT" in self.dialect.forms:
            name, arguments = f"{name}_backslash", (arguments[0], _backslashed(*arguments[1:]))
        elif name in {"like", "ilike"} and len(arguments) > 2:  # noqa: PLR2004 - the optional third operand
            name = f"{name}_escape"
        return self._form(name, arguments, type_=call.type)

    def _window(self, window: Window) -> str:
        if f"{window.function} OVER" in self.dialect.lacks:
            raise self._lacking(f"{window.function} OVER")
        return Writer._window(self, window)  # noqa: SLF001 - as above

    def _form(
        self, name: str, arguments: tuple[Expression, ...], *, type_: Type, families: tuple[str, ...] | None = None
    ) -> str:
        if type_.name in self.dialect.lacks:
            raise self._lacking(f"{name} to {type_}")
        form = self._typed(self._found(name, _words(arguments) if families is None else families), type_)
        scaled = type_ if type_.family is Family.DECIMAL or not arguments else arguments[0].type
        for word, digits in zip(("{width}", "{scale}"), scaled.precision, strict=True):
            form = form.replace(word, f"{digits:d}")
        if type_.family in {Family.INTEGER, Family.DECIMAL}:
            for word, number in _ends(type_).items():
                form = form.replace(word, f"({number:f})")
        return self._marked(form, tuple(map(self.expression, arguments)))

    def _found(self, name: str, words: tuple[str, ...]) -> str:
        form = self.dialect.form(name, words)
        if form is None:
            raise self._lacking(f"{name}({', '.join(words)})" if words else name)
        return form

    def _in_form(self, name: str, text: str, *, type_: Type) -> str:
        """Return a text in a form that a dialect need not have."""
        form = self.dialect.form(name, (_word(type_),))
        return text if form is None else self._marked(self._typed(form, type_), (text,))

    def _typed(self, form: str, type_: Type) -> str:
        return form.replace("{type}", translate_type(self.dialect, type_)) if "{type}" in form else form

    def _marked(self, form: str, operands: tuple[str, ...]) -> str:
        self.forms.append(form)
        return f"{MARK}{len(self.forms) - 1}({', '.join(operands)})"

    def _lacking(self, what: str) -> Unsupported:
        reason = f"{self.dialect.name} has no {what} that gives what DuckDB's gives."
        hint = "docs/reference/engines.md lists what each engine answers."
        return Unsupported("engine-lacks", reason, hint=hint)


def _backslashed(pattern: Expression, escape: Expression | None = None) -> Literal:
    """Return the pattern of a LIKE with backslash as its escape, for %, _ and itself only."""
    text, sign = (str(each.value) if isinstance(each, Literal) else "" for each in (pattern, escape))
    found, signs = [], iter(text)
    for each in signs:
        kept = next(signs, "") if each == sign else each
        found.append(f"\\{kept}" if kept == "\\" or (each == sign and kept in {"%", "_"}) else kept)
    whole = "".join(found)
    return Literal(whole, TEXT, len(whole))


def _ends(type_: Type) -> dict[str, Decimal]:
    """Return the ends of an integer or decimal type and the first values beyond them, by their words in a form."""
    if type_.family is Family.INTEGER:
        least, greatest, step = (*map(Decimal, type_.ends), Decimal(1))
    else:
        width, scale = type_.precision
        step = Decimal((0, (1,), -scale))
        greatest = Decimal((0, (9,) * width, -scale))
        least = -greatest
    return {
        "{least}": least,
        "{greatest}": greatest,
        "{below}": _CONTEXT.subtract(least, step),
        "{above}": _CONTEXT.add(greatest, step),
    }


def _words(expressions: Sequence[Expression]) -> tuple[str, ...]:
    return tuple(_word(expression.type) for expression in expressions)


def _word(type_: Type) -> str:
    """Return the family of a type or, where dpsql does not compute with it, its own name."""
    return type_.name.split("(")[0] if type_.family is Family.OPAQUE else type_.family.name


def _move_semi_joins_to_where(relation: Relation) -> tuple[Relation, tuple[Expression, ...]]:
    """Return a relation without the SEMI and ANTI JOINs at its left, and the conditions that say the same."""
    if not isinstance(relation, Joined) or relation.kind not in {"SEMI", "ANTI", "INNER", "LEFT", "CROSS"}:
        return relation, ()
    left, conditions = _move_semi_joins_to_where(relation.left)
    if relation.kind not in {"SEMI", "ANTI"}:
        return replace(relation, left=left), conditions
    found: Expression = Exists(Derived(0, (Literal(True, BOOLEAN),), FromWhere(relation.right, relation.on)))  # noqa: FBT003 - some value
    return left, (*conditions, found if relation.kind == "SEMI" else Call("not", (found,), BOOLEAN))


def _has_no_equality(joined: Joined) -> bool:
    """Say whether a join is by anything but an equality of something of each of its two sides."""
    on = joined.on
    parts = on.arguments if isinstance(on, Call) and on.function == "and" else (on,)
    sides = _relations(joined.left), _relations(joined.right)
    for part in parts:
        if isinstance(part, Call) and part.function == "=":
            first, second = (
                {each.relation for each in walk(side) if isinstance(each, ColumnRef)} for side in part.arguments
            )
            if first and second and any(first <= one and second <= two for one, two in (sides, sides[::-1])):
                return False
    return True


def _relations(relation: Relation) -> set[int]:
    if isinstance(relation, Joined):
        return _relations(relation.left) | _relations(relation.right)
    return {relation.number}
