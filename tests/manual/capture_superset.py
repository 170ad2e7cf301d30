"""Run by hand in an environment with Apache Superset, psycopg2 and dpsql: the SQL that Superset writes for its charts.

    PYTHONPATH=tests python tests/manual/capture_superset.py

It writes tests/unit/session/fixtures/superset.sql. docs/how-to/superset.md says how to install Superset and dpsql in
one environment.

Each chart is a query object in the form in which Superset's page sends it. Superset's own code makes the SQL of it,
once for a database of `dpsql://` (its SQLAlchemy dialect and dpsql.integrations.superset), and once for
`postgresql://`, which `dpsql serve` is to Superset. What is captured is the text that Superset gives to the cursor of
the driver, with what its parser makes of it. No server is asked: behind the cursor is a plain DuckDB with the rows of
the tests, since a chart may send a second statement that depends on the first answer (series limit, time comparison).

How each statement is to be read ("read as", "refused") is not captured. It is kept from the file by the name of the
chart, and "read as: unknown" where the file has no such chart.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
from support.chart_kit import CREATE, PUBLIC, ROWS

FIXTURE = Path(__file__).parents[1] / "unit" / "session" / "fixtures" / "superset.sql"
HEAD = """\
-- Statements of Apache Superset {superset} over the table `orders` of tests/support/chart_kit.py, in implicit mode.
--
-- Captured, byte for byte, by tests/manual/capture_superset.py, with sqlglot {sqlglot} and SQLAlchemy {sqlalchemy},
-- from the cursor of the driver: once for the engine spec of dpsql, once for that of PostgreSQL, which is there where
-- it sends another text. Before each: the chart, and what it is read as, with the number of rows where it is known, or
-- the code of its refusal. These lines are by hand.
"""
READINGS = re.compile(r"-- chart: (.+)\n(-- (?:read as|refused): .+)\n")
CONFIG = """
SECRET_KEY = "a capture, of a length that Superset accepts, 0123456789"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
"""
ADDRESSES = {"dpsql": "dpsql:///events.duckdb?policy=policy.toml", "PostgreSQL": "postgresql+psycopg2://ana@host/dpsql"}
STAND_INS = (  # functions that DuckDB has not, as far as the statements need them
    "CREATE MACRO to_timestamp(a, b) AS strptime(a, '%Y-%m-%d %H:%M:%S.%f')",
    "CREATE MACRO width_bucket(x, low, high, n) AS floor((x - low) * n / (high - low))::BIGINT + 1",
)

COUNT, READERS = "count", "readers"  # saved metrics
SAVED = {COUNT: "COUNT(*)", READERS: "COUNT(DISTINCT user_id)"}
COLUMNS = {"user_id": "BIGINT", "product": "VARCHAR", "amount": "DOUBLE", "ts": "TIMESTAMP"}
WEEK = "2026-01-02 : 2026-01-09"
RANKED = "SELECT product, COUNT(DISTINCT user_id) AS readers FROM orders GROUP BY product ORDER BY readers DESC LIMIT 5"
DAILY = (
    "SELECT DATE_TRUNC('day', ts) AS day, COUNT(*) AS orders FROM orders "
    "WHERE ts >= '2026-01-02' AND ts < '2026-01-09' GROUP BY 1"
)
VIRTUAL = {  # datasets of a query, with the types of their columns
    "ranked": (RANKED, {"product": "VARCHAR", "readers": "BIGINT"}),
    "daily": (DAILY, {"day": "TIMESTAMP", "orders": "BIGINT"}),
    "computed": (
        (
            "SELECT product, readers * 1.5 AS scaled, readers::float AS f, "
            "ROW_NUMBER() OVER (ORDER BY readers DESC) AS rank, "
            f"readers * 100.0 / SUM(readers) OVER () AS share FROM ({RANKED}) AS r"
        ),
        {"product": "VARCHAR", "scaled": "DOUBLE", "f": "DOUBLE", "rank": "BIGINT", "share": "DOUBLE"},
    ),
    "filtered": ("SELECT * FROM orders WHERE amount > 1", COLUMNS),
    "measured": (
        "SELECT product, COUNT(*) AS orders FROM orders GROUP BY product",
        {"product": "VARCHAR", "orders": "BIGINT"},
    ),
}


def simple(aggregate: str, column: str, label: str = "") -> dict[str, Any]:
    """Return a metric of the tab "Simple"."""
    kept = {"column_name": column, "type": COLUMNS.get(column, "BIGINT")}
    label = label or f"{aggregate}({column})"
    return {"expressionType": "SIMPLE", "aggregate": aggregate, "column": kept, "label": label}


def custom(sql: str, label: str = "") -> dict[str, Any]:
    """Return a metric, or a column, of the tab "Custom SQL"."""
    return {"expressionType": "SQL", "sqlExpression": sql, "label": label or sql}


def axis(grain: str | None, column: str = "ts") -> dict[str, Any]:
    """Return the X axis of a chart of time."""
    kept = {"columnType": "BASE_AXIS", "sqlExpression": column, "label": column, "expressionType": "SQL"}
    return kept if grain is None else {"timeGrain": grain, **kept}


def within(time_range: str, column: str = "ts") -> dict[str, Any]:
    """Return the filter of a range of time."""
    return {"col": column, "op": "TEMPORAL_RANGE", "val": time_range}


SUM, AVG = simple("SUM", "amount"), simple("AVG", "amount")
ALWAYS: dict[str, Any] = {"filters": [within("No filter")]}
DURING: dict[str, Any] = {"filters": [within(WEEK)]}


def equals(column: str, value: object, operator: str = "==") -> dict[str, Any]:
    """Return filters of a column, beside that of time which each chart has."""
    return {"filters": [within(WEEK), {"col": column, "op": operator, "val": value}]}


@dataclass(frozen=True)
class Tile:
    """A chart: its query object, or several, and the dataset that it is drawn from."""

    name: str
    queries: list[dict[str, Any]]
    dataset: str = "orders"
    kind: str = "full"
    form: dict[str, Any] = field(default_factory=dict)


def tile(name: str, *queries: dict[str, Any], dataset: str = "orders", kind: str = "full") -> Tile:
    return Tile(name, list(queries), dataset, kind)


def line(grain: str, *metrics: object, **more: object) -> dict[str, Any]:
    """Return the query of a line or of bars over time."""
    series = more.pop("series", [])
    assert isinstance(series, list)
    given = {"columns": [axis(grain), *series], "metrics": list(metrics), "orderby": [[metrics[0], False]]}
    return {**given, **DURING, "series_columns": series, "row_limit": 10_000, **more}


def bars(*columns: object, metrics: list[object], **more: object) -> dict[str, Any]:
    """Return the query of bars, a pie or a table of groups."""
    first = {"columns": list(columns), "metrics": metrics, "orderby": [[metrics[0], False]], "row_limit": 10_000}
    return {**first, **ALWAYS, **more}


TILES = [
    tile("big number", {"columns": [], "metrics": [COUNT], "orderby": [], **ALWAYS}),
    tile("big number within a time range", {"columns": [], "metrics": [READERS], "orderby": [], **DURING}),
    tile("big number of a sum", {"columns": [], "metrics": [SUM], "orderby": [], **DURING}),
    tile("big number with trend line", {"columns": [axis("P1D")], "metrics": [COUNT], **DURING}),
    tile("big number with trend line, weeks", {"columns": [axis("P1W")], "metrics": [SUM], **DURING}),
    tile(
        "big number compared with a week before",
        {"columns": [], "metrics": [COUNT], **DURING, "time_offsets": ["1 week ago"]},
    ),
    tile("gauge", {"columns": [], "metrics": [AVG], "orderby": [], "row_limit": 10, **ALWAYS}),
    tile("line by day", line("P1D", COUNT)),
    tile("line by week", line("P1W", SUM)),
    tile("line by hour, two metrics", line("PT1H", COUNT, AVG, filters=[within("2026-01-02 : 2026-01-03")])),
    tile("line by half hours of a day", line("PT30M", READERS, filters=[within("2026-01-02 : 2026-01-03")])),
    tile("line by quarters of an hour", line("PT15M", COUNT, filters=[within("2026-01-02 : 2026-01-03")])),
    tile("line by month", line("P1M", READERS, filters=[within("2026-01-01 : 2026-03-01")])),
    tile("line without a time range", line("P1D", COUNT, **ALWAYS)),
    tile("line in the order of its axis", line("P1D", COUNT, orderby=[[axis("P1D"), True]])),
    tile("line of several series", line("P1W", COUNT, series=["product"])),
    tile("line of several series, with a series limit", line("P1W", COUNT, series=["product"], series_limit=3)),
    tile(
        "stacked bars over time, with a series limit by another metric",
        line("P1W", SUM, series=["product"], series_limit=3, series_limit_metric=READERS),
    ),
    tile("line, with a time comparison", line("P1D", COUNT, time_offsets=["1 week ago"])),
    tile("line, with a filter", line("P1D", COUNT, **equals("product", ["p0", "p1"], "IN"))),
    tile("line, with a row limit", line("P1D", COUNT, row_limit=5)),
    tile("area by day of a ratio", line("P1D", custom("SUM(amount)/COUNT(*)"))),
    tile("mixed chart of two queries", line("P1D", COUNT), line("P1D", SUM)),
    tile("bar", bars("product", metrics=[COUNT])),
    tile("bar within a time range", bars("product", metrics=[SUM], **DURING)),
    tile("bar of a custom metric", bars("product", metrics=[custom("SUM(amount)/COUNT(*)")])),
    tile("bar of a scaled metric", bars("product", metrics=[custom("COUNT(*)*1.5")])),
    tile("bar of two dimensions", bars("product", custom("amount > 25", "large"), metrics=[COUNT])),
    tile("bar in the order of its axis", bars("product", metrics=[COUNT], orderby=[["product", True]])),
    tile("bar sorted by another metric", bars("product", metrics=[SUM], orderby=[[READERS, False]])),
    tile("bar, least frequent first", bars("product", metrics=[COUNT], orderby=[[COUNT, True]], row_limit=100)),
    tile("bar of a CASE", bars(custom("CASE WHEN amount < 10 THEN 'low' ELSE 'high' END", "size"), metrics=[COUNT])),
    tile("pie", bars("product", metrics=[COUNT], row_limit=100)),
    tile("pie of a distinct count", bars("product", metrics=[simple("COUNT_DISTINCT", "user_id")], row_limit=100)),
    tile("pie of a few", bars("product", metrics=[SUM], row_limit=3)),
    tile("funnel of a filter", bars("product", metrics=[COUNT], row_limit=10, **equals("product", "p%", "LIKE"))),
    tile("treemap", bars("product", metrics=[SUM], row_limit=10_000, **equals("amount", 10, ">="))),
    tile("table, aggregated", bars("product", metrics=[COUNT, SUM, AVG], row_limit=1000)),
    tile("table, without an order", bars("product", metrics=[COUNT], row_limit=1000, orderby=[])),
    tile(
        "table, its percent metrics",
        bars(
            "product",
            metrics=[COUNT, SUM],
            row_limit=1000,
            post_processing=[
                {
                    "operation": "contribution",
                    "options": {"columns": ["SUM(amount)"], "rename_columns": ["%SUM(amount)"]},
                }
            ],
        ),
    ),
    tile("table, its totals", bars("product", metrics=[COUNT, SUM], columns=[], row_limit=0, orderby=[])),
    tile("table, its number of rows", bars("product", metrics=[COUNT], is_rowcount=True, row_limit=0, row_offset=0)),
    tile("table, its second page", bars("product", metrics=[COUNT], row_limit=20, row_offset=20)),
    tile("table over time", bars(axis("P1D"), metrics=[COUNT], row_limit=1000, **DURING)),
    tile(
        "table, HAVING of a count",
        bars("product", metrics=[COUNT], extras={"having": "(COUNT(*) >= 100)", "where": ""}),
    ),
    tile(
        "table, HAVING that others pass",
        bars("product", metrics=[COUNT], extras={"having": "(COUNT(*) < 100)", "where": ""}),
    ),
    tile(
        "table, WHERE in SQL",
        bars("product", metrics=[COUNT], extras={"having": "", "where": "(amount > 10 AND product <> 'p0')"}),
    ),
    tile(
        "table, filters of every kind",
        bars(
            "product",
            metrics=[COUNT],
            filters=[
                within(WEEK),
                {"col": "product", "op": "IN", "val": ["p0", "p1", "p4"]},
                {"col": "product", "op": "NOT IN", "val": ["p9"]},
                {"col": "product", "op": "IS NOT NULL"},
                {"col": "amount", "op": "<", "val": 40},
                {"col": "product", "op": "ILIKE", "val": "P%"},
            ],
        ),
    ),
    tile(
        "table compared with a week before",
        bars("product", metrics=[COUNT], row_limit=1000, **DURING, time_offsets=["1 week ago"]),
    ),
    tile(
        "table, raw records",
        {"columns": ["product", "amount", "ts"], "metrics": None, "orderby": [], "row_limit": 1000, **ALWAYS},
    ),
    tile("pivot table", bars("product", axis("P1W"), metrics=[COUNT], **DURING)),
    tile("heatmap", bars(axis("P1D"), "product", metrics=[SUM], **DURING)),
    tile(
        "histogram of a column", {"columns": ["amount"], "metrics": None, "orderby": [], "row_limit": 10_000, **ALWAYS}
    ),
    tile("bar of a column's bins", bars(custom("FLOOR(amount / 10) * 10", "bin"), metrics=[COUNT])),
    tile("bar of a column's buckets", bars(custom("width_bucket(amount, 0, 50, 5)", "bin"), metrics=[COUNT])),
    tile("box plot", bars(axis("P1D"), "product", metrics=[AVG], **DURING, series_columns=["product"])),
    tile("bar of an average", bars("product", metrics=[AVG])),
    tile("bubbles", bars("product", metrics=[COUNT, SUM, READERS])),
    tile(
        "native filter, its values",
        {"columns": ["product"], "metrics": [], "orderby": [["product", True]], "row_limit": 1000},
    ),
    tile("native filter, its values by a metric", bars("product", metrics=[COUNT], filters=[], row_limit=1000)),
    tile(
        "native filter, its values in no order",
        {"columns": ["product"], "metrics": [], "orderby": [], "row_limit": 1000},
    ),
    tile(
        "native filter, the range of a number",
        {"columns": [], "metrics": [simple("MIN", "amount", "min"), simple("MAX", "amount", "max")]},
    ),
    tile("filter of the explorer, its values", kind="values"),
    tile("samples", {"row_limit": 1000}, kind="samples"),
    tile(
        "drill to detail",
        {"filters": [{"col": "product", "op": "==", "val": "p1"}], "row_limit": 50},
        kind="drill_detail",
    ),
    tile("pie of a filtered dataset", bars("product", metrics=[SUM], row_limit=100), dataset="filtered"),
    tile("line of a filtered dataset", line("P1D", COUNT), dataset="filtered"),
    tile("bar of a ranking", bars("product", metrics=[simple("SUM", "readers")], filters=[]), dataset="ranked"),
    tile("big number of a ranking", {"columns": [], "metrics": [simple("SUM", "readers")]}, dataset="ranked"),
    tile(
        "bar of a scaled ranking", bars("product", metrics=[custom("SUM(readers)*1.5")], filters=[]), dataset="ranked"
    ),
    tile(
        "histogram of a ranking",
        {"columns": ["readers"], "metrics": None, "orderby": [], "row_limit": 10_000},
        dataset="ranked",
    ),
    tile(
        "bins of a ranking",
        bars(custom("FLOOR(readers / 100) * 100", "bin"), metrics=[COUNT], filters=[]),
        dataset="ranked",
    ),
    tile(
        "table of a computed ranking",
        {
            "columns": ["product", "scaled", "f", "rank", "share"],
            "metrics": None,
            "orderby": [["share", False]],
            "row_limit": 1000,
        },
        dataset="computed",
    ),
    tile("samples of a computed ranking", {"row_limit": 1000}, dataset="computed", kind="samples"),
    tile(
        "line of daily counts",
        {**line("P1D", simple("SUM", "orders")), "columns": [axis("P1D", "day")], "filters": [within(WEEK, "day")]},
        dataset="daily",
    ),
    tile(
        "line of daily counts, by week",
        {
            **line("P1W", simple("SUM", "orders")),
            "columns": [axis("P1W", "day")],
            "filters": [within("No filter", "day")],
        },
        dataset="daily",
    ),
    tile("big number, the largest day", {"columns": [], "metrics": [simple("MAX", "orders")]}, dataset="daily"),
    tile(
        "bar of a ranking without a limit",
        bars("product", metrics=[simple("SUM", "orders")], filters=[]),
        dataset="measured",
    ),
]


class Cursor:
    """Cursor that writes down what it is to execute, and answers from a plain DuckDB."""

    arraysize = 1

    def __init__(self, rows: duckdb.DuckDBPyConnection, captured: list[str]) -> None:
        self._rows, self._captured = rows, captured

    def execute(self, sql: str, *_: object) -> None:
        self._captured.append(sql)
        self._rows.execute(sql)

    @property
    def description(self) -> Any:
        return self._rows.description

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows.fetchall())


class Connection:
    """Connection with such a cursor."""

    def __init__(self, rows: duckdb.DuckDBPyConnection, captured: list[str]) -> None:
        self._given = rows, captured

    def cursor(self) -> Cursor:
        return Cursor(*self._given)


@contextmanager
def capturing(captured: list[str]) -> Iterator[None]:
    """Put the cursor in place of a driver's, as long as the block."""
    from sqlalchemy.engine import Engine
    from superset.models import helpers
    from superset.models.core import Database

    rows = duckdb.connect()
    for statement in (CREATE, ROWS, PUBLIC, *STAND_INS):
        rows.execute(statement)

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[Connection]:
        yield Connection(rows, captured)

    to_own = Engine.connect

    def connect_engine(engine: Engine) -> Any:
        return to_own(engine) if engine.dialect.name == "sqlite" else connect()  # the first is Superset's own database

    def read(sql: object, *, con: Connection) -> Any:  # noqa: ARG001 - as pandas has it
        captured.append(str(sql))
        return rows.execute(str(sql)).df()

    with ExitStack() as stack:
        stack.enter_context(patch.object(Database, "get_raw_connection", connect))
        stack.enter_context(patch.object(Engine, "connect", connect_engine))
        stack.enter_context(patch.object(Database, "get_default_schema", lambda *_: "main"))
        stack.enter_context(patch.object(helpers.pd, "read_sql_query", read))
        yield


