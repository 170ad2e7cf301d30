"""Frozen dataclasses with slots, as the standard library makes them, in less time.

A start of `dpsql query` makes hundreds. The standard library compiles up to six functions for each; here `__init__`
alone is compiled, and the others are shared. Fields, slots and what `dataclasses` does with them are its own (but
`InitVar`, which nothing here has); of any other dataclass this is its decorator.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass

    from _typeshed import DataclassInstance
else:

    def dataclass(*, frozen=False, slots=False, order=False, **options):  # noqa: ANN001, ANN003, ANN201 - as above
        """Return the decorator `dataclasses.dataclass(...)`."""
        if frozen and slots and not order:
            return lambda cls: _value(cls, **options)
        return dataclasses.dataclass(frozen=frozen, slots=slots, order=order, **options)


class _Absent:
    """Stands in a signature where a field is made anew for every value."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


def _value(cls: type, *, init: bool = True, repr: bool = True, eq: bool = True, **options: bool) -> type:  # noqa: A002
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would work out a signature to show
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, **options)(cls)
    own: dict[str, object] = {"__setattr__": _set, "__delattr__": _delete}
    own |= {"__getstate__": _state, "__setstate__": _restore}
    own |= {"__init__": _init_of(made)} if init else {}
    own |= {"__repr__": _repr} if repr else {}
    own |= _comparison_of(made) if eq else {}
    for name, value in own.items():
        if vars(made).get(name) is None:  # a class that defines __eq__ has None for __hash__
            setattr(made, name, value)
    done: type = made
    return done


def _init_of(cls: type[DataclassInstance]) -> Callable[..., None]:
    """Return `__init__`, which writes the slots directly."""
    names: dict[str, object] = {}
    kinds: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    fields = dataclasses.fields(cls)
    for each in fields:
        name = each.name
        names[f"_set_{name}"] = getattr(cls, name).__set__
        value = name
        if each.default_factory is not MISSING:
            names[f"_make_{name}"], names["_absent"] = each.default_factory, _ABSENT
            value = f"_make_{name}() if {name} is _absent else {name}" if each.init else f"_make_{name}()"
        elif each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
        elif not each.init:
            continue
        lines.append(f"_set_{name}(self, {value})")
        if each.init:
            kinds[bool(each.kw_only)].append(f"{name}{_default(each)}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    asked = ", ".join(["self", *kinds[False], *(["*"] if kinds[True] else []), *kinds[True]])
    body = "\n  ".join(lines or ["pass"])
    text = f"def made({', '.join(names)}):\n def __init__({asked}):\n  {body}\n return __init__"
    out: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), out)  # noqa: S102 - as the standard library does, of our own fields
    init: Callable[..., None] = out["made"](**names)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
    return init


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return "=_absent"
    return "" if field.default is MISSING else f"=_default_{field.name}"


def _comparison_of(cls: type[DataclassInstance]) -> dict[str, object]:
    fields = dataclasses.fields(cls)
    compared = _values_of([each.name for each in fields if each.compare])
    hashed = _values_of([each.name for each in fields if (each.compare if each.hash is None else each.hash)])

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - what it becomes
        return bool(compared(self) == compared(other)) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807 - what it becomes
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values_of(names: list[str]) -> Callable[[object], object]:
    """Return what takes the values of these fields, as a tuple whatever their number."""
    return attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)


def _repr(self: DataclassInstance) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set(self: object, name: str, *_: object) -> NoReturn:  # noqa: ARG001 - as it is called
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: object, name: str) -> NoReturn:  # noqa: ARG001 - as it is called
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: DataclassInstance) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: DataclassInstance, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
