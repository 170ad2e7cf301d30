"""Signs of whole numbers: ~, & and |, and @, which is abs; a shift is refused, since few of them are in range.

DuckDB gives the signs between two operands one precedence, below arithmetic and above comparisons, and so does sqlglot,
but for ||, which needs parentheses beside them. ~ and @ take in DuckDB all the arithmetic that follows, which sqlglot
leaves outside: so nothing may follow their operand but what both put outside. An operator before ~ binds in DuckDB
weaker than any before that, so it is the only one, as in flags & ~4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.analysis.reader import Read, Reader
from dpsql.sql.functions.arithmetic import combine_integers
from dpsql.sql.ir.tree import Call, Expression
from dpsql.sql.ir.types import BIGINT, DOUBLE, Family
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["BITWISE", "READERS"]

BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|"}
_PREFIXED = frozenset(["BitwiseNot", "Abs", "Neg"])
_BINARY = BITWISE.keys() | frozenset("Add Sub Mul Div IntDiv Mod DPipe".split())


def _between(reader: Reader, node: Node) -> Expression:
    only(reader.statement, node, "this", "expression")
    if "DPipe" in {type(node.this).__name__, type(node.expression).__name__}:
        raise _two_ways(reader, node)
    left, right = _whole(reader, node.this), _whole(reader, node.expression)
    return combine_integers(left, BITWISE[type(node).__name__], right=right, where=reader.at(node))


def _before(reader: Reader, node: Node) -> Expression:
    only(reader.statement, node, "this")
    _check_beside(reader, node)
    if type(node).__name__ == "BitwiseNot":
        argument = _whole(reader, node.this)
        return Call("~", (argument,), argument.type)
    argument = fill_unbound(reader.read(node.this), DOUBLE)
    if argument.type.is_number:
        return Call("abs", (argument,), argument.type)
    raise Refusal("type", "@ takes a number.", hint="Cast it with CAST(x AS DOUBLE).", place=reader.place(node))


def _check_beside(reader: Reader, node: Node) -> None:
    """Refuse ~ or @ where DuckDB reads the operators around it otherwise.

    One that follows the operand is inside. One before ~ comes last, so that a - b * ~c is (a - b) * ~c, and so two
    before it are refused. Before @ there is none, nor ~.
    """
    below: object = node
    above: object = node.parent
    most, before = (1, _BINARY) if type(node).__name__ == "BitwiseNot" else (0, _BINARY | {"BitwiseNot"})
    while type(above).__name__ in _PREFIXED | _BINARY:
        most -= type(above).__name__ in before
        if most < 0 or (type(above).__name__ in _BINARY and getattr(above, "this", None) is below):
            raise _two_ways(reader, node)
        below, above = above, getattr(above, "parent", None)


def _whole(reader: Reader, node: Node) -> Expression:
    """Return an operand, which must be a whole number."""
    argument = fill_unbound(reader.read(node), BIGINT)
    if argument.type.family is Family.INTEGER:
        return argument
    hint = "Cast it with CAST(x AS BIGINT)."
    raise Refusal("type", "~, & and | take whole numbers.", hint=hint, place=reader.place(node))


def _two_ways(reader: Reader, node: Node) -> Refusal:
    hint = "Put one of them in parentheses."
    return Refusal("precedence", "These operators can be read in two ways.", hint=hint, place=reader.place(node))


READERS: Mapping[str, Read] = {**dict.fromkeys(BITWISE, _between), **dict.fromkeys(["BitwiseNot", "Abs"], _before)}
