"""One shadow for all tests of a process: the package's PostgreSQL, started when it is first wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dpsql.policy import PrivateTable, PublicTable
from dpsql.server.catalog import open_catalog
from dpsql.server.catalog.system_catalog import SystemCatalog
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.tree import parse_type


def table(name: str, unit: str | None, /, **columns: str) -> Table:
    return Table(name, (name,), tuple((column, parse_type(type_)) for column, type_ in columns.items()), unit)


@pytest.fixture(scope="session")
def tables() -> Tables:
    reads = table("reads", "user_id", user_id="BIGINT", article="VARCHAR", price="DECIMAL(9,2)", at="TIMESTAMP")
    return Tables((reads, table("countries", None, code="VARCHAR", name="VARCHAR")))


@pytest.fixture(scope="session")
def shadow(tables: Tables) -> Iterator[SystemCatalog]:
    policy = {"reads": PrivateTable("user_id", bounds={"price": {"max": 100}}), "countries": PublicTable()}
    opened = open_catalog("auto", tables, policy=policy)
    yield opened
    opened.close()
