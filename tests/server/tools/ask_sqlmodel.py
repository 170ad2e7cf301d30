"""SQLModel: SQLAlchemy with psycopg 3, by models and by text."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import sqlmodel
from sqlalchemy import URL, func, inspect, text
from sqlmodel import Field, Session, SQLModel, create_engine, select
from steps import after_a_moment, given, say, step

ADDRESS = URL.create(
    "postgresql+psycopg",
    given["user"],
    given["password"],
    given["host"],
    int(given["port"]),
    given["database"],
)
engine = create_engine(ADDRESS)
standard = create_engine(ADDRESS, connect_args={"options": "-c dpsql.implicit=on"})
prepare = create_engine(ADDRESS, connect_args={"prepare_threshold": 0})


class Countries(SQLModel, table=True):
    country: str = Field(primary_key=True)
    continent: str
    millions: Decimal
    large: bool


class Reads(SQLModel, table=True):
    user_id: int = Field(primary_key=True)
    article: str
    country: str


def rows(
    statement: str, values: Mapping[str, object] | None = None, *, at: sqlmodel.create_engine = engine
) -> list[list[object]]:
    with at.connect() as connection:
        return [list(row) for row in connection.execute(text(statement), values or {})]


def by_model(statement: object, *, at: object = engine) -> list[object]:
    with Session(at) as session:
        return [
            list(row) if isinstance(row, tuple) or hasattr(row, "_mapping") else row for row in session.exec(statement)
        ]


def introspect() -> dict[str, list[str]]:
    found = inspect(engine)
    return {
        "tables": found.get_table_names(),
        "columns": [column["name"] for column in found.get_columns("reads")],
    }


def cancel() -> object:
    with engine.connect() as connection:
        after_a_moment(connection.connection.driver_connection.cancel)
        return list(connection.execute(text(given["slow"])))


by_name = select(Countries.country).order_by(Countries.country)
say("version", {"value": sqlmodel.__version__})
step("connect", lambda: rows("SELECT 1"))
step("introspect", introspect)
step("ask", lambda: rows(given["question"]))
step("again", lambda: rows(given["question"]))
step("public", lambda: rows(given["public"]))
step("prepared", lambda: [rows(given["named"], {"place": "DE"}, at=prepare) for _ in range(3)])
step("refused", lambda: rows(given["refused"]))
step("cancel", cancel)
step("after", lambda: rows(given["question"]))
step(
    "models: a private query",
    lambda: by_model(
        select(Reads.article, func.count(Reads.user_id.distinct()).label("n"))
        .group_by(Reads.article)
        .order_by(func.count(Reads.user_id.distinct()).desc())
        .limit(3),
        at=standard,
    ),
)
step("models: limit and offset", lambda: by_model(by_name.limit(1).offset(1)))
step("models: prepared limit", lambda: by_model(by_name.limit(1).offset(1), at=prepare))
step("models: get", lambda: Session(engine).get(Countries, "DE").continent)
step("models: in", lambda: by_model(by_name.where(Countries.country.in_(["DE", "TV"]))))
step("models: ilike", lambda: by_model(by_name.where(Countries.continent.ilike("%oce%"))))
step("models: icontains", lambda: by_model(by_name.where(Countries.continent.icontains("oce"))))
step("models: count", lambda: by_model(select(func.count()).select_from(Countries)))
step(
    "models: group",
    lambda: by_model(select(Countries.continent, func.max(Countries.millions)).group_by(Countries.continent)),
)
step("models: table reflected", lambda: sorted(column["name"] for column in inspect(engine).get_columns("countries")))
