"""PyAthena against moto's Athena: what is sent, what is read, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import Request, urlopen

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from dpsql.engines import Statement, open_exact
from dpsql.engines.warehouses import AthenaEngine
from dpsql.errors import EngineError, UsageError

URL = "athena://eu-west-1/AwsDataCatalog/web?s3_staging_dir=s3://answers/dpsql/"
COLUMNS = [
    ["web", "reads", "user_id", "bigint"],
    ["web", "reads", "article", "varchar(20)"],
    ["web", "reads", "tags", "array(varchar)"],
]
TYPES = ("BIGINT", "VARCHAR", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "DOUBLE", "BOOLEAN")
KINDS = ("bigint", "varchar", "decimal", "date", "timestamp", "double", "boolean")
ROW = ["9007199254740993", "", "1.50", "12345-01-02", "1969-12-31 23:59:59.999999", "Infinity", "true"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ID", "KEY"):
            patch.setenv(f"AWS_{'ACCESS_KEY_ID' if name == 'ID' else 'SECRET_ACCESS_KEY'}", "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield f"http://{host}:{port}"
    server.stop()


def give(endpoint: str, kinds: tuple[str, ...], *rows: list[str]) -> None:
    """Let the next statement give rows: moto repeats the names of the columns as its first row, as Athena does."""
    columns = [
        {
            "CatalogName": "",
            "SchemaName": "",
            "TableName": "",
            "Name": f"c{at}",
            "Label": f"c{at}",
            "Type": kind,
            "Precision": 0,
            "Scale": 0,
            "Nullable": "UNKNOWN",
            "CaseSensitive": False,
        }
        for at, kind in enumerate(kinds)
    ]
    head = [f"c{at}" for at in range(len(kinds))]
    answer = {"rows": [{"Data": [{"VarCharValue": each} for each in row]} for row in [head, *rows]]}
    body = {"account_id": "123456789012", "region": "eu-west-1", "results": [{**answer, "column_info": columns}]}
    request = Request(
        f"{endpoint}/moto-api/static/athena/query-results",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    urlopen(request).read()


def sent(endpoint: str) -> dict[str, object]:
    """Return the statement that was sent last."""
    client = boto3.client("athena", region_name="eu-west-1", endpoint_url=endpoint)
    (last, *_) = sorted(
        (
            client.get_query_execution(QueryExecutionId=each)["QueryExecution"]
            for each in client.list_query_executions()["QueryExecutionIds"]
        ),
        key=lambda execution: execution["Status"]["SubmissionDateTime"],
        reverse=True,
    )
    return dict(last)


def test_tables_and_values(endpoint: str) -> None:
    give(endpoint, ("varchar",) * 4, *COLUMNS)
    options = {"endpoint_url": endpoint, "poll_interval": "0.01"}
    engine = AthenaEngine.open(URL, {"reads": None}, options=options)
    assert engine.relation("reads") == ("AwsDataCatalog", "web", "reads")
    assert [column.type for column in engine.columns("reads")[:2]] == ["BIGINT", "VARCHAR"]
    give(endpoint, KINDS, ROW)
    statement = Statement("SELECT ?/*2*/, ?/*1*/", ("it's", None), TYPES)
    values = [
        column.to_pylist()[0] for column in open_exact(engine.execute(statement)) if str(column.type) != "date32[day]"
    ]
    assert values[0] == 9_007_199_254_740_993
    assert values[1] == ""
    assert str(values[2]) == "1.50"
    assert values[3].microsecond == 999_999
    assert values[4:] == [np.inf, True]
    last = sent(endpoint)
    assert last["Query"] == "SELECT ?, ?"
    assert last["QueryExecutionContext"] == {"Database": "web", "Catalog": "AwsDataCatalog"}
    with pytest.raises(EngineError):
        engine.execute(Statement("DROP TABLE reads"))
    engine.close()


def test_a_table_that_is_not_there_is_missing(endpoint: str) -> None:
    give(endpoint, ("varchar",) * 4)
    with pytest.raises(EngineError) as caught:
        AthenaEngine.open(URL, {"nothing": None}, options={"endpoint_url": endpoint, "poll_interval": "0.01"})
    assert caught.value.code == "table-missing"


def test_a_failure_of_athena_is_neither_logged_nor_shown(
    endpoint: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Without an endpoint that answers, the first statement fails, which PyAthena logs with its traceback."""
    nowhere = {"endpoint_url": f"{endpoint}/nowhere", "poll_interval": "0.01"}
    with pytest.raises(EngineError) as caught:
        AthenaEngine.open(URL, {"reads": None}, options=nowhere)
    assert caught.value.code == "engine-unreachable"
    assert capfd.readouterr().err == ""
    assert not [record for record in caplog.records if record.name.startswith("pyathena")]


@pytest.mark.parametrize(
    ("url", "options", "code"),
    [
        ("athena://eu-west-1/AwsDataCatalog", {}, "engine-unreachable"),
        ("athena://eu-west-1/AwsDataCatalog/web?s3_staging_dir=s3://a/&profile_name=nobody", {}, "engine-unreachable"),
        (URL, {"aws_secret_access_key": "secret"}, "source-option"),
        *((URL, {"poll_interval": text}, "source-option") for text in ("soon", "0", "-1", "nan", "")),
    ],
)
def test_what_is_not_opened_says_why(url: str, options: dict[str, str], code: str) -> None:
    with pytest.raises((EngineError, UsageError)) as caught:
        AthenaEngine.open(url, {}, options=options)
    assert caught.value.code == code
    assert "secret" not in str(caught.value).replace("aws_secret_access_key", "")
