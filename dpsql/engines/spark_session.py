"""Sessions of Spark: started by dpsql, or beside a session of the user, which stays as it is.

Both are sessions of dpsql, with the settings that the forms of the dialect need. Messages of Spark, its Java and its
clients are discarded: they quote queries, and the values on which one failed.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import EngineError, Error, PolicyError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",  # one that cannot be read is not left out
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.orc.aggregatePushdown": "false",  # the least and greatest of a file leave NaN out
    "spark.sql.parquet.aggregatePushdown": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # one row would change the type of all
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.variable.substitute": "false",
}
_LEGACY = "spark.sql.legacy."  # settings that bring back what earlier versions did otherwise
_OURS = {
    "spark.app.name": "dpsql",
    "spark.scheduler.mode": "FAIR",  # else a statement waits for all tasks of an earlier one
    "spark.ui.enabled": "false",  # its pages show exact numbers of rows to everybody who reaches the port
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
_PATIENCE = 180.0  # seconds that a cluster has to take a session
_TOUCH = 10.0  # seconds that a host has to answer at all
_HOST = re.compile(r"(?:sc|spark)://(\[[^\]]+\]|[^:/;,]+):?(\d+)?")
_PORTS = {"sc": 15002, "spark": 7077}
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_silent = threading.local()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what pyspark logs of a failure, its message with the values in it, from standard error in this thread."""
    _silent.on = True
    try:
        yield
    finally:
        _silent.on = False


def started(url: str, options: Mapping[str, str]) -> SparkSession:
    """Return a session on the cluster at `url`, with these settings: "sc://host", or "spark:" and a master.

    Raises `UsageError` for what is not installed, `PolicyError` for settings that are dpsql's own, and `EngineError`.
    """
    _check_options(options)
    _require(connect=url.startswith("sc:"))
    _touch(url)
    if url.startswith("sc:"):
        return _within(lambda: _pinned(_connected(url, options)), stop=stopped)
    rest = url.removeprefix("spark:")
    settings = {**_OURS, **options, "spark.master": url if rest.startswith("//") else rest}
    return _within(lambda: _pinned(_CLUSTER.session(settings)), stop=stopped)


def stopped(session: SparkSession) -> None:
    """Let go of a session that was started."""
    # A session over Spark Connect has no object in Java.
    if hasattr(session, "_jsparkSession"):
        _CLUSTER.leave()
    else:
        session.stop()


def beside(session: SparkSession) -> SparkSession:
    """Return a session on the cluster of another, with its catalogs and settings but for those of dpsql's own."""
    _silence()
    own = None
    with suppress(Exception), quiet():
        clone = getattr(session, "cloneSession", None)  # over Spark Connect; it also has the temporary views
        own = session.newSession() if clone is None else clone()
        if clone is None:
            _settle(own, session)
    if own is None:
        raise _unreachable("database")
    return _pinned(own)


def _settle(own: SparkSession, session: SparkSession) -> None:
    """Bring the settings that a session was given since it began, and its place in the catalogs, to a new one."""
    for name, value in session.conf.getAll.items():
        if name.startswith("spark.sql.") and own.conf.isModifiable(name):
            own.conf.set(name, value)
    with suppress(Exception):
        own.catalog.setCurrentCatalog(session.catalog.currentCatalog())
        own.catalog.setCurrentDatabase(session.catalog.currentDatabase())


def _pinned(session: SparkSession) -> SparkSession:
    taken = False
    with suppress(Exception), quiet():
        for name in session.conf.getAll:
            if name.startswith(_LEGACY):
                session.conf.unset(name)
        for name, value in PINNED.items():
            if session.conf.get(name) != value:
                session.conf.set(name, value)
        taken = all(session.conf.get(name) == value for name, value in PINNED.items())
    if not taken:
        hint = "Use a cluster that lets a session set spark.sql.ansi.enabled and the like."
        raise EngineError("engine-settings", "Spark does not take the settings that dpsql relies on.", hint=hint)
    return session


def _check_options(options: Mapping[str, str]) -> None:
    for name in options:
        if name in PINNED or name.startswith(_LEGACY):
            hint = "Leave it out: statements of dpsql mean the same under every other setting."
            place = f"source.options.{name}"
            raise PolicyError("policy-source", "This setting of Spark is dpsql's own.", hint=hint, place=place)


