"""Where the benchmarks are, and what imports them in a test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"
Load = Callable[[str], ModuleType]


def read_benchmark(name: str) -> ModuleType:
    """Import one file of the benchmarks that imports no other, under a name of its own."""
    module_name = f"benchmarks_{name}"
    if module_name not in sys.modules:
        spec = spec_from_file_location(module_name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module_name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module_name])
    return sys.modules[module_name]
