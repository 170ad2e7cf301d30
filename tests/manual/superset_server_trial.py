"""Run by hand in an environment with Apache Superset and psycopg2: Superset over the network, by its own REST API.

    python tests/manual/superset_server_trial.py FOLDER PYTHON

The folder must be empty or not there; PYTHON is one that has dpsql[server], for `dpsql serve` and its data. To
Superset the server is a PostgreSQL like any other. It is asked in three ways, each in a process of its own, since
Superset reads its configuration once: as it is installed; told of TOP k PRIVATE; and by one account for a whole team.
The configurations are those of docs/how-to/superset.md, which says too what was really run, and with which versions.
"""

# ruff: noqa: T201 - what it prints is what it is run for

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from manual.superset_trial import CONFIG, Browser, prepare_superset

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[server]
users = "users.toml"
web = "off"
postgres = "127.0.0.1:0"
"""
ROWS = """
SELECT i AS user_id, 'a' || i % 3 AS article, TIMESTAMP '2026-02-01 08:00:00' + i % 3 * INTERVAL 1 DAY AS ts
FROM range(9000) t(i)
"""
PASSWORD = "a password of nobody"
READERS = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article"
DAYS = "SELECT date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY 1"
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "superset.md").read_text()
EXTENDED, TEAM = re.findall(r'^```python title="superset_config.py"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
IMPLICIT = "?options=-c%20dpsql.implicit%3Don"
STANDARD = "ORDER BY readers DESC LIMIT 10"
WAYS = {  # what the configuration has besides, who logs in, how a query is private, and the options of the address
    "as installed": ("", "ben", STANDARD, IMPLICIT),
    "told of the clause": (EXTENDED, "cleo", "TOP 10 PRIVATE", ""),
    "for a team": (TEAM, "team", STANDARD, ""),  # the configuration sets the option
}


@contextmanager
def served(folder: Path, python: str) -> Iterator[int]:
    """Run `dpsql serve` as long as the block, and give its port."""
    make = (
        f"import duckdb; duckdb.connect({str(folder / 'events.duckdb')!r}).execute('CREATE TABLE reads AS ' + {ROWS!r})"
    )
    subprocess.run([python, "-c", make], check=True)
    (folder / "policy.toml").write_text(POLICY)
    dpsql = [python, "-c", "import dpsql.cli; dpsql.cli.main()"]
    policy = ["--policy", str(folder / "policy.toml")]
    for words in (["ben"], ["cleo"], ["team", "--acts-as", "ana,ben"]):
        add = [*dpsql, "user", "add", *words, *policy, "--password-stdin"]
        subprocess.run(add, input=PASSWORD, text=True, check=True)
    serve = [*dpsql, "serve", *policy, "--db", str(folder / "events.duckdb")]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    try:
        said = server.stdout.readline()
        found = re.search(r":(\d+)$", said)
        assert found, (said, (folder / "server.log").read_text())
        assert server.stdout.readline() == "ready\n"
        yield int(found[1])
    finally:
        server.send_signal(signal.SIGTERM)
        print("the server ended with", server.wait(60))


def charged(folder: Path) -> Counter[str]:
    """Return how many queries each analyst was charged for."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        bodies = [json.loads(body) for (body,) in ledger.execute("SELECT body FROM events WHERE kind = 'reserved'")]
    return Counter(body["account"] for body in bodies)


class Trial:
    """One way, by one user who clicks."""

    def __init__(self, address: str, *, name: str, clause: str) -> None:
        from superset.app import create_app

        self.browser = Browser(create_app().test_client())
        self.name, self.clause = name, clause
        given = {"sqlalchemy_uri": address, "expose_in_sqllab": True}
        self.database = self.browser.post("database/", database_name=name, **given)["id"]

    def lists(self) -> None:
        """See what the sidebar of SQL Lab lists."""
        schemas = self.browser.get(f"database/{self.database}/schemas/?q=(force:!t)")["result"]
        found = self.browser.get(f"database/{self.database}/tables/?q=(schema_name:main,force:!t)")["result"]
        tables = [table["value"] for table in found]
        shown = self.browser.get(f"database/{self.database}/table_metadata/?name=reads&schema=main")
        columns = {column["name"]: column["type"] for column in shown["columns"]}
        print("schemas", schemas, "tables", tables, "columns", columns)
        assert "main" in schemas
        assert tables == ["reads"]
        assert set(columns) == {"user_id", "article", "ts"}

    def lab(self, sql: str) -> list[dict[str, Any]]:
        """Ask in SQL Lab."""
        body = {"database_id": self.database, "sql": sql, "schema": "main", "runAsync": False}
        rows: list[dict[str, Any]] = self.browser.post("sqllab/execute/", **body)["data"]
        print("SQL Lab", sql.split(maxsplit=1)[0], len(rows), "rows", rows[:1])
        return rows

    def refused(self, sql: str) -> str:
        """Ask in SQL Lab what may not be answered, and return what is shown."""
        body = {"database_id": self.database, "sql": sql, "schema": "main", "runAsync": False}
        answer = self.browser.client.post("/api/v1/sqllab/execute/", json=body, headers=self.browser.headers)
        assert answer.status_code >= 400
        shown = answer.json["errors"][0]["message"]
        print("refused", repr(shown))
        return str(shown)

    def dataset(self, name: str, sql: str) -> int:
        """Save a query as a dataset, change its description, which saves it again, and refresh its columns."""
        given = {"database": self.database, "schema": "main", "table_name": f"{name}, {self.name}", "sql": sql}
        found = int(self.browser.post("dataset/", **given)["id"])
        self.browser.put(f"dataset/{found}", description="saved again")
        self.browser.put(f"dataset/{found}/refresh")
        columns = self.browser.get(f"dataset/{found}")["result"]["columns"]
        print("dataset", name, {column["column_name"]: (column["type"], column["is_dttm"]) for column in columns})
        return found

    def chart(self, dataset: int, **query: object) -> list[dict[str, Any]]:
        """Draw a chart of a dataset twice, the second time by the button that goes past Superset's cache."""
        source = {"datasource": {"id": dataset, "type": "table"}, "result_type": "full", "result_format": "json"}
        answers = [
            self.browser.post("chart/data", **source, queries=[query], force=force)["result"][0]
            for force in (False, True)
        ]
        print("chart", answers[0]["data"], answers[0]["query"].replace("\n", " "))
        assert answers[0]["data"] == answers[1]["data"]
        return list(answers[0]["data"])

    def chart_refused(self, dataset: int) -> str:
        """Draw a chart of a private table itself, and return what is shown."""
        query = {"columns": ["article"], "metrics": ["count"]}
        source = {"datasource": {"id": dataset, "type": "table"}, "queries": [query], "result_format": "json"}
        answer = self.browser.client.post("/api/v1/chart/data", json=source, headers=self.browser.headers)
        print("chart", answer.status_code, answer.json)
        assert answer.status_code >= 400
        return str(answer.json)

    def save_chart(self, dataset: int) -> None:
        """Save a chart twice."""
        kept = {"datasource_id": dataset, "datasource_type": "table", "viz_type": "table", "params": "{}"}
        chart = self.browser.post("chart/", slice_name=self.name, **kept)["id"]
        self.browser.put(f"chart/{chart}", slice_name=self.name + ", saved again")


