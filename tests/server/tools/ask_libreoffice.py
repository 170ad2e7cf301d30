"""LibreOffice Base: its driver of PostgreSQL, its list of tables, and its row sets, by UNO without a window."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uno
from com.sun.star.beans import PropertyValue
from com.sun.star.connection import NoConnectException
from com.sun.star.sdb.CommandType import COMMAND, TABLE
from com.sun.star.sdbc import SQLException
from steps import given, say, step


class Failed(Exception):
    def __init__(self, error: SQLException) -> None:
        found = error.SQLState if len(error.SQLState) == 5 else ""
        self.sqlstate = found
        super().__init__(error.Message)


@contextmanager
def office() -> Iterator[object]:
    """Run LibreOffice as long as the block, and give its context."""
    pipe = f"dpsql{os.getpid()}"
    with tempfile.TemporaryDirectory() as home:
        words = ["--headless", "--norestore", "--nologo", f"--accept=pipe,name={pipe};urp"]
        process = subprocess.Popen(["soffice", f"-env:UserInstallation=file://{home}", *words])
        local = uno.getComponentContext()
        resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
        try:
            for _ in range(300):
                try:
                    yield resolver.resolve(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext")
                except NoConnectException:
                    time.sleep(0.1)
                else:
                    return
        finally:
            process.terminate()
            process.wait()


def trying(run: object) -> object:
    """Run a step, with the errors of the driver as errors that have an SQLSTATE."""

    def tried() -> object:
        try:
            return run()
        except SQLException as error:
            raise Failed(error) from None

    return tried


def read(found: object) -> list[list[str]]:
    count = found.getMetaData().getColumnCount()
    rows = []
    while found.next():
        rows.append([found.getString(at) for at in range(1, count + 1)])
    return rows


def session(context: object) -> None:
    create = context.ServiceManager.createInstanceWithContext
    source = create("com.sun.star.sdb.DatabaseContext", context).createInstance()
    source.URL = f"sdbc:postgresql:dbname={given['database']} host={given['host']} port={given['port']}"
    source.User = given["user"]
    source.Info = (PropertyValue("JavaDriverClass", 0, "", 0),)
    held = {}

    def connect() -> str:
        held["connection"] = source.getConnection(given["user"], given["password"])
        return held["connection"].getMetaData().getDatabaseProductVersion()

    def rows(statement: str) -> list[list[str]]:
        return read(held["connection"].createStatement().executeQuery(statement))

    def prepared() -> list[list[list[str]]]:
        statement = held["connection"].prepareStatement(given["marked"])
        answers = []
        for _ in range(3):
            statement.setString(1, "DE")
            answers.append(read(statement.executeQuery()))
        return answers

    def introspect() -> dict[str, list[str]]:
        tables = held["connection"].getTables()
        names = list(tables.getElementNames())
        reads = next(name for name in names if name.rpartition(".")[2] == "reads")
        return {"tables": names, "columns": list(tables.getByName(reads).getColumns().getElementNames())}

    def row_set(kind: int, command: str) -> list[list[str]]:
        found = create("com.sun.star.sdb.RowSet", context)
        found.ActiveConnection = held["connection"]
        found.CommandType, found.Command = kind, command
        found.execute()
        return read(found)

    def composed() -> str:
        composer = held["connection"].createInstance("com.sun.star.sdb.SingleSelectQueryComposer")
        composer.setQuery("SELECT country, continent FROM main.countries")
        composer.setFilter("continent = 'Europe'")
        return str(len(rows(composer.getQuery())))

    step("connect", trying(connect))
    step("introspect", trying(introspect))
    step("ask", trying(lambda: rows(given["question"])))
    step("again", trying(lambda: rows(given["question"])))
    step("public", trying(lambda: rows(given["public"])))
    step("prepared", trying(prepared))
    step("refused", trying(lambda: rows(given["refused"])))
    step("after", trying(lambda: rows(given["question"])))
    step("a table opened", trying(lambda: len(row_set(TABLE, "main.countries"))))
    step("a query opened", trying(lambda: len(row_set(COMMAND, given["public"]))))
    step("a query filtered", trying(composed))
    held["connection"].close()


version = subprocess.run(["soffice", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
say("version", {"value": version})
with office() as context:
    session(context)
