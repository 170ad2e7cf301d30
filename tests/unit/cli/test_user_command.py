"""`dpsql user`: users are added, listed, given new passwords and removed, and no password is ever shown."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command_kit import dpsql_command

from dpsql.server.users import User, Users, list_tokens

WORDS = "correct horse battery"
POLICY = """\
[budget]
epsilon = 1
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[server]
users = "people.toml"
"""


def test_users_come_and_go(tmp_path: Path) -> None:
    notes: list[str] = []

    def user(*words: str, typed: str = WORDS) -> str:
        where = ["--users", "users.toml"]
        code, printed, told = dpsql_command("user", *words, *where, cwd=tmp_path, stdin=f"{typed}\n".encode())
        assert code == 0, told
        assert WORDS not in printed.decode() + told
        notes.extend(re.findall("note: (.*)", told))
        return printed.decode()

    user("add", "alice", "--password-stdin", "--curator")
    user("add", "bi", "--password-stdin", "--acts-as", "alice, bob", typed="pässwörd für bi")
    assert notes == ["--acts-as names bob, who is not in the file of users."]
    users = Users(tmp_path / "users.toml")
    assert users.check("alice", WORDS) == User("alice", is_curator=True)
    assert users.check("bi", "pässwörd für bi") == User("bi", acts_as=("alice", "bob"))
    assert user("list") == "alice  curator\nbi  acts as alice, bob\n"
    user("passwd", "alice", "--password-stdin", typed="another password")
    user("remove", "bi")
    users.reload()
    assert users.check("alice", "another password")
    assert len(users) == 1


def test_a_token_is_printed_once_and_may_do_little_by_default(tmp_path: Path) -> None:
    def user(*words: str) -> str:
        code, printed, told = dpsql_command("user", *words, "--users", "users.toml", cwd=tmp_path, stdin=WORDS.encode())
        assert code == 0, told
        return printed.decode()

    user("add", "alice", "--password-stdin")
    token = user("token", "alice", "assistant").strip()
    user("token", "alice", "script", "--scope", "read", "--scope", "query", "--days", "3")
    first, second = list_tokens(tmp_path / "users.toml")
    assert (first.scopes, second.scopes) == ({"read"}, {"read", "query"})
    assert first.expires is not None
    assert second.expires is not None
    assert (first.expires - second.expires).days in {86, 87}
    listed = user("list")
    assert listed.splitlines()[1:] == [
        f"  token assistant: read, until {first.expires:%Y-%m-%d}",
        f"  token script: query, read, until {second.expires:%Y-%m-%d}",
    ]
    assert token not in listed + (tmp_path / "users.toml").read_text()
    user("revoke", "alice", "assistant")
    assert [each.label for each in list_tokens(tmp_path / "users.toml")] == ["script"]


def test_the_policy_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    words = ["user", "add", "alice", "--policy", "policy.toml", "--password-stdin"]
    exit_code, printed, told = dpsql_command(*words, cwd=tmp_path, stdin=WORDS.encode())
    assert (exit_code, b"SIGHUP" in printed, "SIGHUP" in told) == (0, False, True)
    assert Users(tmp_path / "people.toml").check("alice", WORDS)


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (["add", "alice", "--users", "u.toml", "--password-stdin"], b"short\n", "password"),
        (["add", "alice", "--users", "u.toml", "--password-stdin"], b"", "password"),
        (["add", "alice", "--users", "u.toml", "--password-stdin"], b"\xff\xfe\x00 not text\n", "password"),
        (["add", "alice", "--users", "u.toml"], WORDS.encode(), "password"),
        (["add", "default", "--users", "u.toml", "--password-stdin"], WORDS.encode(), "analyst-name"),
        (["add", "alice", "--users", "u.toml", "--policy", "p.toml"], WORDS.encode(), "users-missing"),
        (["list", "--users", "u.toml"], b"", "users-missing"),
        (["remove", "alice", "--users", "u.toml"], b"", "user-unknown"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, words: list[str], stdin: bytes, code: str) -> None:
    exit_code, printed, told = dpsql_command("user", *words, cwd=tmp_path, stdin=stdin)
    assert exit_code == 2
    assert f"[{code}]" in told
    assert printed == b""
    assert not (tmp_path / "u.toml").exists()


def test_a_password_is_typed_twice_and_not_shown(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "user", "add", "alice", "--users", "users.toml"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    for asked in (b"Password: ", b"Once more: "):
        while asked not in shown:
            shown += os.read(ours, 999)
        time.sleep(0.1)
        os.write(ours, WORDS.encode() + b"\n")
    assert process.wait(30) == 0
    os.close(ours)
    assert WORDS.encode() not in shown
    assert Users(tmp_path / "users.toml").check("alice", WORDS)
