"""Every mechanism says in its docstring what it needs, what it costs and where it is from, with an example."""

from __future__ import annotations

import pytest

import dpsql.mechanisms

ACTS = {"choose", "release", "select"}
PUBLIC = [getattr(dpsql.mechanisms, name) for name in dpsql.mechanisms.__all__]
MECHANISMS = [each for each in PUBLIC if isinstance(each, type) and ACTS & set(dir(each))]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_tells_what_it_needs_costs_and_comes_from(mechanism: type) -> None:
    text = mechanism.__doc__ or ""
    assert all(word in text for word in ("Given:", "Loss:", "Utility:", "Source:", ">>>"))
