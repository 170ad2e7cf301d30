"""The JSON API: what it answers, whom, what it takes, and that its document says the same."""

from __future__ import annotations

import csv
import io
import json
import warnings
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient
from support.fuzzing import examples
from support.web_kit import COUNTS, PASSWORD, World, proof

from dpsql.server.http_requests import LONGEST_BODY
from dpsql.server.users import SCOPES, StoredToken, add_token, remove_token
from dpsql.server.web.api import ARROW, CSV, JSON, OPERATIONS, RECEIPT, choose_type
from dpsql.session import Session

ALICE, CLARA = ("alice", PASSWORD), ("clara", PASSWORD)
BY_ITEM = f"{COUNTS} WITH (mechanism = limited_domain)"  # which costs an item for each name and count
GRANT = {"epsilon": 5, "delta": "1.25e-6", "note": "agreed"}


@pytest.fixture
def client(world: World) -> TestClient:
    return world.client()


def post(client: TestClient, name: str, body: object, auth: tuple[str, str] = ALICE) -> dict[str, object]:
    answer = client.post(f"/api/v1/{name}", json=body, auth=auth)
    assert answer.status_code in {200, 201}, answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def test_a_query_is_answered_with_its_receipt_and_charged_once(client: TestClient, world: World) -> None:
    first = post(client, "query", {"sql": BY_ITEM})
    again = post(client, "query", {"sql": BY_ITEM})
    assert first["columns"] == ["article", "n"]
    assert first["rows"] == again["rows"]
    assert first["interval"] == {"level": 0.95, "reach": 38, "columns": [1]}
    assert first["receipt"]["items_charged"] == 6  # type: ignore[index]
    assert again["receipt"]["replayed"] is True  # type: ignore[index]
    assert world.charges() == 1


@pytest.mark.parametrize("name", ["query", "explain"])
def test_an_analyst_without_a_share_is_refused(client: TestClient, world: World, name: str) -> None:
    answer = client.post(f"/api/v1/{name}", json={"sql": COUNTS}, auth=("bi", PASSWORD))
    assert (answer.status_code, answer.json()["code"]) == (403, "no-share")
    assert len(post(client, "query", {"sql": "SELECT * FROM countries"}, auth=("bi", PASSWORD))["rows"]) == 1  # type: ignore[arg-type]
    assert client.get("/api/v1/budget", auth=("bi", PASSWORD)).status_code == 200
    assert world.charges() == 0
    browser = world.login("bi")
    for path in ("/", "/history", "/tables"):
        assert browser.get(path).status_code == 200
    asked = browser.post("/preview", data={"text": COUNTS, "proof": proof(browser)})
    assert "bi has no share of the budget" in asked.text


