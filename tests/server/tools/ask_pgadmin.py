"""pgAdmin 4: its tree, its query tool and its Explain button, by the addresses that its pages call."""

from __future__ import annotations

import builtins
import json
import os
import sys
import tempfile
import time
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

from steps import after_a_moment, given, say, step

os.environ["HOME"] = tempfile.mkdtemp()
package = find_spec("pgadmin4")
sys.path.insert(0, str(Path(next(iter(package.submodule_search_locations)))))
builtins.SERVER_MODE = False

import config  # noqa: E402 - of pgAdmin, which is no package

config.MASTER_PASSWORD_REQUIRED = config.USE_OS_SECRET_STORAGE = False
config.UPGRADE_CHECK_ENABLED = False
config.CONSOLE_LOG_LEVEL = 100

from pgadmin import create_app  # noqa: E402

Path(config.SQLITE_PATH).parent.mkdir(parents=True, exist_ok=True)
app = create_app()
app.config["WTF_CSRF_ENABLED"] = False
client = app.test_client()
app.PGADMIN_INT_KEY, app.PGADMIN_RUNTIME = "", False
app.run_before_app_start()
GROUP, TAB = 1, 1234567


class Failed(Exception):
    """What a page shows in red."""


def call(method: str, path: str, data: object = None) -> object:
    """Call an address as a page does, and return its data; raise what it says otherwise."""
    found = client.open(path, method=method, data=None if data is None else json.dumps(data))
    told = json.loads(found.data) if found.data else {}
    if found.status_code >= HTTPStatus.BAD_REQUEST or (isinstance(told, dict) and told.get("success") == 0):
        reason = told.get("errormsg") or told.get("info") or told if isinstance(told, dict) else told
        raise Failed(f"{found.status_code} {reason}")
    return told.get("data") or told.get("result") or told if isinstance(told, dict) else told


def connect() -> str:
    """Register the server, connect, and find the node of its database."""
    added = client.post(
        f"/browser/server/obj/{GROUP}/",
        data=json.dumps(
            {
                "name": "dpsql",
                "host": given["host"],
                "port": int(given["port"]),
                "db": given["database"],
                "username": given["user"],
                "password": given["password"],
                "save_password": False,
                "connect_now": True,
                "connection_params": [{"name": "sslmode", "value": "prefer", "keyword": "sslmode"}],
            }
        ),
    )
    told = json.loads(added.data)
    if "node" not in told or not told["node"]["connected"]:
        raise Failed(str(told))
    place["server"] = f"{GROUP}/{told['node']['_id']}"
    for node in children("database", place["server"]):
        if node["label"] == given["database"]:
            place["database"] = f"{place['server']}/{node['_id']}"
            call("POST", f"/browser/database/connect/{place['database']}")
            return str(told["node"]["version"])
    raise Failed("the tree does not show the database")


def children(kind: str, parent: str) -> list[dict[str, object]]:
    """Return the nodes of a kind that the tree shows below another."""
    found = call("GET", f"/browser/{kind}/nodes/{parent}/")
    return found if isinstance(found, list) else []


def labelled(kind: str, parent: str, label: str) -> str:
    return next(f"{parent}/{node['_id']}" for node in children(kind, parent) if node["label"] == label)


def introspect() -> dict[str, list[object]]:
    place["schema"] = labelled("schema", place["database"], "main")
    tables = children("table", place["schema"])
    place["table"] = labelled("table", place["schema"], "reads")
    place["countries"] = labelled("table", place["schema"], "countries")
    columns = children("column", place["table"])
    return {"tables": [node["label"] for node in tables], "columns": [node["label"] for node in columns]}


def open_tab() -> str:
    call("POST", f"/sqleditor/initialize/sqleditor/{TAB}/{place['database']}", {"dbname": given["database"]})
    return "open"


def run(statement: str, **options: object) -> list[object]:
    """Run a statement in the query tool as its button does: start, and poll until there is a result."""
    call("POST", f"/sqleditor/query_tool/start/{TAB}?connect=1", {"sql": statement, "explain_plan": None, **options})
    return poll(TAB)


def poll(tab: int) -> list[object]:
    for _ in range(200):
        found = call("GET", f"/sqleditor/poll/{tab}")
        match found["status"]:
            case "Busy":
                time.sleep(0.05)
            case "Success":
                return found["result"]
            case status:
                raise Failed(f"{status}: {found['result']}")
    raise Failed("the statement did not end")