def make_datasets(flavour: str) -> dict[str, Any]:
    """Register a database, its table and the datasets of a query."""
    from superset.connectors.sqla.models import SqlaTable, SqlMetric, TableColumn
    from superset.extensions import db
    from superset.models.core import Database

    database = Database(database_name=flavour, sqlalchemy_uri=ADDRESSES[flavour])
    db.session.add(database)
    found = {}
    for name, (sql, columns) in {"orders": ("", COLUMNS), **VIRTUAL}.items():
        dated = [column for column, kind in columns.items() if kind == "TIMESTAMP"]
        table = SqlaTable(
            table_name=name,
            schema="main",
            database=database,
            sql=sql or None,
            main_dttm_col=dated[0] if dated else None,
            columns=[
                TableColumn(column_name=column, type=kind, is_dttm=column in dated) for column, kind in columns.items()
            ],
            metrics=[SqlMetric(metric_name=metric, expression=text) for metric, text in SAVED.items()],
        )
        db.session.add(table)
        found[name] = table
    db.session.commit()
    return found


def draw(chart: Tile, dataset: Any) -> list[str]:
    """Let Superset draw a chart, and return the statements that it sent."""
    from superset.common.chart_data import ChartDataResultType
    from superset.common.query_context_factory import QueryContextFactory

    captured: list[str] = []
    with capturing(captured):
        if chart.kind == "values":
            dataset.values_for_column("product")
        else:
            source = {"id": dataset.id, "type": "table"}
            form = {"datasource": f"{dataset.id}__table", **chart.form}
            context = QueryContextFactory().create(
                datasource=source,
                queries=chart.queries,
                form_data=form,
                result_type=ChartDataResultType(chart.kind),
                force=True,
            )
            for answer in context.get_payload()["queries"]:
                if answer.get("error"):
                    print(dataset.database.database_name, chart.name, "|", answer["error"])  # noqa: T201
    assert captured, chart.name
    return captured


