"""Modules of the benchmarks, imported as they import each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from support.benchmarks_kit import FOLDER, Load


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import modules of the benchmarks by their names, which some tests have too, and forget them again."""
    names = {path.stem for path in FOLDER.iterdir() if not path.name.startswith("_")}

    def ours() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in names}

    others = ours()
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module
    ours()
    sys.modules.update(others)
