"""Main programs of the workers: one opens, reads and counts the data, another computes on rows that it is sent.

`worker_engine.py` and `evaluator.py` start them with an empty environment and two pipes, and they end when these
close. Nothing else is known here: no ledger, no network, and for the evaluator no data.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.confinement import measures
from dpsql.dialects import CsvFormat
from dpsql.engines.base import Statement, load_libraries, open_exact
from dpsql.engines.duckdb import protocol
from dpsql.engines.sources import AttachedTable, Column, CsvFile, Folder, decode_folder
from dpsql.errors import Error

if TYPE_CHECKING:
    from dpsql.engines.duckdb.engine import DuckDBEngine

Sources = Mapping[str, Path | CsvFile | Folder | AttachedTable | None]
_GRACE = 5  # seconds beyond its limit after which a statement that the front did not stop stops itself
_LONGEST = 10**6  # seconds
_SYSTEM = "/usr /lib /lib64 /proc/self /proc/meminfo /proc/cpuinfo /proc/stat /sys /dev/urandom /dev/null"


def main() -> None:
    """Open the data that the first message names, then answer requests until the other process is gone.

    What fails in a request ends the process, without a word, and the front starts another.
    """
    questions, answers = _take_pipes()
    has_left_network = measures.leave_network()
    asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
    sources, database = _read_sources(asked["sources"]), asked["database"]
    threads, memory = asked["threads"] or os.cpu_count(), asked["memory"]
    if not isinstance(threads, int) or not isinstance(memory, int):
        raise TypeError
    most = sum(len(source.files) for source in sources.values() if isinstance(source, Folder))
    measures.limit_process(memory, threads=threads, data_files=most)
    readable = [Path(database), Path(database + ".wal")] if isinstance(database, str) else []  # what is not written yet
    for source in sources.values():
        if isinstance(source, Folder):
            readable += [file.path for file in source.files]
        elif source is not None:
            readable.append(source.path if isinstance(source, CsvFile | AttachedTable) else source)
    scratch = Path(tempfile.gettempdir())
    # Before the data is opened: what is in a file finds a process that is confined already.
    taken = _confine(questions, readable, writable=scratch, threads=threads, has_left_network=has_left_network)
    asked["confinement"] = taken
    engine = _open_engine(asked, sources, answers=answers)
    while engine is not None:
        asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
        _set_alarm(asked["limit"])
        _answer(engine, asked, answers=answers)
        _set_alarm(None)


def _open_engine(asked: Mapping[str, object], sources: Sources, *, answers: int) -> DuckDBEngine | None:
    """Open the data and send its tables, or the error that says why it failed."""
    database, memory, threads = asked["database"], asked["memory_limit"], asked["threads"]
    try:
        load_libraries("duckdb", "pyarrow")  # only now: importing starts threads
        from dpsql.engines.duckdb.engine import DuckDBEngine

        engine = DuckDBEngine.open(
            database if isinstance(database, str) else None,
            sources,
            memory_limit=memory if isinstance(memory, str) else None,
            threads=threads if isinstance(threads, int) else None,
            spill=Path(tempfile.gettempdir()),
        )
    except Error as error:
        words = [error.code, error.reason, error.hint, None if error.place is None else str(error.place)]
        protocol.send(answers, protocol.message(kind="refused", error=words))
        return None
    tables = {
        name: [
            engine.relation(name),
            [[column.name, column.type, column.collation] for column in engine.columns(name)],
            engine.is_stored(name),
        ]
        for name in sources
    }
    protocol.send(answers, protocol.message(kind="opened", tables=tables, confinement=asked["confinement"]))
    return engine


def _answer(engine: DuckDBEngine, asked: Mapping[str, object], *, answers: int) -> None:
    match asked["do"]:
        case "accepts":
            answer: bytes | memoryview = protocol.message(value=engine.accepts_pattern(str(asked["pattern"])))
        case "unique":
            answer = protocol.message(value=engine.unique(str(asked["name"]), str(asked["column"])))
        case _:
            answer = protocol.encode_table(open_exact(engine.execute(_read_statement(asked))))
    protocol.send(answers, answer)


def evaluate() -> None:
    """Confine this process, then compute one statement after the other until the front has ended.

    Each statement finds its own tables alone in the DuckDB that runs it, which opens no file.
    """
    questions, answers = _take_pipes()
    has_left_network = measures.leave_network()
    asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
    memory = asked["memory"]
    if not isinstance(memory, int):
        raise TypeError
    measures.limit_process(memory, threads=1, spilled=0)
    taken = _confine(questions, [], writable=None, threads=1, has_left_network=has_left_network)
    from dpsql.engines.duckdb.evaluator import SuccessiveInstances

    load_libraries("duckdb", "pyarrow")  # only now: importing starts threads
    instances = SuccessiveInstances(str(asked["memory_limit"]))
    protocol.send(answers, protocol.message(kind="ready", confinement=taken))
    while True:
        asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
        paths = asked["tables"]
        if not isinstance(paths, list):
            raise TypeError
        tables = {
            (str(home), str(schema), str(name)): protocol.read_table(protocol.receive(questions, protocol.MOST_TABLE))
            for home, schema, name in paths
        }
        statement = _read_statement(asked)
        _set_alarm(asked["limit"])
        protocol.send(answers, protocol.encode_table(instances.compute(tables, statement)))
        _set_alarm(None)
        instances.open_next()  # while the front waits for nothing


def _take_pipes() -> tuple[int, int]:
    """Return the pipes from and to the front, moved away from standard input and output, which lead nowhere then."""
    questions, answers = os.dup(0), os.dup(1)
    # What a library prints must not reach the front as a part of a frame.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which the front may have ignored
    return questions, answers


def _confine(
    questions: int, readable: Iterable[Path], *, writable: Path | None, threads: int, has_left_network: bool
) -> tuple[str, ...]:
    """Take every measure, watch for the end of the front, and return the measures in force."""
    taken = measures.confine(
        [*find_own_files(), *readable], writable=writable, threads=threads, has_left_network=has_left_network
    )
    threading.Thread(target=_end_with_front, args=(questions, writable), name="dpsql-front", daemon=True).start()
    return taken


def find_own_files() -> list[Path]:
    """Return where Python and its packages are, found without importing one: some start threads that would be free."""
    specs = [find_spec(name) for name in ("duckdb", "_duckdb", "pyarrow", "numpy", "typing_extensions")]
    packages = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
    return [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2], *packages, *map(Path, _SYSTEM.split())]


def _end_with_front(questions: int, scratch: Path | None) -> None:
    """End this process, and remove what it spilled, once the front is no longer there to read an answer.

    The scratch folder itself may stay, where this process may write in it alone; the next one made sweeps it.
    """
    poll = select.poll()
    # Without any event asked for, poll returns on errors and on POLLHUP alone: the front has closed its end, or has
    # died.
    poll.register(questions, 0)
    poll.poll()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    # The main thread may be inside DuckDB, which no exception of Python reaches.
    os._exit(0)


def _read_sources(given: object) -> dict[str, Path | CsvFile | Folder | AttachedTable | None]:
    found: dict[str, Path | CsvFile | Folder | AttachedTable | None] = {}
    for name, source in dict(given).items() if isinstance(given, dict) else ():
        match source:
            case [str(path), list(columns)]:
                found[name] = CsvFile(Path(path), tuple(Column(*column) for column in columns))
            case [str(path), list(columns), dict(options)]:
                form = CsvFormat.of(options)
                found[name] = CsvFile(Path(path), tuple(Column(*column) for column in columns), form)
            case [str(path), str(kind), list(files), list(partitions), list(fields)]:
                found[name] = decode_folder((path, kind, files, partitions, fields))
            case {"path": str(path), "table": str(table)}:
                found[name] = AttachedTable(Path(path), table)
            case str(path):
                found[name] = Path(path)
            case _:
                found[name] = None
    return found


def _read_statement(asked: Mapping[str, object]) -> Statement:
    parameters = protocol.decoded(asked["parameters"])
    return Statement(str(asked["sql"]), tuple(parameters) if isinstance(parameters, list) else ())


def _set_alarm(limit: object) -> None:
    """End this process some seconds after a limit, in seconds; without one, take the alarm back."""
    # By default SIGALRM ends a process, whatever it computes.
    signal.alarm(min(_LONGEST, int(limit) + _GRACE) if isinstance(limit, int | float) else 0)
