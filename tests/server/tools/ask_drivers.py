"""Drivers of Python, of which the word `driver` names one: psycopg, psycopg2, asyncpg or pg8000."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version

import asyncpg
import pg8000.native
import psycopg
import psycopg2
from steps import CANCEL_AFTER, after_a_moment, given, say, step

CONNINFO = "host={host} port={port} user={user} password='{password}' dbname={database}".format(**given)
Rows = list[list[object]]


def as_lists(found: object) -> Rows:
    return [list(row) for row in found]


def ask_psycopg() -> dict[str, Callable[[], object]]:
    connection = psycopg.connect(CONNINFO, autocommit=True)

    def rows(statement: str, values: list[str] | None = None, **options: bool) -> Rows:
        return as_lists(connection.execute(statement, values, **options))

    def cancel() -> Rows:
        after_a_moment(connection.cancel_safe)
        return rows(given["slow"])

    return {
        "ask": lambda: rows(given["question"]),
        "again": lambda: rows(given["question"], prepare=True),
        "public": lambda: rows(given["public"]),
        "prepared": lambda: [rows(given["formatted"], ["DE"], prepare=True) for _ in range(3)],
        "refused": lambda: rows(given["refused"]),
        "cancel": cancel,
        "after": lambda: as_lists(connection.cursor(binary=True).execute(given["question"])),
    }


def ask_psycopg2() -> dict[str, Callable[[], object]]:
    connection = psycopg2.connect(CONNINFO)
    connection.autocommit = True

    def rows(statement: str, values: list[str] | None = None) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return as_lists(cursor)

    def cancel() -> Rows:
        after_a_moment(connection.cancel)
        return rows(given["slow"])

    return {
        "ask": lambda: rows(given["question"]),
        "again": lambda: rows(given["question"]),
        "public": lambda: rows(given["public"]),
        "prepared": lambda: [rows(given["formatted"], ["DE"]) for _ in range(3)],
        "refused": lambda: rows(given["refused"]),
        "cancel": cancel,
        "after": lambda: rows(given["question"]),
    }


def ask_asyncpg() -> dict[str, Callable[[], object]]:
    loop = asyncio.new_event_loop()
    place = {name: given[name] for name in ("host", "port", "user", "password", "database")}
    connection = loop.run_until_complete(asyncpg.connect(**place))

    def rows(statement: str) -> Rows:
        return as_lists(loop.run_until_complete(connection.fetch(statement)))

    async def prepared() -> list[Rows]:
        statement = await connection.prepare(given["numbered"])
        return [as_lists(await statement.fetch("DE")) for _ in range(3)]

    return {
        "ask": lambda: rows(given["question"]),
        "again": lambda: rows(given["question"]),
        "public": lambda: rows(given["public"]),
        "prepared": lambda: loop.run_until_complete(prepared()),
        "refused": lambda: rows(given["refused"]),
        "cancel": lambda: loop.run_until_complete(connection.fetch(given["slow"], timeout=CANCEL_AFTER)),
        "after": lambda: rows(given["question"]),
    }


def ask_pg8000() -> dict[str, Callable[[], object]]:
    place = {name: given[name] for name in ("user", "host", "password", "database")}
    connection = pg8000.native.Connection(port=int(given["port"]), **place)
    statement = connection.prepare(given["named"])
    return {
        "ask": lambda: connection.run(given["question"]),
        "again": lambda: connection.run(given["question"]),
        "public": lambda: connection.run(given["public"]),
        "prepared": lambda: [statement.run(place="DE") for _ in range(3)],
        "refused": lambda: connection.run(given["refused"]),
        "after": lambda: connection.run(given["question"]),
    }


DRIVERS = {"psycopg": ask_psycopg, "psycopg2": ask_psycopg2, "asyncpg": ask_asyncpg, "pg8000": ask_pg8000}
name = given["driver"]
say("version", {"value": version("psycopg2-binary" if name == "psycopg2" else name)})
steps: dict[str, Callable[[], object]] = {}
step("connect", lambda: steps.update(DRIVERS[name]()) or "connected")
for what, run in steps.items():
    step(what, run)
