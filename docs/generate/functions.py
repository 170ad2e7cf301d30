"""What each function takes and gives, found by asking its rule: every kind of argument is tried at every place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import product

from dpsql.errors import Error, Place
from dpsql.sql.allow_list import Rule, Site
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    ColumnRef,
    Expression,
    Literal,
    Type,
    decimal,
)

_DECIMAL = decimal(9, 2)
_COLUMNS = {
    "BOOLEAN": BOOLEAN,
    "integer": BIGINT,
    "DECIMAL": _DECIMAL,
    "DOUBLE": DOUBLE,
    "VARCHAR": TEXT,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
}
_KINDS: dict[str, Expression] = {
    **{name: ColumnRef(1, name, type_) for name, type_ in _COLUMNS.items()},
    "'day'": Literal("day", TEXT, 3),
    "'s'": Literal("s", TEXT, 1),
    "n": Literal(1, BIGINT),
    "INTERVAL": Literal("1 day", INTERVAL),
}
_VALUES = {**_KINDS, "10": Literal(10, BIGINT)}  # tried only where a call needs two numbers that differ
_OF_FOUR = {"width_bucket": {(kind, "n", "10", "n") for kind in _COLUMNS}}
_WORDS = {
    frozenset({"integer", "DECIMAL", "DOUBLE"}): "number",
    frozenset({"DATE", "TIMESTAMP"}): "time",
    frozenset({"integer", "DATE", "TIMESTAMP"}): "time or integer",
    frozenset({"integer", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP"}): "number or time",
    frozenset(_COLUMNS): "any type",
}
_TRIED, _MOST = 3, 16  # arguments tried in every combination; the most that any rule takes
Accepted = dict[tuple[str, ...], Type]


def signatures(rules: Mapping[str, Rule]) -> dict[tuple[str, str], list[str]]:
    """Return the functions that take and give the same, each with its other names, by arguments and result."""
    same: dict[tuple[int, str, str], list[str]] = {}
    for name, rule in rules.items():
        accepted = _accepted(name, rule)
        if not accepted:
            raise SystemExit(f"No arguments were found that {name} takes.")
        same.setdefault((id(rule), _arguments(name, rule, accepted), _result(accepted)), []).append(name)
    found: dict[tuple[str, str], list[str]] = {}
    for (_, arguments, result), (name, *others) in same.items():
        aliases = f" ({' '.join(f'`{other}`' for other in others)})" if others else ""
        found.setdefault((arguments, result), []).append(f"`{name}`{aliases}")
    return found


def _accepted(name: str, rule: Rule) -> Accepted:
    """Return the kinds of arguments that a rule takes, with the type of the result."""
    tried = _OF_FOUR.get(name) or {kinds for number in range(_TRIED + 1) for kinds in product(_KINDS, repeat=number)}
    found = {kinds: type_ for kinds in tried if (type_ := _type(name, rule, kinds)) is not None}
    longest = [kinds for kinds in found if len(kinds) == _TRIED and not _is_many(name, rule, found)]
    longer = ((*kinds, kind) for kinds in longest for kind in _KINDS)
    return found | {kinds: type_ for kinds in longer if (type_ := _type(name, rule, kinds)) is not None}


def _type(name: str, rule: Rule, kinds: tuple[str, ...]) -> Type | None:
    """Return the type of the call with arguments of these kinds; None if it is refused."""
    arguments = tuple(_VALUES[kind] for kind in kinds)
    site = Site(name, arguments, Place(1, 1), lambda _: True, lambda: datetime(2026, 1, 1))  # noqa: DTZ001
    try:
        return rule(site).type
    except Error:
        return None


def _is_many(name: str, rule: Rule, found: Accepted) -> bool:
    """Say whether a rule goes on taking arguments like its last one."""
    return any(_type(name, rule, kinds + kinds[-1:] * (_MOST - len(kinds))) for kinds in found if kinds)


def _arguments(name: str, rule: Rule, accepted: Accepted) -> str:
    least, most = min(map(len, accepted)), max(map(len, accepted))
    words = [_place(accepted, at) for at in range(most)]
    if _is_many(name, rule, accepted):
        shown = words[: max(least, 1)]
        return ", ".join(shown) + f" ... (up to {_MOST})"
    return ", ".join(words[:least]) + "".join(f" [, {word}]" for word in words[least:])


def _place(accepted: Accepted, at: int) -> str:
    """Return in words what may stand as an argument: types of columns, or, where no column may, what is written."""
    kinds = {call[at] for call in accepted if len(call) > at}
    columns = frozenset(kinds) & frozenset(_COLUMNS)
    if columns:
        return _WORDS.get(columns) or " or ".join(name for name in _COLUMNS if name in columns)
    return "n" if kinds <= {"n", "10"} else "INTERVAL" if kinds == {"INTERVAL"} else "`'text'`"


def _result(accepted: Accepted) -> str:
    """Return the type of the result in words."""
    types = {kinds: type_ for kinds, type_ in accepted.items() if not set(kinds) - set(_COLUMNS)} or accepted
    if len({str(type_) for type_ in types.values()}) > 1 and all(
        any(type_ == _KINDS[kind].type for kind in kinds) for kinds, type_ in types.items()
    ):
        return "as the arguments"
    names = {"DECIMAL" if str(type_).startswith("DECIMAL") else str(type_) for type_ in types.values()}
    return " or ".join(sorted(names))
