"""Clients of other languages ask this server as they ask PostgreSQL, and pay once for what they ask often."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from support.foreign_clients import Steps, java, node, odbc, psql
from support.server_kit import PASSWORD, TOP, Served, serving

from dpsql.ledger import Request, SQLiteLedger

BY_COUNTRY = "SELECT article FROM reads WHERE country = {place} GROUP BY article TOP 2 PRIVATE"
SLOW = "SELECT country FROM reads WHERE article <> 'slow' GROUP BY country TOP 2 PRIVATE"
SLOWER = SLOW.replace("'slow'", "'slower'")
NOT_CHARGED = "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 1 PRIVATE"
SLOWLY = 3.0  # seconds: a client that gives up does so long before
ARTICLES = ["a0", "a1", "a2"]
JAVA_MODES = "preferQueryMode=extended prepareThreshold=-1 preferQueryMode=simple preferQueryMode=extendedForPrepared"
ODBC_MODES = "UseServerSidePrepare=1 UseServerSidePrepare=0 UseDeclareFetch=1;Fetch=2"
COLUMNS = ["user_id", "article", "country", "ts"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates") / "root.pem"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Served]:
    """Serve over TLS alone, with the catalog that tools see; what is slow takes longer than it does."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(root))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    reserve = SQLiteLedger.reserve

    def slowly(self: SQLiteLedger, request: Request) -> object:
        reserved = reserve(self, request)
        if "slow" in request.query:
            time.sleep(SLOWLY)
        return reserved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteLedger, "reserve", slowly)
        with serving(tmp_path_factory.mktemp("served"), catalog="auto", tls=context) as running:
            yield running


def given(served: Served, root: Path, user: str) -> dict[str, str]:
    """Return what a client is told: where the server is, who asks, and what."""
    return {
        "host": "localhost",
        "port": str(served.port),
        "user": user,
        "password": PASSWORD,
        "database": "events",
        "root": str(root),
        "table": "reads",
        "question": TOP,
        "wrapped": f"SELECT COUNT(*) AS n FROM ({TOP}) AS x",
        "parameter": BY_COUNTRY.format(place="?"),
        "numbered": BY_COUNTRY.format(place="$1"),
        "described": NOT_CHARGED,
        "bound": "SELECT CAST($1 AS bigint) AS a, CAST($2 AS double precision) AS b, CAST($3 AS boolean) AS c, "
        "CAST($4 AS text) AS d, CAST($5 AS text) AS e",
        "not private": "SELECT user_id FROM reads",
        "syntax": "SELECT article FROM reads WHERE TOP 3 PRIVATE",
        "write": "DELETE FROM reads",
        "dear": f"{TOP} WITH (epsilon = 1)",
        "slow": SLOW,
        "slow other": SLOWER,
    }


def check_refusals(steps: Steps, prefix: str = "", suffix: str = "") -> None:
    states = {"not private": "42501", "syntax": "42601", "write": "25006", "dear": "53400"}
    assert {name: steps[f"{prefix}{name}{suffix}"].get("state") for name in states} == states
    told = str(steps[f"{prefix}not private{suffix}"].get("hint", "")) or "TOP 10 PRIVATE"
    assert "TOP 10 PRIVATE" in told


def charged(served: Served, user: str) -> list[str]:
    return [str(text) for text in served.front.service.session(user).history.column("query").to_pylist()]


@pytest.fixture(scope="module")
def jdbc(served: Served, root: Path) -> Steps:
    """Run all of the program of Java once."""
    return java({**given(served, root, "ana"), "modes": JAVA_MODES})


def test_pgjdbc_asks_in_every_mode(jdbc: Steps) -> None:
    modes = JAVA_MODES.split()
    answer = jdbc[f"{modes[0]} statement"]["value"]
    assert [row[0] for row in answer] == ARTICLES
    for mode in modes:
        assert jdbc[f"{mode} statement"]["value"] == answer
        assert jdbc[f"{mode} prepared"]["value"] == [answer] * 7
        assert jdbc[f"{mode} wrapped"]["value"] == [[3]]
        assert jdbc[f"{mode} most rows"]["value"] in (answer[:2], answer)  # the simple protocol has no limit
        assert sorted(row[0] for row in jdbc[f"{mode} parameter"]["value"]) == ["a0", "a1"]
    for name in ("cursor", "read only", "after", "after cancel"):
        assert jdbc[name]["value"] == answer, name


def test_pgjdbc_is_refused_as_postgresql_refuses(jdbc: Steps) -> None:
    check_refusals(jdbc)
    check_refusals(jdbc, suffix=" prepared")
    assert jdbc["failed transaction"]["state"] == "25P02"
    assert jdbc["cancelled"]["state"] == jdbc["time limit"]["state"] == "57014"
    assert jdbc["wrong password"]["state"] == "28P01"


@pytest.mark.usefixtures("jdbc")
def test_pgjdbc_pays_once_for_each_question(served: Served) -> None:
    spent = charged(served, "ana")
    assert sorted(spent) in (
        # what was given up went on before the next was asked; the slower one may have been while it waited for its turn
        sorted([TOP, BY_COUNTRY.format(place="$1"), SLOW]),
        sorted([TOP, BY_COUNTRY.format(place="$1"), SLOW, SLOWER]),
    )
    assert served.front.service.session("ana").sql(SLOW).receipt.replayed
    assert charged(served, "ana") == spent