def test_an_answer_comes_as_arrow_where_that_is_asked_for(client: TestClient) -> None:
    answer = client.post("/api/v1/query", json={"sql": BY_ITEM}, auth=ALICE, headers={"accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column_names == ["article", "n"]
    assert json.loads(table.schema.metadata[b"dpsql.receipt"])["items_charged"] == 6


def test_an_answer_comes_as_csv_where_that_is_preferred(client: TestClient, world: World) -> None:
    answer = client.post("/api/v1/query", json={"sql": BY_ITEM}, auth=ALICE, headers={"accept": CSV})
    assert answer.headers["content-type"] == "text/csv; header=present; charset=utf-8"
    header, *rows = csv.reader(io.StringIO(answer.text))
    same = post(client, "query", {"sql": BY_ITEM})
    assert header == same["columns"]
    shown = [[str(cell).replace("\u202e", "\ufffd") for cell in row] for row in same["rows"]]  # type: ignore[attr-defined]
    assert rows == shown
    receipt = json.loads(answer.headers[RECEIPT])
    assert (receipt["replayed"], receipt["items_charged"], receipt["bounded_by"]) == (False, 6, None)
    assert receipt["words"].startswith("answered 3 of 3")
    wrong = client.post("/api/v1/query", json={"sql": "SELECT 1 FROM"}, auth=ALICE, headers={"accept": CSV})
    assert wrong.headers["content-type"] == "application/problem+json"
    assert world.charges() == 1


def test_cells_of_csv_are_data_also_where_a_spreadsheet_reads_a_formula(client: TestClient) -> None:
    sql = "SELECT '=1+1' AS a, '+1' AS b, '-1' AS c, '@x' AS d, country FROM countries"
    answer = client.post("/api/v1/query", json={"sql": sql}, auth=ALICE, headers={"accept": CSV})
    assert next(csv.reader(io.StringIO(answer.text.splitlines()[1]))) == ["=1+1", "+1", "-1", "@x", "DE"]
    quoted = {"sql": sql, "quote_formulas": True}
    answer = client.post("/api/v1/query", json=quoted, auth=ALICE, headers={"accept": CSV})
    assert next(csv.reader(io.StringIO(answer.text.splitlines()[1]))) == ["'=1+1", "'+1", "'-1", "'@x", "DE"]
    assert client.post("/api/v1/query", json={"sql": sql, "quote_formulas": "yes"}, auth=ALICE).status_code == 400
    assert client.post("/api/v1/explain", json=quoted, auth=ALICE).status_code == 400


def test_csv_has_no_control_character_that_a_terminal_obeys(client: TestClient) -> None:
    sql = "SELECT chr(27) || '[2Jx' AS a, chr(155) || '31m' AS b, 'é' || chr(9) || chr(10) AS c"
    answer = client.post("/api/v1/query", json={"sql": sql}, auth=ALICE, headers={"accept": CSV})
    assert answer.text == '"a","b","c"\n"\ufffd[2Jx","\ufffd31m","é\t\n"\n'
    assert post(client, "query", {"sql": sql})["rows"] == [["\x1b[2Jx", "\x9b31m", "é\t\n"]]


def test_a_receipt_that_is_too_long_for_a_header_is_cut_to_its_numbers(client: TestClient) -> None:
    labels = ", ".join(f"'{'ä' * 100}{number}'" for number in range(40))
    sql = f"SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE article NOT IN ({labels}) GROUP BY article "
    sql += "TOP 3 PRIVATE WITH (max_groups_contributed = 2)"
    answer = client.post("/api/v1/query", json={"sql": sql}, auth=ALICE, headers={"accept": CSV})
    assert answer.status_code == 200, answer.text
    assert len(answer.headers[RECEIPT]) <= 4096
    assert json.loads(answer.headers[RECEIPT])["bounded_by"] == 2


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/html", JSON),
        ("text/csv", CSV),
        ("TEXT/CSV", CSV),
        ("text/csv;q=0.5, application/json", JSON),
        ("text/csv, application/json;q=0.5", CSV),
        ("text/csv, */*", JSON),
        ("text/csv, */*;q=0.1", CSV),
        (f"{ARROW}, text/csv;q=0.9, */*;q=0.1", ARROW),
        ("text/csv;q=0", JSON),
        ("text/csv;q=nan", JSON),
        ("text/csv;q=9", JSON),
        (";;;,,q=1", JSON),
    ],
)
def test_a_client_says_which_type_it_prefers(accept: str, kind: str) -> None:
    assert choose_type(accept) == kind


