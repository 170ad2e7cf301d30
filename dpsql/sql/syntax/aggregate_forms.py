"""Aggregates as other systems and other versions of SQL write them, put into the one form that the analysis reads.

Bounds that an aggregate states are a call, which sqlglot reads as an argument, in the words of GoogleSQL:

    SUM(x, contribution_bounds_per_group => (0, 5))          SUM(x, stated bounds (0, 5))
    VAR_POP(x, contribution_bounds_per_row => (0, 9))        VAR_POP(x, stated bounds (0, 9))
    ANON_SUM(x CLAMPED BETWEEN 0 AND 5)                      SUM(x, contribution_bounds_per_group => (0, 5))

Each function has one of the two arguments. `contribution_bounds_per_group` bounds what one unit adds to a group; of AVG
it bounds the mean of one unit. `contribution_bounds_per_row` bounds the value of one row. `analysis/measures.py` reads
them. ANON_SUM is of GoogleSQL's WITH ANONYMIZATION, which came before WITH DIFFERENTIAL_PRIVACY.

A quantile is one call with the value, the numerator, the denominator, and its bounds, if it has any:

    MEDIAN(x)                                                quantile(x, 1, 2)
    PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)           quantile(x, 0.9, 1)     so does PERCENTILE_DISC
    PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x DESC)      descending(x, 0.9, 1)
    QUANTILE_CONT(x, 0.9), QUANTILE_DISC(x, 0.9)             quantile(x, 0.9, 1)
    QUANTILE(x, 0.9), APPROX_QUANTILE(x, 0.9)                quantile(x, 0.9, 1)
    PERCENTILE_CONT(x, 0.9)                                  quantile(x, 0.9, 1)     of GoogleSQL
    APPROX_QUANTILES(x, 100)[OFFSET(90)]                     quantile(x, 90, 100)    [ORDINAL(91)] is the same

What is between two values of the data is not told apart: a quantile is released as a bin, so CONT and DISC are the
same. The names of the calls hold a character that no statement can hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement
from dpsql.sql.syntax.block import (
    QUANTILES,
    Block,
    Node,
    Nodes,
    apply_forms,
    call_at,
    enclose,
    find_place,
    first_token,
    join,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    name_of,
    nest,
    parentheses_at,
    read_text,
    split,
    walk,
    word_of,
)

if TYPE_CHECKING:
    from sqlglot import Token

STATED = f"{FUNCTION_PREFIX}contribution_bounds\0"  # a name that no statement can hold
PER_GROUP, PER_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
_WITH_BOUNDS = {
    **dict.fromkeys("count count_if countif approx_count_distinct sum avg".split(), PER_GROUP),
    **dict.fromkeys("median quantile quantile_cont quantile_disc percentile_cont percentile_disc".split(), PER_ROW),
    "approx_quantiles": PER_ROW,
    **dict.fromkeys(SPREADS, PER_ROW),
}
OLD_AGGREGATES = {  # what each is called now
    **{f"anon_{name}": name for name in "avg count percentile_cont stddev_pop sum var_pop".split()},
    "anon_quantiles": "approx_quantiles",
}
QUANTILE, DESCENDING = f"{FUNCTION_PREFIX}quantile\0", f"{FUNCTION_PREFIX}quantile descending\0"
NAMES = re.compile("median|quantile|percentile", re.IGNORECASE)
_OF_GROUP = frozenset(["percentile_cont", "percentile_disc"])
_WHOLE = re.compile("[0-9]{1,4}")
_EXAMPLE = "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)"


def state_bounds(statement: ScannedStatement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with the bounds of each aggregate as a call; refuse any other name => value."""
    root = nest(tokens)
    blocks = [("", root)]
    for beside, at in walk(root.nodes):
        block = beside[at]
        blocks += [(name_of(beside, at - 1), block)] if isinstance(block, Block) else []
    names, arrows = set[int](), set[int]()
    for called, block in blocks:
        for at, kind in enumerate(kinds_of(block.nodes)):
            if kind == "FARROW":
                _check_bounds(statement, block, at=at, called=called)
                names.add(id(block.nodes[at - 1]))
                arrows.add(id(block.nodes[at]))
    written = (make_token("VAR", STATED, beside=token) if id(token) in names else token for token in tokens)
    return [token for token in written if id(token) not in arrows]


