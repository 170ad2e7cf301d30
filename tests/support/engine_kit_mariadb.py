"""Kit of the MariaDB server of this run of the tests, which are skipped without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from support.mariadb_kit import server

from dpsql.engines import Engine
from dpsql.testing.kits.mysql import create_kit

__all__ = ["KIT"]

_ANY = create_kit("mariadb://root@/mysql")


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    return create_kit(server().url("mysql")).open(tables)


KIT = replace(_ANY, name="mariadb", open=_open)
