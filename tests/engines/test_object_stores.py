"""Tables at addresses: DuckDB reads Parquet files from a local S3 by httpfs, and nothing else."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import pytest
from support.object_store import BUCKET, SECRET_KEY, Store, open_store

import dpsql
from dpsql import Budget, Policy, PrivateTable, PublicTable
from dpsql.curator import check_policy, materialize, write_starter
from dpsql.engines import Engine, Statement, find_data_version, open_exact
from dpsql.errors import EngineError, PolicyError
from dpsql.open_engine import open_engine

pytestmark = pytest.mark.usefixtures("store")
READS = "SELECT i % 4000 AS user_id, 'a' || i % 3 AS article FROM range({0}, {1}) t(i)"
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE WITH (fresh = true)"
FIRST, SECOND = READS.format(0, 3000), READS.format(3000, 6000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("home")) as made:
        made.put("reads/one.parquet", FIRST)
        made.put("reads/two.parquet", SECOND)
        made.put("reads/.three.parquet", FIRST)
        made.put("reads/_tmp/four.parquet", FIRST)
        made.put("days/day=1/x.parquet", FIRST)
        made.put("days/day=2%2F3/x.parquet", SECOND)
        made.put("other/one.parquet", "SELECT 1 AS user_id")
        made.put("mixed/one.parquet", FIRST)
        made.put("mixed/two.parquet", "SELECT 'x' AS user_id, 'a' AS article")
        made.put("delta/one.parquet", FIRST)
        made.client.put_object(Bucket=BUCKET, Key="delta/_delta_log/0.json", Body=b"{}")
        made.client.put_object(Bucket=BUCKET, Key="reads/text.parquet.txt", Body=b"no Parquet")
        made.client.put_object(Bucket=BUCKET, Key="bad/one.parquet", Body=b"no Parquet " * 100)
        yield made


def named(source: str) -> Policy:
    return Policy(Budget(50, "1e-6"), {"reads": PrivateTable("user_id", source=f"s3://{BUCKET}/{source}")})


def rows(engine: Engine, columns: str) -> list[dict[str, object]]:
    name = ".".join(f'"{part}"' for part in engine.relation("reads"))
    return open_exact(engine.execute(Statement(f"SELECT {columns} FROM {name}"))).to_pylist()


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ("reads/one.parquet", FIRST),
        ("reads/*.parquet", f"{FIRST} UNION ALL {SECOND}"),
        ("reads/**/*.parquet", f"{FIRST} UNION ALL {SECOND}"),
        ("reads/[ot]*.parquet", f"{FIRST} UNION ALL {SECOND}"),
        (
            "days/*/*.parquet",
            f"SELECT *, '1' AS day FROM ({FIRST}) UNION ALL SELECT *, '2/3' AS day FROM ({SECOND})",
        ),
    ],
)
def test_an_address_is_read_as_the_rows_that_were_written(source: str, same: str) -> None:
    engine = open_engine(None, named(source))
    names = [column.name for column in engine.columns("reads")]
    assert [column.type for column in engine.columns("reads")] == ["BIGINT", "VARCHAR", "VARCHAR"][: len(names)]
    columns = f"count(*) AS rows, sum(hash({', '.join(names)})::HUGEINT)::VARCHAR AS mixed"
    (wanted,) = duckdb.sql(f"SELECT {columns} FROM ({same})").fetchall()
    assert [tuple(row.values()) for row in rows(engine, columns)] == [wanted]
    assert find_data_version(engine, "reads") is None  # what is written later is read, too
    engine.close()


def test_a_session_over_an_address_releases_and_charges() -> None:
    with dpsql.connect(policy=named("reads/*.parquet"), ledger=":memory:") as session:
        answer = session.sql(TOP)
        assert sorted(row[0] for row in answer.fetchall()) == ["a0", "a1", "a2"]
        assert session.budget.rho.spent == answer.receipt.loss.rho.value > 0


def test_a_locked_instance_reads_the_named_addresses_and_no_others() -> None:
    engine = open_engine(None, named("reads/*.parquet"))
    assert rows(engine, "count(*) AS n") == [{"n": 6000}]
    for place in (f"s3://{BUCKET}/other/one.parquet", f"s3://{BUCKET}/reads/.three.parquet", "/etc/hostname"):
        reader = "read_text" if place.startswith("/") else "read_parquet"
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement(f"SELECT * FROM {reader}('{place}')"))
        assert caught.value.code == "engine-failed"
    with pytest.raises(EngineError):
        engine.execute(Statement(f"SELECT * FROM glob('s3://{BUCKET}/*')"))
    engine.close()


def test_an_address_beside_a_database(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "here.duckdb")) as database:
        database.execute("CREATE TABLE kinds AS SELECT 'a' || i AS article, 'few' AS kind FROM range(3) t(i)")
    policy = Policy(
        Budget(50, "1e-6"),
        {"reads": PrivateTable("user_id", source=f"s3://{BUCKET}/reads/one.parquet"), "kinds": PublicTable()},
    )
    with dpsql.connect(tmp_path / "here.duckdb", policy=policy, ledger=":memory:") as session:
        joined = "FROM reads JOIN kinds USING (article) GROUP BY kind TOP 1 PRIVATE"
        assert session.sql(f"SELECT kind {joined}").fetchall() == [("few",)]


def test_a_public_table_at_an_address_is_read_apart() -> None:
    policy = Policy(Budget(1, "1e-6"), {"reads": PublicTable(source=f"s3://{BUCKET}/reads/one.parquet")})
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        assert session.sql("SELECT count(*) AS n FROM reads").fetchall() == [(3000,)]


def test_a_file_that_goes_is_a_failure_that_is_charged(store: Store) -> None:
    store.put("gone/one.parquet", FIRST)
    with dpsql.connect(policy=named("gone/*.parquet"), ledger=":memory:") as session:
        store.client.delete_object(Bucket=BUCKET, Key="gone/one.parquet")
        with pytest.raises(EngineError) as caught:
            session.sql(TOP)
        assert caught.value.code == "engine-failed"
        assert session.budget.rho.spent > 0
        assert "gone" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("reads/none.parquet", "source-unreadable"),
        ("bad/one.parquet", "source-unreadable"),
        ("none/*.parquet", "source-empty"),
        ("reads/_tmp/*.parquet", None),
        ("reads/*/*.parquet", "source-empty"),
        ("mixed/*.parquet", "source-schema"),
        ("delta/*.parquet", "source-ambiguous"),
        ("reads", "policy-source"),
        ("reads/", "policy-source"),
        ("reads/*.json", "policy-source"),
    ],
)
def test_an_address_that_is_no_table_is_refused_by_name(source: str, code: str | None) -> None:
    if code is None:
        open_engine(None, named(source)).close()
        return
    with pytest.raises((EngineError, PolicyError)) as caught:
        open_engine(None, named(source))
    assert (caught.value.code, caught.value.place) == (code, "tables.reads")
    assert SECRET_KEY not in str(caught.value) + caught.value.hint
    own = caught.value.__context__  # the same error before it had the policy's line
    assert isinstance(own, EngineError | PolicyError)
    assert own.__context__ is None


def test_the_hint_for_a_folder_works_as_it_stands() -> None:
    with pytest.raises(PolicyError) as caught:
        open_engine(None, named("reads/"))
    advised = caught.value.hint.partition('"')[2].partition('"')[0]
    open_engine(None, named(advised.removeprefix(f"s3://{BUCKET}/"))).close()


def test_a_bucket_without_a_secret_is_refused() -> None:
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id", source="s3://another.invalid/a.parquet")})
    with pytest.raises(EngineError) as caught:
        open_engine(None, policy)
    assert caught.value.code == "source-unreadable"


def test_a_file_in_two_tables_is_refused() -> None:
    one, both = (f"s3://{BUCKET}/reads/{name}.parquet" for name in ("one", "*"))
    policy = Policy(Budget(1, "1e-6"), {"one": PrivateTable("user_id", source=one), "both": PublicTable(source=both)})
    with pytest.raises(PolicyError) as caught:
        open_engine(None, policy)
    assert (caught.value.code, caught.value.place) == ("policy-duplicate-table", "tables.both")


def test_the_connection_of_a_user_reads_with_what_it_has_loaded() -> None:
    with duckdb.connect() as connection:
        connection.execute("LOAD httpfs")
        with dpsql.connect(connection, policy=named("reads/*.parquet"), ledger=":memory:") as session:
            assert len(session.sql(TOP).fetchall()) == 3


def test_a_starter_policy_names_the_address_and_no_credential(tmp_path: Path) -> None:
    starter = write_starter(f"s3://{BUCKET}/days/*/*.parquet")
    assert f'[tables.days]\nsource = "s3://{BUCKET}/days/*/*.parquet"\nprivacy_unit = "user_id"' in starter.text
    assert SECRET_KEY not in starter.text
    assert starter.names_sources
    (tmp_path / "policy.toml").write_text(starter.text)
    check = check_policy(tmp_path / "policy.toml")
    assert [table.source for table in check.tables] == [f"s3://{BUCKET}/days/*/*.parquet"]
    assert starter.first_query is not None
    with dpsql.connect(policy=tmp_path / "policy.toml", ledger=":memory:") as session:
        session.sql(starter.first_query)


def test_nothing_of_an_address_is_materialized(tmp_path: Path) -> None:
    source = f"s3://{BUCKET}/reads/*.parquet"
    table = PrivateTable("user_id", source=source, materialized=[["article"]])
    with pytest.raises(PolicyError) as caught:
        materialize(Policy(Budget(1, "1e-6"), {"reads": table}, materialized=tmp_path / "made"))
    assert caught.value.code == "policy-prepared"
    assert not (tmp_path / "made").exists()


def test_the_secret_of_the_page_is_one_that_duckdb_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sources.md").read_text()
    (block,) = [text for text in page.split("```") if "CREATE PERSISTENT SECRET" in text]
    install, *steps = block.removeprefix("text\n").strip().split(";\n")
    assert install == "INSTALL httpfs"  # which needs the network
    (tmp_path / ".duckdb").mkdir()
    (tmp_path / ".duckdb" / "extensions").symlink_to(Path.home() / ".duckdb" / "extensions")
    monkeypatch.setenv("HOME", str(tmp_path))
    with duckdb.connect() as connection:
        for step in steps:
            connection.execute(step)
        assert connection.execute("SELECT scope FROM duckdb_secrets()").fetchall() == [(["s3://example"],)]
    (file,) = (tmp_path / ".duckdb" / "stored_secrets").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_https_is_read_from_a_server_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    duckdb.sql(f"COPY ({FIRST}) TO '{tmp_path}/files/reads.parquet' (FORMAT parquet)")
    certificate = write_certificate(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranged, directory=str(tmp_path / "files")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"https://localhost:{server.server_address[1]}/reads.parquet"
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id", source=url)})
    try:
        with pytest.raises(EngineError) as caught:
            open_engine(None, policy)
        assert caught.value.code == "source-unreadable"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        engine = open_engine(None, policy)
        assert rows(engine, "count(*) AS n") == [{"n": 3000}]
        engine.close()
    finally:
        server.shutdown()
        server.server_close()


class Ranged(SimpleHTTPRequestHandler):
    """Files of a folder, or parts of them as a client of Parquet asks for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content) - 1) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


def write_certificate(folder: Path) -> Path:
    """Write a certificate of localhost that signs itself, and its key, into one file."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file
