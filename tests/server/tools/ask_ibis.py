"""ibis: tables as expressions, and SQL in a temporary view of its own."""

from __future__ import annotations

import ibis
from steps import given, say, step


def connect() -> str:
    global connection  # noqa: PLW0603 - the steps share one connection
    connection = ibis.postgres.connect(
        host=given["host"],
        port=int(given["port"]),
        user=given["user"],
        password=given["password"],
        database=given["database"],
    )
    return str(connection.version)


def raw(statement: str) -> list[list[object]]:
    with connection.raw_sql(statement) as cursor:
        return [list(row) for row in cursor.fetchall()]


def rows(expression: object) -> list[list[object]]:
    return [list(row) for row in expression.execute().itertuples(index=False)]


def _refusal() -> Exception:
    try:
        connection.table("reads").head(3).execute()
    except Exception as error:  # noqa: BLE001 - whatever the tool raises
        return error
    raise AssertionError


say("version", {"value": ibis.__version__})
step("connect", connect)
step(
    "introspect",
    lambda: {"tables": connection.list_tables(), "columns": list(connection.table("reads").columns)},
)
step("ask", lambda: raw(given["question"]))
step("again", lambda: raw(given["question"]))
step("public", lambda: rows(connection.table("countries")[["country", "continent"]].order_by("country")))
step("refused", lambda: raw(given["refused"]))
step("after", lambda: raw(given["question"]))
step("refused, as an expression", lambda: type(_refusal()).__name__)
step("sql of a private query", lambda: rows(connection.sql(given["question"])))
step("sql of a public query", lambda: rows(connection.sql(given["public"])))
step("schemas", connection.list_databases)
step("filter", lambda: rows(connection.table("countries").filter(ibis._.continent == "Europe")))
step("group", lambda: rows(connection.table("countries").group_by("continent").agg(n=ibis._.count())))
step("count", lambda: connection.table("countries").count().execute())
step("arrow", lambda: connection.table("countries").to_pyarrow().num_rows)
step("limit", lambda: rows(connection.table("countries").order_by("country").limit(1, offset=1)))
step("contains", lambda: rows(connection.table("countries").filter(ibis._.continent.contains("Oce"))))
connection.raw_sql("SET dpsql.implicit TO on").close()
step(
    "a private query as an expression",
    lambda: rows(
        connection.table("reads").group_by("article").agg(n=ibis._.user_id.nunique()).order_by(ibis.desc("n")).limit(3)
    ),
)
