"""Who may log in: passwords that are held against verifiers, and a file that keeps nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shlex
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpsql.errors import UsageError
from dpsql.server.users import (
    StoredToken,
    User,
    Users,
    Verifier,
    add_token,
    add_user,
    change_password,
    derive_verifier,
    digest_token,
    has_password,
    list_tokens,
    list_users,
    remove_token,
    remove_user,
    saslprep,
)

WORDS = "correct horse battery"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    add_user(path, User("alice", is_curator=True), password=WORDS)
    add_user(path, User('o"neil ünï', acts_as=("alice", "bob")), password="another one")
    return path


def test_the_verifier_is_that_of_the_rfc() -> None:
    """RFC 7677, section 3: user, pencil, 4096 iterations."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = derive_verifier("pencil", salt, iterations=4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    signature = hmac.digest(verifier.stored_key, message, "sha256")
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(one ^ two for one, two in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == verifier.stored_key
    answer = hmac.digest(verifier.server_key, message, "sha256")
    assert base64.b64encode(answer) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007", "\u0007"),
        ("\u0627\u0031", "\u0627\u0031"),
    ],
)
def test_passwords_are_written_as_saslprep_does(given: str, written: str) -> None:
    """The examples of RFC 4013, section 3; what it forbids is left as it is."""
    assert (saslprep(given) or given) == written
    assert (saslprep(given) is not None) is (given not in {"\u0007", "\u0627\u0031"})


def test_a_password_opens_and_no_other(file: Path) -> None:
    users = Users(file)
    assert users.check("alice", WORDS) == User("alice", is_curator=True)
    assert users.check('o"neil ünï', "another one") == User('o"neil ünï', acts_as=("alice", "bob"))
    for name, password in (("alice", "another one"), ("alice", ""), ("alice", WORDS * 99), ("bob", WORDS), ("", "")):
        assert users.check(name, password) is None


def test_the_file_holds_no_password_and_shows_nothing(file: Path) -> None:
    assert WORDS not in file.read_text()
    users = Users(file)
    verifier = users.verifier("alice")
    spelled = verifier.encode()
    assert Verifier.parse(spelled) == verifier
    for part in spelled.split("$")[1:]:
        assert part not in repr(verifier) + repr(users) + repr(vars(type(users)))
    assert Verifier.parse(spelled.replace("SHA-256", "SHA-1")) is None
    assert Verifier.parse("SCRAM-SHA-256$1:YQ==$YQ==:YQ==") is None


def test_the_file_is_its_owners_alone(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(UsageError) as caught:
            Users(file)
        assert caught.value.code == "users-not-private"


def test_an_unknown_name_cannot_be_told_from_a_known_one(file: Path) -> None:
    users = Users(file)
    made_up, known = users.verifier("mallory"), users.verifier("alice")
    assert made_up == Users(file).verifier("mallory") != users.verifier("trent")
    assert (made_up.iterations, len(made_up.salt)) == (known.iterations, len(known.salt))
    add_user(file, User("carol"), password=WORDS)
    assert Users(file).verifier("mallory") == made_up
    assert not has_password(made_up, "")


def test_an_unknown_name_is_as_much_work_as_a_wrong_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users, works, computed = Users(file), [], hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        works.append((name, len(password), len(salt), iterations))
        return computed(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    assert users.check("alice", "wrong password") is users.check("nobody", "wrong password") is None
    known, unknown = works
    assert known == unknown


def test_passwords_are_changed_and_users_removed(file: Path) -> None:
    users = Users(file)
    change_password(file, "alice", password="something new")
    assert users.check("alice", WORDS)
    users.reload()
    assert users.check("alice", WORDS) is None
    assert users.check("alice", "something new") == User("alice", is_curator=True)
    remove_user(file, "alice")
    users.reload()
    assert users.get("alice") is None
    assert [user.name for user in list_users(file)] == ['o"neil ünï']


@pytest.mark.parametrize(
    ("name", "password", "code"),
    [
        ("alice", WORDS, "user-exists"),
        ("default", WORDS, "analyst-name"),
        ("", WORDS, "analyst-name"),
        ("a\nb", WORDS, "analyst-name"),
        ("bob", "short", "password"),
        ("bob", "x" * 1001, "password"),
        ("bob", "bell\a bell", "password"),
    ],
)
def test_who_cannot_be_added(file: Path, name: str, password: str, code: str) -> None:
    before = file.read_bytes()
    with pytest.raises(UsageError) as caught:
        add_user(file, User(name), password=password)
    assert caught.value.code == code
    assert password not in str(caught.value) or not password
    assert file.read_bytes() == before


def test_who_is_not_there_is_neither_changed_nor_removed(file: Path) -> None:
    for act in (lambda: change_password(file, "bob", password=WORDS), lambda: remove_user(file, "bob")):
        with pytest.raises(UsageError) as caught:
            act()
        assert caught.value.code == "user-unknown"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mask = 1",
        'mask = "not base64"',
        'mask = "YQ=="\n[users.bob]\nverifier = "plain"',
        'mask = "YQ=="\n[users.bob]\npassword = "plain"',
        'mask = "YQ=="\nusers = 3',
        "[" * 9999,
        "\x00",
    ],
)
def test_a_file_that_dpsql_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        Users(path)
    assert caught.value.code == "users-unreadable"
    assert "plain" not in str(caught.value)


