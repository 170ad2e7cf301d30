"""Qt: QSqlDatabase with QPSQL, which prepares statements by SQL."""

from __future__ import annotations

from PyQt5.QtCore import QT_VERSION_STR, QCoreApplication
from PyQt5.QtSql import QSqlDatabase, QSqlQuery, QSqlQueryModel, QSqlTableModel
from steps import given, say, step


class Failed(Exception):
    def __init__(self, error: object) -> None:
        self.sqlstate = error.nativeErrorCode()
        super().__init__(error.text())


application = QCoreApplication([])
database = QSqlDatabase.addDatabase("QPSQL")
database.setHostName(given["host"])
database.setPort(int(given["port"]))
database.setUserName(given["user"])
database.setPassword(given["password"])
database.setDatabaseName(given["database"])


def connect() -> str:
    if not database.open():
        raise Failed(database.lastError())
    return "connected"


def read(query: QSqlQuery) -> list[list[object]]:
    found = []
    while query.next():
        found.append([query.value(at) for at in range(query.record().count())])
    return found


def rows(statement: str) -> list[list[object]]:
    query = QSqlQuery(database)
    if not query.exec_(statement):
        raise Failed(query.lastError())
    return read(query)


def prepared() -> list[list[list[object]]]:
    query = QSqlQuery(database)
    if not query.prepare(given["marked"]):
        raise Failed(query.lastError())
    answers = []
    for _ in range(3):
        query.addBindValue("DE")
        if not query.exec_():
            raise Failed(query.lastError())
        answers.append(read(query))
    return answers


def by_table() -> list[str]:
    model = QSqlTableModel(None, database)
    model.setTable("countries")
    if not model.select():
        raise Failed(model.lastError())
    return sorted(model.record(at).value("country") for at in range(model.rowCount()))


def by_query() -> int:
    model = QSqlQueryModel()
    model.setQuery(given["question"], database)
    if model.lastError().isValid():
        raise Failed(model.lastError())
    return model.rowCount()


def introspect() -> dict[str, list[str]]:
    record = database.record("reads")
    return {"tables": database.tables(), "columns": [record.fieldName(at) for at in range(record.count())]}


def in_transaction() -> list[list[object]]:
    assert database.transaction()
    found = rows(given["question"])
    assert database.commit()
    return found


say("version", {"value": QT_VERSION_STR})
step("connect", connect)
step("introspect", introspect)
step("ask", lambda: rows(given["question"]))
step("again", lambda: rows(given["question"]))
step("public", lambda: rows(given["public"]))
step("prepared", prepared)
step("refused", lambda: rows(given["refused"]))
step("after", lambda: rows(given["question"]))
step("transaction", in_transaction)
step("table model", by_table)
step("query model", by_query)
step("primary key", lambda: database.primaryIndex("countries").count())
