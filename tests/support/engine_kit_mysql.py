"""Kits of the servers of MariaDB and MySQL of this run of the tests, which are skipped without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from support.mysql_kit import start_server

from dpsql.engines import Engine
from dpsql.testing import Kit
from dpsql.testing.kits import create_mysql

__all__ = ["MARIADB", "MYSQL"]


def _create(name: str) -> Kit:
    def open_kit(tables: Mapping[str, pa.Table]) -> Engine:
        return create_mysql(start_server(name).url("mysql")).open(tables)

    return replace(create_mysql(f"{name}://root@/mysql"), name=name, open=open_kit)


MARIADB, MYSQL = _create("mariadb"), _create("mysql").sample(24)
