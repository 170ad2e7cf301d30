"""A local S3 (moto) with Parquet files, and DuckDB's extension httpfs as a user has it installed.

httpfs is not in the wheel of DuckDB. `.ci/run` installs DuckDB 1.4 with it, from PyPI, beside the environment; there
is no httpfs for 2.0 there.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

__all__ = ["BUCKET", "SECRET_KEY", "Store", "open_store"]

BUCKET = "events-of-tests"
SECRET_KEY = "SECRETKEY"
_SECRET = """CREATE PERSISTENT SECRET store (TYPE s3, KEY_ID 'tester', SECRET '{key}', REGION 'us-east-1',
    ENDPOINT '127.0.0.1:{port}', URL_STYLE 'path', USE_SSL false, SCOPE 's3://{bucket}')"""


@dataclass(frozen=True)
class Store:
    """A bucket, and a client of it that writes."""

    port: int
    client: Any

    def put(self, name: str, sql: str) -> None:
        """Write the rows of a SELECT as Parquet."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/rows.parquet"
            duckdb.sql(f"COPY ({sql}) TO '{file}' (FORMAT parquet)")
            self.client.upload_file(file, BUCKET, name, ExtraArgs={"ACL": "public-read"})


@contextmanager
def open_store(home: Path) -> Iterator[Store]:
    """Start a store; this process then has its home in `home`, with httpfs and a persistent secret for the bucket."""
    extensions = _find_extensions()
    if extensions is None:
        pytest.skip(f"httpfs is not installed for DuckDB {duckdb.__version__}")
    (home / ".duckdb").mkdir()
    (home / ".duckdb" / "extensions").symlink_to(extensions)
    from boto3 import client  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        try:
            port = server.get_host_and_port()[1]
            with duckdb.connect() as connection:
                connection.execute("LOAD httpfs")
                connection.execute(_SECRET.format(key=SECRET_KEY, port=port, bucket=BUCKET))
            keys = {"aws_access_key_id": "tester", "aws_secret_access_key": SECRET_KEY, "region_name": "us-east-1"}
            made = client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
            made.create_bucket(Bucket=BUCKET)
            yield Store(port, made)
        finally:
            server.stop()


def _find_extensions() -> Path | None:
    """Return a folder of extensions that has httpfs for the DuckDB that runs."""
    spec = importlib.util.find_spec("duckdb_ext")
    places = [Path(place) / "extensions" for place in (spec.submodule_search_locations or ())] if spec else []
    for place in [*places, Path(os.environ.get("HOME", "/")) / ".duckdb" / "extensions"]:
        with suppress(StopIteration):
            next((place / f"v{duckdb.__version__}").glob("*/httpfs.duckdb_extension"))
            return place
    return None
