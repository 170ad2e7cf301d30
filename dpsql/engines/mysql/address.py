"""The address of a server of MariaDB or MySQL, as PyMySQL takes it."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from dpsql.errors import PolicyError

__all__ = ["read_address"]

_PORT = 3_306
_SECONDS = 10  # that a server has to answer at all
_PARAMETERS = frozenset(["unix_socket", "ssl_ca", "ssl_cert", "ssl_key"])


def read_address(url: str) -> dict[str, Any]:
    """Return the arguments of `pymysql.connect` for "mysql://user:password@host:port/database?unix_socket=path".

    Without a password it is that of MYSQL_PWD, as for the server's own clients. With `ssl_ca` the certificate of the
    server and the name in it are checked. Raises `PolicyError`.
    """
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path.removeprefix("/"))
    hint = "Write it as mysql://user@host:3306/database, or mysql://user@/database?unix_socket=/run/mysqld/mysqld.sock."
    if "://" not in url or not database or "/" in database or parts.fragment:
        raise PolicyError("policy-source", "The address names no database.", hint=hint, place="source.url")
    for name in parameters:
        if name not in _PARAMETERS:
            known = f"It may have {', '.join(sorted(_PARAMETERS))}; variables of the session stand in [source.options]."
            reason = "The address has a parameter that is not known."
            raise PolicyError("policy-source", reason, hint=known, place="source.url")
    password = os.environ.get("MYSQL_PWD", "") if parts.password is None else unquote(parts.password)
    found: dict[str, Any] = {"database": database, "password": password, "connect_timeout": _SECONDS, **parameters}
    if parts.username is not None:
        found["user"] = unquote(parts.username)
    if "unix_socket" not in parameters:
        found |= {"host": parts.hostname or "localhost", "port": parts.port or _PORT}
    if "ssl_ca" in parameters:
        found |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    return found
