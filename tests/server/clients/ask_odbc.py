"""psqlODBC as a Python program uses it; prints a line of JSON for each step: its name, and its value or its error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import pyodbc

given = dict(word.split("=", 1) for word in sys.argv[1:])


def connect(*settings: str, password: str = given["password"]) -> pyodbc.Connection:
    told = [
        f"Driver={given['driver']}",
        f"Server={given['host']}",
        f"Port={given['port']}",
        f"Database={given['database']}",
        f"UID={given['user']}",
        f"PWD={password}",
        *([f"sslmode=verify-full;pqopt={{sslrootcert={given['root']}}}"] if "root" in given else ["sslmode=disable"]),
        *settings,
    ]
    return pyodbc.connect(";".join(told), autocommit=True, timeout=20)


def step(name: str, run: Callable[[], object]) -> None:
    try:
        told: dict[str, object] = {"value": run()}
    except pyodbc.Error as error:
        told = {"state": error.args[0], "message": str(error.args[1:])}
    print(json.dumps({"step": name, **told}, default=str))  # noqa: T201 - a program of its own, read by the test


def rows(connection: pyodbc.Connection, statement: str, *values: object) -> list[list[object]]:
    return [list(row) for row in connection.execute(statement, *values).fetchall()]


def asked(setting: str) -> None:
    """Ask the same question in the ways there are, and what was refused, with one setting of the driver."""
    connection = connect(setting)
    step(f"{setting} question", lambda: rows(connection, given["question"]))
    step(f"{setting} again", lambda: rows(connection, given["question"]))
    step(f"{setting} wrapped", lambda: rows(connection, given["wrapped"]))
    step(f"{setting} parameter", lambda: rows(connection, given["parameter"], "DE"))
    for name in ("not private", "syntax", "write", "dear"):
        step(f"{setting} {name}", lambda name=name: rows(connection, given[name]))
    step(f"{setting} after", lambda: rows(connection, given["question"]))
    connection.close()


def in_transaction(setting: str) -> None:
    connection = connect(setting)
    connection.autocommit = False
    step(f"{setting} transaction", lambda: rows(connection, given["question"]))
    connection.rollback()
    connection.close()


def bound(connection: pyodbc.Connection) -> None:
    """Bind one parameter of each type."""
    values = {
        "bigint": 5_000_000_000,
        "integer": 7,
        "double precision": 0.1,
        "boolean": True,
        "text": "it's über",
        "date": date(2026, 2, 3),
        "timestamp": datetime(2026, 2, 3, 4, 5, 6),  # noqa: DTZ001 - the language knows moments without zone
        "numeric": Decimal("12.50"),
    }
    for type_, value in values.items():
        step(
            f"bound {type_}",
            lambda value=value, type_=type_: rows(connection, f"SELECT CAST(? AS {type_}) AS v", value),
        )


def described(connection: pyodbc.Connection) -> None:
    """Ask what a tool asks before anybody asks anything."""
    cursor = connection.cursor()
    table = given["table"]
    step("tables", lambda: [row.table_name for row in cursor.tables(tableType="TABLE")])
    step("columns", lambda: [row.column_name for row in cursor.columns(table=table)])
    step("column types", lambda: [row.type_name for row in cursor.columns(table=table)])
    step("primary keys", lambda: [row.column_name for row in cursor.primaryKeys(table)])
    step("statistics", lambda: len(cursor.statistics(table).fetchall()))
    step("types", lambda: len(cursor.getTypeInfo().fetchall()) > 10)
    step("server", lambda: connection.getinfo(pyodbc.SQL_DBMS_NAME))


for setting in given["modes"].split(" "):
    asked(setting)
    in_transaction(setting)
one = connect()
bound(one)
described(one)
one.close()
step("wrong password", lambda: connect(password="wrong").close())
