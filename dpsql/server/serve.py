"""The process of `dpsql serve`: all surfaces of one policy, until a signal ends it.

SIGTERM and SIGINT stop it in order, within ten seconds: it accepts no more connections, interrupts public statements,
waits for private ones to be answered and settled, and closes everything. A second signal ends the process at once. A
private statement that has not ended stays reserved, and is therefore charged in full. SIGHUP reloads the policy, the
users and the certificate; an error in one of them leaves all unchanged.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import signal
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dpsql.errors import Error, PolicyError, UsageError
from dpsql.policy import Policy, ServerSettings, default_database, default_policy
from dpsql.server.catalog.system_catalog import CurrentCatalog
from dpsql.server.gateway import Gateway, Service
from dpsql.server.limits import Throttle
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import Users, find_users_file, read_user_file

_GRACE = 4.0  # seconds for statements that run, and for clients that read their answers
_DEADLINE = 8.0  # seconds after which the process ends, even if statements run
_DESCRIPTORS = 8192  # files and sockets that may be open at once, if the system allows it
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_RESTART_KEYS = ("users", "postgres", "web", "mcp", "catalog")  # keys of [server] that only a restart changes
_ENDED_AT_ONCE = 1
SWITCH_INTERVAL = 0.0005  # seconds that a thread runs Python while others wait; the default of 0.005 adds up


def run(
    path: Path | None,
    database: str | Path | None,
    *,
    tell: Callable[[str], None],
    log: TextIO,
    early: Sequence[int] = (),
) -> None:
    """Serve a policy over its data until a signal ends it; `tell` receives messages for the terminal.

    `early` collects the SIGHUPs that arrive before the server is ready; with any, it reloads as soon as it is.
    Raises `PolicyError`, `EngineError`, `LedgerError` and `UsageError` if it cannot start.
    """
    if not hasattr(os, "fork"):
        hint = "Run it on Linux or macOS; on Windows, in WSL 2."
        raise UsageError("server-unavailable", "A server runs on POSIX systems alone.", hint=hint)
    path = default_policy() if path is None else path
    policy = Policy.from_toml(path)
    if database is None and policy.needs_database:
        database = default_database()
    users = Users(find_users_file(policy))
    telemetry = Telemetry(log, grid_ms=policy.engine.answer_grid_ms)
    contexts = {name: create_tls_context(policy.server) for name in policy.server.listens()}
    if not contexts:
        hint = 'Leave postgres out of [server], or write postgres = "127.0.0.1:5433".'
        raise UsageError("server-address", "The policy turns every surface off.", hint=hint, place="server")
    _raise_descriptors()
    service = Service(database, policy)
    gateway = Gateway(service, users, telemetry, Throttle(policy.server.statements_per_minute))
    # The usual hook prints the text of an error, which could contain values.
    usual, threading.excepthook = (
        threading.excepthook,
        lambda fault: telemetry.log("fault", kind=fault.exc_type.__name__, where="thread"),
    )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    server = Server(gateway, path, contexts=contexts, tell=tell, early=early)
    try:
        asyncio.run(server.run())
    finally:
        service.close()
        server.deadline.cancel()
        if server.deadline.is_alive():
            server.deadline.join()
        threading.excepthook = usual
        sys.setswitchinterval(interval)


def _raise_descriptors() -> None:
    """Let more files and sockets be open at once: a connection takes one or several descriptors."""
    import resource  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server:
    """The surfaces of a gateway, until a signal ends them."""

    def __init__(
        self,
        gateway: Gateway,
        path: Path,
        *,
        contexts: Mapping[str, ssl.SSLContext | None],
        tell: Callable[[str], None],
        early: Sequence[int],
    ) -> None:
        self._early = early
        self._gateway, self._path, self._contexts, self._report = gateway, path, contexts, tell
        self._started = gateway.service.policy.server
        self._surfaces: dict[str, Listening] = {}
        self._stopping = asyncio.Event()
        self._reloads: set[asyncio.Task[None]] = set()
        self._reloading = threading.Lock()
        self.deadline = threading.Timer(_DEADLINE, self._end_at_once)  # starts with the stop, and ends the process
        self.deadline.daemon = True

    async def run(self) -> None:
        """Listen, report the addresses, and serve until a signal arrives."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_fault)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            for name, address in self._started.listens().items():
                self._surfaces[name] = await start(name, self._gateway, address=address, tls=self._contexts[name])
            for name, surface in self._surfaces.items():
                encrypted = "" if self._contexts[name] is None else ", with TLS"
                self._tell(f"{name} listens on {surface.place}{encrypted}")
                self._gateway.telemetry.log("listens", surface=name, place=surface.place)
                if surface.catalog:
                    self._tell(f"the catalog of {name} is {surface.catalog}")
                    self._gateway.telemetry.log("catalog", surface=name, catalog=surface.catalog)
            if missing := self._gateway.service.unconfined:
                self._tell(f"the workers of the data are not confined: {missing} (see dpsql check)")
                self._gateway.telemetry.log("unconfined", missing=missing)
            self._tell("ready")
            self._gateway.telemetry.log("ready")
            _notify_systemd("READY=1")
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
            if self._early:
                self._hang_up()
            await self._stopping.wait()
        finally:
            await self._close()

    async def _close(self) -> None:
        """Refuse statements, let clients read their answers, and close."""
        _notify_systemd("STOPPING=1")
        self._gateway.telemetry.log("stopping")
        self._gateway.service.stop()
        self.deadline.start()
        await asyncio.gather(*(one.close(_GRACE) for one in self._surfaces.values()), return_exceptions=True)
        await asyncio.to_thread(self._gateway.service.close)
        self._gateway.telemetry.log("stopped")

    def _end_at_once(self) -> None:
        """End the process although a statement may run in a thread; its reservation stays."""
        self._gateway.telemetry.log("ended-at-once")
        os._exit(_ENDED_AT_ONCE)

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._end_at_once()
        self._stopping.set()
        self._tell("stopping: running statements have a few seconds to end; a second signal ends the server at once")

    def _hang_up(self) -> None:
        task = asyncio.create_task(asyncio.to_thread(self.reload))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def reload(self) -> None:
        """Reload policy, users and certificate, and report the outcome, with the keys that wait for a restart."""
        gateway, former = self._gateway, self._started
        try:
            with self._reloading:
                policy = Policy.from_toml(self._path)
                book = read_user_file(former.users or find_users_file(policy))
                create_tls_context(policy.server)  # raises for an unreadable certificate, before anything changes
                gateway.service.renew(policy)
                gateway.users.replace(book)
                gateway.throttle.set_limit(policy.server.statements_per_minute)
                gateway.telemetry.set_grid(policy.engine.answer_grid_ms)
                for context in self._contexts.values():
                    if context is not None:
                        load_certificate(context, policy.server)
                waits = [name for name in _RESTART_KEYS if getattr(former, name) != getattr(policy.server, name)]
                if gateway.service.waits_for_grant:
                    waits.append("grant")
                if any(self._contexts.values()) != (policy.server.certificate is not None):
                    waits.append("certificate")
                try:
                    for surface in self._surfaces.values():
                        surface.renew()
                except Error as error:  # the policy is in force, and tools see the tables of the former one
                    gateway.telemetry.log("catalog-stays", code=error.code)
                    waits.append("catalog")
        except Error as error:
            place = str(error.place or "")
            gateway.telemetry.log("reload-refused", code=error.code, place=place, reason=error.reason)
            self._tell(f"not reloaded, what was in force stays: {error}")
            return
        gateway.telemetry.log("reloaded", waits=", ".join(waits))
        restarts = ", ".join(each for each in waits if each != "grant")
        later = f"; restart the server for {restarts} of [server]" if restarts else ""
        grant = "; the larger [budget] waits for dpsql ledger grant" if "grant" in waits else ""
        self._tell(f"reloaded{later}{grant}")

    def _tell(self, text: str) -> None:
        with suppress(OSError):  # the terminal is closed
            self._report(text)

    def _log_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Log an error of a task that was not awaited, without its text, which could contain values."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            self._gateway.telemetry.log("out-of-descriptors")  # new clients wait until one is free
            return
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            return  # a client that left
        self._gateway.telemetry.log("fault", kind=type(error).__name__, where="loop")


