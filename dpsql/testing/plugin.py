"""pytest plugin: `pytest --pyargs dpsql.testing --dpsql-engine mypackage:KIT` runs the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the engine, its address and a sample."""
    group = parser.getgroup("dpsql", "dpsql: conformance suite of engines")
    group.addoption(
        "--dpsql-engine",
        action="append",
        default=[],
        metavar="KIT",
        help="kit to test: module:ATTRIBUTE, or a name; may be repeated",
    )
    group.addoption("--dpsql-url", metavar="URL", help="address of the engine, for kits that take one")
    group.addoption(
        "--dpsql-sample", type=int, metavar="N", help="compare one statement and expression in N; 1 compares all"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each part of the suite and each engine."""
    if metafunc.module.__name__ != "dpsql.testing.test_suite":
        return
    import pytest

    from dpsql.testing.suite import list_parts

    engines = metafunc.config.getoption("--dpsql-engine")
    if not engines:
        raise pytest.UsageError("name the engine to test: --dpsql-engine mypackage:KIT")
    parts = [part for check, each in list_parts().items() for part in each or (check,)]
    metafunc.parametrize("dpsql_part", parts)
    metafunc.parametrize("dpsql_kit", engines, indirect=True, scope="session")
