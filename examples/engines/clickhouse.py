"""ClickHouse, in this process by chdb, as an engine of dpsql; docs/how-to/write-an-adapter.md walks through it."""

import re
from collections.abc import Iterable, Mapping

import chdb
import pyarrow as pa

from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Column, Registered, RemoteEngine, Statement, table_missing

TEXT, DAY, MOMENT = (f"CAST({{0}} AS Nullable({name}))" for name in ("String", "Date32", "DateTime64(6, 'UTC')"))
BITS = "reinterpretAsInt64(if(isNaN({0}), nan, {0} + 0))"
RANK = f"bitXor({BITS}, bitAnd(bitShiftRight({BITS}, 63), {2**63 - 1}))"  # of a DOUBLE: NaN is itself, and the greatest
UNSURE = "EXISTS (SELECT 1 FROM {1} WHERE c1 IS NULL) OR ({0} IS NULL AND EXISTS (SELECT 1 FROM {1}))"
AMONG = f"multiIf({{0}} IN {{1}}, true, {UNSURE}, NULL, false)"  # ClickHouse takes NULL in IN for a value
FIT = "accurateCastOrNull({}, '{{type}}')"  # whole numbers would wrap: they are computed in wider ones, then fitted
WHOLE = {"DECIMAL": "toInt128(round({0}))", "DOUBLE": "roundBankers({0})"}
PARTS = {"year": "toYear", "month": "toMonth", "day": "toDayOfMonth", "isodow": "toDayOfWeek", "quarter": "toQuarter"}
STARTS = {"year": "makeDate32(toYear({0}), 1, 1)", "month": "makeDate32(toYear({0}), toMonth({0}), 1)", "day": DAY}

FORMS = {**STANDARD, "min TEXT": "min({0})", "max TEXT": "max({0})", "length": "lengthUTF8({0})", "isnan": "isNaN({0})"}
FORMS |= {f"{sign} DOUBLE": f"({RANK} {sign} {RANK.replace('{0}', '{1}')})" for sign in "= <> < <= > >=".split()}
FORMS |= {f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in "+-*/"}
FORMS |= {f"{sign} INTEGER INTEGER": FIT.format(f"toInt128({{0}}) {sign} toInt128({{1}})") for sign in "+-*"}
FORMS |= {"neg INTEGER": FIT.format("-toInt128({0})"), "abs INTEGER": FIT.format("abs(toInt128({0}))")}
FORMS |= {"sum INTEGER": "toDecimal128(sum(toInt128({0})), 0)", "cast INTEGER INTEGER": FIT.format("{0}")}
FORMS |= {f"cast {kind} INTEGER": FIT.format(form) for kind, form in WHOLE.items()}
FORMS |= {f"{of} {kind}": form for of in ("column", "literal") for kind, form in [("DATE", DAY), ("TIMESTAMP", MOMENT)]}
FORMS |= {"cast DATE TIMESTAMP": MOMENT, "cast TIMESTAMP DATE": DAY, "cast INTEGER DOUBLE": "toFloat64({0})"}
FORMS |= {"column TEXT": TEXT, "cast INTEGER TEXT": TEXT, "cast DATE TEXT": TEXT, "cast FLOAT DOUBLE": "toFloat64({0})"}
FORMS |= {f"date_part.{part}": f"{name}({{0}})" for part, name in PARTS.items()}
FORMS |= {f"date_trunc.{unit}": MOMENT.replace("{0}", start) for unit, start in STARTS.items()}
FORMS |= {"starts_with": "startsWith({0}, {1})", "suffix": "endsWith({0}, {1})", "md5": "lower(hex(MD5({0})))"}
FORMS |= {f"in_query {kind}": AMONG for kind in ("INTEGER", "TEXT")} | {"lookup": "[{1*}][{0}]", "order DOUBLE": RANK}
FORMS |= {"keyed_hash": "sipHash64({1}, {0})", "mix": "sipHash64({0}, {1})"}
LACKS = {"IN", "correlated", "nested", "INTERSECT ALL", "EXCEPT ALL"}
LACKS |= {f"{kind} unequal" for kind in "LEFT RIGHT FULL SEMI ANTI".split()}  # it cannot tell what to join by
CLICKHOUSE = Dialect("ClickHouse", "clickhouse", FORMS, parameter="{p{n}:Nullable(String)}", lacks=frozenset(LACKS))

