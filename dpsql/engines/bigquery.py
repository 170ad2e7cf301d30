"""BigQuery through its own client: a query is a job, which reads the data once; only the answer leaves BigQuery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpsql.dialects.warehouses import BIGQUERY
from dpsql.engines.base import Statement
from dpsql.engines.remote import ONE_SELECT, RemoteEngine, count_limit, table_missing
from dpsql.engines.sources import ListedTable, Registered
from dpsql.engines.warehouse import Product, Sources, choose_table, list_texts, name_decimal
from dpsql.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from google.cloud import bigquery

_PRODUCT = Product(
    "BigQuery",
    "bigquery",
    "google.cloud.bigquery",
    "bq",
    parts=("project", "dataset"),
    settings=("location", "credentials"),
    options=frozenset(["api_endpoint", "maximum_bytes_billed"]),
)
_TYPES = {
    **dict.fromkeys(["INTEGER", "INT64"], "BIGINT"),
    **dict.fromkeys(["FLOAT", "FLOAT64"], "DOUBLE"),
    **dict.fromkeys(["BOOLEAN", "BOOL"], "BOOLEAN"),
    **dict.fromkeys(["DATETIME", "TIMESTAMP"], "TIMESTAMP"),  # an instant as the time stamp that it is in UTC
    "STRING": "VARCHAR",
    "BYTES": "BLOB",
    "DATE": "DATE",
}


class BigQueryEngine(RemoteEngine):
    """Engine on a dataset of BigQuery; the tables stay there."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - its methods have no types
        dataset: tuple[str, str],
        *,
        sources: Sources,
        most_bytes: int | None = None,
        time_limit: float | None = None,
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._job: Any = None
        self._limits = {
            "maximum_bytes_billed": most_bytes,
            "job_timeout_ms": count_limit(time_limit, per_second=1_000),
        }
        super().__init__(BIGQUERY, self.look_up(sources), time_limit=time_limit)

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> BigQueryEngine:
        """Open "bigquery://project/dataset?location=EU&credentials=FILE"; without a file, the default credentials.

        `options` are `maximum_bytes_billed`, above which a statement fails before it is billed, and `api_endpoint`.
        Raises `EngineError` where BigQuery cannot be used, or has not a table; `UsageError` without the driver, or
        with another option.
        """
        bigquery = _PRODUCT.load_driver(sources, options)
        text, most = options.get("maximum_bytes_billed"), None
        if text is not None:
            if not text.isascii() or not text.isdecimal():
                reason = "maximum_bytes_billed is a number of bytes."
                hint, place = 'Such as maximum_bytes_billed = "10000000000".', "source.options.maximum_bytes_billed"
                raise UsageError("source-option", reason, hint=hint, place=place)
            most = int(text)
        address = _PRODUCT.parse_address(url)
        settings = address.settings
        project = url.partition("://")[2].partition("/")[0]  # unlike a host, it may have a colon and capital letters
        client = None
        with suppress(Exception):
            oauth = _PRODUCT.import_part("google.oauth2.service_account")
            file = settings.get("credentials")
            client = bigquery.Client(
                project=project,
                credentials=None if file is None else oauth.Credentials.from_service_account_file(file),
                location=settings.get("location"),
                client_options={name: options[name] for name in ("api_endpoint",) if name in options},
            )
        if client is None:
            raise _PRODUCT.unreachable()
        return cls(client, (project, address.path[0]), sources=sources, most_bytes=most, time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        """Run one SELECT as a job, and return its answer."""
        from google.cloud import bigquery

        values = enumerate(list_texts(statement.parameters), 1)
        config = bigquery.QueryJobConfig(
            query_parameters=[bigquery.ScalarQueryParameter(f"p{at}", "STRING", value) for at, value in values],
            connection_properties=[bigquery.ConnectionProperty("time_zone", "UTC")],
            use_query_cache=False,  # the time of an answer would say whether rows have changed
            use_legacy_sql=False,
            **{name: value for name, value in self._limits.items() if value is not None},
        )
        # BigQuery runs several statements in one text as a script, which could write.
        if ONE_SELECT.match(statement.sql) is None:
            raise ValueError
        # Without retries: a statement is one job, and one that fails is not sent again.
        job = self._client.query(statement.sql, job_config=config, job_retry=None)
        self._job = job
        try:
            return job.result(job_retry=None).to_arrow(create_bqstorage_client=False)
        finally:
            # `reconnect` may have let go of this job while it ran, and another one may run by now.
            if self._job is job:
                self._job = None

    def cancel(self) -> None:
        """Ask BigQuery to stop the job that runs."""
        job = self._job
        if job is not None:
            job.cancel()

    def reconnect(self) -> bool:
        """Leave a job to itself; the client can run others meanwhile."""
        self._job = None
        return True

    def disconnect(self) -> None:
        """Close the client."""
        self._client.close()

    def found(self, name: str) -> Registered:
        """Return the table "name", or "dataset.name" of the same project; its name is case-sensitive."""
        dataset, _, table = name.rpartition(".")
        relation = (self._dataset[0], dataset or self._dataset[1], table)
        found: Any = None
        with suppress(Exception):
            found = self._client.get_table(".".join(relation))
        if found is None or not found.schema:
            raise table_missing(name, engine="BigQuery")
        collation = found.to_api_repr().get("defaultCollation", "")  # of the table, which columns may have from it
        rows = ((relation, field.name, _name_type(field, collation)) for field in found.schema)
        return choose_table(name, rows, engine="BigQuery", wanted=relation)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of the dataset of the address."""
        for table in self._client.list_tables(".".join(self._dataset)):
            yield ListedTable(table.table_id)


def _name_type(field: bigquery.SchemaField, collation: str) -> str:
    """Return DuckDB's name of a type, or BigQuery's for one that dpsql does not compute with.

    `collation` is that of text whose field names none.
    """
    kind = str(field.field_type)
    if field.mode == "REPEATED":
        return f"ARRAY({kind})"
    if kind in {"NUMERIC", "BIGNUMERIC"} and field.precision is not None:
        return name_decimal(int(field.precision), int(field.scale or 0))
    if kind == "STRING" and field.to_api_repr().get("collation", collation):
        return f"{kind} COLLATE"
    return _TYPES.get(kind, kind)