def explain(statement: str, *, analyze: bool = False) -> object:
    """Explain a statement as the button does, whose page draws the JSON."""
    plan = {"format": "json", "analyze": analyze, "verbose": True, "costs": True, "buffers": False, "timing": False}
    ((found,),) = run(statement, explain_plan={**plan, "summary": False, "settings": False, "wal": False})
    found = json.loads(found) if isinstance(found, str) else found
    return found[0]["Plan"]["Node Type"]


def cancel() -> object:
    def press() -> None:
        with app.app_context():
            button.open(f"/sqleditor/cancel/{TAB}", method="POST")

    button = app.test_client()
    for cookie in client._cookies.values():
        button._cookies[cookie._storage_key] = cookie
    after_a_moment(press)
    return run(given["slow"])


def view(table: str) -> list[object]:
    """Show all rows of a table, as its menu does."""
    *database, _, relation = table.split("/")
    path = f"{TAB + 1}/3/table/{'/'.join(database)}/{relation}"
    call("POST", f"/sqleditor/initialize/viewdata/{path}", {"sql_filter": "", "dbname": given["database"]})
    call("GET", f"/sqleditor/view_data/start/{TAB + 1}")
    return poll(TAB + 1)


def in_transaction() -> list[object]:
    run("BEGIN")
    found = run(given["question"])
    run("COMMIT")
    return found


place: dict[str, str] = {}
say("version", {"value": config.APP_VERSION})
step("connect", connect)
step("introspect", introspect)
step("query tool", open_tab)
step("ask", lambda: run(given["question"]))
step("again", lambda: run(given["question"]))
step("public", lambda: run(given["public"]))
step("refused", lambda: run(given["refused"]))
step("cancel", cancel)
step("after", lambda: run(given["question"]))
step("transaction", in_transaction)
step("Explain", lambda: explain(given["question"]))
step("Explain of a public statement", lambda: explain(given["public"]))
step("Explain Analyze", lambda: explain(given["public"], analyze=True))
step("View Data of a public table", lambda: len(view(place["countries"])))
for kind in ("index", "constraints", "trigger", "rule", "row_security_policy", "partition"):
    step(f"tree: {kind} of a table", lambda kind=kind: len(children(kind, place["table"])))
for kind in (
    "view",
    "mview",
    "function",
    "procedure",
    "trigger_function",
    "sequence",
    "type",
    "domain",
    "collation",
    "aggregate",
    "operator",
    "foreign_table",
    "fts_configuration",
    "fts_dictionary",
    "fts_parser",
    "fts_template",
):
    step(f"tree: {kind} of a schema", lambda kind=kind: len(children(kind, place["schema"])))
for kind in ("cast", "event_trigger", "extension", "foreign_data_wrapper", "language", "publication", "subscription"):
    step(f"tree: {kind} of a database", lambda kind=kind: len(children(kind, place["database"])))
for kind in ("role", "tablespace"):
    step(f"tree: {kind} of the server", lambda kind=kind: len(children(kind, place["server"])))
for kind, of in (("table", "table"), ("schema", "schema"), ("database", "database")):
    step(f"properties of a {kind}", lambda kind=kind, of=of: bool(call("GET", f"/browser/{kind}/obj/{place[of]}")))
    step(f"SQL of a {kind}", lambda kind=kind, of=of: bool(call("GET", f"/browser/{kind}/sql/{place[of]}")))
step("statistics of a table", lambda: bool(call("GET", f"/browser/table/stats/{place['table']}")))
step("dependencies of a table", lambda: call("GET", f"/browser/table/dependency/{place['table']}") is not None)
step("dependents of a table", lambda: call("GET", f"/browser/table/dependent/{place['table']}") is not None)
step(
    "dashboard",
    lambda: bool(
        call(
            "GET",
            f"/dashboard/dashboard_stats/{place['server'].split('/')[1]}/{place['database'].split('/')[2]}?chart_names=session_stats,tps_stats,ti_stats,to_stats,bio_stats",
        )
    ),
)
step("completion", lambda: bool(call("POST", f"/sqleditor/autocomplete/{TAB}", ["SELECT * FROM ", "SELECT * FROM "])))