TYPES = {f"Int{8 << at}": name for at, name in enumerate("TINYINT SMALLINT INTEGER BIGINT".split())}
TYPES |= {f"U{kind}": f"U{name}" for kind, name in TYPES.items()} | {"Float32": "FLOAT", "Float64": "DOUBLE"}
TYPES |= dict.fromkeys(["String", "FixedString", "Enum8", "Enum16", "UUID"], "VARCHAR") | {"Bool": "BOOLEAN"}
TYPES |= {"Date": "DATE", "Date32": "DATE", "DateTime": "TIMESTAMP", "DateTime64(6": "TIMESTAMP"}
PINNED = {"join_use_nulls": 1, "aggregate_functions_null_for_empty": 1, "prefer_column_name_to_alias": 1}
PINNED |= {
    f"{of}_overflow_mode": "throw" for of in "read group_by sort result distinct set join transfer timeout".split()
}
PINNED |= {f"{of}_overflow_mode_leaf": "throw" for of in ("read", "timeout")}  # no limit may leave out others' rows
PINNED |= {"limit": 0, "offset": 0, "skip_unavailable_shards": 0, "join_any_take_last_row": 0}
PINNED |= {"cast_keep_nullable": 1, "precise_float_parsing": 1, "session_timezone": "UTC", "max_query_size": 10**7}
PINNED |= {"count_distinct_implementation": "uniqExact"}
PINNED |= {"optimize_functions_to_subcolumns": 0, "readonly": 1}  # that one loses columns of windows in 26.9
FOUND = "SELECT name, type FROM system.columns WHERE database = {p1:String} AND table = {p2:String} ORDER BY position"


class ClickHouse(RemoteEngine):
    """The database in FOLDER of "clickhouse:FOLDER", of which a process has one; `options` are its settings."""

    default_schema = "default"
    max_connections = 1

    def __init__(self, url: str, tables: Iterable[str], *, options: Mapping[str, str] | None = None, time_limit=None):
        self._connection = chdb.connect(url.partition(":")[2] or ":memory:")
        for name, value in {"max_execution_time": time_limit or 0, **(options or {}), **PINNED}.items():
            self._connection.query(f"SET {name} = '{value}'")
        super().__init__(CLICKHOUSE, self.look_up(tables), time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        values = {f"p{at}": _escaped(value) for at, value in enumerate(statement.parameters, 1)}
        try:
            answer = self._connection.query(statement.sql, "ArrowStream", params=values).bytes()
        except Exception:
            self._connection.query("SELECT 1")  # chdb 4.4 gives no row to the statement that follows one that failed
            raise
        return pa.ipc.open_stream(answer).read_all()

    def disconnect(self) -> None:
        self._connection.close()

    def found(self, name: str) -> Registered:
        path = (name.rpartition(".")[0] or "default", name.rpartition(".")[2])
        rows = self.fetch(Statement(FOUND, path)).to_pylist()
        if not rows:
            raise table_missing(name, engine="ClickHouse")
        return Registered(path, tuple(Column(row["name"], _type(row["type"])) for row in rows))


def _type(kind: str) -> str:
    while found := re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", kind):
        kind = found[1]
    return kind.upper() if kind.startswith("Decimal(") else TYPES.get(re.match(r"DateTime64\(6|\w+", kind)[0], kind)


def _escaped(value: object) -> str:
    return "\\N" if value is None else re.sub(r"[\\\t\n\r\0]", lambda each: f"\\x{ord(each[0]):02x}", str(value))
