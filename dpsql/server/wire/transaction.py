"""Settings and transactions of a connection.

Nothing is written, so a rollback only undoes settings, which include the role, and temporary views.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dpsql.server.memory_quota import Holding, UserQuota
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.views import View

# Clients rely on these without asking: JDBC closes a connection whose DateStyle is not ISO, and libpq's
# target_session_attrs reads default_transaction_read_only and in_hot_standby.
REPORTED = (
    "application_name client_encoding DateStyle default_transaction_read_only in_hot_standby integer_datetimes "
    "IntervalStyle is_superuser scram_iterations search_path server_encoding server_version session_authorization "
    "standard_conforming_strings TimeZone"
).split()
PER_CONNECTION = frozenset(["server_version", "session_authorization"])  # reported, but not settings
IMPLICIT = "dpsql.implicit"  # the setting; without a value it is as the policy says
_OWN = frozenset(["dpsql.details", IMPLICIT])  # settings of dpsql that can be set
_ON, _OFF = frozenset(["on", "true", "yes", "1"]), frozenset(["off", "false", "no", "0"])
_MAX_LENGTH, _MAX_COUNT = 1_000, 200  # characters of a value; settings of a connection
_OF_SETTINGS, _OF_VALUE = 1_000, 100  # bytes that Python needs for settings, and for a value of them
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
    "dpsql.details": "off",
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
    """The settings of a connection, by lower-case names, and its temporary views.

    `role` is the analyst that it acts as, empty for its user.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    role: str = ""
    views: Mapping[str, View] = field(default_factory=dict)

    def with_value(self, name: str, value: str) -> Settings:
        """Return these settings with a value set; raise `WireError` for one that cannot be set."""
        _check_value(name, value)
        if name in _FIXED:
            return self  # the value is the fixed one, or has no effect
        values = {**self.values, name: value}
        if len(values) > _MAX_COUNT:
            raise WireError("54000", "There are too many settings.", hint="RESET ALL")
        return replace(self, values=values)

    def without_value(self, name: str) -> Settings:
        """Return these settings with the default of one, or of all if the name is empty."""
        values = {one: value for one, value in self.values.items() if name and one != name}
        return replace(self, values=values)

    def get(self, name: str) -> str:
        """Return a setting; raise `WireError` for an unknown one."""
        for values in (self.values, _FIXED, _DEFAULTS):
            if name in values:
                return values[name]
        raise WireError("42704", "There is no such setting.", hint="SHOW ALL lists the settings.")

    @property
    def implicit(self) -> bool | None:
        """Whether standard SQL over private tables is read as private; None leaves it to the policy."""
        value = self.values.get(IMPLICIT)
        return None if value is None else value.lower() in _ON

    @property
    def has_details(self) -> bool:
        """Whether the details of a receipt are sent with it."""
        return self.get("dpsql.details").lower() in _ON

    @property
    def size(self) -> int:
        """The bytes that they hold."""
        values = sum(sys.getsizeof(name) + sys.getsizeof(value) for name, value in self.values.items())
        views = sum(sys.getsizeof(name) + view.size for name, view in self.views.items())
        return _OF_SETTINGS + _OF_VALUE * len(self.values) + values + views

    @property
    def seconds(self) -> float:
        """The time limit of a statement; 0 is no limit."""
        return _parse_milliseconds(self.get("statement_timeout")) / 1_000


def format_version(catalog: str) -> str:
    """Return the server version for clients: that of the catalog, from which they derive its features."""
    return f"{catalog} (dpsql)"


def default_settings() -> dict[str, str]:
    """Return all settings with their initial values."""
    return {**_DEFAULTS, **_FIXED}


