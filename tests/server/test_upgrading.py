"""What the upgrade page says to clients of Arrow Flight SQL works."""

from __future__ import annotations

import re
from pathlib import Path

import adbc_driver_postgresql.dbapi
import pyarrow as pa
import pytest
from support.server_kit import PASSWORD, serving
from support.upgrade_page import pasted, rows
from support.web_kit import TestClient

from dpsql.server.web import application

pytestmark = pytest.mark.server

TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
CLIENTS = dict(rows("client of Arrow Flight SQL"))


def test_columns_come_over_http_and_by_adbc_for_one_charge(tmp_path: Path) -> None:
    by_http, by_adbc = (CLIENTS[key] for key in sorted(CLIENTS, reverse=True))
    with serving(tmp_path, catalog="auto") as served:
        _, path = pasted(by_http).split("http://127.0.0.1:8080")
        name, value = str(re.search(r"header `(.+?)`", by_http)[1]).split(": ")  # type: ignore[index]
        client = TestClient(application(served.front, secure=False), base_url="http://127.0.0.1")
        answer = client.post(path, json={"sql": TOP}, auth=("ana", PASSWORD), headers={name: value})
        assert answer.headers["content-type"] == value
        table = pa.ipc.open_stream(answer.content).read_all()
        call = pasted(by_adbc).replace("PASSWORD", PASSWORD.replace(" ", "%20")).replace("5433", str(served.port))
        with eval(call) as connection, connection.cursor() as cursor:
            cursor.execute(TOP)
            assert cursor.fetch_arrow_table().to_pylist() == table.to_pylist()
        assert served.charges() == 1
    assert adbc_driver_postgresql.dbapi
