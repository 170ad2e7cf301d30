"""The examples in the docstrings of the mathematics run, and every mechanism has one."""

from __future__ import annotations

import doctest
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

import dpsql.accounting
import dpsql.mechanisms

ACTS = {"choose", "release", "select"}
PUBLIC = [getattr(dpsql.mechanisms, name) for name in dpsql.mechanisms.__all__]
MECHANISMS = [each for each in PUBLIC if isinstance(each, type) and ACTS & set(dir(each))]


def modules() -> Iterator[ModuleType]:
    yield import_module("dpsql.quantities")
    for package in (dpsql.accounting, dpsql.mechanisms):
        yield package
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield import_module(found.name)


@pytest.mark.parametrize("module", [*modules()], ids=lambda module: module.__name__)
def test_examples_run(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(len(test.examples) for module in modules() for test in finder.find(module)) >= 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_tells_what_it_needs_costs_and_comes_from(mechanism: type) -> None:
    text = mechanism.__doc__ or ""
    assert all(word in text for word in ("Given:", "Loss:", "Utility:", "Source:", ">>>"))
