"""Engine spec for Apache Superset, found by the entry point group `superset.db_engine_specs`; needs Superset.

It belongs to the SQLAlchemy dialect of the same name. Superset parses each statement with sqlglot and generates it
again before it sends it, so loading the spec also registers `dpsql.integrations.sqlglot` with Superset.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from superset.constants import TimeGrain
from superset.db_engine_specs.base import BaseEngineSpec
from superset.sql.parse import SQLGLOT_DIALECTS, LimitMethod

from dpsql.integrations.sqlglot import Dpsql
from dpsql.sql.allow_list import AGGREGATES, FUNCTIONS, WINDOWS
from dpsql.sql.ir.measures import SPREADS

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = ["DpsqlEngineSpec"]

_TRUNCATED = "date_trunc('{}', {{col}})"
_IN_BUCKETS = "time_bucket(INTERVAL '{} minutes', {{col}})"

SQLGLOT_DIALECTS.setdefault("dpsql", Dpsql)


class DpsqlEngineSpec(BaseEngineSpec):  # type: ignore[misc, unused-ignore] # where Superset is not installed
    """Capabilities of dpsql for Superset, which must never send more than the analyst wrote.

    Rows are cut after the answer (FETCH_MANY), so that a statement is sent unchanged; there are no estimates, uploads
    or writes. The series of a chart are limited by a query of their own and not by a join with one (`allows_joins`).
    """

    engine = "dpsql"
    engine_name = "dpsql"
    default_driver = "duckdb"
    sqlalchemy_uri_placeholder = "dpsql:////path/to/events.duckdb?policy=/path/to/policy.toml"
    limit_method = LimitMethod.FETCH_MANY
    supports_file_upload = False
    supports_multivalues_insert = False
    allows_joins = False

    _time_grain_expressions = {  # noqa: RUF012 - Superset's own name and form
        None: "{col}",
        TimeGrain.SECOND: _TRUNCATED.format("second"),
        TimeGrain.MINUTE: _TRUNCATED.format("minute"),
        TimeGrain.FIVE_MINUTES: _IN_BUCKETS.format(5),
        TimeGrain.TEN_MINUTES: _IN_BUCKETS.format(10),
        TimeGrain.FIFTEEN_MINUTES: _IN_BUCKETS.format(15),
        TimeGrain.THIRTY_MINUTES: _IN_BUCKETS.format(30),
        TimeGrain.HOUR: _TRUNCATED.format("hour"),
        TimeGrain.DAY: _TRUNCATED.format("day"),
        TimeGrain.WEEK: _TRUNCATED.format("week"),
        TimeGrain.MONTH: _TRUNCATED.format("month"),
        TimeGrain.QUARTER: _TRUNCATED.format("quarter"),
        TimeGrain.YEAR: _TRUNCATED.format("year"),
    }

    @classmethod
    def convert_dttm(cls, target_type: str | None, dttm: datetime, **_: Any) -> str | None:  # noqa: ANN401 - Superset's
        """Return a literal of a DATE or TIMESTAMP, for the time range of a chart; None for other types."""
        kind = (target_type or "").upper().split("(")[0]
        if kind == "DATE":
            return f"DATE '{date(dttm.year, dttm.month, dttm.day).isoformat()}'"
        if kind in {"TIMESTAMP", "DATETIME"}:
            return f"TIMESTAMP '{dttm.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"
        return None

    @classmethod
    def select_star(cls, database: Any, table: Any, *_: Any, **__: Any) -> str:  # noqa: ANN401, ARG003 - as above
        """Return the statement for the preview of a table: its columns, which is free, and never its rows."""
        parts = [part for part in (table.schema, table.table) if part]
        return "DESCRIBE " + ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    @classmethod
    def get_function_names(cls, database: Any) -> list[str]:  # noqa: ANN401, ARG003 - as above
        """Return the functions that SQL Lab completes."""
        return sorted({*FUNCTIONS, *AGGREGATES, *SPREADS, *WINDOWS, "count"})

    @classmethod
    def get_url_for_impersonation(cls, url: URL, *who: Any) -> URL:  # noqa: ANN401 - as above
        """Return the address with Superset's user as the analyst, where "Impersonate logged in user" is set.

        `who` is whether it is set, the name of the user, and a token, which means nothing here.
        """
        impersonated, username, *_ = who
        return url.update_query_dict({"analyst": username}) if impersonated and username is not None else url
