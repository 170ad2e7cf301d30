"""The policy's words on the server: read, refused with a place, kept by copies; nothing in the clear for others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpsql import Budget, Policy, PolicyError, PrivateTable, ServerSettings
from dpsql.policy.settings import is_loopback

FILE = """\
[budget]
epsilon = 1
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[server]
"""
TABLES = {"reads": PrivateTable("user_id")}
ALL = """\
users = "people/users.toml"
postgres = "0.0.0.0:5432"
web = "off"
mcp = "[::1]:31337"
certificate = "cert.pem"
key = "/etc/key.pem"
catalog = "none"
statements_per_minute = 60
max_connections = 8
connections_per_user = 3
require_tls = true
"""


def read(folder: Path, text: str) -> ServerSettings:
    file = folder / "policy.toml"
    file.write_text(FILE + text, encoding="utf-8")
    return Policy.from_toml(file).server


def test_without_words_only_this_machine_is_served(tmp_path: Path) -> None:
    settings = read(tmp_path, "")
    assert settings == ServerSettings() == Policy(Budget(1, "1e-6"), TABLES).server
    assert all(is_loopback(host) for host, _ in settings.listens().values())
    assert settings.listens().keys() == {"postgres", "web"}


def test_settings_of_a_file_whose_paths_are_beside_it(tmp_path: Path) -> None:
    settings = read(tmp_path, ALL)
    assert settings.users == tmp_path / "people/users.toml"
    assert settings.certificate == tmp_path / "cert.pem"
    assert settings.key == Path("/etc/key.pem")
    assert settings.listens() == {"postgres": ("0.0.0.0", 5432), "mcp": ("::1", 31337)}
    assert (settings.catalog, settings.statements_per_minute, settings.max_connections) == ("none", 60, 8)
    assert (settings.connections_per_user, settings.require_tls) == (3, True)


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ('postgres = "5432"', "policy-address", "postgres"),
        ('postgres = "localhost:99999"', "policy-address", "postgres"),
        ('web = "::1:8080"', "policy-address", "web"),
        ('mcp = ""', "policy-address", "mcp"),
        ('flight = ""', "policy-flight", "flight"),
        ("flight = 8815", "policy-type", "flight"),
        ("web = 8080", "policy-type", "web"),
        ('users = ""', "policy-path", "users"),
        ('catalog = "everything"', "policy-catalog", "catalog"),
        ('catalog = "foreign"', "policy-catalog", "catalog"),
        ('catalog = "postgresql://a:secret@b@c/d"', "policy-catalog", "catalog"),
        ('certificate = "cert.pem"', "policy-tls", "certificate"),
        ('key = "key.pem"', "policy-tls", "key"),
        ("statements_per_minute = 0", "policy-range", "statements_per_minute"),
        ("max_connections = 2.5", "policy-type", "max_connections"),
        ("connections_per_user = 0", "policy-range", "connections_per_user"),
        ("require_tls = 1", "policy-type", "require_tls"),
        ("require_tls = true", "policy-tls", "require_tls"),
        ("port = 5432", "policy-unknown-key", "port"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, code: str, key: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read(tmp_path, text)
    assert caught.value.code == code
    assert str(caught.value.place).startswith(f"server.{key}")
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "[::]", "db.example", "localhost.example"])
def test_other_machines_are_served_over_tls_alone(host: str) -> None:
    with pytest.raises(PolicyError) as caught:
        ServerSettings(postgres=f"{host}:5432")
    assert (caught.value.code, caught.value.place) == ("policy-tls", "server.postgres")
    assert ServerSettings(postgres=f"{host}:5432", certificate="cert.pem", key="key.pem").listens()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine_is_served_without_a_certificate(host: str) -> None:
    assert "postgres" in ServerSettings(postgres=f"{host}:5432").listens()


@pytest.mark.parametrize("former", ["minimal", "foreign", "postgresql://shadow:secret@localhost/empty"])
def test_a_former_catalog_is_refused_with_the_line_to_write(former: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        read(tmp_path, f'catalog = "{former}"')
    assert (caught.value.code, caught.value.reason) == ("policy-catalog", "This catalog was removed.")
    assert "secret" not in str(caught.value)
    lines = re.findall(r'catalog = "\w+"', str(caught.value.hint))
    assert [read(tmp_path, line).catalog for line in lines] == ["auto", "none"]


def test_values_of_another_type_are_refused_in_python() -> None:
    with pytest.raises(PolicyError):
        Policy(Budget(1, "1e-6"), TABLES, server="0.0.0.0:1")  # type: ignore[arg-type]
    with pytest.raises(PolicyError):
        ServerSettings(catalog=3)  # type: ignore[arg-type]
