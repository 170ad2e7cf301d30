"""SQLite, by ADBC, as an engine of dpsql: the smallest there is; docs/how-to/engines.md says what it does without."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

import pyarrow as pa
from adbc_driver_sqlite import dbapi

from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Column, Registered, RemoteEngine, Statement, table_missing

WITHIN = "CASE WHEN typeof({}) = 'integer' AND {} BETWEEN {least} AND {greatest} THEN {} END"
WHERE = "CASE WHEN typeof({{0}}) = '{}' AND {} THEN {{0}} END"  # a column may hold anything, whatever it is declared as
MOMENT = "date({0}) > '0001' AND {0} = strftime('%Y-%m-%d %H:%M:%S', substr({0}, 1, 19)) || "
MOMENT += f"iif({{0}} GLOB '*.{'[0-9]' * 6}' AND {{0}} NOT GLOB '*.000000', substr({{0}}, 20), '')"
FORMS = {**STANDARD, "min TEXT": "MIN({0})", "max TEXT": "MAX({0})", "cast DATE TEXT": "{0}"}
FORMS |= {"column TEXT": WHERE.format("text", "TRUE"), "column BOOLEAN": WHERE.format("integer", "{0} IN (0, 1)")}
FORMS |= {"column INTEGER": WHERE.format("integer", "TRUE"), "column DOUBLE": WHERE.format("real", "TRUE")}
FORMS |= {"column DATE": WHERE.format("text", "date({0}) > '0001' AND {0} = date({0})"), "literal DATE": "{0}"}
FORMS |= {"column TIMESTAMP": WHERE.format("text", MOMENT), "literal TIMESTAMP": "{0}"}
FORMS |= {f"{sign} INTEGER INTEGER": WITHIN.replace("{}", f"({{0}} {sign} {{1}})") for sign in "+-*"}
FORMS |= {"cast INTEGER INTEGER": WITHIN.replace("{}", "{0}"), "cast INTEGER TEXT": "CAST({0} AS TEXT)"}
FORMS |= {"cast INTEGER DOUBLE": "CAST({0} AS REAL)", "cast TIMESTAMP DATE": "date({0})"}
FORMS |= {"cast DATE TIMESTAMP": "({0} || ' 00:00:00')"}
LACKS = frozenset(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "NaN"])
SQLITE = Dialect("SQLite", "sqlite", FORMS, parameter="?{n}", materialized=True, lacks=LACKS)
TYPES = {"INT": "BIGINT", "INTEGER": "BIGINT", "BIGINT": "BIGINT", "TEXT": "VARCHAR", "VARCHAR": "VARCHAR"}
TYPES |= {"REAL": "DOUBLE", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP"}


class SQLite(RemoteEngine):
    """The file at PATH of "sqlite:PATH", read only; values of other types than declared are NULL."""

    def __init__(self, url: str, tables: Iterable[str], *, options: Mapping[str, str] | None = None, time_limit=None):
        address = f"file:{quote(url.partition(':')[2])}?{urlencode({**(options or {}), 'mode': 'ro'})}"
        self._connection = dbapi.connect(address, autocommit=True)
        super().__init__(SQLITE, self.look_up(tables), time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        with self._connection.cursor(adbc_stmt_kwargs={"adbc.sqlite.query.batch_rows": str(2**30)}) as cursor:
            cursor.execute(statement.sql, statement.parameters or None)  # a type is that of all rows, not of some
            return cursor.fetch_arrow_table()

    def disconnect(self) -> None:
        self._connection.close()

    def found(self, name: str) -> Registered:
        rows = self.fetch(Statement("SELECT name, type FROM pragma_table_info(?1)", (name,))).to_pylist()
        if not rows:
            raise table_missing(name, engine="SQLite")
        return Registered((name,), tuple(Column(row["name"], TYPES.get(row["type"], "ANY")) for row in rows))
