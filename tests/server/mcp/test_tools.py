"""MCP over HTTP, by the client of the official SDK: what the tools return, what they charge, and what errors say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from support.mcp_kit import Served, call, open_client, serving_mcp, text_of
from support.server_kit import NAMES, TOP

from dpsql.server.mcp import tools
from dpsql.server.mcp.tools import MAX_ROWS, TOOLS
from dpsql.session import Session


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_mcp(tmp_path_factory.mktemp("mcp")) as found:
        yield found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_learns_the_tools_and_how_to_ask(served: Served, mode: str) -> None:
    async def run() -> tuple[list[str], str | None]:
        async with open_client(served.url, served.token(), mode=mode) as client:
            listed = (await client.list_tools()).tools
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed)
            assert [tool.name for tool in listed if not tool.annotations.read_only_hint] == ["query"]  # type: ignore[union-attr]
            return [tool.name for tool in listed], client.instructions

    names, instructions = asyncio.run(run())
    assert names == list(TOOLS)
    assert instructions == tools.INSTRUCTIONS


def test_a_query_is_charged_once_with_either_version_of_the_protocol(served: Served) -> None:
    first = call(served, "query", token=served.token("ben"), sql=TOP)
    again = call(served, "query", token=served.token("ben"), mode="legacy", sql=TOP)
    values, stored = first.structured_content, again.structured_content
    assert values["columns"] == ["article", "n"]
    assert values["rows"] == stored["rows"]
    assert (values["row_count"], values["truncated"]) == (3, False)
    assert values["interval"]["reach"] > 0
    assert (values["receipt"]["replayed"], stored["receipt"]["replayed"]) == (False, True)
    assert text_of(first).startswith("article | n\na0 | ")
    assert re.search(r"answered 3 of 3; used \d+ % of the budget", text_of(first))
    assert "nothing was charged" in text_of(again)
    assert served.charges("ben") == 1
    assert 'dpsql_statements_total{kind="replay",surface="mcp"} ' in served.front.telemetry.metrics()


@pytest.mark.parametrize("tool", ["query", "explain"])
def test_an_analyst_without_a_share_is_refused(served: Served, tool: str) -> None:
    refused = call(served, tool, token=served.token("bi"), sql=TOP)
    assert refused.is_error
    assert refused.structured_content["error"]["code"] == "no-share"
    assert not call(served, "query", token=served.token("bi"), sql="SELECT * FROM countries").is_error


def test_what_is_free_charges_nothing(served: Served) -> None:
    before = served.charges()
    tables = call(served, "tables")
    assert "reads (private, privacy unit user_id): user_id BIGINT" in text_of(tables)
    assert [table["name"] for table in tables.structured_content["tables"]] == ["reads", "countries", "shop.orders"]
    planned = call(served, "explain", sql=NAMES)
    assert re.match(r"cost: at most [\d.]+ % more of the budget; [\d.]+ % is left\n", text_of(planned))
    assert "such queries: " in text_of(planned)
    assert "engine SQL" not in str(planned.structured_content)
    public = call(served, "explain", sql="SELECT country FROM countries")
    assert (text_of(public), public.structured_content["free"]) == (
        "cost: reads no private row, and costs nothing",
        True,
    )
    rows = call(served, "query", sql="SELECT country FROM countries ORDER BY 1")
    assert rows.structured_content["rows"] == [["DE"], ["FR"], ["TV"]]
    assert "of the budget is used, " in text_of(call(served, "budget"))
    assert served.charges() == before


def test_consent_is_an_argument(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    given, run = list[object](), Session.sql

    def watch(session: Session, *arguments: object, **options: object) -> object:
        given.append(options["consent"])
        return run(session, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "sql", watch)
    for arguments in ({}, {"consent": True}, {"consent": False}):
        call(served, "query", sql="SHOW TABLES", **arguments)
    assert given == [None, True, False]


def test_the_history_and_the_price_know_what_was_asked(served: Served) -> None:
    token = served.token("cleo")
    assert text_of(call(served, "history", token=token)) == "This account has asked nothing yet."
    call(
        served,
        "query",
        token=token,
        sql="SELECT article FROM reads WHERE country = ? GROUP BY article TOP 1 PRIVATE",
        parameters=["DE"],
    )
    history = call(served, "history", token=token, last=5)
    assert re.fullmatch(r"\S+ \S+ answered, used [0-9.]+ % of the budget: SELECT article FROM .*", text_of(history))
    (entry,) = history.structured_content["queries"]
    assert entry["state"] == "answered"
    same = {
        "sql": "SELECT article FROM reads WHERE country = :land GROUP BY article TOP 1 PRIVATE",
        "parameters": {"land": "DE"},
    }
    planned = call(served, "explain", token=token, **same)
    assert text_of(planned).startswith("cost: answered before; asking again costs nothing\n")
    assert planned.structured_content["free"] is True


def test_no_more_rows_are_returned_than_a_model_reads(served: Served) -> None:
    answer = call(
        served,
        "query",
        sql="SELECT c0.country FROM " + ", ".join(f"countries c{i}" for i in range(7)),
    )
    values = answer.structured_content
    assert (len(values["rows"]), values["row_count"], values["truncated"]) == (MAX_ROWS, 3**7, True)
    assert f"only the first {MAX_ROWS} rows are returned" in text_of(answer)


def test_every_statement_in_the_words_for_models_can_be_run(served: Served) -> None:
    assert f"At most {tools.MAX_ROWS:,} rows are returned" in tools.QUERY
    words = tools.INSTRUCTIONS + tools.QUERY
    statements = re.findall(r"^ *(SELECT [^`]*?(?:PRIVATE(?: WITH \(.*\))?|DESC))$", words, re.MULTILINE)
    assert len(statements) == 5
    for statement in statements:
        result = call(served, "explain", sql=statement)
        assert not result.is_error, text_of(result)


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("query", {"sql": "SELECT user_id FROM reads"}, "not-private"),
        ("query", {"sql": "SELECT x FROM reads GROUP BY x TOP 3 PRIVATE"}, "unknown-column"),
        ("query", {"sql": f"{TOP} WITH (epsilon = 9)"}, "option-range"),
        ("explain", {"sql": "SELEC"}, "not-a-query"),
        ("query", {}, "request-malformed"),
        ("query", {"sql": 3}, "request-malformed"),
        ("query", {"sql": ""}, "request-malformed"),
        ("query", {"sql": "SELECT 1 --" + "x" * 900_000}, "request-malformed"),
        ("query", {"sql": "SELECT 1", "parameters": [[1]]}, "request-malformed"),
        ("query", {"sql": "SELECT 1", "parameters": list(range(3000))}, "request-malformed"),
        ("query", {"sql": "SELECT 1", "password": "x" * 3000}, "request-malformed"),
        ("history", {"last": 0}, "request-malformed"),
        ("history", {"last": 1.5}, "request-malformed"),
        ("tables", {"schema": "x"}, "request-malformed"),
        ("drop", {}, "no-such-tool"),
        ("x" * 10_000, {}, "no-such-tool"),
        ("", {}, "no-such-tool"),
    ],
)
def test_what_is_not_answered_is_an_error_of_the_tool(
    served: Served, tool: str, arguments: dict[str, object], code: str
) -> None:
    before = served.charges()
    result = call(served, tool, **arguments)
    assert result.is_error
    error = result.structured_content["error"]
    assert error["code"] == code
    assert error["hint"]
    assert text_of(result).startswith(f"[{code}]")
    assert text_of(result).endswith("\nNothing was charged.")
    assert len(text_of(result)) < 1000
    assert "Traceback" not in text_of(result)
    assert served.charges() == before


def test_a_short_budget_is_said_and_not_charged(served: Served) -> None:
    token = served.token("metabase")
    for k in range(20, 60):  # noise decides how much each of them is charged
        result = call(
            served,
            "query",
            token=token,
            sql=f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (epsilon = 0.08)",
        )
        if result.is_error:
            break
    assert result.structured_content["error"]["code"] == "budget-exceeded"
    assert "Nothing was charged." in text_of(result)


def test_a_fault_is_one_sentence(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("secret-value")

    monkeypatch.setattr("dpsql.server.http_requests.tables_table", fail)
    result = call(served, "tables")
    assert result.structured_content["error"]["code"] == "server-failed"
    assert "secret-value" not in text_of(result) + served.log.getvalue()
    assert '"event": "fault", "surface": "mcp"' in served.log.getvalue()


def test_a_named_answer_is_listed_as_free_to_its_account_alone(served: Served) -> None:
    cleo = served.token("cleo")
    call(served, "query", token=cleo, sql=f"{TOP} WITH (name = 'mine')")
    before = served.charges("cleo")
    assert "answers.mine (answer, free): article VARCHAR, n BIGINT" in text_of(call(served, "tables", token=cleo))
    assert call(served, "query", token=cleo, sql="SELECT * FROM answers.mine").structured_content["row_count"] == 3
    assert "answers.mine" not in text_of(call(served, "tables"))
    assert call(served, "query", sql="SELECT * FROM answers.mine").is_error
    assert served.charges("cleo") == before


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_cancelled_statement_that_is_free_is_stopped(served: Served, mode: str) -> None:
    """The endless statement would hold one of the few places for public statements."""
    endless = "SELECT COUNT(*) FROM " + ", ".join(f"countries c{i}" for i in range(30))

    async def run() -> None:
        async with open_client(served.url, served.token(), mode=mode) as client:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.call_tool("query", {"sql": endless}), 0.5)
            result = await client.call_tool("query", {"sql": "SELECT COUNT(*) AS n FROM countries"})
            assert result.structured_content["rows"] == [[3]]

    asyncio.run(asyncio.wait_for(run(), 60))