def _check_value(name: str, value: str) -> None:
    """Raise `WireError` for a read-only setting, and for a value that the server could not honour."""
    normal = _PUNCTUATION.sub("", value.lower())  # asyncpg quotes what it sets in its first message
    if len(value) > _MAX_LENGTH or len(name) > _MAX_LENGTH:
        raise WireError("22023", "The value of a setting is too long.", hint=f"Set at most {_MAX_LENGTH} characters.")
    if name.startswith("dpsql.") and name not in _OWN | _READ_ONLY:
        raise WireError("42704", "There is no such setting.", hint="SHOW ALL lists the settings.")
    if name in _READ_ONLY:
        raise WireError("55P02", "This setting is read-only.", hint=f"SHOW {name}")
    if name == "client_encoding" and normal not in {"utf8", "unicode"}:
        raise WireError("0A000", "Only UTF-8 is supported.", hint="SET client_encoding TO 'UTF8'.")
    if name == "datestyle" and "iso" not in normal:
        raise WireError("0A000", "Only the ISO style of dates is supported.", hint="SET DateStyle TO ISO.")
    if name == "standard_conforming_strings" and normal not in {"on", "true", "1", "yes"}:
        raise WireError("0A000", "Strings without E do not read escapes.", hint="Write E'...' for escapes.")
    if name in {"transaction_read_only", "default_transaction_read_only"} and normal in {"off", "false", "0", "no"}:
        raise WireError("25006", "Every transaction is read-only.", hint="Leave it on.")
    if name == "statement_timeout":
        _parse_milliseconds(value)
    if name == IMPLICIT and value.lower() not in _ON | _OFF:
        raise WireError("22023", "dpsql.implicit is on or off.", hint="SET dpsql.implicit = on")


def _parse_milliseconds(value: str) -> int:
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise WireError("22023", "This is not a duration.", hint="SET statement_timeout TO '30s'.")
    return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class _Savepoint:
    """Settings at a savepoint; `holding` counts their memory."""

    name: str
    settings: Settings
    lasting: Settings
    holding: Holding


class Transaction:
    """State of a connection: "I" outside a transaction, "T" in one, "E" in one that failed.

    `settings` are those in force; those that outlive the transaction lack what SET LOCAL changed. What all of them
    hold, also those that a rollback would restore, is counted.
    """

    __slots__ = ("_holding", "_lasting", "_previous", "_quota", "_savepoints", "settings", "status")

    def __init__(self, settings: Settings, quota: UserQuota) -> None:
        self.status = "I"
        self.settings = self._lasting = self._previous = settings
        self._savepoints: list[_Savepoint] = []
        self._quota = quota
        self._holding = quota.hold(settings.size, is_forced=True)

    def begin(self) -> None:
        """Begin a transaction block; a rollback undoes the settings made from here on."""
        self.status = "T"
        self._previous = self._lasting
        self._savepoints.clear()

    def commit(self) -> None:
        """End the block or batch, and keep what was set in it, except with SET LOCAL."""
        self._end(self._lasting)

    def rollback(self) -> None:
        """End the block or batch, and undo what was set in it."""
        self._end(self._previous)

    def _end(self, settings: Settings) -> None:
        self.settings = self._lasting = self._previous = settings
        self.status = "I"
        self._savepoints.clear()
        self._holding.resize(settings.size, is_forced=True)

    def change(self, change: Callable[[Settings], Settings], *, local: bool = False) -> None:
        """Change the settings; `local` changes last until the end of the block."""
        changed = change(self.settings)
        lasting = self._lasting if local else change(self._lasting)
        self._holding.resize(changed.size + lasting.size + self._previous.size)
        self.settings, self._lasting = changed, lasting

    def fail(self) -> None:
        """Record a failed statement: a block then only accepts its end, and a batch is undone."""
        if self.status == "I":
            self.rollback()
        else:
            self.status = "E"

    def add_savepoint(self, name: str) -> None:
        """Save the settings under a name."""
        self._check_block("SAVEPOINT")
        if len(self._savepoints) >= _MAX_COUNT:
            raise WireError("54000", "There are too many savepoints.", hint="RELEASE some.")
        size = sys.getsizeof(name) + self.settings.size + self._lasting.size
        holding = self._quota.hold(size)
        self._savepoints.append(_Savepoint(name, self.settings, self._lasting, holding))

    def release_savepoint(self, name: str) -> None:
        """Remove a savepoint and those after it."""
        self._check_block("RELEASE SAVEPOINT")
        del self._savepoints[self._find_savepoint(name) :]

    def rollback_to(self, name: str) -> None:
        """Undo what was set since a savepoint, and continue from it."""
        self._check_block("ROLLBACK TO SAVEPOINT")
        at = self._find_savepoint(name)
        del self._savepoints[at + 1 :]
        self.settings, self._lasting = self._savepoints[at].settings, self._savepoints[at].lasting
        self._holding.resize(self.settings.size + self._lasting.size + self._previous.size, is_forced=True)
        self.status = "T"

    def _find_savepoint(self, name: str) -> int:
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at].name == name:
                return at
        raise WireError("3B001", "There is no such savepoint.", hint=f"SAVEPOINT {name}")

    def _check_block(self, command: str) -> None:
        if self.status == "I":
            raise WireError("25P01", f"{command} can only be used in a transaction block.", hint="BEGIN first.")
