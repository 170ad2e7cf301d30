"""Ends of intervals in the select list of a private query: value_low, value_high, and WITH (intervals = true)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from dpsql.errors import Refusal
from dpsql.sql.analysis.measures import is_interval_end, means_high_end, read_end_argument
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.released_clauses import Item, list_named
from dpsql.sql.ir.statements import IntervalEnd, Option
from dpsql.sql.lexer import ascii_lower

__all__ = ["complete_ends"]

_LEVEL = 0.95
_ENDS = (("low", False), ("high", True))


def complete_ends(reader: Reader, items: list[Item], *, options: Mapping[str, Option]) -> list[Item]:
    """Return the items of a select list with the measure of each end, and with the columns that the option adds.

    Raises `Refusal` for an end of nothing, for a name that is there twice, and for ends of counts that are adjusted.
    """
    option, named = options.get("intervals"), list_named(items)
    adds, level = (False, _LEVEL) if option is None else _read_option(option)
    found = list[Item]()
    for item in items:
        if is_interval_end(item.node):
            end = IntervalEnd(means_high_end(item.node), level)
            found.append(replace(item, measure=read_end_argument(reader, item.node, named=named), end=end))
        else:
            found += [item, *(_add_ends(item, level) if adds and item.measure is not None else ())]
    if adds and not named:
        hint = f"Select a measure too, such as COUNT(DISTINCT {_name_unit(reader)}) AS n, or leave intervals out."
        reason = "intervals are those of released measures, and none are selected."
        raise Refusal("option", reason, hint=hint, place=option.place if option else None)
    monotone = options.get("monotone")
    if monotone is not None and monotone.value == "true" and any(item.end is not None for item in found):
        hint = "Leave monotone out, or the intervals: either is free once the query is answered."
        reason = "Intervals are those of the counts as they were drawn, and monotone = true changes them."
        raise Refusal("option", reason, hint=hint, place=monotone.place)
    names = [ascii_lower(item.name) for item in found]
    for item in found:
        if item.added and names.count(ascii_lower(item.name)) > 1:
            hint = "Give the output of this name, or the measure, another alias."
            reason = "intervals would add a column of a name that is there already."
            raise Refusal("output-names", reason, hint=hint, place=reader.place(item.node))
    return found


def _add_ends(item: Item, level: float) -> Iterator[Item]:
    """Yield the two columns that the option adds after a measure."""
    for word, is_high in _ENDS:
        yield replace(item, name=f"{item.name}_{word}", end=IntervalEnd(is_high, level), added=True)


def _read_option(option: Option) -> tuple[bool, float]:
    """Return whether the option adds columns, and the level of all intervals."""
    if option.word and option.value in {"true", "false"}:
        return option.value == "true", _LEVEL
    if isinstance(option.value, Decimal) and 0 < float(option.value) < 1:
        return True, float(option.value)
    hint = "Write intervals = true, for 95 %, or a level such as intervals = 0.9."
    raise Refusal("option", "intervals is true, false, or a level between 0 and 1.", hint=hint, place=option.place)


def _name_unit(reader: Reader) -> str:
    private = reader.scope.private
    return (private.unit_name if private else None) or "unit"
