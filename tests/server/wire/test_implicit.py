"""Standard SQL read as private over PostgreSQL's wire: the setting, and the statements of chart builders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest
from support.chart_kit import CREATE, DEFAULT_K, POLICY, PUBLIC, ROWS, Chart, read_charts
from support.fuzzing import WHOLE
from support.server_kit import ACCOUNTS, Served, serving

FIXTURES = Path(__file__).parents[2] / "unit" / "session" / "fixtures"


def sample(charts: list[Chart]) -> list[Chart]:
    """Return a chart of each reading and each refusal: tests/unit/session reads all of them, without a server."""
    first = {(chart.reading, chart.refused, chart.rows is None): chart for chart in reversed(charts)}
    return charts if WHOLE else list(first.values())


SENT = read_charts(FIXTURES / "superset.sql")
CHARTS = {
    "written": sample(read_charts(FIXTURES / "charts.sql")),
    "dpsql": sample([chart for chart in SENT if chart.name.startswith("dpsql: ")]),
    "PostgreSQL": sample([chart for chart in SENT if chart.name.startswith("PostgreSQL: ")]),
}
TOTAL = "SELECT COUNT(*) AS n FROM orders"
READ_AS = "read as PRIVATE"


def make_charts(folder: Path) -> Path:
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        for statement in (CREATE, ROWS, PUBLIC):
            connection.execute(statement)
    return folder


@contextmanager
def serving_charts(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("support.server_kit.make_data", make_charts)
        accounts = ACCOUNTS.replace("epsilon = 1.0\n", "epsilon = 95\n")
        with serving(folder, policy=POLICY.format(implicit="false") + accounts) as found:
            yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_charts(tmp_path_factory.mktemp("implicit")) as found:
        yield found


@pytest.fixture(scope="module", params=CHARTS)
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server for the charts of one kind: its budget is enough for these."""
    with serving_charts(tmp_path_factory.mktemp("dashboard")) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[psycopg.Connection]:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        yield connection


def shown(client: psycopg.Connection) -> object:
    return client.execute("SHOW dpsql.implicit").fetchone()


def is_refused(client: psycopg.Connection, text: str = TOTAL) -> bool:
    try:
        client.execute(text)
    except psycopg.Error as error:
        assert "[not-private]" in str(error.diag.message_primary)  # noqa: PT017 - whether it is refused is the answer
        return True
    return False


def test_a_notice_says_that_a_list_is_cut_also_of_a_view(client: psycopg.Connection) -> None:
    client.execute("SET dpsql.implicit = on")
    notices = list[str]()
    client.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    counts = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"
    client.execute(f"{counts} ORDER BY product").fetchall()
    assert any(
        notice.startswith("the 5 most frequent of all groups; write ORDER BY n DESC LIMIT 5") for notice in notices
    )
    notices.clear()
    client.execute(f"CREATE TEMPORARY VIEW counted AS {counts}")
    client.execute("SELECT product, RANK() OVER (ORDER BY n DESC) AS place FROM counted").fetchall()
    assert any(notice.startswith("the 5 most frequent of all groups") for notice in notices)
    with pytest.raises(psycopg.Error) as refused:
        client.execute("SELECT product, n / SUM(n) OVER () AS share FROM counted")
    assert refused.value.diag.message_hint is not None
    pasted = refused.value.diag.message_hint.partition(": ")[2]
    assert "(SELECT COUNT(*, contribution_bounds_per_group => (0, 250)) FROM orders)" in pasted
    found = client.execute(pasted).fetchall()
    assert all(0 < share < 1 for _, share in found)  # no whole division


@pytest.mark.parametrize("text", ["= on", "TO on", "= true", "TO 'ON'", "= yes"])
def test_the_setting_is_turned_on_and_off(text: str, client: psycopg.Connection) -> None:
    assert shown(client) == ("off",)
    assert is_refused(client)
    client.execute(f"SET dpsql.implicit {text}")
    assert shown(client) == ("on",)
    notices = list[str]()
    client.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    assert len(client.execute(TOTAL).fetchall()) == 1
    assert any(READ_AS in notice for notice in notices)
    client.execute("SET dpsql.implicit = off")
    assert is_refused(client)
    client.execute("SET dpsql.implicit = on; RESET dpsql.implicit")
    assert shown(client) == ("off",)
    assert is_refused(client)


def test_the_setting_is_one_of_the_connection(served: Served, client: psycopg.Connection) -> None:
    client.execute("SET dpsql.implicit = on")
    with psycopg.connect(served.conninfo(), autocommit=True) as other:
        assert is_refused(other)
    client.execute("BEGIN; SET LOCAL dpsql.implicit = off")
    assert is_refused(client)
    client.execute("ROLLBACK")
    assert not is_refused(client)


def test_setting_it_is_free(served: Served, client: psycopg.Connection) -> None:
    before = served.charges()
    client.execute("SET dpsql.implicit = on")
    client.execute("SHOW ALL")
    assert served.charges() == before


def test_another_value_is_refused(client: psycopg.Connection) -> None:
    with pytest.raises(psycopg.Error) as caught:
        client.execute("SET dpsql.implicit = maybe")
    assert caught.value.sqlstate == "22023"
    hint = caught.value.diag.message_hint
    assert hint == "SET dpsql.implicit = on"
    client.execute(hint)
    assert shown(client) == ("on",)


def test_a_url_turns_it_on(served: Served) -> None:
    for url in (
        f"{served.url()}?options=-c%20dpsql.implicit%3Don",
        f"{served.url()}?options=--dpsql.implicit%3Dtrue",
    ):
        with psycopg.connect(url, autocommit=True) as client:
            assert shown(client) == ("on",)
            assert not is_refused(client)
            client.execute("DISCARD ALL")
    with pytest.raises(psycopg.Error):
        psycopg.connect(f"{served.url()}?options=-c%20dpsql.implicit%3Dmaybe")


def test_a_prepared_statement_has_its_parameters(client: psycopg.Connection) -> None:
    client.execute("SET dpsql.implicit = on")
    text = "SELECT product, COUNT(*) AS n FROM orders WHERE amount > %s GROUP BY product ORDER BY n DESC LIMIT %s"
    for _ in range(2):
        assert len(client.execute(text, [10.0, 2], prepare=True).fetchall()) == 2


def test_differential_privacy_needs_no_setting(client: psycopg.Connection) -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) COUNT(*) AS n FROM orders"
    assert len(client.execute(text).fetchall()) == 1


@pytest.mark.parametrize(
    ("dashboard", "chart"),
    [
        pytest.param(kind, chart, id=f"{kind}-{chart.name}")
        for kind, charts in CHARTS.items()
        for chart in sample(charts)
    ],
    indirect=["dashboard"],
)
def test_a_chart_is_read_as_the_file_says(chart: Chart, dashboard: Served) -> None:
    notices = list[str]()
    with psycopg.connect(dashboard.conninfo(), autocommit=True) as client:
        client.execute("SET dpsql.implicit = on")
        client.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        if chart.refused:
            with pytest.raises(psycopg.Error) as refused:
                client.execute(chart.sql)
            assert f"[{chart.refused}]" in str(refused.value.diag.message_primary)
            assert refused.value.diag.message_hint
            assert not notices
            return
        rows = client.execute(chart.sql).fetchall()
    assert len(rows) == chart.rows if chart.rows is not None else len(rows) <= DEFAULT_K
    assert any(f"read as {chart.reading}" in notice for notice in notices)
