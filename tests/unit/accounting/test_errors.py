"""Errors: one root, a code, a place and a hint that can be read, and a life beyond one process."""

from __future__ import annotations

import copy
import pickle

import pytest

import dpsql.errors
from dpsql.errors import Error, Place, Refusal

KINDS = [kind for name in dpsql.errors.__all__ if name != "Place" for kind in [getattr(dpsql.errors, name)]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [None, Place(3, 14, "SELECT"), "policy.toml, line 7, key tables.visits"])
def test_an_error_survives_pickling(kind: type[Error], place: Place | str | None) -> None:
    error = kind("a-code", "The reason.", hint="Do this.", place=place)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert (other.code, other.reason, other.hint, other.place) == ("a-code", "The reason.", "Do this.", place)
        assert str(other) == str(error)


def test_the_text_carries_code_place_reason_and_hint() -> None:
    error = Refusal("no-such-column", "There is no such column.", hint="Look at the policy.", place=Place(2, 5, "ag"))
    assert str(error) == (
        "[no-such-column] at line 2, column 5 near 'ag': There is no such column. Hint: Look at the policy."
    )


def test_the_text_leaves_out_what_is_not_known() -> None:
    assert str(Refusal("no", "No.")) == "[no]: No."
    assert str(Refusal("no", "No.", place=Place(1, 1))) == "[no] at line 1, column 1: No."
    assert str(Refusal("no", "No.", place="key a.b")) == "[no] at key a.b: No."


def test_a_long_fragment_is_cut() -> None:
    shown = str(Place(1, 1, "x" * 500))
    assert shown.endswith("x…'")
    assert len(shown) < 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_below_the_root_and_drawn_in_the_tree(kind: type[Error]) -> None:
    assert issubclass(kind, Error)
    assert f"{kind.__name__} " in (dpsql.errors.__doc__ or "")


def test_all_names_are_exported_in_order() -> None:
    defined = {kind.__name__ for kind in Error.__subclasses__()} | {"Error", "Place"}
    assert dpsql.errors.__all__ == sorted(defined)
