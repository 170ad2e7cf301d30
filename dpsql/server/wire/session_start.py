"""What a client is told when it has come in: the settings it asked for, those that stand, and its key to cancel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from dpsql.server.random_bytes import unguessable
from dpsql.server.wire.codec import message, texts
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.startup import Startup
from dpsql.server.wire.transaction import OWN, REPORTED, Settings, version_of

__all__ = ["configured", "greeting", "new_key", "statuses"]

_OPTION: Final = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>(?:\\.|[^\s\\])*)\s*")
_NO_SETTING: Final = frozenset(["user", "database", "options", "replication"])
_LONG_KEY, _SHORT_KEY = 32, 4
_LONG_SINCE: Final = 2  # the minor version of the protocol


def configured(startup: Startup) -> Settings:
    """Return the settings that a client begins with; its role is yet to be allowed. Raises `WireError`."""
    settings = Settings()
    for name, value in _asked(startup.parameters):
        settings = replace(settings, role=value) if name == "role" else settings.having(name, value)
    return settings


def _asked(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from _options(parameters.get("options", "").strip())
    for name, value in parameters.items():
        if name not in _NO_SETTING and not name.startswith("_pq_."):
            yield name.lower(), value


def _options(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _OPTION.match(text, at)
        if found is None:
            raise WireError("08P01", "The options of the connection cannot be read.", hint="Such as -c name=value.")
        at = found.end()
        yield found["name"].lower().replace("-", "_"), re.sub(r"\\(.)", r"\1", found["value"])


def new_key(minor: int) -> bytes:
    """Return a key, as long as the version of the protocol has it."""
    return unguessable(_LONG_KEY if minor >= _LONG_SINCE else _SHORT_KEY)


def greeting(settings: Settings, *, version: str, user: str) -> dict[str, str]:
    """Return the settings that a client is told when it has come in, by their names."""
    own = {"server_version": version_of(version), "session_authorization": user}
    return {name: own[name] if name in OWN else settings.get(name.lower()) for name in REPORTED}


def statuses(told: Mapping[str, str], *, number: int, key: bytes) -> list[bytes]:
    """Return the messages that end a login: settings, and what cancels the connection's statements."""
    return [*(texts(b"S", name, value) for name, value in told.items()), message(b"K", number.to_bytes(4), key)]
