"""Kit of the SQLite example."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "engines"))
from sqlite_kit import KIT

__all__ = ["KIT"]
