"""Where the benchmarks are, and what imports them in a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"
Load = Callable[[str], ModuleType]
