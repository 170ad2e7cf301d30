"""The address of a ledger in a database: what is read, what is refused unseen, and that no password is told."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from dpsql.errors import PolicyError
from dpsql.policy import Budget, DatabaseUrl, Policy, PrivateTable, is_url

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("text", "target", "schema", "told"),
    [
        ("postgresql://h/d", "postgresql://h/d", "dpsql_ledger", "postgresql://h/d"),
        ("postgres://h/d?schema=a_1", "postgres://h/d", "a_1", "postgresql://h/d?schema=a_1"),
        ("postgresql:///?service=s&schema=a", "postgresql:///?service=s", "a", "postgresql:///?service=s&schema=a"),
        ("postgresql://", "postgresql://", "dpsql_ledger", "postgresql://"),
        ("postgresql://u:s3cret@h:1,[::1]:2/d", None, "dpsql_ledger", "postgresql://u@h:1,[::1]:2/d"),
        ("postgresql://u:s3cret@%2Ftmp/d?sslmode=require", None, "dpsql_ledger", "postgresql://u@%2Ftmp/d"),
        ("postgresql://:s3cret@h/d?", "postgresql://:s3cret@h/d", "dpsql_ledger", "postgresql://h/d"),
        ("postgresql://u:s3:cret@h", None, "dpsql_ledger", "postgresql://u@h"),
        ("postgresql://h/d?password=s3cret&schema=a", None, "a", "postgresql://h/d?schema=a"),
        ("postgresql://h/d?schema=a&p%61ssword=s3cret", None, "a", "postgresql://h/d?schema=a"),
        ("postgresql://h/d?passfile=/s3cret&user=s3cret", None, "dpsql_ledger", "postgresql://h/d"),
    ],
)
def test_an_address_is_read_and_told_without_its_password(
    text: str, target: str | None, schema: str, told: str
) -> None:
    url = DatabaseUrl.of(text)
    assert url.schema == schema
    assert "schema=" not in url.target
    assert target is None or url.target == target
    assert (str(url), repr(url), f"{url}") == (told, f"DatabaseUrl({told!r})", told)
    assert DatabaseUrl.of(url) is url
    assert pickle.loads(pickle.dumps(url)) == url != replace(url, target="other")


REFUSED = [
    "postgresql://u:s3cret@x@h/d",
    "postgresql://u:s3/cret@h/d",
    "postgresql://u:s3?cret@h/d",
    "postgresql://u:s3#cret@h/d",
    "postgresql://u:s3cret",
    "postgresql://h:s3cret/d",
    "postgresql://h/d#s3cret",
    "postgresql://h/d?password=s3cret@x",
    "postgresql://h/d/s3cret@",
    "postgresql://h\0s3cret/d",
    "postgresql://h/d\ns3cret",
    "PostgreSQL://u:s3cret@h/d",
    "postgresql+psycopg://u:s3cret@h/d",
    "mysql://u:s3cret@h/d",
    "postgresql:/u:s3cret@h/d",
    *(
        f"postgresql://u:s3cret@h/d?schema={name}"
        for name in ("", "A", "1a", "a-b", "a.b", 'a"b', "a b", "é", "pg_catalog", "a" * 64, "a&schema=b", "a%62")
    ),
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_odd_is_refused_unseen(text: str) -> None:
    tables = {"t": PrivateTable("u")}
    for act in (lambda: DatabaseUrl.of(text), lambda: Policy(Budget(1, "1e-6"), tables, ledger=text)):
        with pytest.raises(PolicyError) as caught:
            act()
        assert caught.value.code == "policy-url"
        assert "cret" not in str(caught.value)
        assert caught.value.hint
        assert caught.value.place == "ledger"


@pytest.mark.parametrize(
    "text", ["ledger.sqlite", "a b?c#d", "/a/b", r"C:\ledgers\one", "C:/ledgers/one", ":memory:", ""]
)
def test_a_path_is_no_address(text: str) -> None:
    assert not is_url(text)
    assert not is_url(Path(text))


def test_a_path_that_was_an_address_is_refused_unseen() -> None:
    """A Path has lost a slash of it; as a path it would be told in errors, with the password."""
    path = Path("postgresql://u:s3cret@h/d")
    assert is_url(path)
    with pytest.raises(PolicyError) as caught:
        Policy(Budget(1, "1e-6"), {"t": PrivateTable("u")}, ledger=path)
    assert "cret" not in str(caught.value)


def test_a_policy_keeps_the_address_and_tells_no_password(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        'ledger = "postgresql://u:s3cret@h/d?schema=sales"\n[budget]\nepsilon = 1\ndelta = 1e-6\n'
        '[tables.t]\nprivacy_unit = "u"\n'
    )
    policy = Policy.from_toml(file)
    same = Policy(Budget(1, "1e-6"), {"t": PrivateTable("u")}, ledger="postgresql://u:s3cret@h/d?schema=sales")
    assert policy == same
    assert isinstance(policy.ledger, DatabaseUrl)
    assert policy.ledger.target == "postgresql://u:s3cret@h/d"
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert SECRET not in repr(policy)
    assert "postgresql://u@h/d?schema=sales" in repr(policy)


def test_an_odd_address_in_a_file_is_placed(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('ledger = "mysql://u:s3cret@h/d"\n[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.t]\npublic = true\n')
    with pytest.raises(PolicyError, match=r"ledger \(policy.toml, line 1\)") as caught:
        Policy.from_toml(file)
    assert SECRET not in str(caught.value)
