"""Markers by folder, the choice of tests that `pytest` alone runs, and the examples that Hypothesis draws.

Every run draws the same few examples, so that a checkout passes or fails. DPSQL_FUZZ=1 draws new ones each time; a
failure prints the example to keep.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import settings
from support.fuzzing import FUZZING, examples

ROOT = Path(__file__).parent
MARKERS = ("properties", "engines", "server", "house")

# Files of more than a minute, the longest first. One process runs a file, and at the end none is to run one alone.
LONGEST = """
    properties/attacks/test_empty_tables.py engines/conformance/test_conformance.py
    properties/attacks/test_outer_selects.py properties/attacks/test_mutations.py properties/attacks/test_fuzz.py
    properties/mechanisms/test_laws.py house/benchmarks/test_benchmarks.py properties/session/test_session_audit.py
    properties/sql/test_totality.py server/tools/test_tools.py
    engines/conformance/test_engine_neighbours.py properties/attacks/test_stability.py
    engines/postgres/test_materialized.py
""".split()

settings.register_profile("same", derandomize=True, max_examples=examples(100), deadline=None)
settings.register_profile("fuzz", print_blob=True, max_examples=examples(100), deadline=None)
settings.load_profile("fuzz" if FUZZING else "same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and run long files first.

    Without a path or a marker, leave out what is slow in the unit suite too.
    """
    for item in items:
        folder = item.path.relative_to(ROOT).parts[0]
        if folder in MARKERS:
            item.add_marker(folder)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.relative_to(ROOT).as_posix(), len(places)))
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        slow = [item for item in items if any(map(item.get_closest_marker, MARKERS))]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over the tests and what they import: an eighth of the CPU was theirs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_sessionfinish() -> None:
    """Remove the scratch folders of processes that tests have killed."""
    from dpsql.engines.scratch import sweep

    gc.unfreeze()
    sweep()
