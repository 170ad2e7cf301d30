"""`dpsql serve` from its first word to its last: where it listens, what signals do, and that everything is settled."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.confinement import list_missing
from dpsql.curator import grant_policy, read_history, read_spending, verify_ledger
from dpsql.engines.duckdb.evaluator import try_confinement
from dpsql.errors import Error, PolicyError
from dpsql.policy import Policy
from dpsql.server import serve
from dpsql.server.serve import run
from dpsql.server.users import User, add_user, remove_user

WORDS = "correct horse battery"
# of a price that noise does not decide
QUESTION = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.1, mechanism = limited_domain)"
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 10
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
source = "reads.parquet"
[server]
users = "users.toml"
web = "off"
postgres = "127.0.0.1:0"
"""


class Served:
    """A server that runs, and what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.words: list[str] = []
        self.log: list[dict[str, Any]] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_log)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.words.extend(line.rstrip("\n") for line in self.process.stdout)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line) if line.startswith("{") else {"event": "words", "words": line})

    def until(self, event: str, *, count: int = 1) -> dict[str, Any]:
        """Wait until something was told so often, and return the last of it."""
        for _ in range(600):
            found = [line for line in self.log if line["event"] == event]
            if len(found) >= count:
                return found[count - 1]
            assert self.process.poll() is None or any(thread.is_alive() for thread in self._threads), self.log
            time.sleep(0.05)
        raise AssertionError(self.log)

    @property
    def port(self) -> int:
        place = self.until("listens")["place"]
        return int(place.rpartition(":")[2])

    def ask(self, *lines: str, tls: ssl.SSLContext | None = None) -> list[Any]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
            channel = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
            with channel.makefile("rw") as talk:
                answers = []
                for line in lines:
                    talk.write(line + "\n")
                    talk.flush()
                    answers.append(json.loads(talk.readline()))
                return answers

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(30)
        for thread in self._threads:
            thread.join()
        return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect() as database:
        rows = "SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)"
        database.execute(f"COPY ({rows}) TO '{tmp_path / 'reads.parquet'}' (FORMAT parquet)")
    (tmp_path / "policy.toml").write_text(POLICY)
    for name in ("alice", "bob"):
        add_user(tmp_path / "users.toml", User(name), password=WORDS)
    return tmp_path


def until_reserved(folder: Path) -> None:
    """Wait until a statement runs."""
    for _ in range(600):
        if read_spending(folder / "policy.toml").entries:
            return
        time.sleep(0.05)
    raise AssertionError


@contextmanager
def served(folder: Path, *, slowly: float = 0.0, **environment: str) -> Iterator[Served]:
    command = [sys.executable, Path(__file__).parents[1] / "support" / "served.py", folder / "policy.toml", str(slowly)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    server = Served(process)
    try:
        yield server
    finally:
        process.kill()
        server.end()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_it_says_where_it_listens_answers_and_stops_when_told(folder: Path) -> None:
    told = folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, served(folder, NOTIFY_SOCKET=str(told)) as server:
        systemd.bind(str(told))
        server.until("ready")
        charged, replayed = server.ask(f"alice {QUESTION}", f"alice {QUESTION}")
        assert charged == [3, False, 3]
        assert replayed == [0, True, 3]
        assert server.ask("mallory SELECT 1") == ["user-removed"]
        server.signal(signal.SIGTERM)
        assert server.end() == 0
        assert systemd.recv(99) == b"READY=1"
        assert systemd.recv(99) == b"STOPPING=1"
    assert re.fullmatch(r"postgres listens on 127\.0\.0\.1:\d+", server.words[0])
    assert server.words[1] == "ready"
    assert [line["event"] for line in server.log] == [
        *("listens", "ready", "answered", "answered", "refused", "stopping", "stopped")
    ]
    assert "article" not in json.dumps(server.log)
    assert [event.kind for event in read_history(folder / "ledger.sqlite")][-2:] == ["reserved", "settled"]


def test_a_statement_that_runs_when_it_is_told_to_stop_is_settled_and_answered(folder: Path) -> None:
    answers: list[Any] = []
    with served(folder, slowly=2) as server:
        server.until("ready")
        asking = threading.Thread(target=lambda: answers.extend(server.ask(f"alice {QUESTION}")))
        asking.start()
        until_reserved(folder)
        server.signal(signal.SIGINT)
        asking.join()
        assert server.end() == 0
    assert [event.kind for event in read_history(folder / "ledger.sqlite")][-2:] == ["reserved", "settled"]
    assert verify_ledger(folder / "ledger.sqlite").events > 0
    assert len(answers) == 1
    assert answers[0][:2] == [3, False]


def test_a_second_signal_ends_it_at_once_and_refunds_nothing(folder: Path) -> None:
    with served(folder, slowly=60) as server:
        server.until("ready")
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as channel:
            channel.sendall(f"alice {QUESTION}\n".encode())
            until_reserved(folder)
            began = time.monotonic()
            server.signal(signal.SIGTERM)
            server.until("stopping")
            server.signal(signal.SIGTERM)
            assert server.end() == 1
            assert time.monotonic() - began < 30
    (entry,) = read_spending(folder / "policy.toml").entries
    assert entry.settlement is None  # it stays held
    assert verify_ledger(folder / "ledger.sqlite").events > 0


def test_a_reload_takes_policy_and_users_over_and_keeps_what_was_spent(folder: Path) -> None:
    policy = folder / "policy.toml"
    with served(folder) as server:
        server.until("ready")
        assert server.ask(f"alice {QUESTION}", "bob SELECT 1") == [[3, False, 3], [0, False, 1]]
        policy.write_text(POLICY.replace("127.0.0.1:0", "127.0.0.1:1") + "[analysts.bob]\nepsilon = 1\n")
        policy.write_text(policy.read_text() + "[analysts.default]\nenabled = false\n[analysts.alice]\nepsilon = 2\n")
        remove_user(folder / "users.toml", "bob")
        add_user(folder / "users.toml", User("carol"), password=WORDS)
        server.signal(signal.SIGHUP)
        assert server.until("reloaded")["waits"] == "postgres"
        asked = [f"alice {QUESTION}", "bob SELECT 1", "carol SELECT 1"]
        assert server.ask(*asked) == [[0, True, 3], "user-removed", "analyst-disabled"]
        policy.write_text(policy.read_text().replace("epsilon = 10\ndelta = 1e-6", "epsilon = 20\ndelta = 2e-6"))
        server.signal(signal.SIGHUP)
        assert server.until("reloaded", count=2)["waits"] == "postgres, grant"
        grant_policy(policy, note="more")
        server.signal(signal.SIGHUP)
        assert server.until("reloaded", count=3)["waits"] == "postgres"
        server.signal(signal.SIGTERM)
        assert server.end() == 0
    assert verify_ledger(folder / "ledger.sqlite").events > 0
    assert (
        "reloaded; restart the server for postgres of [server]; the larger [budget] waits for dpsql ledger grant"
        in (server.words)
    )
    assert Policy.from_toml(policy).analysts.keys() == {"bob", "alice", "default"}


def test_a_hangup_before_it_is_ready_reloads_once_it_is(folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.unlink()
    os.mkfifo(policy)
    with served(folder) as server:
        with policy.open("w") as pipe:  # opens once the server reads it
            server.signal(signal.SIGHUP)
            time.sleep(0.2)
            (folder / "later.toml").write_text(POLICY.replace("127.0.0.1:0", "127.0.0.1:1"))
            (folder / "later.toml").rename(policy)
            pipe.write(POLICY)
        assert server.until("reloaded")["waits"] == "postgres"
        assert [line["event"] for line in server.log] == ["listens", "ready", "reloaded"]


def test_a_reload_of_what_does_not_fit_changes_nothing(folder: Path) -> None:
    changes = [
        ("[budget]", "[budget", "policy-syntax"),
        ("epsilon = 10", "epsilon = 5", "ledger-budget"),
        ('"ledger.sqlite"', '"another.sqlite"', "policy-reload"),
        ('"reads.parquet"', '"missing.parquet"', "source-missing"),
        ('"user_id"', '"no_such_column"', "policy-no-column"),
        ('users = "users.toml"', 'users = "users.toml"\ncertificate = "c"\nkey = "k"', "policy-tls"),
    ]
    with served(folder) as server:
        server.until("ready")
        for count, (before, after, code) in enumerate(changes, start=1):
            (folder / "policy.toml").write_text(POLICY.replace(before, after))
            server.signal(signal.SIGHUP)
            assert server.until("reload-refused", count=count)["code"] == code
            assert server.ask(f"alice {QUESTION}") == [[3, False, 3] if count == 1 else [0, True, 3]]
        (folder / "policy.toml").write_text(POLICY + "[analysts.default]\nenabled = false\n")
        (folder / "users.toml").chmod(0o644)  # a file of users that does not fit leaves the policy too
        server.signal(signal.SIGHUP)
        assert server.until("reload-refused", count=len(changes) + 1)["code"] == "users-not-private"
        assert server.ask("alice SELECT 1") == [[0, False, 1]]
    told = [words for words in server.words if words.startswith("not reloaded, what was in force stays: [")]
    assert len(told) == len(changes) + 1
    assert not (folder / "another.sqlite").exists()


def test_a_new_certificate_is_shown_after_a_reload(folder: Path) -> None:
    import trustme

    authority = trustme.CA()

    def certify(name: str) -> bytes:
        issued = authority.issue_cert("localhost", common_name=name)
        issued.private_key_pem.write_to_path(folder / "key.pem")
        (folder / "key.pem").chmod(0o600)
        issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    def shown(server: Served) -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain,
            trusting.wrap_socket(plain, server_hostname="localhost") as channel,
        ):
            assert channel.version() == "TLSv1.3"
            return channel.getpeercert(binary_form=True)

    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    first = certify("first")
    (folder / "policy.toml").write_text(POLICY + 'certificate = "cert.pem"\nkey = "key.pem"\n')
    with served(folder) as server:
        server.until("ready")
        assert server.words[0].endswith(", with TLS")
        assert shown(server) == first
        second = certify("second")
        server.signal(signal.SIGHUP)
        server.until("reloaded")
        assert shown(server) == second != first
        certify("third")
        (folder / "key.pem").chmod(0o644)
        server.signal(signal.SIGHUP)
        assert server.until("reload-refused")["code"] == "key-not-private"
        assert shown(server) == second
    with pytest.raises(PolicyError, match=r"\[key-not-private\].*chmod 600"):
        run(folder / "policy.toml", None, tell=lambda _: None, log=io.StringIO())


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ('users = "users.toml"\n', "", "policy-missing-key"),
        ('"users.toml"', '"nobody.toml"', "users-missing"),
        ('ledger = "ledger.sqlite"\n', "", "policy-ledger"),
        ("127.0.0.1:0", "off", "server-address"),
        ("127.0.0.1:0", "0.0.0.0:0", "policy-tls"),
        ("127.0.0.1:0", "no-such-host.invalid:0", "policy-tls"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_listens(
    folder: Path, before: str, after: str, code: str
) -> None:
    (folder / "policy.toml").write_text(POLICY.replace(before, after))
    words: list[str] = []
    with pytest.raises(Error) as caught:
        run(folder / "policy.toml", None, tell=words.append, log=io.StringIO())
    assert caught.value.code == code
    assert words == []


def test_a_server_says_at_start_what_does_not_confine_its_workers(folder: Path) -> None:
    (folder / "policy.toml").write_text(f'{POLICY}[engine]\nisolation = "process"\n')
    with served(folder) as server:
        server.until("ready")
    missing = list_missing(try_confinement())
    words = [line for line in server.words if "not confined" in line]
    assert words == ([f"the workers of the data are not confined: {missing} (see dpsql check)"] if missing else [])
    assert list_missing(["files", "processes"]) == "capabilities, network, system calls"


def test_an_address_that_is_taken_is_said_by_the_command(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (folder / "policy.toml").write_text(POLICY.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        with served(folder) as server:
            assert server.end() == 2
    assert server.words == []
    assert "[server-address]" in server.log[-1]["words"]
    assert f"on this address: {os.strerror(errno.EADDRINUSE)}. Hint" in server.log[-1]["words"]


def test_an_extra_that_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def missing(*_: object, **__: object) -> serve.Listening:
        raise ModuleNotFoundError(name="pygwire")

    monkeypatch.setitem(serve.STARTERS, "postgres", missing)
    with pytest.raises(Error, match=r"not-installed.*pygwire") as caught:
        run(folder / "policy.toml", None, tell=lambda _: None, log=io.StringIO())
    assert "dpsql[server]" in caught.value.hint
