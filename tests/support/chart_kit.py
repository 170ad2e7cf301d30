"""Data for the statements of chart builders, and the statements, with what each is read as."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import dpsql

__all__ = ["CREATE", "DEFAULT_K", "POLICY", "PUBLIC", "ROWS", "TABLES", "Chart", "read_charts"]

CREATE = "CREATE TABLE orders (user_id BIGINT, product VARCHAR, amount DOUBLE, ts TIMESTAMP)"
ROWS = (
    "INSERT INTO orders SELECT i % 900, 'p' || (i * i) % 30, i % 50, TIMESTAMP '2026-01-01' + INTERVAL (i % 240) HOUR "
    "FROM range(20000) t(i)"
)
PUBLIC = "CREATE TABLE products AS SELECT 'p' || i AS product, i % 3 AS class FROM range(30) t(i)"
DEFAULT_K = 5
TABLES = {
    "orders": dpsql.PrivateTable("user_id", bounds={"rows": 50, "amount": {"max": 500}}),
    "products": dpsql.PublicTable(),
}
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 100
delta = 1e-6
[limits]
default_k = 5
[sql]
implicit = {implicit}
[tables.orders]
privacy_unit = "user_id"
[tables.orders.bounds]
rows = 50
amount = {{ max = 500 }}
[tables.products]
public = true
"""
_HEAD = re.compile(r"-- chart: (?P<name>.+)\n-- (?P<kind>read as|refused): (?P<reading>[^,\n]+)(, (?P<rows>\d+))?\n")


@dataclass(frozen=True)
class Chart:
    """A statement that a chart builder writes, and what it is read as, or the code of its refusal."""

    name: str
    sql: str
    reading: str
    refused: str
    rows: int | None


def read_charts(path: Path) -> list[Chart]:
    """Return the charts of a file; each begins with a comment that names it, and one that says how it is read."""
    _, *blocks = path.read_text().split("\n\n-- chart: ")
    charts = []
    for block in blocks:
        found = _HEAD.match(f"-- chart: {block}")
        assert found is not None, block
        sql = f"-- chart: {block}"[found.end() :].strip()
        is_read, rows = found["kind"] == "read as", found["rows"]
        reading = found["reading"]
        charts.append(
            Chart(found["name"], sql, reading * is_read, reading * (not is_read), None if rows is None else int(rows))
        )
    return charts
