"""What `dpsql serve` runs: every surface of one policy, until a signal ends it.

SIGTERM and SIGINT stop it in order, within ten seconds: nobody else is let in, public statements are interrupted,
private ones that end in time are answered and settled, everything is closed. A second one ends the process at once. A
private statement that has not ended stays reserved, so charged in full. SIGHUP reads the policy, the users and the
certificate again; whatever is wrong with one of them leaves all as they were.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from dpsql.errors import Error, UsageError
from dpsql.policy import Policy, ServerSettings
from dpsql.server.gateway import Gateway
from dpsql.server.service import Service
from dpsql.server.settings import load_certificate, tls_of, users_of
from dpsql.server.surfaces import Listening, start
from dpsql.server.telemetry import Telemetry
from dpsql.server.throttle import Throttle
from dpsql.server.users import Users, read_book

__all__ = ["Server", "run"]

_GRACE = 4.0  # seconds for statements that run, and for clients that read their answers
_LAST = 8.0  # seconds after which the process ends, whatever still runs
_DESCRIPTORS = 8192  # files and sockets that may be open at once, where the system lets this process have as many
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FIXED = ("users", "postgres", "web", "flight", "catalog")  # what of [server] only a start changes
_AT_ONCE = 1
_INTERVAL = 0.0005  # seconds for which one thread may run Python while others wait; Python's own 0.005 adds up


def run(path: Path, database: Path | None, *, tell: Callable[[str], None], log: TextIO) -> None:
    """Serve a policy over its data until a signal ends it; `tell` gets the words for whoever started it.

    Raises `PolicyError`, `EngineError`, `LedgerError` and `UsageError` where it cannot begin.
    """
    policy = Policy.from_toml(path)
    users = Users.load(users_of(policy))
    telemetry = Telemetry(log, grid_ms=policy.engine.answer_grid_ms)
    contexts = {name: tls_of(policy.server) for name in policy.server.listens()}
    if not contexts:
        hint = 'Leave postgres out of [server], or write postgres = "127.0.0.1:5433".'
        raise UsageError("server-address", "The policy turns every surface off.", hint=hint, place="server")
    _allow_descriptors()
    service = Service(database, policy)
    gateway = Gateway(service, users, telemetry, Throttle(policy.server.statements_per_minute))
    usual, threading.excepthook = threading.excepthook, partial(_thread_fault, telemetry)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_INTERVAL)
    server = Server(gateway, path, contexts=contexts, tell=tell)
    try:
        asyncio.run(server.run())
    finally:
        service.close()
        server.last.cancel()
        if server.last.is_alive():
            server.last.join()
        threading.excepthook = usual
        sys.setswitchinterval(interval)


class Server:
    """The surfaces of a gateway, from the moment that they listen until a signal ends them."""

    def __init__(
        self,
        gateway: Gateway,
        path: Path,
        *,
        contexts: Mapping[str, ssl.SSLContext | None],
        tell: Callable[[str], None],
    ) -> None:
        self._gateway, self._path, self._contexts, self._words = gateway, path, contexts, tell
        self._started = gateway.service.policy.server
        self._surfaces: dict[str, Listening] = {}
        self._stopping = asyncio.Event()
        self._reloads: set[asyncio.Task[None]] = set()
        self._reloading = threading.Lock()
        self.last = threading.Timer(_LAST, self._end_at_once)  # begins when it is told to stop; ends the process
        self.last.daemon = True

    async def run(self) -> None:
        """Listen, say where, and serve until a signal comes."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fault)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            await self._start()
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
            self._ready()
            await self._stopping.wait()
        finally:
            await self._end()

    async def _start(self) -> None:
        for name, address in self._started.listens().items():
            self._surfaces[name] = await start(name, self._gateway, address=address, tls=self._contexts[name])

    def _ready(self) -> None:
        for name, surface in self._surfaces.items():
            encrypted = "" if self._contexts[name] is None else ", with TLS"
            self._tell(f"{name} listens on {surface.place}{encrypted}")
            self._gateway.telemetry.log("listens", surface=name, place=surface.place)
        self._tell("ready")
        self._gateway.telemetry.log("ready")
        _notify("READY=1")

    async def _end(self) -> None:
        """Begin nothing more, let clients read what they were answered, and close."""
        _notify("STOPPING=1")
        self._gateway.telemetry.log("stopping")
        self._gateway.service.stop()
        self.last.start()
        await asyncio.gather(*(one.close(_GRACE) for one in self._surfaces.values()), return_exceptions=True)
        await asyncio.to_thread(self._gateway.service.close)
        self._gateway.telemetry.log("stopped")

    def _end_at_once(self) -> None:
        """End the process, though a thread of it still runs a statement; what that one reserved stays reserved."""
        self._gateway.telemetry.log("ended-at-once")
        os._exit(_AT_ONCE)

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._end_at_once()
        self._stopping.set()
        self._tell("stopping: statements that end within seconds are settled; a second signal ends it at once")

    def _hang_up(self) -> None:
        task = asyncio.create_task(asyncio.to_thread(self.reload))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def reload(self) -> None:
        """Read policy, users and certificate again, and say what came of it."""
        telemetry = self._gateway.telemetry
        try:
            with self._reloading:
                waits = self._reloaded()
        except Error as error:
            telemetry.log("reload-refused", code=error.code, place=str(error.place or ""), reason=error.reason)
            self._tell(f"not reloaded, what was in force stays: {error}")
            return
        telemetry.log("reloaded", waits=", ".join(waits))
        later = f"; a start is needed for {', '.join(waits)} of [server]" if waits else ""
        self._tell(f"reloaded{later}")

    def _reloaded(self) -> list[str]:
        policy, gateway = Policy.from_toml(self._path), self._gateway
        book = read_book(self._started.users or users_of(policy))
        tls_of(policy.server)  # a certificate that cannot be read is found before anything changes
        gateway.service.renew(policy)
        gateway.users.take(book)
        gateway.throttle.set_limit(policy.server.statements_per_minute)
        gateway.telemetry.set_grid(policy.engine.answer_grid_ms)
        for context in self._contexts.values():
            if context is not None:
                load_certificate(context, policy.server)
        waits = _waiting(self._started, policy.server, encrypted=any(self._contexts.values()))
        try:
            for surface in self._surfaces.values():
                surface.renew()
        except Error as error:  # the policy is in force, and what tools are shown is that of the former
            gateway.telemetry.log("catalog-stays", code=error.code)
            waits.append("catalog")
        return waits

    def _tell(self, words: str) -> None:
        with suppress(OSError):  # nobody reads them any more
            self._words(words)

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Say that something failed that nobody awaited, without its words, which could hold anything."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            self._gateway.telemetry.log("out-of-descriptors")  # clients open them; who connects waits until one is free
            return
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            return  # a client that went away
        self._gateway.telemetry.log("fault", kind=type(error).__name__, where="loop")


def _allow_descriptors() -> None:
    """Raise the soft limit of open files as far as needed and allowed: each connection takes one, or several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _thread_fault(telemetry: Telemetry, fault: threading.ExceptHookArgs) -> None:
    telemetry.log("fault", kind=fault.exc_type.__name__, where="thread")


def _waiting(started: ServerSettings, now: ServerSettings, *, encrypted: bool) -> list[str]:
    """Return the keys of [server] that were changed and hold only from the next start."""
    waits = [name for name in _FIXED if getattr(started, name) != getattr(now, name)]
    return waits if encrypted == (now.certificate is not None) else [*waits, "certificate"]


def _notify(state: str) -> None:
    """Tell systemd, where it asked to be told."""
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + place[1:] if place.startswith("@") else place)
            channel.send(state.encode())