def _notify_systemd(state: str) -> None:
    """Notify systemd if it requested that."""
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            # @ stands for an abstract socket, whose name begins with NUL.
            channel.connect("\0" + place[1:] if place.startswith("@") else place)
            channel.send(state.encode())


_CATALOG_GRACE = 5.0  # seconds in which statements over the former catalog may finish


@dataclass(frozen=True, slots=True)
class Listening:
    """A surface that listens: its place, and the calls that close it and renew it after the policy was reloaded.

    `catalog` says what answers tools that list tables, if the surface has that.
    """

    place: str
    close: Callable[[float], Awaitable[None]]
    renew: Callable[[], None] = lambda: None
    catalog: str = ""


async def start(name: str, gateway: Gateway, *, address: tuple[str, int], tls: ssl.SSLContext | None) -> Listening:
    """Start a surface. Raises `UsageError` for an unavailable address, and for an extra that is not installed."""
    try:
        return await STARTERS[name](gateway, address, tls=tls)
    except ImportError as error:
        missing = error.name
    except OSError as error:
        # in the words of the system on each surface: asyncio has others
        known = None if isinstance(error, socket.gaierror) else error.errno
        words = "the host is unknown" if known is None else os.strerror(known)
        reason = f"The server cannot listen on this address: {words}."
        hint = "End the process that listens there, or set another address in [server] of the policy."
        place = f"server.{name} ({address[0]}:{address[1]})"
        raise UsageError("server-address", reason, hint=hint, place=place) from None
    hint = f"Install it: pip install 'dpsql[{_EXTRAS.get(name, 'server')}]'."
    raise UsageError("not-installed", f"The server needs the package {missing}.", hint=hint, place=f"server.{name}")