def capture(folder: Path) -> str:
    """Return the fixture's text."""
    (folder / "superset_config.py").write_text(CONFIG.format(folder=folder))
    os.environ["SUPERSET_CONFIG_PATH"] = str(folder / "superset_config.py")
    from superset.app import create_app

    readings = dict(READINGS.findall(FIXTURE.read_text())) if FIXTURE.exists() else {}
    names = ("apache_superset", "sqlglot", "SQLAlchemy")
    superset, sqlglot, sqlalchemy = (version(name) for name in names)
    blocks = [HEAD.format(superset=superset, sqlglot=sqlglot, sqlalchemy=sqlalchemy).rstrip("\n")]
    sent: dict[str, list[str]] = {}
    with create_app().app_context():
        from flask_appbuilder import Model
        from superset.extensions import db

        Model.metadata.create_all(db.engine)
        for flavour in ADDRESSES:
            datasets = make_datasets(flavour)
            for chart in TILES:
                for at, sql in enumerate(draw(chart, datasets[chart.dataset]), 1):
                    sent.setdefault(sql, []).append(f"{flavour}: {chart.name}" + f", statement {at}" * (at > 1))
    for sql, (name, *_) in sent.items():
        blocks.append(f"-- chart: {name}\n{readings.get(name, '-- read as: unknown')}\n{sql}")
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        FIXTURE.write_text(capture(Path(place)))
