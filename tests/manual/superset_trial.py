"""Run by hand in an environment with Apache Superset and dpsql: what a user clicks, by Superset's own REST API.

    python tests/manual/superset_trial.py FOLDER

The folder must be empty or not there; Superset's own database is made in it. What was really run of Superset, and with
which versions, is said in docs/how-to/superset.md.
"""

# ruff: noqa: T201 - what it prints is what it is run for

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

POLICY = 'ledger = "{ledger}"\n[budget]\nepsilon = 4.0\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'
CONFIG = """
SECRET_KEY = "a trial, of a length that Superset accepts, 0123456789"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
"""
COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 10 PRIVATE"
ADMIN = {"username": "ana", "password": "ana"}


def prepare(folder: Path) -> None:
    """Make data and policy."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (folder / "policy.toml").write_text(POLICY.format(ledger=folder / "ledger.sqlite"))
    (folder / "superset_config.py").write_text(CONFIG.format(folder=folder))


def prepare_superset(config: Path) -> None:
    """Make Superset's own database, as its configuration says, and a user."""
    os.environ.update(SUPERSET_CONFIG_PATH=str(config), FLASK_APP="superset.app:create_app()")
    superset = str(Path(sys.executable).with_name("superset"))
    admin = "--username ana --password ana --firstname a --lastname a --email ana@example.org".split()
    for words in (["db", "upgrade"], ["fab", "create-admin", *admin], ["init"]):
        subprocess.run([superset, *words], check=True, capture_output=True)


class Browser:
    """A user who is logged in."""

    def __init__(self, client: Any) -> None:
        self.client = client
        given = client.post("/api/v1/security/login", json={**ADMIN, "provider": "db"}).json
        self.headers = {"Authorization": f"Bearer {given['access_token']}"}

    def get(self, path: str) -> Any:
        return self._checked(self.client.get(f"/api/v1/{path}", headers=self.headers))

    def post(self, path: str, **body: object) -> Any:
        return self._checked(self.client.post(f"/api/v1/{path}", json=body, headers=self.headers))

    def put(self, path: str, **body: object) -> Any:
        return self._checked(self.client.put(f"/api/v1/{path}", json=body, headers=self.headers))

    def delete(self, path: str) -> Any:
        return self._checked(self.client.delete(f"/api/v1/{path}", headers=self.headers))

    def _checked(self, response: Any) -> Any:
        assert response.status_code < 300, (response.status_code, response.json)
        return response.json


def run(folder: Path) -> None:
    """Register the database, ask in SQL Lab, make a dataset of the question and three charts of the dataset."""
    from superset.app import create_app

    browser = Browser(create_app().test_client())
    address = f"dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml"
    given = {"sqlalchemy_uri": address, "expose_in_sqllab": True, "impersonate_user": True}
    database = browser.post("database/", database_name="dpsql", **given)["id"]
    print("schemas", browser.get(f"database/{database}/schemas/")["result"])
    tables = browser.get(f"database/{database}/tables/?q=(schema_name:main)")["result"]
    print("tables", [table["value"] for table in tables])
    for sql in (COUNTED, "SHOW TABLES", "DESCRIBE reads", f"EXPLAIN {COUNTED}", "SHOW BUDGET"):
        answer = browser.post("sqllab/execute/", database_id=database, sql=sql, schema="main", runAsync=False)
        print("SQL Lab", sql.split()[0], len(answer["data"]), "rows", answer["data"][:1])
    dataset = browser.post("dataset/", database=database, schema="main", table_name="top articles", sql=COUNTED)["id"]
    total = {"expressionType": "SIMPLE", "aggregate": "SUM", "column": {"column_name": "readers"}, "label": "readers"}
    kept = {"col": "article", "op": "==", "val": "a1"}
    for query in (
        {"columns": ["article"], "metrics": [total], "orderby": [[total, False]], "row_limit": 5},
        {"columns": ["article"], "metrics": [total], "filters": [kept]},
        {"columns": [], "metrics": [total]},
    ):
        source = {"datasource": {"id": dataset, "type": "table"}, "queries": [query], "result_type": "full"}
        (result,) = browser.post("chart/data", **source, result_format="json")["result"]
        print("chart", result["data"], result["query"].replace("\n", " "))
    import dpsql

    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", analyst="ana") as session:
        asked = session.history.to_pylist()
        print("charged", len(asked), [entry["query"] for entry in asked])
    assert len(asked) == 1


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    prepare(place)
    prepare_superset(place / "superset_config.py")
    run(place)
