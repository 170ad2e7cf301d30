"""Quantiles of a private query: MEDIAN(x), QUANTILE_CONT(x, 0.9) and their other spellings, with or without FILTER.

Syntax has put all spellings into one call (`syntax/aggregate_forms.py`). A query may state between which numbers the
value of one row is, as in MEDIAN(x, contribution_bounds_per_row => (0, 500)); it is a constant of the text, or a
parameter. Any range is allowed: values beyond it are counted at its ends.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.dialects import propose_query, write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.measures import find_function, is_measure, name_unit
from dpsql.sql.analysis.named_bounds import read_named_bounds
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import Quantile, is_present
from dpsql.sql.ir.tree import DOUBLE, Expression, Family, Literal, Type, join_conjuncts
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement, ascii_lower
from dpsql.sql.syntax.aggregate_forms import DESCENDING, QUANTILE, find_quantile_words
from dpsql.sql.syntax.block import Block, first_token, kinds_of, name_of, nest, walk, word_of
from dpsql.sql.syntax.sqlglot_nodes import allow_only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

_NAMES = {QUANTILE.removeprefix(FUNCTION_PREFIX), DESCENDING.removeprefix(FUNCTION_PREFIX)}
_MOST_DENOMINATOR = 1_000
_TIMES = frozenset([Family.DATE, Family.TIMESTAMP])
_HALF = Literal(0.5, DOUBLE)  # of a parameter without a value
_NEARER = {0: ("least", 0.01), 1: ("greatest", 0.99)}
_EXTREMES = {"min": 0.01, "max": 0.99}


def is_quantile(node: Node) -> bool:
    """Say whether a node is a quantile, with or without FILTER."""
    inner = node.this if type(node).__name__ == "Filter" else node
    return find_function(inner) in _NAMES


def read_quantile(reader: Reader, node: Node) -> Quantile:
    """Return the quantile that an item of the select list is; refuse one that is not released."""
    condition: Expression | None = None
    if type(node).__name__ == "Filter":
        allow_only(reader.statement, node, "this", "expression")
        allow_only(reader.statement, node.expression, "this")
        condition, node = reader.condition(node.expression.this), node.this
    allow_only(reader.statement, node, "this", "expressions")
    text = _read_text(reader, node.expressions[0])
    example = f"MEDIAN({text}, contribution_bounds_per_row => (0, 500))"
    arguments, stated = read_named_bounds(reader, node.expressions, example=example)
    value, wanted, denominator = arguments
    words = _find_words(reader, node)
    argument = _read_value(reader, value, words=words)
    present = is_present(argument)
    return Quantile(
        argument=argument,
        wanted=_read_wanted(
            reader,
            wanted,
            denominator=denominator,
            falls=DESCENDING.endswith(find_function(node)),
            text=text,
            words=words,
        ),
        condition=join_conjuncts(present if condition is None else [condition, *present]),
        stated=None if stated is None else (stated.low, stated.high),
        words=words,
    )


def propose_for_extreme(statement: ScannedStatement, failed: Refusal | Unsupported, *, table: Table) -> str | None:
    """Return a hint for MIN or MAX of a column of a private table that has no quantile; None for anything else.

    The grammar, which refuses MIN and MAX, knows no types, and proposes a quantile near them.
    """
    for beside, at in walk(nest(statement.tokens).nodes):
        share = _EXTREMES.get(word_of(beside, at))
        if share is not None and statement.place(first_token(beside[at:])) == failed.place:
            called = beside[at + 1]
            inside = called.nodes if isinstance(called, Block) else ()
            is_name = len(inside) == 1 or kinds_of(inside[-2:-1]) == ["DOT"]
            name = name_of(inside, len(inside) - 1) if is_name else ""
            found = next((each for each in table.columns if ascii_lower(each[0]) == name), None)
            return None if found is None else _propose_by_type(*found, share=share, table=table)
    return None


def _propose_by_type(name: str, kind: Type, *, share: float, table: Table) -> str | None:
    column, unit = write_name(name), table.privacy_unit or ""
    if ascii_lower(name) == ascii_lower(unit):
        return f"Write COUNT(DISTINCT {column}), for how many there are."
    if kind.family in _TIMES:
        days = f"date_diff('day', DATE '2026-01-01', {column})"
        bounds = "contribution_bounds_per_row => (0, 365)"
        return f"Count days: PERCENTILE_CONT({share}, {bounds}) WITHIN GROUP (ORDER BY {days})."
    if kind.family is Family.BOOLEAN:
        return f"Write AVG(CAST({column} AS INTEGER)), for the share of rows where it is true."
    if kind.is_number:
        return None
    return f"Ask for the most frequent values: {propose_query(table.name, key=name, unit=unit)}"


def refuse_end(reader: Reader, node: Node, *, name: str) -> Refusal:
    """Return the refusal of value_low or value_high of a quantile."""
    reason = f"{name} is for counts, sums and averages: the interval of a quantile is one of ranks, not of values."
    hint = "Leave it out: EXPLAIN and the receipt say between which quantiles the answer lies."
    return Refusal("aggregate", reason, hint=hint, place=reader.place(node))


def _read_value(reader: Reader, node: Node, *, words: Place | None) -> Expression:
    """Return the number of each row; refuse anything else."""
    if is_measure(node) or is_quantile(node):
        hint = "Take the quantile of a column, and compute with released values in an outer SELECT."
        raise Refusal("aggregate", "An aggregate may not stand in another.", hint=hint, place=words)
    found = fill_unbound(reader.read(node), DOUBLE)
    if any(found == unit.expression for unit in reader.scope.units):
        hint = "Take the quantile of another column."
        raise Refusal("aggregate", "The privacy unit is no amount.", hint=hint, place=words)
    if found.type.is_number:
        return found
    text = _read_text(reader, node)
    cast = f"MEDIAN(CAST({text} AS DOUBLE), contribution_bounds_per_row => (0, 500))"
    hint = f"Write {cast}, if it is a number in another form."
    if found.type.family is Family.BOOLEAN:
        hint = f"Write AVG(CAST({text} AS INTEGER)), for the share of rows where it is true."
    if found.type.family in _TIMES:
        days = f"date_diff('day', DATE '2026-01-01', {text})"
        hint = f"Count days: MEDIAN({days}, contribution_bounds_per_row => (0, 365))."
    raise Refusal("aggregate", f"Quantiles are of numbers, and this is {found.type}.", hint=hint, place=words)


def _read_text(reader: Reader, node: Node) -> str:
    """Return an argument as the analyst wrote it, for a hint."""
    place = reader.place(node)
    return "x" if place is None else place.fragment


def _read_wanted(
    reader: Reader, node: Node, *, denominator: Node, falls: bool, text: str, words: Place | None
) -> Fraction:
    """Return the wanted share of rows at or below the answer; refuse 0 and 1, and what is no such share."""
    found, number = fill_unbound(reader.read(node), DOUBLE, such_as=_HALF), reader.read(denominator)
    value, divisor = (each.value if isinstance(each, Literal) else None for each in (found, number))
    if isinstance(value, bool) or value is None:
        hint = f"Write a number above 0 and below 1, such as QUANTILE_CONT({text}, 0.25)."
        reason = "The wanted quantile is a number of the text, or a parameter."
        raise Refusal("aggregate", reason, hint=hint, place=words)
    assert isinstance(divisor, int)  # noqa: S101 - dpsql wrote it
    wanted = _to_fraction(value) / divisor
    share = 1 - wanted if falls else wanted
    if share in _NEARER:
        which, near = _NEARER[int(share)]
        reason = f"The {which} value is that of one {name_unit(reader)}, and is not released."
        raise Refusal("aggregate", reason, hint=f"Write {near} in place of {value}.", place=words)
    if not 0 < share < 1 or share.denominator > _MOST_DENOMINATOR:
        hint = "Write a number above 0 and below 1 with at most three decimals, such as 0.999."
        if divisor != 1:
            hint = f"Write QUANTILE_CONT({text}, 0.999), or another number with at most three decimals."
        raise Refusal("aggregate", "There is no such quantile.", hint=hint, place=words)
    return share


def _to_fraction(value: object) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth, also as a DOUBLE."""
    if isinstance(value, int | Decimal):
        return Fraction(value)
    return Fraction(repr(value)) if isinstance(value, float) and value == value and abs(value) < 2 else Fraction(2)  # noqa: PLR0124, PLR2004 - NaN; beyond any share


def _find_words(reader: Reader, node: Node) -> Place | None:
    """Return the place of a quantile as the analyst wrote it, None where it is not found."""
    starts = [below.meta["start"] for below in node.walk() if "start" in below.meta]
    found = find_quantile_words(list(reader.statement.tokens), min(starts)) if starts else None
    return reader.place(node) if found is None else reader.statement.place(*found)