def test_the_document_can_be_read_in_a_browser_without_scripts(client: TestClient) -> None:
    answer = client.get("/api/docs")
    assert answer.headers["content-type"].startswith("text/html")
    for operation in OPERATIONS:
        assert f'href="#{operation.name}"' in answer.text
        assert f'id="{operation.name}"' in answer.text
    assert "text of at most 16,384 characters" in answer.text
    assert "list of text, numbers, true, false or null" in answer.text
    assert "whole number from 1 to 1,000,000" in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_an_answer_of_very_many_rows_comes_as_arrow_or_csv_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.server.web.api.MOST_JSON_ROWS", 2)
    refused = client.post("/api/v1/query", json={"sql": COUNTS}, auth=ALICE)
    assert (refused.status_code, refused.json()["code"]) == (422, "answer-too-long")
    answer = client.post("/api/v1/query", json={"sql": COUNTS}, auth=ALICE, headers={"accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert (table.num_rows, json.loads(table.schema.metadata[b"dpsql.receipt"])["items_charged"]) == (3, 0)
    assert len(post(client, "query", {"sql": f"SELECT * FROM ({COUNTS}) AS x LIMIT 2"})["rows"]) == 2  # type: ignore[arg-type]


def test_parameters_are_bound(client: TestClient) -> None:
    text = "SELECT article FROM reads WHERE country = ? GROUP BY article TOP 2 PRIVATE"
    named = post(client, "explain", {"sql": text.replace("?", ":land"), "parameters": {"land": "DE"}})
    assert named["mechanism"] == "two_looks"
    assert post(client, "query", {"sql": text, "parameters": ["DE"]})["columns"] == ["article"]
    wrong = client.post("/api/v1/query", json={"sql": text, "parameters": [["DE"]]}, auth=ALICE)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "request-malformed")


def test_what_is_told_of_a_query_is_free(client: TestClient, world: World) -> None:
    told = post(client, "explain", {"sql": COUNTS, "times": 30})
    assert told["fits"] == {"times": 30, "all": False, "at_worst": 16, "at_half": 19}
    columns = post(client, "describe", {"sql": COUNTS})["columns"]
    assert columns == [{"name": "article", "type": "string"}, {"name": "n", "type": "int64"}]
    tables = client.get("/api/v1/tables", auth=ALICE).json()["tables"]
    assert [table["name"] for table in tables] == ["reads", "countries"]
    assert world.charges() == 0


def test_an_analyst_reads_their_own_budget_and_history(client: TestClient) -> None:
    post(client, "query", {"sql": COUNTS})
    budget = client.get("/api/v1/budget", auth=ALICE).json()
    assert [row["measure"] for row in budget["measures"]] == ["rho", "delta", "items of epsilon 0.0817"]
    tiles = {each["tile"]: each for each in budget["tiles"]}
    assert list(tiles) == ["names", "names_with_counts", "totals", "series"]
    assert tiles["totals"]["words"] == "totals"
    assert all(each["granted"] == each["spent"] + each["remaining"] > each["remaining"] > 0 for each in tiles.values())
    assert budget["free"] == {"stored_answers": 1, "published_tables": 0}
    assert client.get("/api/v1/budget", auth=("both", PASSWORD)).json()["free"]["stored_answers"] == 0
    assert [row["query"] for row in client.get("/api/v1/history?last=5", auth=ALICE).json()["queries"]] == [COUNTS]
    assert client.get("/api/v1/history", auth=("both", PASSWORD)).json() == {"queries": []}


def test_a_curator_reads_what_was_spent_grants_and_verifies(client: TestClient) -> None:
    post(client, "query", {"sql": COUNTS})
    client.post("/api/v1/query", json={"sql": "SELECT user_id FROM reads"}, auth=ALICE)
    spent = client.get("/api/v1/spending", auth=CLARA).json()
    assert [query["account"] for query in spent["queries"]] == ["alice"]
    assert client.get("/api/v1/refusals", auth=CLARA).json()["refusals"][0]["code"] == "not-private"
    granted = post(client, "grants", GRANT, CLARA)
    assert (granted["before"], granted["now"]) == ({"epsilon": 4.0, "delta": 1e-6}, {"epsilon": 5.0, "delta": 1.25e-6})
    assert client.get("/api/v1/verification", auth=CLARA).json()["events"] > 3


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_who_may_use_what(client: TestClient, operation: object) -> None:
    bodies = {"grant": GRANT, "query": {"sql": COUNTS}, "explain": {"sql": COUNTS}, "describe": {"sql": COUNTS}}
    method, path, name = (getattr(operation, each) for each in ("method", "path", "name"))
    only = bool(getattr(operation, "curators_only", None))

    def status(auth: tuple[str, str] | None) -> int:
        return client.request(method, f"/api/v1{path}", json=bodies.get(name), auth=auth).status_code

    anybody = name in {"token", "endToken"}
    assert status(None) == 401
    assert status(("alice", "wrong")) == 401
    assert status(("nobody", PASSWORD)) == 401
    assert (status(ALICE) < 300) == (not only)
    assert (status(CLARA) < 300) == (only or anybody)


def test_a_password_is_exchanged_for_a_token_which_ends(client: TestClient) -> None:
    token = post(client, "token", None)["token"]
    bearer = {"authorization": f"Bearer {token}"}
    assert client.get("/api/v1/budget", headers=bearer).status_code == 200
    assert client.post("/api/v1/token", headers=bearer).status_code == 401
    assert client.delete("/api/v1/token", headers=bearer).status_code == 204
    assert client.get("/api/v1/budget", headers=bearer).status_code == 401


def test_a_token_does_what_its_scopes_say_and_no_more(client: TestClient, world: World) -> None:
    def status(token: object, method: str, path: str, body: object = None) -> int:
        headers = {"authorization": f"Bearer {token}"}
        answer = client.request(method, f"/api/v1{path}", json=body, headers=headers)
        assert answer.status_code != 403 or answer.json()["code"] in {"token-scope", "curators-only"}
        return answer.status_code

    made = {scope: post(client, "token", {"scopes": [scope]}, ("both", PASSWORD))["token"] for scope in SCOPES}
    assert status(made["read"], "POST", "/explain", {"sql": COUNTS}) == 200
    assert status(made["read"], "POST", "/query", {"sql": COUNTS}) == 403
    for text in ("SELECT 1", "SELECT country FROM countries", "SHOW BUDGET", f"EXPLAIN {COUNTS}"):
        assert status(made["read"], "POST", "/query", {"sql": text}) == 200
    assert status(made["read"], "GET", "/spending") == 403
    assert status(made["query"], "GET", "/budget") == 403
    assert status(made["curate"], "GET", "/spending") == 200
    assert status(made["curate"], "GET", "/tables") == 403
    assert client.get("/metrics", headers={"authorization": f"Bearer {made['read']}"}).status_code == 403
    assert client.get("/metrics", headers={"authorization": f"Bearer {made['curate']}"}).status_code == 200
    assert world.charges() == 0
    refusals = [(one.code, one.analyst) for one in world.front.telemetry.refusals(10)]
    assert refusals == [("token-scope", "both")] * 4  # /tables, /budget, /spending and the query that is not free
    assert world.log.getvalue().count('"code": "token-scope"') == 4
    assert status(made["query"], "POST", "/query", {"sql": COUNTS}) == 200
    assert world.charges() == 1
    assert status(made["read"], "POST", "/query", {"sql": COUNTS}) == 200  # stored
    assert world.charges() == 1
    assert status(made["read"], "DELETE", "/token") == 204
    assert status(made["read"], "GET", "/budget") == 401
    unknown = client.get("/api/v1/budget", headers={"authorization": f"Bearer {made['read']}"}).json()
    assert (unknown["code"], unknown["reason"]) == (
        "login-required",
        "This token is unknown, was revoked or has expired.",
    )
    assert [
        line["surface"]
        for line in map(json.loads, world.log.getvalue().splitlines())
        if line["event"] == "login-failed"
    ] == ["web", "web"]


def test_a_token_without_named_scopes_has_those_of_an_analyst(client: TestClient) -> None:
    made = post(client, "token", None, ("both", PASSWORD))
    assert made["scopes"] == ["query", "read"]
    assert client.get("/api/v1/refusals", headers={"authorization": f"Bearer {made['token']}"}).status_code == 403
    refused = client.post("/api/v1/token", json={"scopes": ["curate"]}, auth=ALICE)
    assert (refused.status_code, refused.json()["code"]) == (403, "curators-only")
    for scopes in ([], ["all"], "read", [["read"]]):
        assert client.post("/api/v1/token", json={"scopes": scopes}, auth=ALICE).status_code == 400


def test_a_token_of_the_file_of_users_opens_the_api(client: TestClient, world: World) -> None:
    users = world.folder / "users.toml"
    token = add_token(users, StoredToken("alice", "script", frozenset({"read"})))
    world.front.users.reload()
    bearer = {"authorization": f"Bearer {token}"}
    assert client.get("/api/v1/budget", headers=bearer).status_code == 200
    assert client.post("/api/v1/query", json={"sql": COUNTS}, headers=bearer).status_code == 403
    assert token not in users.read_text()
    kept = client.delete("/api/v1/token", headers=bearer)
    assert (kept.status_code, kept.json()["code"]) == (422, "token-stored")
    assert kept.json()["hint"].endswith('dpsql user revoke alice "script"')
    remove_token(users, "alice", label="script")
    world.front.users.reload()
    assert client.get("/api/v1/budget", headers=bearer).status_code == 401


def test_a_cookie_is_no_token_and_a_token_no_cookie(world: World) -> None:
    browser, client = world.login(), world.client()
    (cookie,) = (each.value for each in browser.cookies.jar)
    assert client.get("/api/v1/budget", headers={"authorization": f"Bearer {cookie}"}).status_code == 401
    token = post(client, "token", None)["token"]
    stored = add_token(world.folder / "users.toml", StoredToken("alice", "script", frozenset({"read", "query"})))
    world.front.users.reload()
    for each in (token, stored):
        assert client.get("/tables", headers={"cookie": f"dpsql={each}"}).headers["location"] == "/login"
    assert browser.get("/tables").status_code == 200


def test_a_cookie_alone_asks_nothing(world: World) -> None:
    client = world.login()
    assert client.get("/api/v1/budget").status_code == 401
    assert client.post("/api/v1/query", json={"sql": COUNTS}).status_code == 401


@pytest.mark.parametrize("header", ["", "Basic", "Basic !!", "Basic YWxpY2U=", "Basic /////w==", "Bearer", "Digest x"])
def test_a_header_that_says_nothing_lets_nobody_in(client: TestClient, header: str) -> None:
    answer = client.get("/api/v1/budget", headers={"authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_refusal_is_a_problem_with_code_reason_hint_and_place(client: TestClient, world: World) -> None:
    answer = client.post("/api/v1/query", json={"sql": "SELECT x FROM reads TOP 3 PRIVATE"}, auth=ALICE)
    assert answer.status_code == 422
    assert answer.json() == {
        "type": "urn:dpsql:unknown-column",
        "title": "Refusal",
        "status": 422,
        "detail": answer.json()["reason"],
        "code": "unknown-column",
        "reason": answer.json()["reason"],
        "hint": answer.json()["hint"],
        "place": {"line": 1, "column": 8, "fragment": "x"},
    }
    poor = ("poor", PASSWORD)
    short = client.post("/api/v1/query", json={"sql": f"{COUNTS} WITH (epsilon = 0.5)"}, auth=poor)
    assert (short.status_code, short.json()["code"]) == (409, "budget-exceeded")
    assert world.charges() == 0


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"sql": NaN}', "application/json", 400),
        (b'{"sql": "SELECT 1", "times": ' + b"1" * 5000 + b"}", "application/json", 400),
        (b'{"sql": "SELECT 1", "other": 1}', "application/json", 400),
        (b'{"sql": "\\ud800"}', "application/json", 400),
        (b'{"sql": "SELECT 1"}', "text/plain", 415),
        (b"\xff", "application/json", 400),
        (b" " * (LONGEST_BODY + 1), "application/json", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_a_problem(
    client: TestClient, world: World, body: bytes, kind: str, status: int
) -> None:
    answer = client.post("/api/v1/query", content=body, auth=ALICE, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert [one.code for one in world.front.telemetry.refusals(10)] == [answer.json()["code"]]
    assert '"event": "refused"' in world.log.getvalue()


def test_paths_and_methods_that_there_are_not_are_problems(client: TestClient) -> None:
    assert client.get("/api/v1/nothing").json()["code"] == "no-such-page"
    assert client.get("/api/v1/query").json()["code"] == "no-such-method"


def test_a_number_of_the_address_that_cannot_be_read_is_a_problem(client: TestClient) -> None:
    for last in ("0", "1001", "-1", "x", "\u0663", "1e3", ""):
        assert client.get("/api/v1/history", params={"last": last}, auth=ALICE).status_code == 400


@pytest.mark.parametrize("user", ["alice", "clara"])
def test_the_document_says_what_the_api_does(world: World, user: str) -> None:
    """Have schemathesis make requests of the document, good ones and bad ones, and hold the answers against it."""
    import schemathesis

    scopes = ["read", "query", *(["curate"] if user == "clara" else [])]
    token = world.client().post("/api/v1/token", auth=(user, PASSWORD), json={"scopes": scopes}).json()["token"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its client
        schema = schemathesis.openapi.from_asgi("/api/openapi.json", world.app)
        tried = {found.ok().definition.raw["operationId"]: found.ok() for found in schema.get_all_operations()}
        assert tried.keys() == {operation.name for operation in OPERATIONS}
        for name, operation in tried.items():
            if name not in {"endToken", "token"}:
                _try(operation, token, good=True)
                _try(operation, token, good=False)


def _try(operation: Any, token: str, *, good: bool) -> None:
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

    mode = GenerationMode.POSITIVE if good else GenerationMode.NEGATIVE

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples(8), deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def tried(case: Any) -> None:
        response = case.call(headers={"authorization": f"Bearer {token}"})
        assert response.status_code < 500, response.text
        assert response.status_code != 400 or not good, response.text
        # it does not see our token, and knows of JSON, but not of SQL
        case.validate_response(response, excluded_checks=[ignored_auth, positive_data_acceptance])

    with suppress(Unsatisfiable):  # nothing bad can be said where nothing is said
        tried()


def test_an_answer_says_that_its_counts_are_bounded(client: TestClient) -> None:
    sql = f"{COUNTS} WITH (max_groups_contributed = 2)"
    body = post(client, "query", {"sql": sql})
    assert body["bounded_by"] == 2
    assert "counted in at most 2 groups: true counts can be higher" in str(body["note"])
    answer = client.post("/api/v1/query", json={"sql": sql}, auth=ALICE, headers={"accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert json.loads(table.schema.metadata[b"dpsql.receipt"])["bounded_by"] == 2


def test_standard_sql_is_read_as_private_where_the_body_says_so(client: TestClient, world: World) -> None:
    total = {"sql": "SELECT COUNT(DISTINCT user_id) AS n FROM reads"}
    assert client.post("/api/v1/query", json=total, auth=ALICE).json()["code"] == "not-private"
    assert client.post("/api/v1/query", json={**total, "implicit": False}, auth=ALICE).status_code == 422
    private = {**total, "implicit": True}
    assert post(client, "describe", private)["columns"] == [{"name": "n", "type": "int64"}]
    assert {"name": "read as", "value": "PRIVATE"} in post(client, "explain", private)["facts"]  # type: ignore[operator]
    assert world.charges() == 0
    assert len(post(client, "query", private)["rows"]) == 1  # type: ignore[arg-type]
    assert client.post("/api/v1/query", json={**total, "implicit": "on"}, auth=ALICE).status_code == 400
    document = client.get("/api/openapi.json").json()
    body = document["paths"]["/api/v1/query"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Query"}
    implicit = document["components"]["schemas"]["Query"]["properties"]["implicit"]
    assert implicit["anyOf"] == [{"type": "boolean"}, {"type": "null"}]


def test_consent_is_given_where_the_body_says_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    given, run = list[object](), Session.sql

    def watch(session: Session, *arguments: Any, **options: Any) -> object:
        given.append(options["consent"])
        return run(session, *arguments, **options)

    monkeypatch.setattr(Session, "sql", watch)
    for body in ({}, {"consent": True}, {"consent": False}):
        post(client, "query", {"sql": COUNTS, **body})
    assert given == [None, True, False]
    assert client.post("/api/v1/query", json={"sql": COUNTS, "consent": "yes"}, auth=ALICE).status_code == 400
