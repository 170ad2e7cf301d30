"""Translation of a statement from DuckDB's SQL to that of another engine, with sqlglot.

The input comes only from the writers of this package: marks become forms, the few functions that the rewriter itself
uses become standard ones, and parameters get the syntax of the engine's client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from dpsql.dialects import Dialect
from dpsql.errors import Unsupported
from dpsql.sql.ir.types import Type

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["MARK", "translate", "translate_type"]

MARK = "dpsql_form_"
_MAX_EXPRESSION_LENGTH = 100_000  # characters of one expression in the engine's SQL
_OPERANDS = re.compile(r"\{(\d*)(\*?)\}")


def translate(sql: str, forms: Sequence[str], *, dialect: Dialect) -> str:
    """Return a statement of the portable writer in the SQL of `dialect`, its `forms` put for their marks."""
    from sqlglot import parse_one
    from sqlglot.errors import ErrorLevel, UnsupportedError

    tree = parse_one(sql, read="duckdb")
    if "condition as value" in dialect.lacks and _has_condition_as_value(cast("Node", tree)):
        reason = f"{dialect.name} takes EXISTS and IN (SELECT ...) in WHERE alone."
        raise Unsupported("engine-lacks", reason, hint="Join the other table instead.")
    for at, node in reversed(list(enumerate(tree.walk(bfs=False)))):  # operands before what they stand in
        _adapt(cast("Node", node), forms, dialect=dialect, at=at)
    if "HAVING" in dialect.lacks:
        _qualify_having(cast("Node", tree))
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
        case exp.Parameter() | exp.Placeholder():
            node.replace(exp.Var(this=dialect.parameter.replace("{n}", node.name)))
        case exp.Anonymous() if node.name.startswith(MARK):
            operands = [operand.sql(dialect=dialect.sqlglot, identify=True) for operand in node.expressions]
            node.replace(exp.Var(this=_filled(forms[int(node.name.removeprefix(MARK))], operands)))
        case exp.Dot(this=exp.Dot()):  # system.main.count, say, that no macro can stand in for
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


def _has_condition_as_value(tree: Node) -> bool:
    """Say whether EXISTS or IN (SELECT ...) is part of something other than a WHERE."""
    from sqlglot import expressions as exp

    return any(
        not isinstance(node.find_ancestor(exp.Select, exp.Where), exp.Where)
        for node in tree.find_all(exp.Exists, exp.In, exp.Anonymous)
        if isinstance(node, exp.Exists)
        or node.args.get("query") is not None
        or (isinstance(node, exp.Anonymous) and any(isinstance(each, exp.Subquery) for each in node.expressions))
    )


def _qualify_having(tree: Node) -> None:
    """Write the columns in each HAVING with the table of FROM, of which there is one."""
    from sqlglot import expressions as exp

    for having in tree.find_all(exp.Having):
        source = having.parent.args.get("from_") if having.parent is not None else None
        for column in having.find_all(exp.Column):
            if source is not None and not column.table:
                column.set("table", exp.to_identifier(source.this.alias_or_name))


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