def _check_bounds(statement: ScannedStatement, block: Block, *, at: int, called: str) -> None:
    """Refuse bounds that do not follow the argument of an aggregate, or that are not two of the kind that it has."""
    nodes, name, wanted = block.nodes, word_of(block.nodes, at - 1), _WITH_BOUNDS.get(called)
    example = f"Write SUM(x, {PER_GROUP} => (0, 500))."
    if wanted == PER_ROW:
        arguments = "..." if called not in SPREADS else "x, y" if SPREADS[called].is_of_pairs else "x"
        example = f"Write {called.upper()}({arguments}, {PER_ROW} => (0, 500))."
    bounds = parentheses_at(nodes, at + 1)
    pair = [] if bounds is None else split(bounds.nodes)
    if name not in {PER_GROUP, PER_ROW}:
        reason = "There is no argument of this name."
        hint = f"Leave it out. Only the bounds of an aggregate are written so. {example}"
        if name == "report_format":
            hint = "Leave it out: value_low(n) and value_high(n) are the ends of the interval of a measure n."
    elif name == PER_ROW != wanted:
        reason = f"{PER_ROW} is for quantiles and variances."
        hint = f"Bounds of COUNT, SUM and AVG are of a group. {example}"
    elif name == PER_GROUP and called in SPREADS:
        reason, hint = f"Bounds of {called.upper()} are of the value of one row.", example
    elif name != wanted or kind_of(nodes, at - 2) != "COMMA":
        reason = f"{PER_GROUP} is for COUNT, SUM and AVG."
        hint = f"Write them behind the argument of an aggregate. {example}"
    elif any(
        kind_of(nodes, other) == "FARROW" and word_of(nodes, other - 1) not in {PER_GROUP, PER_ROW}
        for other in range(at + 1, len(nodes))
    ):
        return  # the other name is refused
    elif len(pair) != len(("low", "high")) or block.closing is None or at + 2 < len(nodes):
        reason, hint = "Bounds are two numbers in parentheses, behind all other arguments.", example
    else:
        return
    place = statement.place(first_token(nodes[max(at - 1, 0) :]), first_token(nodes[at:]))
    raise Refusal("option", reason, hint=hint, place=place)


