"""Transactions: nothing is written, so what one can undo is the settings, for whom it asks among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dpsql.server.wire.sqlstates import WireError

__all__ = ["OWN", "REPORTED", "Settings", "Transaction", "known", "version_of"]

REPORTED = (
    "application_name client_encoding DateStyle default_transaction_read_only in_hot_standby integer_datetimes "
    "IntervalStyle is_superuser scram_iterations search_path server_encoding server_version session_authorization "
    "standard_conforming_strings TimeZone"
).split()
OWN = frozenset(["server_version", "session_authorization"])  # told, of the connection itself
_LONGEST, _MOST = 1_000, 200  # characters of a value, settings of a connection
_FIXED: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "max_identifier_length": "63",
    "scram_iterations": "4096",
    "server_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
}
_DEFAULTS: Mapping[str, str] = {
    "application_name": "",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "lc_collate": "C",
    "lc_ctype": "C",
    "search_path": "main",
    "statement_timeout": "0",
    "transaction_deferrable": "off",
}
_READ_ONLY = frozenset(
    "in_hot_standby integer_datetimes is_superuser max_identifier_length server_encoding server_version "
    "server_version_num session_authorization dpsql.receipt".split()
)
_UNITS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PUNCTUATION = re.compile(r"[-_'\" ]")
_DURATION = re.compile(r"([0-9]{1,10}) *(|ms|s|min|h|d)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a connection, by lower-case names; `role` is for whom it asks, empty for its own user."""

    values: Mapping[str, str] = field(default_factory=dict)
    role: str = ""

    def having(self, name: str, value: str) -> Settings:
        """Return these settings with one more; raises `WireError` for what cannot be set."""
        check(name, value)
        if name in _FIXED:
            return self  # said already, or of no consequence
        values = {**self.values, name: value}
        if len(values) > _MOST:
            raise WireError("54000", "There are too many settings.", hint="RESET ALL forgets them.")
        return replace(self, values=values)

    def without(self, name: str) -> Settings:
        """Return these settings with the default of one, or of all."""
        kept = {one: value for one, value in self.values.items() if name and one != name}
        return replace(self, values=kept)

    def get(self, name: str) -> str:
        """Return a setting; raises `WireError` for one that there is not."""
        for among in (self.values, _FIXED, _DEFAULTS):
            if name in among:
                return among[name]
        raise WireError("42704", "There is no such setting.", hint="SHOW server_version is one.")

    @property
    def seconds(self) -> float:
        """How long a statement may take; 0 is without end."""
        return _milliseconds(self.get("statement_timeout")) / 1_000


def version_of(catalog: str) -> str:
    """Return the version that clients are told: that of the catalog, which says what they may ask of it."""
    return f"{catalog} (dpsql)"


def known() -> dict[str, str]:
    """Return all settings that there are from the start."""
    return {**_DEFAULTS, **_FIXED}


def check(name: str, value: str) -> None:
    """Raise `WireError` for a value that would change what is sent, and for settings that are told, not set."""
    plain = _PUNCTUATION.sub("", value.lower())  # asyncpg quotes what it sets in its first message
    if name in _READ_ONLY or name.startswith("dpsql."):
        raise WireError("55P02", "This setting cannot be changed.", hint="SHOW tells it.")
    if len(value) > _LONGEST or len(name) > _LONGEST:
        raise WireError("22023", "A setting has too long a value.", hint="Shorten it.")
    if name == "client_encoding" and plain not in {"utf8", "unicode"}:
        raise WireError("0A000", "Texts are UTF-8 here.", hint="SET client_encoding TO 'UTF8'.")
    if name == "datestyle" and "iso" not in plain:
        raise WireError("0A000", "Dates are written in ISO style here.", hint="SET DateStyle TO ISO.")
    if name == "standard_conforming_strings" and plain not in {"on", "true", "1", "yes"}:
        raise WireError("0A000", "A backslash in a string is a backslash.", hint="Write E'...' for escapes.")
    if name in {"transaction_read_only", "default_transaction_read_only"} and plain in {"off", "false", "0", "no"}:
        raise WireError("25006", "Every transaction is read-only.", hint="Leave it on.")
    if name == "statement_timeout":
        _milliseconds(value)


def _milliseconds(value: str) -> int:
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise WireError("22023", "This is no length of time.", hint="SET statement_timeout TO '30s'.")
    return int(found[1]) * _UNITS[found[2]]


class Transaction:
    """Where a connection stands: "I" outside a transaction, "T" in one, "E" in one that failed."""

    __slots__ = ("_before", "_kept", "_savepoints", "now", "status")

    def __init__(self, settings: Settings) -> None:
        self.status = "I"
        self.now = self._kept = self._before = settings
        self._savepoints: list[tuple[str, Settings, Settings]] = []

    def begin(self) -> None:
        """Begin a block; what was set from here on is undone by a rollback."""
        self.status = "T"
        self._before = self._kept
        self._savepoints.clear()

    def mark(self) -> None:
        """Remember the settings, outside a block, before a batch of statements that succeed or fail together."""
        if self.status == "I":
            self._before = self._kept = self.now

    def commit(self) -> None:
        """End the block, or batch, with what was set in it but not for it alone."""
        self.now, self.status = self._kept, "I"
        self._before = self.now

    def rollback(self) -> None:
        """End the block, or batch, as if nothing had been set in it."""
        self.now = self._kept = self._before
        self.status = "I"

    def change(self, change: Callable[[Settings], Settings], *, local: bool = False) -> None:
        """Set; `local` until the end of the block only."""
        self.now = change(self.now)
        if not local:
            self._kept = change(self._kept)

    def fail(self) -> None:
        """Remember that a statement failed: a block is then only ended, a batch undone."""
        if self.status == "I":
            self.rollback()
        else:
            self.status = "E"

    def savepoint(self, name: str) -> None:
        """Remember the settings under a name."""
        self._block("SAVEPOINT")
        if len(self._savepoints) >= _MOST:
            raise WireError("54000", "There are too many savepoints.", hint="RELEASE some.")
        self._savepoints.append((name, self.now, self._kept))

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it."""
        self._block("RELEASE SAVEPOINT")
        del self._savepoints[self._find(name) :]

    def back_to(self, name: str) -> None:
        """Undo what was set since a savepoint, and go on from it."""
        self._block("ROLLBACK TO SAVEPOINT")
        at = self._find(name)
        del self._savepoints[at + 1 :]
        _, self.now, self._kept = self._savepoints[at]
        self.status = "T"

    def _find(self, name: str) -> int:
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at][0] == name:
                return at
        raise WireError("3B001", "There is no such savepoint.", hint="SAVEPOINT makes one.")

    def _block(self, what: str) -> None:
        if self.status == "I":
            raise WireError("25P01", f"{what} is for transaction blocks.", hint="BEGIN first.")
