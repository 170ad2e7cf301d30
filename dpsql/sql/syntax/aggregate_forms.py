"""Spellings of a quantile, put into one call that the analysis reads: the value, the numerator, the denominator.

    MEDIAN(x)                                                quantile(x, 1, 2)
    PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)           quantile(x, 0.9, 1)     so does PERCENTILE_DISC
    PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x DESC)      descending(x, 0.9, 1)
    QUANTILE_CONT(x, 0.9), QUANTILE_DISC(x, 0.9)             quantile(x, 0.9, 1)
    QUANTILE(x, 0.9), APPROX_QUANTILE(x, 0.9)                quantile(x, 0.9, 1)
    PERCENTILE_CONT(x, 0.9)                                  quantile(x, 0.9, 1)     of GoogleSQL
    APPROX_QUANTILES(x, 100)[OFFSET(90)]                     quantile(x, 90, 100)    [ORDINAL(91)] is the same

Behind the arguments there may be contribution_bounds_per_row => (0, 500), which become the last argument. What is
between two values of the data is not told apart: a quantile is released as a bin, so CONT and DISC are the same. The
names of the calls hold a character that no statement can hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.functions.allow_list import QUANTILES
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement
from dpsql.sql.syntax.block import (
    Block,
    Node,
    Nodes,
    call_at,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    nest,
    rewrite,
    split,
    walk,
    word_of,
)
from dpsql.sql.syntax.named_bounds import PER_ROW, STATED

if TYPE_CHECKING:
    from sqlglot import Token

QUANTILE, DESCENDING = f"{FUNCTION_PREFIX}quantile\0", f"{FUNCTION_PREFIX}quantile descending\0"
NAMES = re.compile("median|quantile|percentile", re.IGNORECASE)
_OF_GROUP = frozenset(["percentile_cont", "percentile_disc"])
_WHOLE = re.compile("[0-9]{1,4}")
_EXAMPLE = "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)"


def write_quantiles(statement: ScannedStatement, tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with each quantile as one call, and its bounds as another."""

    def change(nodes: Nodes) -> Nodes:
        written: list[Node] = []
        at = 0
        while at < len(nodes):
            call = call_at(nodes, at) if word_of(nodes, at) in QUANTILES else None
            if call is None:
                written.append(nodes[at])
                at += 1
                continue
            width = len(call.nodes) - 2 * (kinds_of(call.nodes[-2:]) == ["FILTER", "L_PAREN"])
            written += _Call(statement, nodes[at : at + width]).write()
            at += width
        return tuple(written)

    return flatten(rewrite(nest(tokens), change).nodes)


def find_quantile_words(tokens: Sequence[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the quantile in or behind which a position of the text is."""
    found: tuple[Token, Token] | None = None
    for beside, at in walk(nest(tokens).nodes):
        call = call_at(beside, at) if word_of(beside, at) in QUANTILES else None
        if call is not None:
            width = len(call.nodes) - 2 * (kinds_of(call.nodes[-2:]) == ["FILTER", "L_PAREN"])
            first, last = first_token(call.nodes), last_token(call.nodes[:width])
            found = (first, last) if first.start <= start <= last.end else found
    return found


def propose_quantile(statement: ScannedStatement, token: Token) -> str:
    """Return a hint with the quantile to write in place of MIN or MAX, whose name is a token of the statement."""
    text = "x"
    for beside, at in walk(nest(statement.tokens).nodes):
        called = beside[at + 1] if at + 1 < len(beside) else None
        if not isinstance(beside[at], Block) and first_token(beside[at:]).start == token.start:
            inside = called.nodes if isinstance(called, Block) else ()
            is_one = bool(inside) and "COMMA" not in kinds_of(inside) and kind_of(inside, 0) != "DISTINCT"
            text = _read_text(statement, inside) if is_one else text
            break
    share = 0.99 if word_of([token], 0) == "max" else 0.01
    return f"Write PERCENTILE_CONT({share}) WITHIN GROUP (ORDER BY {text})."


def _read_text(statement: ScannedStatement, nodes: Nodes) -> str:
    return " ".join(statement.text[first_token(nodes).start : last_token(nodes).end + 1].split())


class _Call:
    """One quantile as it is written: its name, its arguments, and what follows these."""

    def __init__(self, statement: ScannedStatement, nodes: Nodes) -> None:
        self.statement, self.nodes = statement, nodes
        self.name, called = word_of(nodes, 0), nodes[1]
        assert isinstance(called, Block)  # noqa: S101 - of a call
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
        inside: list[Node] = []
        for argument in [*arguments, *([self._write_bounds()] if self.bounds else [])]:
            inside += [make_token("COMMA", ",", beside=head)] if inside else []
            inside += argument
        closing = last_token(self.nodes)
        end = make_token("R_PAREN", ")", beside=closing)
        return [make_token("VAR", name, beside=head), Block(self.called.opening, tuple(inside), end)]

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
        return _read_text(self.statement, self.arguments[0]) if is_value else "x"

    def _check_one(self, wanted: Nodes, *, value: Nodes) -> None:
        """Refuse a list of wanted quantiles."""
        block = wanted[-1] if wanted else None
        if not isinstance(block, Block):
            return
        is_tuple = len(wanted) == 1 and "COMMA" in kinds_of(block.nodes)
        if block.kind != "L_BRACKET" and not is_tuple:
            return
        text, shares = _read_text(self.statement, value), [each for each in split(block.nodes) if each]
        several = [
            f"QUANTILE_CONT({text}, {_read_text(self.statement, each)}) AS q{at}" for at, each in enumerate(shares, 1)
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
        at = int(digits) - (word in {"ordinal", "safe_ordinal"}) if _WHOLE.fullmatch(digits) else -1
        if not 0 < at < last:
            last = max(last, 2)
            hint = f"Write APPROX_QUANTILES({text}, {last})[OFFSET({last // 2})], or QUANTILE({text}, 0.99)"
            reason = "The least and the greatest value are those of one unit, and are not released."
            raise self._refuse(reason, hint=f"{hint} for one near the end.")
        return str(at)

    def _write_bounds(self) -> Nodes:
        """Return the bounds of one row as a call."""
        name, block = word_of(self.bounds, 0), self.bounds[2] if len(self.bounds) == len(("name", "=>", "()")) else None
        pair = split(block.nodes) if isinstance(block, Block) and block.kind == "L_PAREN" else []
        if name != PER_ROW or len(pair) != len(("low", "high")) or not isinstance(block, Block):
            reason = "Bounds of a quantile are those of the value of one row: two numbers in parentheses."
            raise self._refuse(reason, hint=f"Write MEDIAN({self._example}, {PER_ROW} => (0, 500)).")
        return (make_token("VAR", STATED, beside=first_token(self.bounds)), block)

    def _number(self, text: str) -> Nodes:
        return (make_token("NUMBER", text, beside=first_token(self.nodes)),)

    def _refuse(self, reason: str, *, hint: str) -> Refusal:
        place = self.statement.place(first_token(self.nodes), last_token(self.nodes))
        return Refusal("aggregate", reason, hint=hint, place=place)


def _share(at: int, last: int) -> str:
    return f"{at / last:.3f}".rstrip("0")
