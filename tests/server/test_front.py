"""The door of all surfaces: who may come in, how often, as whom they ask, and what is told of it."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.service_kit import ask_gateway, prepare

from dpsql import Budget, Policy, PrivateTable, ServerSettings
from dpsql.errors import EngineError, Error, Refusal
from dpsql.policy import Analyst
from dpsql.server.gateway import Gateway, Service
from dpsql.server.limits import Throttle
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import User, Users, add_user, change_password, remove_user

WORDS = "correct horse battery"
SECRET = "secret-article"
QUESTION = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.1)"
history = attrgetter("history")
ALICE, SERVICE = User("alice"), User("bi", acts_as=("alice", "carol", "bob"))


def policy_in(folder: Path, **keys: Any) -> Policy:
    analysts = {"bob": Analyst(enabled=False), "default": Analyst(1)}
    server = ServerSettings(users=folder / "users.toml", max_connections=2)
    settings = {"server": server, "analysts": analysts, **keys}
    tables = {"reads": PrivateTable("user_id")}
    return Policy(Budget(10, "1e-6"), tables, ledger=folder / "ledger.sqlite", **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    for user in (ALICE, SERVICE, User("root", is_curator=True)):
        add_user(tmp_path / "users.toml", user, password=WORDS)
    return tmp_path


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def front(folder: Path, log: io.StringIO) -> Iterator[Gateway]:
    service = Service(folder / "events.duckdb", policy_in(folder))
    yield Gateway(service, Users(folder / "users.toml"), Telemetry(log), Throttle(60))
    service.close()


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_the_login_is_the_analyst_and_is_charged(front: Gateway, log: io.StringIO) -> None:
    user = front.login("web", "alice", password=WORDS, address="10.0.0.1")
    assert user == ALICE
    answer = ask_gateway(front, "web", user, text=QUESTION)
    again = ask_gateway(front, "postgres", user, text=QUESTION)
    assert (answer.receipt.replayed, again.receipt.replayed) == (False, True)
    assert front.look(user, history).num_rows == 1
    told = front.telemetry.metrics()
    assert 'dpsql_statements_total{kind="private",surface="web"} 1.0' in told
    assert 'dpsql_statements_total{kind="replay",surface="postgres"} 1.0' in told
    assert f"dpsql_charged_items_total {answer.receipt.items_charged}" in told
    assert [(line["event"], line.get("kind")) for line in lines(log)] == [
        ("login", None),
        ("answered", "private"),
        ("answered", "replay"),
    ]


def test_a_wrong_password_opens_nothing_and_then_waits(front: Gateway, log: io.StringIO) -> None:
    for _ in range(6):
        assert front.login("web", "alice", password="wrong", address="10.0.0.1") is None
    assert front.login("web", "alice", password=WORDS, address="10.0.0.1") is None
    assert front.login("web", "alice", password=WORDS, address="10.0.0.2") == ALICE
    events = [line["event"] for line in lines(log)]
    assert events == ["login-failed"] * 6 + ["login-throttled", "login"]
    assert 'dpsql_failed_logins_total{surface="web"} 7' in front.telemetry.metrics()
    assert WORDS not in log.getvalue()
    assert "wrong" not in log.getvalue()


def test_guesses_that_are_made_at_once_are_no_more_than_one_after_the_other(
    front: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, check = threading.Barrier(12), Users.check
    found: list[User | None] = []

    def at_once(users: Users, name: str, password: str) -> User | None:
        together.wait(30)  # all were admitted before the first is computed
        if password == WORDS:
            time.sleep(0.5)
        return check(users, name, password)

    def guess(password: str) -> None:
        found.append(front.login("web", "alice", password=password, address="10.0.0.1"))

    monkeypatch.setattr(Users, "check", at_once)
    guesses = [threading.Thread(target=guess, args=(word,)) for word in [WORDS, *["wrong"] * 11]]
    for one in guesses:
        one.start()
    for one in guesses:
        one.join()
    assert found == [None] * 12


def test_of_what_clients_cause_at_will_only_so_many_lines_are_written() -> None:
    log, now = io.StringIO(), [datetime(2026, 1, 1, tzinfo=UTC)]
    watch = Telemetry(log, clock=lambda: now[0])
    for _ in range(1000):
        watch.log("login-throttled", user="alice")
    watch.log("login", user="bob")
    now[0] += timedelta(minutes=1)
    watch.log("login-throttled", user="alice")
    told = lines(log)
    assert [line["event"] for line in told] == ["login-throttled"] * 60 + ["login", "login-throttled"]
    assert told[-1]["unsaid"] == 940
    assert "unsaid" not in told[0]


def test_a_curator_asks_only_where_the_policy_lists_them(front: Gateway, folder: Path) -> None:
    root = User("root", is_curator=True)
    assert (front.may_ask(root), front.may_ask(ALICE)) == (False, True)
    for act in (
        lambda: ask_gateway(front, "postgres", root, text=QUESTION),
        lambda: prepare(front, "postgres", root, text=QUESTION),
        lambda: front.look(root, history),
        lambda: ask_gateway(front, "postgres", User("root"), text=QUESTION),  # what the file says counts
    ):
        with pytest.raises(Refusal) as caught:
            act()
        assert caught.value.code == "no-analyst"
    front.service.renew(policy_in(folder, analysts={"root": Analyst(1)}))
    assert front.may_ask(root)
    assert len(ask_gateway(front, "postgres", root, text=QUESTION)) == 3


def test_a_service_account_asks_for_those_whom_it_may_act_as(front: Gateway) -> None:
    front.check_role(SERVICE, "carol")
    ask_gateway(front, "postgres", SERVICE, text=QUESTION, role="carol")
    assert front.service.session("carol").history.num_rows == 1
    assert front.look(SERVICE, history).num_rows == 0
    for user, role, code in (
        (ALICE, "carol", "role"),
        (SERVICE, "root", "role"),
        (SERVICE, "bob", "analyst-disabled"),
        (User("alice", acts_as=("carol",)), "carol", "role"),  # what the file says counts, not what is claimed
        (User("mallory"), "mallory", "user-removed"),
    ):
        with pytest.raises(Refusal) as caught:
            ask_gateway(front, "postgres", user, text=QUESTION, role=role)
        assert caught.value.code == code
    assert front.service.session("carol").history.num_rows == 1


def test_who_is_removed_asks_nothing_more(front: Gateway, folder: Path) -> None:
    ask_gateway(front, "web", ALICE, text="SELECT 1")
    remove_user(folder / "users.toml", "alice")
    front.users.reload()
    with pytest.raises(Refusal) as caught:
        ask_gateway(front, "web", ALICE, text="SELECT 1")
    assert caught.value.code == "user-removed"


def test_a_login_with_a_former_password_asks_nothing_more(front: Gateway, folder: Path) -> None:
    before = front.login("web", "alice", password=WORDS, address="10.0.0.1")
    assert before is not None
    ask_gateway(front, "web", before, text="SELECT 1")
    change_password(folder / "users.toml", "alice", password=WORDS * 2)
    front.users.reload()
    with pytest.raises(Refusal, match="another password") as caught:
        ask_gateway(front, "web", before, text="SELECT 1")
    assert caught.value.code == "user-removed"
    after = front.login("web", "alice", password=WORDS * 2, address="10.0.0.1")
    assert after is not None
    ask_gateway(front, "web", after, text="SELECT 1")


def test_only_so_many_statements_a_minute_and_describing_is_free(front: Gateway) -> None:
    answered = 0
    with suppress(Refusal):
        for _ in range(70):
            ask_gateway(front, "web", ALICE, text="SELECT 1")
            answered += 1
    assert 60 <= answered < 70
    assert front.telemetry.refusals(1)[0].code == "too-many-statements"
    assert prepare(front, "web", ALICE, text=QUESTION).schema.names == ["article"]
    assert ask_gateway(front, "web", SERVICE, text="SELECT 1")


def test_only_so_many_connections(front: Gateway) -> None:
    assert [front.enter("postgres") for _ in range(3)] == [True, True, False]
    front.telemetry.count_disconnection("postgres")
    assert front.enter("web")
    assert 'dpsql_connections{surface="postgres"} 1' in front.telemetry.metrics()
    front.service.close()
    front.telemetry.count_disconnection("web")
    assert not front.enter("web")
    assert front.service.is_closed


def test_metrics_are_for_the_curator_and_this_machine(front: Gateway) -> None:
    def may(user: User | None, address: str, *, forwarded: bool = False) -> bool:
        return front.may_see_metrics(user, address=address, is_forwarded=forwarded)

    assert may(None, "127.0.0.1")
    assert may(None, "::1")
    assert may(User("root"), "10.0.0.1", forwarded=True)
    assert not may(None, "127.0.0.1", forwarded=True)
    assert not may(None, "10.0.0.1")
    assert not may(User("alice", is_curator=True), "10.0.0.1")


def test_what_is_refused_is_counted_and_told_without_its_words(front: Gateway, log: io.StringIO) -> None:
    for text in (f"SELECT '{SECRET}'' FROM reads", f"SELECT article FROM reads WHERE article = '{SECRET}'"):
        with pytest.raises(Error):
            ask_gateway(front, "web", ALICE, text=text)
    seen = front.telemetry.refusals(10)
    assert [(one.surface, one.analyst) for one in seen] == [("web", "alice")] * 2
    assert front.telemetry.refusals(1) == seen[:1]
    assert front.telemetry.refusals(0) == []
    assert f'code="{seen[0].code}"' in front.telemetry.metrics()
    told = log.getvalue() + front.telemetry.metrics() + repr(seen)
    assert SECRET not in told
    assert "reads" not in told


def test_a_fault_is_told_without_its_words(front: Gateway, log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(Service, "answer", broken)
    with pytest.raises(EngineError) as caught:
        ask_gateway(front, "web", ALICE, text=QUESTION)
    assert caught.value.code == "server-failed"
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value) + log.getvalue()
    fault = lines(log)[0]
    assert (fault["event"], fault["kind"]) == ("fault", "KeyError")


def test_how_long_a_private_statement_took_is_told_on_the_grid_or_not_at_all() -> None:
    bare, grid = Telemetry(), Telemetry(grid_ms=250)
    for watch in (bare, grid):
        for seconds in (0.01, 0.251, 0.4):
            watch.count_answer("web", "private", seconds=seconds)
    assert "_seconds_" not in bare.metrics()
    assert 'dpsql_statement_seconds_sum{kind="private",surface="web"} 1.25' in grid.metrics()
    reported = [grid.count_answer("web", "private", seconds=seconds) for seconds in (0.01, 0.251, 0.4, 1.2)]
    assert reported == [0.25, 0.5, 0.5, 2.0]
    assert bare.count_answer("web", "free", seconds=0.123) == 0.123


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    Telemetry(Full()).log("login", user="alice")


def test_a_line_of_the_log_is_one_line() -> None:
    stream = io.StringIO()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    Telemetry(stream, clock=lambda: moment).log("login", user='a"b\n{}' + "x" * 999, count=3)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["at"] == "2026-01-02T00:00:00.000+00:00"
    assert (told["user"][:6], len(told["user"]), told["count"]) == ('a"b\n{}', 200, 3)


def test_a_policy_without_a_ledger_is_not_served(folder: Path) -> None:
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id")})
    with pytest.raises(Error) as caught:
        Service(folder / "events.duckdb", policy)
    assert caught.value.code == "policy-ledger"


def test_another_policy_is_asked_from_then_on(front: Gateway, folder: Path) -> None:
    ask_gateway(front, "web", ALICE, text=QUESTION)
    spent = front.look(ALICE, history)
    front.service.renew(policy_in(folder, analysts={"alice": Analyst(2)}))
    now = front.look(ALICE, history)
    assert now.drop_columns("percent_used") == spent.drop_columns("percent_used")  # that is of the present limit
    assert ask_gateway(front, "web", ALICE, text=QUESTION).receipt.replayed
    with pytest.raises(Error) as caught:
        front.service.renew(policy_in(folder / "elsewhere"))
    assert caught.value.code == "policy-reload"
