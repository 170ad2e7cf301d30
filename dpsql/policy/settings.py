"""Settings of a policy: limits of queries and of analysts, the engine, and the server."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from dpsql.errors import PolicyError, UsageError
from dpsql.policy.source import is_url
from dpsql.policy.tables import beside
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_count, check_delta, check_epsilon, check_flag, check_path, fill, wrong_type
from dpsql.quantities import Delta, Epsilon, Number

_DEFAULT_K = 10
_LIMIT_KEYS = {
    **dict.fromkeys(("max_epsilon", "min_epsilon", "max_delta"), "number"),
    **dict.fromkeys(("default_k", "max_k", "max_k_bar", "max_rows_fetched", "failures_per_day"), "whole"),
    **dict.fromkeys(("consent", "share_replays"), "flag"),
}


@dataclass(frozen=True, slots=True, init=False)
class Limits:
    """Limits of one query: the keys of [limits] (docs/reference/policy.md#limits).

    Raises `PolicyError` for limits that contradict each other.

    >>> Limits(max_k=50).max_k
    50
    """

    max_epsilon: Epsilon
    min_epsilon: Epsilon
    max_delta: Delta | None
    max_k: int
    max_k_bar: int
    share_replays: bool
    failures_per_day: int
    default_k: int
    max_rows_fetched: int | None
    consent: bool

    def __init__(  # noqa: PLR0913 - the keys of the table [limits]
        self,
        *,
        max_epsilon: Number | Epsilon = 1,
        min_epsilon: Number | Epsilon = "1e-4",
        max_delta: Number | Delta | None = None,
        max_k: int = 1000,
        max_k_bar: int = 10_000,
        share_replays: bool = False,
        failures_per_day: int = 3,
        default_k: int | None = None,
        max_rows_fetched: int | None = None,
        consent: bool = False,
    ) -> None:
        fill(self, max_epsilon=check_epsilon(max_epsilon, "limits.max_epsilon"))
        fill(self, min_epsilon=check_epsilon(min_epsilon, "limits.min_epsilon"))
        fill(self, max_delta=None if max_delta is None else check_delta(max_delta, "limits.max_delta"))
        fill(self, max_k=check_count(max_k, "limits.max_k"))
        fill(self, max_k_bar=check_count(max_k_bar, "limits.max_k_bar"))
        fill(self, share_replays=check_flag(share_replays, "limits.share_replays"))
        fill(self, consent=check_flag(consent, "limits.consent"))
        usual = min(_DEFAULT_K, self.max_k)
        fill(self, default_k=usual if default_k is None else check_count(default_k, "limits.default_k"))
        rows = max_rows_fetched
        fill(self, max_rows_fetched=None if rows is None else check_count(rows, "limits.max_rows_fetched"))
        fill(self, failures_per_day=check_count(failures_per_day, "limits.failures_per_day"))
        if self.min_epsilon > self.max_epsilon:
            reason = f"The smallest epsilon, {self.min_epsilon}, is above the largest, {self.max_epsilon}."
            raise PolicyError("policy-range", reason, hint="Lower min_epsilon or raise max_epsilon.", place="limits")
        if self.default_k > self.max_k:
            reason = f"default_k = {self.default_k} is above max_k = {self.max_k}, the largest k of a query."
            raise PolicyError("policy-range", reason, hint="Lower default_k or raise max_k.", place="limits")
        if self.max_k > self.max_k_bar:
            reason = (
                f"max_k = {self.max_k} is above max_k_bar = {self.max_k_bar}, the largest number of groups to read."
            )
            raise PolicyError("policy-range", reason, hint="Lower max_k or raise max_k_bar.", place="limits")
        if self.max_rows_fetched is not None and self.max_k >= self.max_rows_fetched:
            reason = (
                f"max_rows_fetched = {self.max_rows_fetched} is too few for max_k = {self.max_k} keys and one more."
            )
            hint = f"Lower max_k or set max_rows_fetched to {self.max_k + 1} or more."
            raise PolicyError("policy-range", reason, hint=hint, place="limits")

    @property
    def most_k_bar(self) -> int:
        """Largest k_bar of a query: of the groups that it reads, one more than k_bar may cross."""
        return self.max_k_bar if self.max_rows_fetched is None else min(self.max_k_bar, self.max_rows_fetched - 1)


def read_limits(root: Section) -> Limits:
    """Return the ceilings that the table [limits] of a policy file describes."""
    values = root.section("limits").read(_LIMIT_KEYS)
    with root.placing():
        return Limits(**values)


UNLISTED = "default"  # the name under which a policy says what holds for all whom it does not list
_LONGEST_NAME = 100
_NEAR = 0.75  # of 1, for a name in which two letters are swapped
_ANALYST_KEYS = {"epsilon": "number", "delta": "number", "items": "whole", "queries": "whole", "enabled": "flag"}
_NAME = f"An analyst's name has 1 to {_LONGEST_NAME} printable characters."


@dataclass(frozen=True, slots=True, init=False)
class Analyst:
    """Limit of one analyst within the total, with the keys of docs/reference/policy.md#analysts.

    >>> Analyst(0.25, items=25).epsilon
    Epsilon(0.25)
    """

    epsilon: Epsilon | None
    delta: Delta | None
    items: int | None
    queries: int | None
    enabled: bool

    def __init__(
        self,
        epsilon: Number | Epsilon | None = None,
        delta: Number | Delta | None = None,
        *,
        items: int | None = None,
        queries: int | None = None,
        enabled: bool = True,
    ) -> None:
        has_none = enabled and epsilon == 0 and epsilon is not False
        fill(self, epsilon=None if epsilon is None or has_none else check_epsilon(epsilon, "epsilon"))
        fill(self, delta=None if delta is None else check_delta(delta, "delta"))
        fill(self, items=None if items is None else check_count(items, "items"))
        fill(self, queries=None if queries is None else check_count(queries, "queries"))
        fill(self, enabled=check_flag(enabled, "enabled"))
        if enabled and epsilon is None:
            hint = "Give the most that the analyst may spend, 0 for what is free alone, or write enabled = false."
            raise PolicyError("policy-missing-key", "An analyst has no epsilon.", hint=hint, place="epsilon")

    @property
    def has_share(self) -> bool:
        """Whether the analyst may run queries that are charged."""
        return self.enabled and self.epsilon is not None


def check_analysts(analysts: Mapping[str, Analyst] | None, epsilon: Epsilon, *, delta: Delta) -> Mapping[str, Analyst]:
    """Return a read-only copy; refuse a limit above the total, (`epsilon`, `delta`)."""
    if analysts is None:
        return MappingProxyType({})
    if not isinstance(analysts, Mapping):
        raise wrong_type("a mapping of names to analysts", analysts, place="analysts")
    for name, analyst in analysts.items():
        if not isinstance(name, str):
            raise wrong_type("text", name, place="analysts")
        if not _is_name(name):
            raise PolicyError("policy-name", _NAME, hint="Write a shorter or plainer name.", place="analysts")
        place = f"analysts.{name}"
        if not isinstance(analyst, Analyst):
            raise wrong_type("a dpsql.Analyst", analyst, place=place)
        for what, limit, total in (("epsilon", analyst.epsilon, epsilon), ("delta", analyst.delta, delta)):
            if limit is not None and limit.value > total.value:
                reason = f"The {what} of an analyst, {limit}, is above the total, {total}."
                hint = "The total holds for all analysts together: lower the one or raise the other."
                raise PolicyError("policy-range", reason, hint=hint, place=f"{place}.{what}")
    return MappingProxyType(dict(analysts))


def check_asking(name: str | None) -> None:
    """Raise `UsageError` unless an analyst may be called so; None is one who gives no name."""
    if name == UNLISTED:
        reason = f'"{UNLISTED}" means all analysts that the policy does not list, and cannot be a name.'
        raise UsageError("analyst-name", reason, hint="Give a name of your own, or none.")
    if name is not None and not _is_name(name):
        raise UsageError("analyst-name", _NAME, hint='Such as analyst="alice".')


def describe_unlisted(analysts: Mapping[str, Analyst], name: str | None) -> tuple[str, str]:
    """Return what an analyst whom a policy does not list may spend, and the listed name that is near to theirs.

    Both are "" for a listed name, for none, and where the policy lists no name at all.
    """
    listed = {each.casefold(): each for each in analysts if each != UNLISTED}
    if name is None or name in analysts or not listed:
        return "", ""
    close = get_close_matches(name.casefold(), listed, n=1, cutoff=_NEAR)
    others = analysts.get(UNLISTED)
    may = "has the share of default" if others is not None else "may spend the whole total"
    may = "may run no query" if others is not None and not others.enabled else may
    reason = f'The policy does not list the analyst "{name}", who {may}.'
    return reason, listed[close[0]] if close else ""


def read_analyst(section: Section) -> Analyst:
    """Return the analyst that a table of a policy file describes."""
    values = section.read(_ANALYST_KEYS)
    with section.placing():
        return Analyst(**values)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= _LONGEST_NAME and name.isprintable()


ISOLATIONS = ("in_process", "process")
_MEMORY = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})? ?[KMGT]i?B")
_LONGEST_LIMIT = 86_400  # seconds
_MAX_CONNECTIONS = 64
# By default. DuckDB has all processors at work for one statement, so there is one for slow statements and others for
# quick ones. Workers are fewer, since each has a part of the memory.
_CONNECTIONS, _CURSORS, _WORKERS = 4, 3, 2
_SHARE = 0.2  # of the machine's memory, for an engine of public tables, where the policy sets no limit
_MEGABYTES = {"K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}
_LEAST_MEGABYTES = 256  # that an engine of public tables gets, where the policy gives as much


@dataclass(frozen=True, slots=True, init=False)
class EngineSettings:
    """Settings of the engine, with the keys of docs/reference/policy.md#engine: its process and its resources.

    >>> EngineSettings(isolation="process", time_limit=60).isolation
    'process'
    """

    isolation: str
    memory_limit: str | None
    threads: int | None
    time_limit: float | None
    answer_grid_ms: int | None
    public_time_limit: float
    connections: int | None
    max_waiting: int

    def __init__(  # noqa: PLR0913 - the keys of the table [engine]
        self,
        *,
        isolation: str = "in_process",
        memory_limit: str | None = None,
        threads: int | None = None,
        time_limit: float | None = None,
        answer_grid_ms: int | None = None,
        public_time_limit: float = 30.0,
        connections: int | None = None,
        max_waiting: int = 100,
    ) -> None:
        fill(self, isolation=_isolation(isolation))
        fill(self, memory_limit=None if memory_limit is None else _memory(memory_limit))
        fill(self, threads=None if threads is None else check_count(threads, "engine.threads"))
        fill(self, time_limit=None if time_limit is None else _seconds(time_limit, "engine.time_limit"))
        fill(self, public_time_limit=_seconds(public_time_limit, "engine.public_time_limit"))
        grid = None if answer_grid_ms is None else check_count(answer_grid_ms, "engine.answer_grid_ms")
        fill(self, answer_grid_ms=grid)
        fill(self, connections=None if connections is None else _connections(connections))
        fill(self, max_waiting=check_count(max_waiting, "engine.max_waiting"))

    def for_public_tables(self) -> EngineSettings:
        """Return the settings of an engine that has public tables alone, beside the one that these are for.

        It takes half of the threads, so that private statements keep the others, and a part of the memory.
        """
        threads = max(1, (self.threads or os.cpu_count() or 1) // 2)
        memory = _machine_share(_SHARE) if self.memory_limit is None else _divide(self.memory_limit, 4)
        return replace(self, memory_limit=memory, threads=threads, time_limit=self.public_time_limit)

    def count_connections(self, *, of_duckdb: bool, is_apart: bool = False) -> int:
        """Return how many statements a server runs at a time; those of DuckDB may be in processes of their own."""
        return self.connections or ((_WORKERS if is_apart else _CURSORS) if of_duckdb else _CONNECTIONS)

    def for_worker(self, count: int) -> EngineSettings:
        """Return the settings of one of so many processes that together have the memory of these."""
        # One DuckDB alone takes 80 % of the machine's memory by default.
        memory = _machine_share(0.8 / count) if self.memory_limit is None else _divide(self.memory_limit, count)
        return self if count == 1 else replace(self, memory_limit=memory)

    def isolates(self, asked: str | None) -> bool:
        """Return whether the data is opened in a separate process, because of these settings or of the argument.

        Raises `UsageError` for an argument that demands less isolation than these settings.
        """
        if asked not in {None, *ISOLATIONS}:
            hint = f"Write one of {', '.join(ISOLATIONS)}, or leave it to the policy."
            raise UsageError("isolation", "There is no such isolation.", hint=hint)
        if asked == "in_process" and self.isolation != asked:
            reason = "The policy demands that the data be opened in a process of its own."
            raise UsageError("isolation", reason, hint="Leave isolation out: the policy decides.")
        return "process" in {asked, self.isolation}


def read_engine(root: Section) -> EngineSettings:
    """Return the settings that the table [engine] of a policy file describes."""
    values = root.section("engine").read(_ENGINE_KEYS)
    with root.placing():
        return EngineSettings(**values)


_ENGINE_KEYS = {
    **dict.fromkeys(("isolation", "memory_limit"), "text"),
    **dict.fromkeys(("time_limit", "public_time_limit"), "number"),
    **dict.fromkeys(("threads", "answer_grid_ms", "connections", "max_waiting"), "whole"),
}


def _isolation(value: str) -> str:
    if not isinstance(value, str):
        raise wrong_type("text", value, place="engine.isolation")
    if value not in ISOLATIONS:
        reason, hint = "There is no such isolation.", f"Write one of {', '.join(ISOLATIONS)}."
        raise PolicyError("policy-isolation", reason, hint=hint, place="engine.isolation")
    return value


def _memory(value: str) -> str:
    if not isinstance(value, str):
        raise wrong_type('a text such as "4GB"', value, place="engine.memory_limit")
    if not _MEMORY.fullmatch(value):
        hint = 'Write a number and a unit, such as "4GB" or "512MB".'
        raise PolicyError("policy-memory", "The text is no amount of memory.", hint=hint, place="engine.memory_limit")
    return value


def _machine_share(share: float) -> str:
    """Return a share of the machine's memory."""
    return f"{share * os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.3f}GiB"


def _divide(memory: str, count: int) -> str:
    """Return one of so many parts of an amount of memory, or all of it where a part would be too little to work in."""
    number = memory.rstrip("KMGTiB ")
    amount, unit = float(number), memory[len(number) :].strip()
    if amount * _MEGABYTES[unit[0]] <= count * _LEAST_MEGABYTES:
        return memory
    return f"{amount / count:.3f}{unit}"


def _connections(value: int) -> int:
    if check_count(value, "engine.connections") > _MAX_CONNECTIONS:
        reason = f"A server can run at most {_MAX_CONNECTIONS} statements at a time."
        raise PolicyError("policy-range", reason, hint="Such as 4.", place="engine.connections")
    return value


def _seconds(value: float, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("a number of seconds", value, place=place)
    if not 0 < value <= _LONGEST_LIMIT:
        reason = f"A time limit must be greater than 0 and at most {_LONGEST_LIMIT} seconds."
        raise PolicyError("policy-range", reason, hint="Such as 60.", place=place)
    return float(value)


OFF = "off"
CATALOGS = ("auto", "none")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LAST_PORT = 65_535
_SURFACES = ("postgres", "web", "mcp")


@dataclass(frozen=True, slots=True, init=False)
class ServerSettings:
    """Settings of `dpsql serve`, with the keys of docs/reference/policy.md#server: addresses, users, and limits.

    >>> ServerSettings(users="users.toml").web
    '127.0.0.1:8080'
    """

    users: Path | None
    postgres: str
    web: str
    mcp: str
    certificate: Path | None
    key: Path | None
    catalog: str
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
        catalog: str = "auto",
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
    section = root.section("server")
    if "flight" in section.values:
        hint = (
            f"Delete the line flight = {json.dumps(section.text('flight'))}. For Arrow, send the JSON API the header "
            "Accept: application/vnd.apache.arrow.stream, or connect adbc-driver-postgresql to the address of postgres."
        )
        reason = "Arrow Flight SQL was removed in version 0.12.0."
        raise PolicyError("policy-flight", reason, hint=hint, place=section.where("flight"))
    values = section.read(_SERVER_KEYS)
    with root.placing():
        for name in ("users", "certificate", "key"):
            values[name] = beside(folder, values.get(name), place=f"server.{name}")
        return ServerSettings(**values)


_SERVER_KEYS = {
    **dict.fromkeys(("users", *_SURFACES, "certificate", "key"), "text"),
    "require_tls": "flag",
    "catalog": "text",
    **dict.fromkeys(("statements_per_minute", "max_connections", "connections_per_user"), "whole"),
}


def _address(value: str, place: str) -> str:
    if not isinstance(value, str):
        raise wrong_type('a text such as "127.0.0.1:5433"', value, place=place)
    found = _ADDRESS.fullmatch(value)
    if value != OFF and (found is None or not 0 <= int(found[2]) <= _LAST_PORT):
        hint = f'Write host:port, such as "127.0.0.1:5433" or "[::1]:5433", or "{OFF}".'
        raise PolicyError("policy-address", "The text is no host and port.", hint=hint, place=place)
    return value


def _catalog(value: str) -> str:
    if not isinstance(value, str):
        raise wrong_type("text", value, place="server.catalog")
    if value not in CATALOGS:
        was_removed = is_url(value) or value in {"minimal", "foreign"}
        reason = "This catalog was removed." if was_removed else "There is no such catalog."
        hint = 'Write catalog = "auto" for a PostgreSQL that the server starts, or catalog = "none" for none.'
        raise PolicyError("policy-catalog", reason, hint=hint, place="server.catalog")
    return value
