"""Kit of the ClickHouse example."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "engines"))
from clickhouse_kit import KIT
from clickhouse_kit import connect as memory
from clickhouse_kit import load_tables as laid

__all__ = ["KIT", "laid", "memory"]