def find_aggregate_call(tokens: Sequence[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the aggregate at or around a position in the text, if there is one."""
    beyond = next((token.start for token in tokens if token.start >= start), start)
    call: tuple[Token, Token] | None = None
    for beside, at in walk(nest(tokens).nodes):
        called = parentheses_at(beside, at + 1)
        if name_of(beside, at) in _WITH_BOUNDS and called is not None:
            first = first_token(beside[at:])
            call = (first, called.closing or tokens[-1]) if first.start <= beyond else call
    return call if call is not None and call[1].end > start else None


def list_argument_texts(statement: ScannedStatement, start: int) -> list[str]:
    """Return the arguments of the aggregate at or around a position as the analyst wrote them, without bounds.

    Those of COUNT(DISTINCT (x, y)) are x and y.
    """
    tokens = list(statement.tokens)
    call = find_aggregate_call(tokens, start)
    if call is None:
        return []
    nodes = nest(token for token in tokens if call[0].start < token.start <= call[1].start).nodes
    while len(nodes) == 1 and isinstance(nodes[0], Block):
        nodes = nodes[0].nodes
        nodes = nodes[1:] if word_of(nodes, 0) == "distinct" else nodes
    parts = [part for part in split(nodes) if part and "FARROW" not in kinds_of(part)]
    return [read_text(statement, part) for part in parts]


def read_anonymization(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with the words of WITH DIFFERENTIAL_PRIVACY; the same ones without WITH ANONYMIZATION."""
    found = list(tokens)
    starts = [
        at + 2
        for at in range(len(found))
        if kinds_of(found[at : at + 2]) == ["SELECT", "WITH"] and word_of(found, at + 2) == "anonymization"
    ]
    if not starts:
        return found
    for at in starts:
        found[at] = make_token("VAR", "DIFFERENTIAL_PRIVACY", beside=found[at])
    return apply_forms(found, [_read_old_aggregate])


def _read_old_aggregate(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Write an aggregate under its name of today, with named bounds for CLAMPED BETWEEN low AND high at its end."""
    name, called = OLD_AGGREGATES.get(word_of(nodes, at)), parentheses_at(nodes, at + 1)
    if name is None or called is None:
        return (), 0
    head, inside = make_token("VAR", name.upper(), beside=first_token(nodes[at:])), called.nodes
    start = next((each for each in range(len(inside)) if word_of(inside, each) == "clamped"), len(inside))
    ends = [each for each in range(start, len(inside)) if kind_of(inside, each) == "AND"]
    if kind_of(inside, start + 1) != "BETWEEN" or len(ends) != 1 or ends[0] == start + 2:
        return (head, called), 2
    word = first_token(inside[start:])
    named = [make_token(*each, beside=word) for each in (("COMMA", ","), ("VAR", _WITH_BOUNDS[name]), ("FARROW", "=>"))]
    low, high = inside[start + 2 : ends[0]], inside[ends[0] + 1 :]
    bounds = enclose((*low, make_token("COMMA", ",", beside=word), *high), beside=word)
    return (head, Block(called.opening, (*inside[:start], *named, bounds), called.closing)), 2


def write_quantiles(statement: ScannedStatement, tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with each quantile as one call, and its bounds as another."""

    def write(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
        call = _quantile_at(nodes, at)
        return (_Call(statement, call).write(), len(call)) if call else ((), 0)

    return apply_forms(tokens, [write])


def _quantile_at(nodes: Nodes, at: int) -> Nodes:
    """Return the quantile that begins at a node, without its FILTER; nothing where there is none."""
    call = call_at(nodes, at) if word_of(nodes, at) in QUANTILES else None
    if call is None:
        return ()
    return call.nodes[:-2] if kinds_of(call.nodes[-2:]) == ["FILTER", "L_PAREN"] else call.nodes


def find_quantile_words(tokens: Sequence[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the quantile in or behind which a position of the text is."""
    found: tuple[Token, Token] | None = None
    for beside, at in walk(nest(tokens).nodes):
        if call := _quantile_at(beside, at):
            first, last = first_token(call), last_token(call)
            found = (first, last) if first.start <= start <= last.end else found
    return found


def propose_quantile(statement: ScannedStatement, token: Token) -> str:
    """Return a hint with the quantile to write in place of MIN or MAX, whose name is a token of the statement."""
    text = "x"
    for beside, at in walk(nest(statement.tokens).nodes):
        if not isinstance(beside[at], Block) and first_token(beside[at:]).start == token.start:
            called = parentheses_at(beside, at + 1)
            inside = () if called is None else called.nodes
            if inside and "COMMA" not in kinds_of(inside) and kind_of(inside, 0) != "DISTINCT":
                text = read_text(statement, inside)
            break
    share = 0.99 if word_of([token], 0) == "max" else 0.01
    return f"Write PERCENTILE_CONT({share}) WITHIN GROUP (ORDER BY {text})."


class _Call:
    """One quantile as it is written: its name, its arguments, and what follows these."""

    def __init__(self, statement: ScannedStatement, nodes: Nodes) -> None:
        self.statement, self.nodes = statement, nodes
        self.name, called = word_of(nodes, 0), parentheses_at(nodes, 1)
        assert called is not None  # noqa: S101 - of a call
        self.called = called
        parts = split(called.nodes)
        self.bounds = parts.pop() if kind_of(parts[-1], 1) == "FARROW" else ()
        self.arguments = [] if parts == [()] else parts
        self.behind = nodes[2:]

    def write(self) -> list[Node]:
        """Return the call with the arguments that the analysis reads."""
        if kind_of(self.called.nodes, 0) == "DISTINCT":
            reason = "Quantiles of DISTINCT values are not supported: which rows count would depend on all units."
            raise self._refuse(reason, hint="Leave DISTINCT out.")
        name, arguments = self._read()
        head = first_token(self.nodes)
        inside = join([*arguments, self._write_bounds()] if self.bounds else arguments)
        end = make_token("R_PAREN", ")", beside=last_token(self.nodes))
        return [make_token("VAR", name, beside=head), Block(self.called.opening, inside, end)]

    def _read(self) -> tuple[str, list[Nodes]]:
        """Return the name of the call, and its value, numerator and denominator."""
        if self.name == "median":
            (value,) = self._expect(1, f"MEDIAN({self._example})")
            return QUANTILE, [value, self._number("1"), self._number("2")]
        if self.name in _OF_GROUP and self.behind:
            (wanted,) = self._expect(1, _EXAMPLE)
            value, falls = self._read_order()
            self._check_one(wanted, value=value)
            return DESCENDING if falls else QUANTILE, [value, wanted, self._number("1")]
        if self.name == "approx_quantiles":
            value, number = self._expect(2, f"APPROX_QUANTILES({self._example}, 100)[OFFSET(90)]")
            return QUANTILE, [value, self._number(self._read_position(number)), number]
        spelled = _EXAMPLE if self.name in _OF_GROUP else f"{self.name.upper()}({self._example}, 0.9)"
        value, wanted = self._expect(2, spelled)
        self._check_one(wanted, value=value)
        return QUANTILE, [value, wanted, self._number("1")]

    @property
    def _example(self) -> str:
        """Return the value that a hint proposes: the first argument, where there is one that is no share."""
        is_value = bool(self.arguments and self.arguments[0]) and self.name not in _OF_GROUP
        return read_text(self.statement, self.arguments[0]) if is_value else "x"

    def _check_one(self, wanted: Nodes, *, value: Nodes) -> None:
        """Refuse a list of wanted quantiles."""
        block = wanted[-1] if wanted else None
        if not isinstance(block, Block):
            return
        is_tuple = len(wanted) == 1 and "COMMA" in kinds_of(block.nodes)
        if block.kind != "L_BRACKET" and not is_tuple:
            return
        text, shares = read_text(self.statement, value), [each for each in split(block.nodes) if each]
        several = [
            f"QUANTILE_CONT({text}, {read_text(self.statement, each)}) AS q{at}" for at, each in enumerate(shares, 1)
        ]
        reason = "A list of quantiles is not released: each of them is a value of its own, and costs an item."
        raise self._refuse(reason, hint=f"Write each as a column: {', '.join(several) or f'MEDIAN({text})'}.")

    def _expect(self, number: int, example: str) -> list[Nodes]:
        if len(self.arguments) != number or not all(self.arguments):
            reason = f"{self.name.upper()} takes {'one argument' if number == 1 else 'two arguments'}."
            raise self._refuse(reason, hint=f"Write {example}.")
        return self.arguments

    def _read_order(self) -> tuple[Nodes, bool]:
        """Return what WITHIN GROUP orders by, and whether it falls."""
        inside = self.behind[-1].nodes if isinstance(self.behind[-1], Block) else ()
        nodes = inside[1:]
        falls = "DESC" in kinds_of(nodes)
        if word_of(nodes, len(nodes) - 2) == "nulls":  # NULL is in no quantile, wherever it would come
            nodes = nodes[:-2]
        nodes = nodes[:-1] if kind_of(nodes, len(nodes) - 1) in {"ASC", "DESC"} else nodes
        if kind_of(inside, 0) != "ORDER_BY" or not nodes or "COMMA" in kinds_of(nodes):
            raise self._refuse("WITHIN GROUP orders by one value.", hint=f"Write {_EXAMPLE}.")
        return nodes, falls

    def _read_position(self, number: Nodes) -> str:
        """Return which of the quantiles of APPROX_QUANTILES is meant, from 1 on; refuse all of them, and the ends."""
        count, text = word_of(number, 0) if len(number) == 1 else "", self._example
        if not _WHOLE.fullmatch(count) or int(count) < 1:
            reason = "The number of APPROX_QUANTILES is whole."
            raise self._refuse(reason, hint=f"Write APPROX_QUANTILES({text}, 100)[OFFSET(50)].")
        last = int(count)
        index = self.behind[0] if self.behind else None
        word, place = ("", ()) if not isinstance(index, Block) else (word_of(index.nodes, 0), index.nodes[1:])
        if not isinstance(index, Block):
            several = [f"QUANTILE_CONT({text}, {_share(at, last)}) AS q{at}" for at in range(1, min(last, 5))]
            hint = f"Write each as a column: {', '.join(several)}{', ...' if last > 5 else ''}."  # noqa: PLR2004 - that are shown
            hint = hint if several else f"Write MEDIAN({text})."
            reason = "A list of quantiles is not released: each of them is a value of its own, and costs an item."
            raise self._refuse(reason, hint=hint)
        inner = place[0].nodes if place and isinstance(place[0], Block) else index.nodes
        digits = word_of(inner, 0) if len(inner) == 1 else ""
        # [OFFSET(90)] counts from 0, and [ORDINAL(91)] from 1.
        at = int(digits) - (word in {"ordinal", "safe_ordinal"}) if _WHOLE.fullmatch(digits) else -1
        if not 0 < at < last:
            last = max(last, 2)
            hint = f"Write APPROX_QUANTILES({text}, {last})[OFFSET({last // 2})], or QUANTILE({text}, 0.99)"
            reason = "The least and the greatest value are those of one unit, and are not released."
            raise self._refuse(reason, hint=f"{hint} for one near the end.")
        return str(at)

    def _write_bounds(self) -> Nodes:
        """Return the bounds of one row as a call."""
        name, block = word_of(self.bounds, 0), parentheses_at(self.bounds, 2)
        is_alone = len(self.bounds) == len(("name", "=>", "()"))
        if name != PER_ROW or block is None or not is_alone or len(split(block.nodes)) != len(("low", "high")):
            reason = "Bounds of a quantile are those of the value of one row: two numbers in parentheses."
            raise self._refuse(reason, hint=f"Write MEDIAN({self._example}, {PER_ROW} => (0, 500)).")
        return (make_token("VAR", STATED, beside=first_token(self.bounds)), block)

    def _number(self, text: str) -> Nodes:
        return (make_token("NUMBER", text, beside=first_token(self.nodes)),)

    def _refuse(self, reason: str, *, hint: str) -> Refusal:
        return Refusal("aggregate", reason, hint=hint, place=find_place(self.statement, self.nodes))


def _share(at: int, last: int) -> str:
    return f"{at / last:.3f}".rstrip("0")