def _require(*, connect: bool) -> None:
    missing = [package for package in ("pyspark", *["grpc", "pandas"] * connect) if find_spec(package) is None]
    if missing:
        hint = f"Install it: pip install 'dpsql[spark{'-connect' if connect else ''}]'."
        raise UsageError("not-installed", f"Spark needs the package {missing[0]}.", hint=hint)
    java = Path(environ.get("JAVA_HOME", "/nowhere")) / "bin" / "java"
    if not connect and not java.exists() and shutil.which("java") is None:
        hint = "Install a JRE of version 17 or later, or set JAVA_HOME."
        raise UsageError("not-installed", "Spark needs Java, which is not found.", hint=hint)
    _silence(connect=connect)


def _silence(*, connect: bool = False) -> None:
    """Let nothing through that pyspark logs in a thread of dpsql's; it has loggers of its own for messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the version of pandas, said here or else in the midst of a statement
        from pyspark import logger

        for module in ("pyspark.testing.utils", *["pyspark.sql.connect.session"] * connect):
            import_module(module)  # the first is what warns, and what others import late
    for name in _LOGGERS:
        found: Any = logger.PySparkLogger.getLogger(name)
        if _is_spoken not in found.filters:
            found.addFilter(_is_spoken)


def _is_spoken(_: object) -> bool:
    return not getattr(_silent, "on", False)


def _touch(url: str) -> None:
    """Refuse a host that does not answer: Spark itself would try for minutes."""
    found = _HOST.match(url)
    if found is None:
        return
    address = found[1].strip("[]"), int(found[2] or _PORTS[url.partition(":")[0]])
    answers = False
    with suppress(OSError, ValueError, OverflowError), socket.create_connection(address, timeout=_TOUCH):
        answers = True
    if not answers:
        raise _unreachable("source.url")


def _within(start: Callable[[], SparkSession], *, stop: Callable[[SparkSession], None]) -> SparkSession:
    """Return what starts within a bounded time, in a thread in which pyspark does not take the signals over."""
    found: list[SparkSession] = []
    failed: list[Error] = []
    late = threading.Event()
    decision = threading.Lock()  # a session is either found or late, also one that starts just as the wait ends

    def run() -> None:
        try:
            with quiet():
                session = start()
            with decision:
                if not late.is_set():
                    found.append(session)
            if not found:
                stop(session)
        except Error as error:
            failed.append(error)
        except BaseException:  # noqa: BLE001, S110 - its words are Spark's
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    with decision:
        late.set()
    if not found:
        raise failed[0] if failed else _unreachable("source.url")
    return found[0]


def _connected(url: str, options: Mapping[str, str]) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as Connected

    builder: Any = Connected.builder.remote(url)
    for name, value in options.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.create()
    session.version  # noqa: B018 - this is the first contact with the server
    return session


class _Cluster:
    """The Spark that dpsql has started in this process, where there can be one: shared, and stopped with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: SparkSession | None = None
        self._settings: Mapping[str, str] = {}
        self._users = 0

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """Return a new session on the cluster of these settings."""
        with self._lock:
            if self._first is None:
                self._first, self._settings = _launched(settings), settings
            # A process has one SparkContext, so other settings cannot be had; `_within` makes an `EngineError` of this.
            elif self._settings != settings:
                raise ValueError
            self._users += 1
            return self._first.newSession()

    def leave(self) -> None:
        """Let go of one session; with the last, Spark and its Java end."""
        with self._lock:
            self._users -= 1
            if self._users or self._first is None:
                return
            first, self._first = self._first, None
            first.stop()


_CLUSTER = _Cluster()


def _launched(settings: Mapping[str, str]) -> SparkSession:
    """Start Java, which writes nowhere, and Spark in it."""
    from pyspark import SparkConf, SparkContext
    from pyspark import java_gateway as java
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = None
    if SparkContext._gateway is None:  # noqa: SLF001 - nothing public says whether there is one
        nowhere = subprocess.DEVNULL
        launch: Any = java.launch_gateway
        gateway = launch(conf=conf, popen_kwargs={"stdout": nowhere, "stderr": nowhere})
    context = SparkContext(gateway=gateway, conf=conf)
    context.setLogLevel("OFF")
    return SparkSession(context)


def _unreachable(place: str) -> EngineError:
    hint = "Check the address and the settings; spark-sql with the same master says more."
    return EngineError("engine-unreachable", "Spark cannot be reached, or does not start.", hint=hint, place=place)