def test_a_file_that_was_spoilt_leaves_the_users_that_were_read(file: Path) -> None:
    users = Users(file)
    file.write_text("spoilt")
    with pytest.raises(UsageError):
        users.reload()
    assert users.check("alice", WORDS)


def test_no_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Users(tmp_path / "its users.toml")
    assert caught.value.code == "users-missing"
    assert shlex.split(caught.value.hint)[-2:] == ["--users", str(tmp_path / "its users.toml")]
    add_user(tmp_path / "other.toml", User("bob"), password=WORDS)
    with pytest.raises(UsageError) as caught:
        change_password(tmp_path / "other.toml", "eve", password=WORDS)
    assert caught.value.hint.endswith(f"dpsql user list --users {tmp_path / 'other.toml'}")
    with pytest.raises(UsageError) as caught:
        add_user(tmp_path / "nowhere" / "users.toml", User("bob"), password=WORDS)
    assert caught.value.code == "users-unwritable"


def test_writers_at_once_lose_nobody(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    names = [f"user {number}" for number in range(12)]
    threads = [threading.Thread(target=add_user, args=(path, User(name)), kwargs={"password": WORDS}) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(user.name for user in list_users(path)) == sorted(names)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["users.toml", "users.toml.lock"]


def test_tokens_are_kept_as_digests_with_their_scopes(file: Path) -> None:
    before = Users(file)
    until = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    token = add_token(file, StoredToken('o"neil ünï', 'a "label"', frozenset({"read", "query"}), until))
    other = add_token(file, StoredToken("alice", "b", frozenset({"curate"})))
    assert token.startswith("dpsql_")
    assert token not in file.read_text()
    users = Users(file)
    assert users.find_token(digest_token(token)) == StoredToken(
        'o"neil ünï', 'a "label"', frozenset({"read", "query"}), until
    )
    assert users.find_token(digest_token(token + "x")) is None
    assert before.find_token(digest_token(token)) is None
    assert [stored.label for stored in list_tokens(file)] == ["b", 'a "label"']
    change_password(file, "alice", password="something new")
    add_user(file, User("carol"), password=WORDS)
    users.reload()
    assert users.find_token(digest_token(other)) is not None
    remove_token(file, 'o"neil ünï', label='a "label"')
    remove_user(file, "alice")
    assert list_tokens(file) == ()


@pytest.mark.parametrize(("name", "label", "code"), [("bob", "a", "user-unknown"), ("alice", "", "token-label")])
def test_tokens_that_cannot_be_made(file: Path, name: str, label: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        add_token(file, StoredToken(name, label, frozenset({"read"})))
    assert caught.value.code == code
    add_token(file, StoredToken("alice", "twice", frozenset({"read"})))
    for act in (
        lambda: add_token(file, StoredToken("alice", "twice", frozenset({"read"}))),
        lambda: remove_token(file, "alice", label="other"),
    ):
        with pytest.raises(UsageError) as caught:
            act()
        assert caught.value.code == "token-label"


@pytest.mark.parametrize(
    "line",
    [
        "tokens = 3",
        "tokens = [3]",
        "tokens = [{}]",
        'tokens = [{label = "x", digest = "zz", scopes = []}]',
        'tokens = [{label = "x", digest = "aa", scopes = []}]',
        f'tokens = [{{label = "x", digest = "{"a" * 64}", scopes = ["all"]}}]',
        f'tokens = [{{label = "x", digest = "{"a" * 64}", scopes = [["read"]]}}]',
        f'tokens = [{{label = "x", digest = "{"a" * 64}", scopes = [], expires = 3}}]',
        f'tokens = [{{label = "x", digest = "{"a" * 64}", scopes = [], expires = 2030-01-01T00:00:00}}]',
        f'tokens = [{{label = "x", digest = "{"a" * 64}", scopes = [], token = "plain"}}]',
    ],
)
def test_tokens_that_dpsql_did_not_write_are_refused(file: Path, line: str) -> None:
    file.write_text(file.read_text().replace("curator = true", line))
    with pytest.raises(UsageError) as caught:
        Users(file)
    assert caught.value.code == "users-unreadable"
