"""The page: who may see what, that forms come from it alone, and that nothing on it is obeyed."""

from __future__ import annotations

import hashlib
import html
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from support.web_kit import COUNTS, HOSTILE, NAMES, PASSWORD, World, opened, proof

from dpsql.curator import bump
from dpsql.server import web
from dpsql.server.http import POLICY
from dpsql.server.users import IDLE, LONGEST, Visits

FRAGMENT = {"HX-Request": "true"}
OPEN = {"/login", "/healthz", "/api/openapi.json", "/api/docs"}
ANALYSTS = {"/", "/help", "/history", "/tables"}
CURATORS = {"/curator/spending", "/curator/policy", "/curator/ledger", "/curator/published", "/curator/refusals"}


def ask(client: TestClient, text: str, path: str = "/ask") -> str:
    """Return what htmx would put into the page."""
    done = client.post(path, data={"proof": proof(client), "text": text}, headers=FRAGMENT)
    assert done.status_code == 200, done.text
    return done.text


class Elements(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_markup(text: str) -> None:
    """Refuse scripts and styles that stand in a page, handlers of events, and addresses elsewhere."""
    for tag, attributes in Elements(text).found:
        assert tag not in {"style", "iframe", "object", "base", "img", "b"}, tag
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/"), attributes
        for name, value in attributes.items():
            assert name != "style"
            assert not name.startswith(("on", "hx-on")), name
            if name in {"href", "src", "action", "formaction", "hx-get", "hx-post"}:
                assert value is not None
                assert re.match(r"/(?!/)|#", value), value


def test_an_answer_is_charged_once_and_shown_again_for_nothing(world: World) -> None:
    client = world.login()
    first = ask(client, COUNTS)
    assert "95 % interval" in first
    assert "of the budget; about " in first
    assert "article 1" in first
    again = ask(client, COUNTS)
    assert "nothing was charged" in again
    assert re.findall(r"article 1</bdi></td><td[^>]*><bdi>([\d,]+)", first) == re.findall(
        r"article 1</bdi></td><td[^>]*><bdi>([\d,]+)", again
    )
    assert world.charges() == 1


def test_the_budget_says_what_still_fits_and_what_is_free(world: World) -> None:
    client = world.login()

    def fits() -> dict[str, int]:
        found = re.findall(r"<strong>([\d,]+)</strong> <span>([^<]+)</span>", client.get("/").text)
        return {what.replace("lists", "list").replace("totals", "total"): int(count) for count, what in found}

    before, page = fits(), client.get("/").text
    assert next(iter(before)) == "list of names (TOP 10)"
    assert len(before) == 4
    assert "stored answer" not in page
    ask(client, COUNTS)
    after = fits()
    assert all(after[what] < count for what, count in before.items())
    assert "<strong>Free</strong>: 1 stored answer in the " in client.get("/").text


def test_a_preview_charges_nothing_and_says_what_is_free(world: World) -> None:
    client = world.login()
    assert " % more of the budget. " in ask(client, COUNTS, "/preview")
    assert "costs nothing" in ask(client, "SELECT country FROM countries", "/preview")
    assert "costs nothing" in ask(client, "SHOW BUDGET", "/preview")
    total = "(SELECT COUNT(DISTINCT user_id) AS n FROM reads"
    several = f"SELECT a.n - b.n AS more FROM {total} PRIVATE) AS a, {total} WHERE country = 'DE' PRIVATE) AS b"
    assert "2 private queries: at most " in ask(client, several, "/preview")
    assert world.charges() == 0
    ask(client, COUNTS)
    assert "Answered before" in ask(client, COUNTS, "/preview")
    assert "draws new noise" in ask(client, f"{COUNTS} WITH (fresh = true)", "/preview")
    assert "Not answered as it stands" in ask(client, "SELECT user_id FROM reads", "/preview")
    assert ask(client, "  ", "/preview").strip() == ""
    assert world.charges() == 1


def test_a_refusal_is_shown_with_its_code_its_place_and_its_hint(world: World) -> None:
    shown = ask(world.login(), "SELECT user_id\nFROM reads WHERE nowhere = 1 TOP 3 PRIVATE")
    assert "Refusal: " in shown
    assert "<mark>nowhere</mark>" in shown
    assert "line 2" in shown
    assert "Hint: " in shown


def test_a_short_budget_is_told_before_and_after(world: World) -> None:
    client = world.login("poor")
    ask(client, NAMES.replace("TOP 3", "TOP 1"))
    assert "Does not fit." in ask(client, f"{COUNTS} WITH (epsilon = 0.5)", "/preview")
    assert "BudgetExceeded: budget-exceeded" in ask(client, f"{COUNTS} WITH (epsilon = 0.5)")


def test_the_history_shows_answers_again_and_never_charges(world: World) -> None:
    client = world.login()
    ask(client, COUNTS)
    ask(client, f"{NAMES} WITH (fresh = true)")
    listed = client.get("/history").text
    assert listed.count("Show again") == 2
    sent = {"proof": proof(client), "number": "0"}
    assert "nothing was charged" in client.post("/replay", data=sent, headers=FRAGMENT).text
    fresh = client.post("/replay", data={**sent, "number": "1"}, headers=FRAGMENT).text
    assert "draws new noise" in fresh
    assert "no-such-page" in client.post("/replay", data={**sent, "number": "7"}, headers=FRAGMENT).text
    text = NAMES.replace("GROUP", "WHERE country = ? GROUP")
    client.post("/api/v1/query", json={"sql": text, "parameters": ["DE"]}, auth=("alice", PASSWORD))
    assert "This parameter has no value" in client.post("/replay", data={**sent, "number": "2"}, headers=FRAGMENT).text
    assert world.charges() == 3
    assert f">\n{COUNTS}</textarea>" in client.get("/?again=0").text


def test_an_analyst_sees_nothing_of_what_another_asked(world: World) -> None:
    ask(world.login(), COUNTS)
    other = world.login("both")
    assert "COUNT(DISTINCT" not in other.get("/history").text
    assert other.get("/?again=0").status_code == 404


def test_words_are_offered_and_names_that_may_be_asked_alone(world: World) -> None:
    client = world.login()
    sent = {"proof": proof(client), "text": "SELECT ar"}
    assert client.post("/complete", data=sent, headers=FRAGMENT).json() == {"begun": "ar", "words": ["article"]}
    sent["text"] = "SELECT article"
    assert client.post("/complete", data=sent, headers=FRAGMENT).json()["words"] == []
    for long in ("private with(" * 315, "SELECT a" * 2_000):
        assert client.post("/complete", data={**sent, "text": long}, headers=FRAGMENT).status_code == 200


def test_without_scripts_the_page_answers_whole_pages(world: World) -> None:
    client = world.login()
    sent = {"proof": proof(client), "text": COUNTS.replace(" FROM", "\r\nFROM")}
    page = client.post("/ask", data=sent).text
    assert page.startswith("<!doctype html>")
    assert "of the budget; about " in page
    told = client.post("/preview", data=sent).text
    assert told.startswith("<!doctype html>")
    assert "Answered before" in told
    assert ">\n" + COUNTS.replace(" FROM", "\nFROM") in page


def test_every_answer_has_the_headers(world: World) -> None:
    client = world.client()
    for path in ("/", "/login", "/nowhere", "/api/nowhere", "/static/page.js", "/metrics", "/api/v1/budget"):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "strict-transport-security" not in headers
        assert headers["cache-control"] == ("max-age=3600" if "static" in path else "no-store")
    assert "unsafe" not in POLICY


def test_under_tls_cookies_are_for_tls_and_this_host_alone(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    with opened(tmp_path, secure=True) as world:
        answer = world.client().get("/login")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-dpsql=")
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
    assert "max-age" in answer.headers["strict-transport-security"]


def routes(world: World) -> list[tuple[str, str]]:
    found = [
        (method, route.path)
        for route in world.app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    ]
    assert len(found) > 35
    return sorted(found)


def test_nobody_gets_in_without_logging_in(world: World) -> None:
    client = world.client()
    for method, pattern in routes(world):
        path = pattern.replace("{format:str}", "csv")
        if path in OPEN or path.startswith("/static/"):
            continue
        answer = client.request(method, path, headers={"x-forwarded-for": "10.0.0.1"})
        if path.startswith("/api/"):
            assert answer.status_code == 401, path
            assert answer.json()["code"] == "login-required"
        elif path == "/metrics":
            assert answer.status_code == 403
        else:
            assert answer.headers["location"] == "/login", path
    fragment = client.get("/history", headers=FRAGMENT)
    assert (fragment.status_code, fragment.headers["hx-redirect"]) == (401, "/login")


def test_an_analyst_gets_nothing_of_a_curators(world: World) -> None:
    client = world.login()
    for method, path in routes(world):
        if path.startswith("/curator/"):
            answer = client.request(method, path, data={"proof": proof(client)} if method == "POST" else None)
            assert answer.status_code == 403, path
            assert "curators-only" in answer.text
    for path in ANALYSTS:
        assert client.get(path).status_code == 200
    assert "curator" not in client.get("/").text


def test_a_curator_asks_nothing_unless_the_policy_lists_them(world: World) -> None:
    client = world.login("clara")
    assert client.get("/").headers["location"] == "/curator/spending"
    for path in CURATORS:
        assert client.get(path).status_code == 200, path
    for path in ("/history", "/tables"):
        assert client.get(path).status_code == 403
    given = {"proof": proof(client, "/curator/ledger"), "text": NAMES, "number": "0"}
    for path in ("/ask", "/preview", "/complete", "/replay"):
        assert "no-analyst" in client.post(path, data=given).text or path == "/preview"
    assert world.login("dora").get("/").headers["location"] == "/curator/spending"
    assert world.charges() == 0
    both = world.login("both")
    assert " of the budget; about " in ask(both, NAMES)
    assert both.get("/curator/spending").status_code == 200


def test_a_form_must_come_from_our_own_page(world: World) -> None:
    client, other = world.login(), world.login()
    for method, path in routes(world):
        if method != "POST" or path.startswith(("/api/", "/curator/")):
            continue
        for given in ({}, {"proof": "0" * 64}, {"proof": proof(other)}):
            answer = client.post(path, data={**given, "text": COUNTS, "name": "alice", "password": PASSWORD})
            assert answer.status_code == 403, (path, given)
            assert "form-expired" in answer.text
    curator = world.login("clara")
    sent = {"epsilon": "5", "delta": "1e-6", "note": "x", "confirmed": "yes"}
    assert curator.post("/curator/grant", data=sent).status_code == 403
    assert world.charges() == 0


def test_a_wrong_password_says_nothing_more_than_an_unknown_name(world: World) -> None:
    client = world.client()
    token = proof(client, "/login")
    told = {
        re.sub(r"[0-9a-f]{64}", "", client.post("/login", data={"name": name, "password": "x", "proof": token}).text)
        for name in ("alice", "nobody", "", "\0", "a" * 4000)
    }
    assert len(told) == 1
    assert "login-failed" in told.pop()


def test_passwords_cannot_be_tried_for_long(world: World) -> None:
    client = world.client()
    sent = {"name": "alice", "password": "x", "proof": proof(client, "/login")}
    for _ in range(7):
        client.post("/login", data=sent)
    late = client.post("/login", data={**sent, "password": PASSWORD})
    assert late.status_code == 401
    assert re.search(r"try again in [12] s\.", late.text)


def test_a_login_begins_a_visit_under_a_new_token_and_a_logout_ends_it(world: World) -> None:
    client = world.client()
    sent = {"name": "alice", "password": PASSWORD, "proof": proof(client, "/login")}
    before = client.cookies["dpsql"]
    client.post("/login", data=sent)
    token = client.cookies["dpsql"]
    assert token != before
    assert client.get("/").status_code == 200
    client.post("/logout", data={"proof": proof(client)})
    client.cookies.set("dpsql", token)
    assert client.get("/").headers["location"] == "/login"


def test_a_visit_ends_by_itself() -> None:
    now = 0.0
    visits = Visits(clock=lambda: now)
    token = visits.begin("alice")
    for _ in range(25):
        now += IDLE - 1
        if now <= LONGEST:
            assert visits.find(token) is not None
    assert visits.find(token) is None
    token = visits.begin("alice")
    now += IDLE + 1
    assert visits.find(token) is None
    tokens = [visits.begin("alice") for _ in range(21)]
    assert [visits.find(each) is not None for each in tokens] == [False, *[True] * 20]
    assert visits.find("") is None


def test_a_user_who_was_removed_or_has_another_password_is_logged_out(world: World) -> None:
    from dpsql.server.users import change_password, remove_user

    users = world.folder / "users.toml"
    alice, poor, both = (world.login(name) for name in ("alice", "poor", "both"))
    remove_user(users, "alice")
    change_password(users, "poor", password="another horse")
    world.front.users.reload()
    for client in (alice, poor):
        assert client.get("/").headers["location"] == "/login"
    assert both.get("/").status_code == 200


def test_the_tables_say_what_is_free_to_read(world: World) -> None:
    client = world.login()
    ask(client, f"{COUNTS} WITH (name = 'mine')")
    assert '<bdi>answers.mine</bdi> <small class="quiet">answer</small>' in client.get("/").text
    page = client.get("/tables").text
    assert '<bdi>answers.mine</bdi> <small class="quiet">your answer: free to read</small>' in page
    assert "public</small>" in page
    check_markup(page)


@pytest.mark.parametrize("path", ["/", "/tables", "/history", "/?again=0"])
def test_names_and_texts_are_never_read_as_markup(world: World, path: str) -> None:
    client = world.login()
    literal = HOSTILE.replace("'", "''")
    hostile = f"SELECT article, '{literal}' AS x FROM reads GROUP BY article TOP 1 PRIVATE"
    for text in (COUNTS, f"{COUNTS} -- </textarea><script>alert(1)</script>", hostile, HOSTILE):
        for way in ("/ask", "/preview"):
            check_markup(ask(client, text, way))
    page = client.get(path).text
    check_markup(page)
    assert "&lt;img src=x&gt;" in page or path == "/history"
    if path != "/?again=0":
        assert "\u202e" not in page


def test_a_curator_sees_who_spent_what_and_no_markup_of_theirs(world: World) -> None:
    ask(world.login(), f"{COUNTS} -- <script>alert(1)</script>\u202e")
    curator = world.login("clara")
    spending = curator.get("/curator/spending").text
    assert "alice" in spending
    assert "1 in all" in spending
    assert "\u202e" not in spending
    for path in CURATORS:
        check_markup(curator.get(path).text)
    assert "every user_id" in curator.get("/curator/policy").text


def test_a_grant_is_confirmed_recorded_and_leaves_the_ledger_whole(world: World) -> None:
    curator = world.login("clara")
    sent = {"proof": proof(curator, "/curator/ledger"), "epsilon": "5", "delta": "1e-6", "note": "agreed <b>"}
    for confirmed in ({}, {"confirmed": "yes"}):
        refused = curator.post("/curator/grant", data={**sent, **confirmed}).text
        assert "[analysts.both] delta = 2.5e-07" in refused
        assert "[budget] delta = 1.25e-06" in refused
    sent["delta"] = "1.25e-06"
    asked = curator.post("/curator/grant", data=sent).text
    assert "Raise the total for good?" in asked
    check_markup(asked)
    assert "(4, 1e-06)" in curator.get("/curator/ledger").text
    done = curator.post("/curator/grant", data={**sent, "confirmed": "yes"}).text
    assert "epsilon = 5" in done
    assert "and is now opened for epsilon 4" in curator.get("/curator/ledger").text
    assert "and is now opened for epsilon 4" in world.login("both").get("/").text
    shown = curator.post("/curator/verify", data={"proof": sent["proof"]}).text
    assert "events hold together" in shown
    from dpsql.curator import read_history

    assert any(
        "agreed <b> (by clara, on the page)" in event.body for event in read_history(world.folder / "ledger.sqlite")
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", "3"), ("epsilon", "1e999999999"), ("epsilon", ""), ("delta", "x"), ("note", ""), ("periods", "-1")],
)
def test_a_grant_that_cannot_be_is_told_so(world: World, field: str, value: str) -> None:
    curator = world.login("clara")
    sent = {"proof": proof(curator, "/curator/ledger"), "epsilon": "5", "delta": "1e-6", "note": "x", field: value}
    shown = curator.post("/curator/grant", data={**sent, "confirmed": "yes"})
    assert shown.status_code == 200
    assert "Hint: " in shown.text
    assert "(4, 1e-06)" in curator.get("/curator/ledger").text


def test_a_fault_says_one_sentence_and_leaves_no_value_in_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("SECRET-7")

    client = world.login()
    monkeypatch.setattr("dpsql.server.web.pages._budget", fails)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "SECRET" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["content-security-policy"] == POLICY
    assert "RuntimeError" in world.log.getvalue()
    assert "SECRET" not in world.log.getvalue()


def test_no_value_of_a_row_stands_in_an_error(world: World) -> None:
    client = world.login()
    for text in (
        'SELECT "<img src=x>", COUNT(DISTINCT user_id) FROM reads GROUP BY ALL TOP 3 PRIVATE PER country',
        'SELECT CAST("<img src=x>" AS INTEGER) AS i FROM reads GROUP BY i TOP 3 PRIVATE',
        'SELECT "<img src=x>" FROM reads',
    ):
        assert "SECRET-" not in ask(client, text)


def test_where_the_ledger_lies_is_told_to_curators_alone(world: World) -> None:
    alice, clara = world.login(), world.login("clara")
    token, curators = proof(alice, "/login"), proof(clara, "/curator/ledger")
    (world.folder / "ledger.sqlite").write_bytes(b"no ledger any more" * 100)
    told = [alice.get("/").text, alice.post("/ask", data={"proof": token, "text": NAMES}, headers=FRAGMENT).text]
    told += [alice.get("/api/v1/budget", auth=("alice", PASSWORD)).text]
    for each in told:
        assert "LedgerError" in each
        assert "ledger.sqlite" not in each
    assert "ledger.sqlite" in clara.post("/curator/verify", data={"proof": curators}).text


def test_metrics_are_for_curators_and_this_machine_alone(world: World) -> None:
    client = world.client()
    assert client.get("/healthz").text == "ok"
    assert "dpsql_statements_total" in client.get("/metrics").text
    assert client.get("/metrics", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/metrics", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 403
    far = TestClient(world.app, base_url="http://127.0.0.1", client=("10.1.1.1", 9))
    assert far.get("/metrics").status_code == 403
    assert far.get("/metrics", auth=("alice", PASSWORD)).status_code == 403
    assert far.get("/metrics", auth=("clara", PASSWORD)).status_code == 200
    assert far.get("/metrics", auth=("clara", "x")).status_code == 401


def test_what_is_not_ours_is_the_file_that_was_published_with_its_licence() -> None:
    static = Path(web.__file__).parent / "static"
    script = (static / "htmx.min.js").read_bytes()
    published = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"  # of htmx.org 4.0.1, from npm
    assert hashlib.sha256(script).hexdigest() == published
    assert (static / "htmx.LICENSE.txt").read_text().startswith("Zero-Clause BSD")
    for name in ("page.js", "page.css"):
        assert "//" not in re.sub(r"^\s*//.*$", "", (static / name).read_text(), flags=re.MULTILINE), name


def test_no_user_holds_all_threads(world: World) -> None:
    client = world.login()
    endpoint = world.app.routes[0].endpoint.__closure__  # type: ignore[attr-defined]
    (dispatch,) = [cell.cell_contents for cell in endpoint if type(cell.cell_contents).__name__ == "RequestDispatch"]
    token = proof(client)
    dispatch.asking["alice"] = 4
    sent = {"proof": token, "text": COUNTS}
    assert "too many statements running" in client.post("/ask", data=sent, headers=FRAGMENT).text
    assert "At most" in client.post("/preview", data=sent, headers=FRAGMENT).text
    assert world.charges() == 0
    dispatch.asking["alice"] = 3
    assert "of the budget; about " in client.post("/ask", data=sent, headers=FRAGMENT).text
    assert dispatch.asking["alice"] == 3


def test_stored_answers_are_pages_and_files_of_their_analyst_alone(world: World) -> None:
    client, asked = world.login("alice"), {"text": COUNTS}
    ask(client, COUNTS)
    before = world.charges()
    assert "stored answer, nothing was charged" in client.get("/answers", params=asked).text
    csv = client.get("/answers.csv", params=asked)
    assert csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert csv.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    assert csv.text.startswith('"article","n"\n')
    named = COUNTS.replace(" AS n", ' AS "=n"')
    assert "CSV for a spreadsheet" in ask(client, named)
    for value, name in (("true", "'=n"), ("false", "=n")):
        file = client.get("/answers.csv", params={"text": named, "quote_formulas": value})
        assert file.text.startswith(f'"article","{name}"\n')
    before = world.charges()
    assert client.get("/answers.parquet", params=asked).content[:4] == b"PAR1"
    assert client.get("/answers.exe", params=asked).status_code == 404
    for other in (
        COUNTS.replace("TOP 3", "TOP 4"),
        COUNTS.replace("TOP 3 PRIVATE", "TOP 3 PRIVATE WITH (fresh = true)"),
    ):
        assert client.get("/answers.csv", params={"text": other}).status_code == 404
        assert "Costs." in client.get("/answers", params={"text": other}).text
    poor = world.login("poor")
    assert poor.get("/answers.csv", params=asked).status_code == 404  # the answer of another analyst
    assert client.get("/answers.csv", params={"text": "nonsense"}).status_code >= 400
    assert world.charges() == before
    bump(world.folder / "ledger.sqlite", note="new rows")
    assert client.get("/answers.csv", params=asked).status_code == 404
    assert world.charges() == before


def test_an_empty_answer_says_why(world: World) -> None:
    text = "SELECT article FROM reads WHERE user_id = 7 GROUP BY article TOP 3 PRIVATE"
    client = world.login("alice")
    assert "leaves at most one user" in ask(client, text, "/preview")
    page = ask(client, text)
    assert "No article stood out, or there is none. At this price an article needs about " in page
    assert "warning: The condition on user_id leaves at most one user" in page


def test_a_query_of_several_lines_is_shown_in_lines(world: World) -> None:
    ask(world.login("alice"), "SELECT article FROM reads\nGROUP BY article TOP 1 PRIVATE")
    page = world.login("clara").get("/curator/spending").text
    assert "SELECT article FROM reads\nGROUP BY" in page
    assert "\N{REPLACEMENT CHARACTER}" not in page


def test_a_total_is_priced_answered_and_shown_again(world: World) -> None:
    client, total = world.login(), "SELECT COUNT(DISTINCT user_id) AS readers FROM reads PRIVATE"
    assert " % more of the budget. " in ask(client, total, "/preview")
    assert world.charges() == 0
    assert "95 % interval" in ask(client, total)
    assert "nothing was charged" in ask(client, total)
    assert client.get("/answers.csv", params={"text": total}).text.startswith('"readers"\n')
    assert world.charges() == 1


def test_the_page_says_how_standard_sql_is_read(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text() + "[sql]\nimplicit = true\n")
    text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 3"
    with opened(tmp_path) as world:
        client = world.login()
        assert "Read as TOP 3 PRIVATE." in ask(client, text, path="/preview")
        assert world.charges() == 0
        assert "read as TOP 3 PRIVATE" in ask(client, text)
        assert "Read as TOP 3 PRIVATE. Answered before" in ask(client, text, path="/preview")


def test_a_curator_publishes_refreshes_and_drops_a_table_after_the_price(world: World) -> None:
    curator, path = world.login("clara"), "/curator/publish"
    sent = {
        "proof": proof(curator, "/curator/published"),
        "name": "weekly",
        "comment": "Most read <b>",
        "account": "alice",
    }

    def confirm(act: str, *words: str, **more: str) -> str:
        """Send a form, and the form that asks to confirm it."""
        asked = curator.post(path, data={**sent, **more, "act": act}).text
        check_markup(asked)
        assert all(word in asked for word in words)
        shown = dict(re.findall(r'name="(price|loss)" value="([^"]*)"', asked))
        assert shown.keys() == {"price", "loss"}
        confirmed = {name: html.unescape(value) for name, value in shown.items()}
        if confirmed["loss"]:  # the percentage can be the same though the amount is another
            less = curator.post(path, data={**sent, **more, "act": act, **confirmed, "loss": "less"}).text
            assert f'name="loss" value="{shown["loss"]}"' in less
        done = curator.post(path, data={**sent, **more, "act": act, **confirmed}).text
        check_markup(done)
        return done

    before = world.charges()
    refused = curator.post(path, data={**sent, "act": "publish", "sql": COUNTS, "account": "nobody else"})
    assert "no-share" in refused.text
    assert "form-expired" in curator.post(path, data={**sent, "act": "erase", "sql": COUNTS, "account": "both"}).text
    wrong = curator.post(path, data={**sent, "act": "publish", "sql": "SELECT", "account": "both"})
    assert "<option selected>both</option>" in wrong.text  # so that a mended statement is charged to the same one
    other = curator.post(path, data={**sent, "act": "publish", "sql": COUNTS, "account": "both", "price": "less"})
    assert "% more of the" in other.text
    assert world.charges() == before
    done = confirm(
        "publish", "Publish weekly?", "% more of the", "Account: <bdi>both</bdi>", sql=COUNTS, account="both"
    )
    assert "weekly is published: 3 rows" in done
    assert world.charges() == before + 1
    reader = world.login("alice")
    assert HOSTILE.replace("\u202e", "") not in reader.get("/tables").text
    assert "n_low" in reader.get("/tables").text
    assert "name-taken" in curator.post(path, data={**sent, "act": "publish", "sql": COUNTS, "account": "both"}).text
    shown = re.search(r'value="weekly">.*?</form>', curator.get("/curator/published").text, re.DOTALL)
    assert shown is not None  # the account can be another one, as that of the table may have no share by now
    assert re.findall(r"<option( selected)?>(\w+)", shown[0]) == [("", "clara"), ("", "poor"), (" selected", "both")]
    assert "is current" in confirm("refresh", "nothing is made", account="both")
    assert world.charges() == before + 1
    assert "weekly is dropped." in confirm("drop", "What it cost stays charged.")
    assert "n_low" not in reader.get("/tables").text
    assert reader.get("/curator/published").status_code == 403
    assert reader.post(path, data={**sent, "proof": proof(reader), "act": "drop"}).status_code == 403
