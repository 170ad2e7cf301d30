"""Settings of `dpsql serve`: addresses, users, and limits."""

from __future__ import annotations

import ipaddress
import json
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.policy.tables import beside
from dpsql.policy.toml import Section
from dpsql.policy.url import DatabaseUrl, is_url
from dpsql.policy.validation import check_count, check_flag, check_path, fill, wrong_type

__all__ = ["CATALOGS", "OFF", "ServerSettings", "is_loopback", "read_server", "split_address"]

OFF = "off"
CATALOGS = ("auto", "none")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LAST_PORT = 65_535
_SURFACES = ("postgres", "web", "mcp")
_COUNTS = ("statements_per_minute", "max_connections", "connections_per_user")


@dataclass(frozen=True, slots=True, init=False)
class ServerSettings:
    """Settings of `dpsql serve`: addresses, users, and limits.

    `users` is the file that `dpsql user add` writes. `postgres`, `web` and `mcp` are each a "host:port" or "off"; one
    that other machines can reach needs a `certificate` and its `key`, files in PEM. With `require_tls`, connections of
    PostgreSQL's protocol from this machine must be encrypted too, as behind a proxy. `catalog` is the PostgreSQL that
    answers tools which list tables: "auto" starts an empty one, an address is that of an empty database, and "none"
    refuses such statements. `statements_per_minute` is a limit for each analyst, `max_connections` one for all
    together, and `connections_per_user` one for each user of PostgreSQL's protocol.

    >>> ServerSettings(users="users.toml").web
    '127.0.0.1:8080'
    """

    users: Path | None
    postgres: str
    web: str
    mcp: str
    certificate: Path | None
    key: Path | None
    catalog: str | DatabaseUrl
    statements_per_minute: int
    max_connections: int
    connections_per_user: int
    require_tls: bool

    def __init__(  # noqa: PLR0913 - the keys of the table [server]
        self,
        *,
        users: Path | str | None = None,
        postgres: str = "127.0.0.1:5433",
        web: str = "127.0.0.1:8080",
        mcp: str = OFF,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        catalog: str | DatabaseUrl = "auto",
        statements_per_minute: int = 600,
        max_connections: int = 200,
        connections_per_user: int = 50,
        require_tls: bool = False,
    ) -> None:
        fill(self, users=None if users is None else check_path(users, "server.users"))
        fill(self, postgres=_address(postgres, "server.postgres"), web=_address(web, "server.web"))
        fill(self, mcp=_address(mcp, "server.mcp"))
        fill(self, certificate=None if certificate is None else check_path(certificate, "server.certificate"))
        fill(self, key=None if key is None else check_path(key, "server.key"))
        fill(self, catalog=_catalog(catalog))
        fill(self, statements_per_minute=check_count(statements_per_minute, "server.statements_per_minute"))
        fill(self, max_connections=check_count(max_connections, "server.max_connections"))
        fill(self, connections_per_user=check_count(connections_per_user, "server.connections_per_user"))
        fill(self, require_tls=check_flag(require_tls, "server.require_tls"))
        if (self.certificate is None) != (self.key is None):
            place = "server.key" if self.certificate is None else "server.certificate"
            reason = "A certificate and its key belong together, and one of them is missing."
            raise PolicyError("policy-tls", reason, hint="Name both files, in PEM.", place=place)
        if self.require_tls and self.certificate is None:
            reason = "TLS is required, and the server has no certificate for it."
            hint = "Name a certificate and its key, or leave require_tls out."
            raise PolicyError("policy-tls", reason, hint=hint, place="server.require_tls")
        for name, (host, _) in self.listens().items():
            if self.certificate is None and not is_loopback(host):
                reason = "Other machines can reach this address, and passwords and answers would travel unencrypted."
                hint = "Name a certificate and its key, or listen on 127.0.0.1."
                raise PolicyError("policy-tls", reason, hint=hint, place=f"server.{name}")

    def listens(self) -> dict[str, tuple[str, int]]:
        """Return host and port of every surface that is on, by its name."""
        places = {name: getattr(self, name) for name in _SURFACES}
        return {name: split_address(place) for name, place in places.items() if place != OFF}


def split_address(text: str) -> tuple[str, int]:
    """Return the host and the port of a "host:port" that was checked; an IPv6 host without its brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; of names only "localhost" is known to be so."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_server(root: Section, folder: Path) -> ServerSettings:
    """Return the settings that the table [server] of a policy file in `folder` describes."""
    section = _without_flight(root.section("server"))
    section.only("users", *_SURFACES, "certificate", "key", "require_tls", "catalog", *_COUNTS)
    texts = {name: section.text(name) for name in ("users", "certificate", "key")}
    counts = {name: section.whole(name) for name in _COUNTS if name in section.values}
    usual = ServerSettings()

    def said(name: str, otherwise: str) -> str:
        return otherwise if (text := section.text(name)) is None else text

    with root.placing():
        files = {name: beside(folder, text, place=f"server.{name}") for name, text in texts.items()}
        return ServerSettings(
            users=files["users"],
            postgres=said("postgres", usual.postgres),
            web=said("web", usual.web),
            mcp=said("mcp", usual.mcp),
            certificate=files["certificate"],
            key=files["key"],
            catalog=said("catalog", str(usual.catalog)),
            require_tls=bool(section.flag("require_tls")),
            **counts,
        )


def _without_flight(section: Section) -> Section:
    """Return the section without a line `flight`: warn of one that says "off", refuse any other."""
    if "flight" not in section.values:
        return section
    reason, place = "Arrow Flight SQL was removed in version 0.12.0.", section.where("flight")
    if section.text("flight") != OFF:
        hint = (
            f"Delete the line flight = {json.dumps(section.text('flight'))}. For Arrow, send the JSON API the header "
            "Accept: application/vnd.apache.arrow.stream, or connect adbc-driver-postgresql to the address of postgres."
        )
        raise PolicyError("policy-flight", reason, hint=hint, place=place)
    warnings.warn(f'{reason} Delete the line flight = "{OFF}": {place}.', FutureWarning, stacklevel=2)
    return replace(section, values={key: value for key, value in section.values.items() if key != "flight"})


def _address(value: str, place: str) -> str:
    if not isinstance(value, str):
        raise wrong_type('a text such as "127.0.0.1:5433"', value, place=place)
    found = _ADDRESS.fullmatch(value)
    if value != OFF and (found is None or not 0 <= int(found[2]) <= _LAST_PORT):
        hint = f'Write host:port, such as "127.0.0.1:5433" or "[::1]:5433", or "{OFF}".'
        raise PolicyError("policy-address", "The text is no host and port.", hint=hint, place=place)
    return value


def _catalog(value: str | DatabaseUrl) -> str | DatabaseUrl:
    if not isinstance(value, str | DatabaseUrl):
        raise wrong_type("text", value, place="server.catalog")
    if is_url(value):
        try:
            return DatabaseUrl.of(value)
        except PolicyError as error:
            reason = "The address of the catalog cannot be read."
            raise PolicyError(error.code, reason, hint=error.hint, place="server.catalog") from None
    if value == "minimal":
        reason, hint = 'The catalog "minimal" no longer exists.', 'Write catalog = "none", or leave it out for "auto".'
        raise PolicyError("policy-catalog", reason, hint=hint, place="server.catalog")
    if value not in CATALOGS:
        hint = f"Write one of {', '.join(CATALOGS)}, or the postgresql:// address of an empty database."
        raise PolicyError("policy-catalog", "There is no such catalog.", hint=hint, place="server.catalog")
    return value
