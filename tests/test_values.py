"""A frozen dataclass of ours does what one of the standard library does, shape by shape."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, get_type_hints

import pytest

from dpsql import values

Decorator = Callable[..., Callable[[type], Any]]


def shapes(dataclass: Decorator) -> dict[str, tuple[Any, list[tuple[tuple[object, ...], dict[str, object]]]]]:
    """Return classes of every shape, with arguments to make values of; some are wrong."""

    @dataclass(frozen=True, slots=True)
    class Empty:
        """No field."""

    @dataclass(frozen=True, slots=True)
    class One:
        a: int

    @dataclass(frozen=True, slots=True)
    class Some:
        """With defaults."""

        a: int
        b: str = "b"
        c: tuple[int, ...] = ()

    @dataclass(frozen=True, slots=True)
    class Fields:
        a: int
        b: list[int] = field(default_factory=list, hash=False, compare=False)
        c: bytes = field(default=b"secret", repr=False)
        d: int = field(init=False, default=7)
        e: list[int] = field(init=False, default_factory=list, compare=False)
        f: int = field(kw_only=True, default=3)
        g: int = field(kw_only=True, compare=False)
        h: int = field(kw_only=True, hash=False, default=1)

    @dataclass(frozen=True, slots=True)
    class Child(Some):
        d: int = 4
        a: int = 9

    @dataclass(frozen=True, slots=True)
    class Checked:
        a: int
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(self.a)
            object.__setattr__(self, "twice", 2 * self.a)

    @dataclass(frozen=True, slots=True, init=False)
    class Own:
        a: int

        def __init__(self, a: str) -> None:
            object.__setattr__(self, "a", int(a))

    @dataclass(frozen=True, slots=True, repr=False)
    class Quiet:
        a: int

        def __repr__(self) -> str:
            return "sealed"

    @dataclass(frozen=True, slots=True)
    class Equal:  # noqa: PLW1641 - it is given one
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal) and str(self.a)[-1] == str(other.a)[-1]

    @dataclass(frozen=True, slots=True)
    class Hashed:
        a: int

        def __hash__(self) -> int:
            return 5

        def __getstate__(self) -> object:
            return [8]

    @dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
    class Alone:
        a: int

    numbers: list[tuple[tuple[object, ...], dict[str, object]]] = [((n,), {}) for n in (1, 2, 3)]
    named: list[tuple[tuple[object, ...], dict[str, object]]] = [((), {"a": 1}), ((1, 2, 3, 4, 5, 6), {}), ((), {})]
    given = [
        *numbers,
        *named,
        ((1, "x"), {}),
        ((1,), {"c": (2,)}),
        ((1,), {"g": 4}),
        ((1,), {"g": 4, "h": 2}),
        ((-1,), {}),
        (("7",), {}),
    ]
    kinds = [Empty, One, Some, Fields, Child, Checked, Own, Quiet, Equal, Hashed, Alone]
    return {kind.__name__: (kind, given) for kind in kinds}


OURS, THEIRS = shapes(values.dataclass), shapes(dataclasses.dataclass)
NAMES = list(OURS)


def told(done: Callable[[], object]) -> object:
    try:
        return done()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be the same
        return type(error), str(error).replace(".<locals>", "")


def made(of: dict[str, Any], name: str) -> list[Any]:
    kind, given = of[name]
    return [told(lambda: kind(*some, **named)) for some, named in given]  # noqa: B023 - called at once


@pytest.mark.parametrize("name", NAMES)
def test_values_are_made_and_shown_alike(name: str) -> None:
    assert list(map(repr, made(OURS, name))) == list(map(repr, made(THEIRS, name)))
    assert any(isinstance(each, OURS[name][0]) for each in made(OURS, name))
    for of in (OURS, THEIRS):
        assert of[name][0].__doc__
    ours, theirs = OURS[name][0], THEIRS[name][0]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__slots__ == theirs.__slots__
    assert ours.__match_args__ == theirs.__match_args__
    assert get_type_hints(ours.__init__) == get_type_hints(theirs.__init__)
    assert (ours.__init__.__qualname__, ours.__init__.__module__) == (
        theirs.__init__.__qualname__,
        theirs.__init__.__module__,
    )


@pytest.mark.parametrize("name", NAMES)
def test_values_are_equal_and_hash_alike(name: str) -> None:
    def relations(of: dict[str, Any]) -> object:
        those = [each for each in made(of, name) if isinstance(each, of[name][0])]
        again = [each for each in made(of, name) if isinstance(each, of[name][0])]
        others = [None, 1, "x", *(each for other in NAMES if other != name for each in made(of, other))]
        same = [[one == other for other in again] for one in those]
        hashes = [[hash(one) == hash(other) for other in again] for one in those]
        return same, hashes, [one == other for one in those for other in others]

    assert relations(OURS) == relations(THEIRS)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_value_can_be_changed(name: str) -> None:
    value = next(each for each in made(OURS, name) if isinstance(each, OURS[name][0]))
    for word in ("a", "new"):
        with pytest.raises(FrozenInstanceError, match=f"^cannot assign to field '{word}'$"):
            setattr(value, word, 1)
        with pytest.raises(FrozenInstanceError, match=f"^cannot delete field '{word}'$"):
            delattr(value, word)
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize("name", NAMES)
def test_values_are_replaced_copied_and_taken_apart_alike(name: str) -> None:
    def parts(of: dict[str, Any]) -> list[object]:
        those = [each for each in made(of, name) if isinstance(each, of[name][0])]
        acts: list[Callable[[Any], object]] = [
            dataclasses.asdict,
            dataclasses.astuple,
            copy.copy,
            copy.deepcopy,
            dataclasses.replace,
            lambda each: dataclasses.replace(each, a=6),
            lambda each: each.__reduce_ex__(2)[2],
        ]
        return [repr(told(lambda: act(each))) for each in those for act in acts]  # noqa: B023 - called at once

    assert parts(OURS) == parts(THEIRS)


def test_values_of_our_own_modules_can_be_pickled() -> None:
    from dpsql.errors import Place

    assert pickle.loads(pickle.dumps(Place(1, 2))) == Place(1, 2)


def test_what_is_no_frozen_dataclass_with_slots_is_one_of_the_standard_library() -> None:
    @values.dataclass(slots=True)
    class Changing:
        a: int

    changing = Changing(1)
    changing.a = 2
    assert changing == Changing(2)

    @values.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        a: int

    assert Ordered(1) < Ordered(2)
