"""Run by hand in an environment with Harlequin and dpsql: the application itself, driven by Textual's own pilot.

python tests/manual/harlequin_trial.py FOLDER
"""

# ruff: noqa: T201 - what it prints is what it is run for

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import duckdb
from harlequin import Harlequin
from harlequin.components import ErrorModal, ResultsTable
from harlequin.plugins import load_adapter_plugins
from textual.pilot import Pilot

import dpsql

POLICY = 'ledger = "ledger.sqlite"\n[budget]\nepsilon = 4.0\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'
COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 10 PRIVATE"


async def asked(app: Harlequin, pilot: Pilot[None], sql: str) -> None:
    """Type a statement, run it and wait for what comes of it."""
    app.editor.text = sql
    app.editor.focus()
    await pilot.pause(0.5)
    await pilot.press("ctrl+j")
    await pilot.pause(2)


async def run(folder: Path) -> None:
    """Open the application, ask twice, and be refused."""
    adapter = load_adapter_plugins()["dpsql"]
    app = Harlequin(adapter((str(folder / "events.duckdb"),), policy=str(folder / "policy.toml")))
    executed = []
    async with app.run_test(size=(120, 36)) as pilot:
        while app.editor is None or app.connection is None:
            await pilot.pause(0.1)
        execute = app.connection.execute
        app.connection.execute = lambda sql: (executed.append(sql), execute(sql))[1]
        for item in app.connection.get_catalog().items:
            print("catalog", item.label, [column.label for column in item.children])
        for _ in range(2):
            await asked(app, pilot, COUNTED)
            table = app.query_one(ResultsTable)
            print("answer", table.row_count, [table.get_row_at(row) for row in range(table.row_count)])
        await asked(app, pilot, "SELECT article FROM reads")
        print("dialog", type(app.screen).__name__, app.screen.error if isinstance(app.screen, ErrorModal) else "")
        app.save_screenshot(str(folder / "refused.svg"))
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        print("executed", len(executed), "charged", session.history.num_rows)


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(place / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (place / "policy.toml").write_text(POLICY)
    asyncio.run(run(place))