def test_jdbc_tools_see_the_tables_and_nothing_of_the_rows(jdbc: Steps) -> None:
    assert jdbc["product"]["value"] == "PostgreSQL, ana"
    assert "reads" in jdbc["tables"]["value"]
    assert jdbc["columns"]["value"] == COLUMNS
    for name in ("primary keys", "imported keys", "exported keys", "indices", "best row", "functions", "procedures"):
        assert jdbc[name]["value"] == [], name
    for name in ("version", "table types", "types", "privileges", "client info", "keywords", "valid"):
        assert jdbc[name]["value"] is True, name
    assert jdbc["catalogs"]["value"] == 1
    assert "pg_catalog" in jdbc["schemas"]["value"]
    assert jdbc["name length"]["value"] == 63


def test_jdbc_describes_a_question_and_its_parameters(jdbc: Steps) -> None:
    assert jdbc["question described"]["value"] == ["country text", "n int8"]
    assert jdbc["parameters described"]["value"] in {"text", "varchar"}


def test_jdbc_binds_every_type(jdbc: Steps) -> None:
    bound = {name: step.get("value") for name, step in jdbc.items() if name.startswith("bound ")}
    assert bound == {
        "bound text": "it's über; ? -- $1",
        "bound smallint": "-7",
        "bound integer": "2000000000",
        "bound bigint": "-9000000000000000000",
        "bound double precision": "0.1",
        "bound float8": "1.5",
        "bound boolean": "t",
        "bound date": "2026-02-03",
        "bound timestamp": "2026-02-03 04:05:06.5",
        "bound numeric": "12.500",
        "bound varchar": None,
        "bound int8": "5",
    }


def test_psqlodbc_asks_in_every_mode_and_pays_once(served: Served, root: Path) -> None:
    steps = odbc({**given(served, root, "ben"), "modes": ODBC_MODES})
    [answer] = {str(steps[f"{mode} question"]["value"]) for mode in ODBC_MODES.split()}
    for mode in ODBC_MODES.split():
        for name in ("again", "after", "transaction"):
            assert str(steps[f"{mode} {name}"]["value"]) == answer, (mode, name)
        assert steps[f"{mode} wrapped"]["value"] == [[3]]
        assert sorted(row[0] for row in steps[f"{mode} parameter"]["value"]) == ["a0", "a1"]
        check_refusals(steps, prefix=f"{mode} ")
    assert "reads" in steps["tables"]["value"]
    assert steps["columns"]["value"] == COLUMNS
    assert steps["primary keys"]["value"] == []
    assert steps["types"]["value"] is True
    assert [step["value"] for name, step in steps.items() if name.startswith("bound ")] == [
        [[5_000_000_000]],
        [[7]],
        [[0.1]],
        [["1"]],
        [["it's über"]],
        [["2026-02-03"]],
        [["2026-02-03 04:05:06"]],
        [["12.500"]],
    ]
    assert "password" in str(steps["wrong password"]["message"])
    assert served.charges("ben") == 2


def test_node_postgres_asks_in_every_way_and_pays_once(served: Served, root: Path) -> None:
    steps = node("ask_pg.mjs", given(served, root, "metabase"))
    answer = steps["simple"]["value"]
    assert [row[0] for row in answer] == ARTICLES
    assert steps["columns"]["value"] == [["article", 25], ["n", 20]]
    assert steps["prepared"]["value"] == [answer] * 3
    assert steps["binary"]["value"] == steps["cursor"]["value"] == steps["after"]["value"] == answer
    assert steps["pool"]["value"] == [answer] * 12
    assert steps["wrapped"]["value"] == [["3"]]
    assert steps["several"]["value"] == ["BEGIN", "SELECT", "COMMIT"]
    assert steps["bound"]["value"] == ["7", 1.5, True, "ü", None]
    assert sorted(row[0] for row in steps["parameter"]["value"]) == ["a0", "a1"]
    check_refusals(steps)
    assert steps["in a failed transaction"]["state"] == "25P02"
    assert steps["wrong password"]["state"] == "28P01"
    assert "NOTICE" in steps["notices"]["value"]
    assert served.charges("metabase") == 2


def test_postgres_js_asks_in_every_way_and_pays_once(served: Served, root: Path) -> None:
    steps = node("ask_postgres.mjs", given(served, root, "metabase"))
    answer = steps["simple"]["value"]
    for name in ("prepared", "again", "cursor", "transaction", "after", "after cancel"):
        assert [list(map(str, row)) for row in steps[name]["value"]] == [list(map(str, row)) for row in answer], name
    assert steps["pipelined"]["value"] == [answer] * 12
    assert steps["described"]["value"] == [["country", 25], ["n", 20]]
    check_refusals(steps)
    assert steps["cancelled"]["state"] == "57014"
    assert steps["wrong password"]["state"] == "28P01"
    assert sum("slow" in text for text in charged(served, "metabase")) == 1
    assert served.charges("metabase") == 3


def test_psql_lists_asks_and_copies(served: Served, root: Path) -> None:
    environment = {
        "PGHOST": "localhost",
        "PGPORT": str(served.port),
        "PGUSER": "cleo",
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": "events",
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": str(root),
    }
    told = psql("-c", r"\d reads", "-c", "SHOW BUDGET", environment=environment)
    assert "article|text" in told
    assert "epsilon" in psql("-c", r"\pset tuples_only off", "-c", "SHOW BUDGET", environment=environment)
