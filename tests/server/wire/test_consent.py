"""Consent over PostgreSQL's wire: the setting, plans that only warn, and answers that are stored."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.server_kit import ACCOUNTS, Served, serving
from support.surfaces_kit import POLICY

LIST = "SELECT article FROM reads WHERE article <> '{}' GROUP BY article TOP 50 PRIVATE"
SMALL = POLICY.replace("columns = [", "population = 400\ncolumns = [", 1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("consent"), policy=SMALL + ACCOUNTS) as found:
        yield found


@pytest.fixture(params=["ana", "ben"])
def client(served: Served, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    with psycopg.connect(served.conninfo(request.param), autocommit=True) as connection:
        yield connection


def shown(client: psycopg.Connection) -> object:
    return client.execute("SHOW dpsql.consent").fetchone()


def refused(client: psycopg.Connection, text: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    assert "[consent]" in str(caught.value.diag.message_primary)
    return caught.value


def test_the_setting_gives_consent_and_takes_it_back(client: psycopg.Connection) -> None:
    text, other = LIST.format("x"), LIST.format("y")
    error = refused(client, text)
    assert error.sqlstate == "42501"
    hint = str(error.diag.message_hint)
    assert hint.startswith("To run it all the same, end the private query with TOP 50 PRIVATE WITH (consent = true).")
    assert error.diag.statement_position is not None
    assert shown(client) == ("off",)
    client.execute("SET dpsql.consent = on")
    assert shown(client) == ("on",)
    assert ("dpsql.consent", "on") in [row[:2] for row in client.execute("SHOW ALL").fetchall()]
    client.execute(text).fetchall()
    client.execute("RESET dpsql.consent")
    assert shown(client) == ("off",)
    client.execute(text).fetchall()  # it is stored
    refused(client, other)


def test_a_plan_and_a_description_ask_for_nothing(client: psycopg.Connection) -> None:
    text = LIST.format("z")
    facts = dict(client.execute(f"EXPLAIN {text}").fetchall())
    assert facts["warning"].startswith("Each article needs about ")
    assert facts["consent"] == "It is run only with consent, such as WITH (consent = true)."
    client.execute("SET dpsql.consent = on")
    assert "consent" not in dict(client.execute(f"EXPLAIN {text}").fetchall())
    with client.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({text}) AS x LIMIT 0")  # as tools send it
        assert cursor.description is not None
        assert [column.name for column in cursor.description] == ["article"]


def test_other_values_are_refused_and_a_url_sets_it(served: Served) -> None:
    with psycopg.connect(f"{served.url('cleo')}?options=-c%20dpsql.consent%3Don", autocommit=True) as client:
        assert shown(client) == ("on",)
        client.execute(LIST.format("u")).fetchall()
        with pytest.raises(psycopg.Error) as caught:
            client.execute("SET dpsql.consent = perhaps")
        assert (caught.value.sqlstate, caught.value.diag.message_hint) == ("22023", "SET dpsql.consent = on")


def test_a_panel_that_is_refused_is_refused_once_with_a_hint(client: psycopg.Connection) -> None:
    """A refresh runs each panel by itself: the others are answered."""
    notices = list[object]()
    client.add_notice_handler(notices.append)
    refused(client, LIST.format("w"))
    assert not notices
    assert client.execute("SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE").fetchone()