async def _start_postgres(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.wire import serve_wire

    catalog = await asyncio.to_thread(_PolicyCatalog, gateway)
    try:
        wire = await serve_wire(gateway, address, tls=tls, catalog=catalog)
    except BaseException:
        await asyncio.to_thread(catalog.current.close)
        raise

    async def close(seconds: float) -> None:
        try:
            await wire.close(seconds)
        finally:
            await asyncio.to_thread(catalog.current.close)

    return Listening(_format_place(address, wire.port), close, catalog.renew, catalog.current.summary)


async def _start_web(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.http import serve_http
    from dpsql.server.web import application

    connections = gateway.service.policy.server.max_connections
    http = await serve_http(application(gateway, secure=tls is not None), address, tls=tls, connections=connections)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_format_place(address, http.port)}", http.close)


async def _start_mcp(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.mcp import serve_mcp

    mcp = await serve_mcp(gateway, address, tls=tls)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_format_place(address, mcp.port)}/mcp", mcp.close)


# Each starts a surface on a host and port, 0 for any, and raises `ImportError` and `OSError`.
STARTERS: dict[str, Callable[..., Awaitable[Listening]]] = {
    "postgres": _start_postgres,
    "web": _start_web,
    "mcp": _start_mcp,
}
_EXTRAS = {"mcp": "mcp"}  # of surfaces that need another extra than `server`


class _PolicyCatalog(CurrentCatalog):
    """The catalog of a gateway, replaced when a reloaded policy has other tables."""

    def __init__(self, gateway: Gateway) -> None:
        from dpsql.server.catalog import open_available_catalog

        self._service = gateway.service
        self._kind = self._service.policy.server.catalog  # only a restart changes it
        self._contents = self._service.catalog, self._service.policy.tables
        super().__init__(open_available_catalog(self._kind, self._contents[0], policy=self._contents[1]))

    def renew(self) -> None:
        """Open the catalog of the present tables, and close the former one once its statements have ended."""
        from dpsql.server.catalog import open_catalog

        contents = self._service.catalog, self._service.policy.tables
        if contents != self._contents:
            renewed = open_catalog(self._kind, contents[0], policy=contents[1])
            former, self.current, self._contents = self.current, renewed, contents
            threading.Timer(_CATALOG_GRACE, former.close).start()


def _format_place(address: tuple[str, int], port: int) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{port}"


def create_tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Create the context for TLS 1.2 or newer, or return None without a certificate."""
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Load the certificate of the settings for new connections; raise `PolicyError` if that fails."""
    if settings.certificate is None or settings.key is None:
        return
    try:
        status = settings.key.stat()
        # A key of root may be readable by a group, such as ssl-cert of Debian; PostgreSQL has the same rule.
        allowed = stat.S_IRWXU | (stat.S_IRGRP if status.st_uid == 0 else 0)
        if stat.S_IMODE(status.st_mode) & ~allowed:
            hint = f"Make it private to its owner: chmod 600 {shlex.quote(str(settings.key))}"
            raise PolicyError(
                "key-not-private", "Others can read the key of the certificate.", hint=hint, place="server.key"
            )
        context.load_cert_chain(settings.certificate, settings.key, password=_refuse_passphrase)
    except (OSError, ValueError):  # the bases of ssl.SSLError
        reason = "The certificate or its key cannot be read, or they do not belong together."
        hint = "Use PEM files that the server can read, and a key without a passphrase."
        raise PolicyError("policy-tls", reason, hint=hint, place="server.certificate") from None


def _refuse_passphrase() -> str:
    """Fail instead of reading a passphrase from the terminal."""
    raise ValueError
