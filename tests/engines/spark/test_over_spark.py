"""The surfaces over Spark: the command, a session with its ledger and the server are what they are over DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.engine_kit_spark import OPTIONS, URL, folder
from support.web_kit import PASSWORD, World

import dpsql
from dpsql.cli import app
from dpsql.policy import Policy
from dpsql.server.gateway import Gateway, Service
from dpsql.server.limits import Throttle
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import User, Users, add_user
from dpsql.server.web import application

TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE"
POLICY = """\
ledger = "ledger.sqlite"
[source]
url = "{url}"
[source.options]
{options}
[budget]
epsilon = 4.0
delta = 1e-6
items = 100
queries = 20
[tables.reads]
source = "reads.parquet"
privacy_unit = "user_id"
[tables.sections]
source = "sections.parquet"
public = true
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a policy over Parquet, the rows in a folder as Spark writes them."""
    settings = {**OPTIONS, "spark.sql.warehouse.dir": str(folder())}
    options = "\n".join(f'"{name}" = "{value}"' for name, value in settings.items())
    (tmp_path / "spark.toml").write_text(POLICY.format(url=URL, options=options))
    (tmp_path / "reads.parquet").mkdir()
    rows = [(user, f"a{article}") for article in range(3) for user in range(3000 - 1000 * article)]
    reads = {"user_id": [user for user, _ in rows], "article": [article for _, article in rows]}
    pq.write_table(pa.table(reads), tmp_path / "reads.parquet" / "part-0.parquet")
    sections = pa.table({"article": ["a0", "a1", "a2"], "section": ["news", "news", "sport"]})
    pq.write_table(sections, tmp_path / "sections.parquet")
    return tmp_path


@pytest.fixture
def world(place: Path) -> Iterator[World]:
    add_user(place / "users.toml", User("alice", is_curator=False), password=PASSWORD)
    log = StringIO()
    with closing(Service(None, Policy.from_toml(place / "spark.toml"))) as service:
        front = Gateway(service, Users(place / "users.toml"), Telemetry(log), Throttle(100))
        yield World(place, front, application(front, secure=False), log)


def test_a_question_from_the_shell(place: Path) -> None:
    ask = CliRunner().invoke(app, ["query", "--policy", str(place / "spark.toml"), "--format", "json", TOP])
    assert ask.exit_code == 0, ask.output
    assert [row[0] for row in json.loads(ask.stdout)["rows"]] == ["a0", "a1"]
    check = CliRunner().invoke(app, ["check", "--policy", str(place / "spark.toml")])
    assert check.exit_code == 0
    assert "reads: every user_id" in check.stdout


def test_a_session_charges_once_and_explains_in_sparks_sql(place: Path) -> None:
    with dpsql.connect(policy=place / "spark.toml") as session:
        first = session.sql(TOP)
        assert first.receipt.isolation == "remote"
        plan = session.explain(TOP)
        assert "`dpsql_unit`" in str(plan)
    with dpsql.connect(policy=place / "spark.toml") as session:
        again = session.sql(TOP)
        assert again.arrow() == first.arrow()
        assert session.history.num_rows == 1
        joined = session.sql(
            "SELECT section, COUNT(DISTINCT user_id) AS n FROM reads JOIN sections USING (article) "
            "WHERE section <> 'sport' GROUP BY section TOP 1 PRIVATE"
        )
        assert joined.arrow().column("section").to_pylist() == ["news"]
        public = session.sql("SELECT section, count(*) AS n FROM sections GROUP BY section ORDER BY section")
        assert public.arrow().to_pydict() == {"section": ["news", "sport"], "n": [2, 1]}


def test_the_server_answers_and_charges_once(world: World) -> None:
    client, body = world.client(), {"sql": TOP}
    first, again = (client.post("/api/v1/query", json=body, auth=("alice", PASSWORD)) for _ in range(2))
    assert first.status_code == again.status_code == 200, first.text
    assert first.json()["rows"] == again.json()["rows"]
    assert world.charges() == 1