def ask(trial: Trial) -> None:
    """Do what a user does, and hold what came against what SQL Lab showed."""
    readers, days = f"{READERS} {trial.clause}", f"{DAYS} {trial.clause}"
    trial.lists()
    shown = {row["article"]: row["readers"] for row in trial.lab(readers)}
    assert shown
    for sql in ("SHOW TABLES", f"EXPLAIN {readers}", "SHOW BUDGET"):
        assert trial.lab(sql)
    if trial.clause != STANDARD:
        assert "TOP 10 PRIVATE" in trial.refused("SELECT COUNT(*) FROM reads")
    if trial.name == "as installed":  # what Superset cannot read it says itself
        assert "Error parsing near 'TOP'" in trial.refused(f"{READERS} TOP 10 PRIVATE")
    if trial.name == "for a team":  # nobody becomes another in SQL Lab
        assert "the analyst that it began with" in trial.refused("SET ROLE ben")
        trial.lab("RESET ROLE")
        assert trial.lab("SHOW role") == [{"role": "ana"}]
    total = {"expressionType": "SIMPLE", "aggregate": "SUM", "column": {"column_name": "readers"}, "label": "readers"}
    made = trial.dataset("top articles", readers)
    ranked = trial.chart(made, columns=["article"], metrics=[total], orderby=[[total, False]], row_limit=5)
    assert {row["article"]: row["readers"] for row in ranked} == shown
    first = ranked[0]["article"]
    kept = {"col": "article", "op": "==", "val": first}
    assert trial.chart(made, columns=["article"], metrics=[total], filters=[kept]) == ranked[:1]
    assert trial.chart(made, columns=[], metrics=[total]) == [{"readers": sum(shown.values())}]
    trial.save_chart(made)
    if trial.clause != STANDARD:
        given = {"database": trial.database, "schema": "main", "table_name": "reads"}
        table = trial.browser.post("dataset/", **given)["id"]
        assert "TOP 10 PRIVATE" in trial.chart_refused(table)
    times = trial.dataset("days", days)
    axis = {
        "timeGrain": "P1D",
        "columnType": "BASE_AXIS",
        "sqlExpression": "day",
        "label": "day",
        "expressionType": "SQL",
    }
    grain = {"extras": {"time_grain_sqla": "P1D"}, "granularity": "day"}
    of_time = {"columns": [axis], "metrics": [total], "time_range": "2026-02-01 : 2026-02-03", **grain}
    drawn = trial.chart(times, **of_time)
    assert 0 < len(drawn) <= 2  # the third day is past the end of the range


def run(folder: Path, python: str) -> None:
    """Serve, ask in every way, and count what was charged: two questions of each analyst."""
    with served(folder, python) as port:
        for at, (more, user, _, options) in enumerate(WAYS.values()):
            (folder / f"config{at}.py").write_text(CONFIG.format(folder=folder) + more)
            if at == 0:
                prepare_superset(folder / "config0.py")
            address = f"postgresql+psycopg2://{user}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/dpsql{options}"
            again = [sys.executable, __file__, "--one", list(WAYS)[at], address]
            config = {"SUPERSET_CONFIG_PATH": str(folder / f"config{at}.py")}
            subprocess.run(again, check=True, env={**os.environ, **config})
            print("charged", dict(charged(folder)))
        assert charged(folder) == {"ben": 2, "cleo": 2, "ana": 2}


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        ask(Trial(sys.argv[3], name=sys.argv[2], clause=WAYS[sys.argv[2]][2]))
    else:
        place = Path(sys.argv[1]).resolve()
        place.mkdir(parents=True, exist_ok=True)
        run(place, sys.argv[2])
