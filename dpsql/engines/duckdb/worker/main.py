"""The worker: a process of its own in which the data is opened, read and counted, and nothing else is known.

It is started by `dpsql.engines.duckdb.worker.engine` with an empty environment and two pipes, and ends when they do.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.confinement import measures as confine
from dpsql.engines.base import AttachedTable, Column, CsvFile, Statement, open_exact
from dpsql.engines.duckdb.worker import protocol
from dpsql.engines.duckdb.worker.setup import end_with_front, set_alarm, take_pipes
from dpsql.engines.duckdb.worker.setup import find_own_files as _own_files
from dpsql.engines.lakes.folder import Folder, decode_folder
from dpsql.engines.libraries import load_libraries
from dpsql.errors import Error

if TYPE_CHECKING:
    from dpsql.engines.duckdb.engine import DuckDBEngine

__all__ = ["main"]

Sources = Mapping[str, Path | CsvFile | Folder | AttachedTable | None]


def main() -> None:
    """Open the data that the first message names, then answer requests until the other process is gone."""
    questions, answers = take_pipes()
    has_left_network = confine.leave_network()
    asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
    sources = _sources(asked["sources"])
    most = sum(len(source.files) for source in sources.values() if isinstance(source, Folder))
    threads = _whole(asked["threads"] or os.cpu_count())
    confine.limit_process(_whole(asked["memory"]), threads=threads, data_files=most)
    readable = [*_own_files(), *_files(asked["database"], sources)]
    scratch = Path(tempfile.gettempdir())
    asked["confinement"] = confine.confine(
        readable, writable=scratch, threads=threads, has_left_network=has_left_network
    )
    threading.Thread(target=end_with_front, args=(questions, scratch), name="dpsql-front", daemon=True).start()
    engine = _open_engine(asked, sources, answers=answers)
    while engine is not None:
        asked = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
        set_alarm(asked["limit"])
        _answer(engine, asked, answers=answers)
        set_alarm(None)


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


def _sources(given: object) -> dict[str, Path | CsvFile | Folder | AttachedTable | None]:
    found: dict[str, Path | CsvFile | Folder | AttachedTable | None] = {}
    for name, source in dict(given).items() if isinstance(given, dict) else ():
        match source:
            case [str(path), list(columns)]:
                found[name] = CsvFile(Path(path), tuple(Column(*column) for column in columns))
            case [str(path), str(kind), list(files), list(partitions), list(fields)]:
                found[name] = decode_folder((path, kind, files, partitions, fields))
            case {"path": str(path), "table": str(table)}:
                found[name] = AttachedTable(Path(path), table)
            case str(path):
                found[name] = Path(path)
            case _:
                found[name] = None
    return found


def _files(database: object, sources: Sources) -> list[Path]:
    """Return every file that may be read, and of a database also what was not yet written into it."""
    files: list[Path] = []
    for source in sources.values():
        if isinstance(source, Folder):
            files += [file.path for file in source.files]
        elif source is not None:
            files.append(source.path if isinstance(source, CsvFile | AttachedTable) else source)
    return [*files, Path(database), Path(database + ".wal")] if isinstance(database, str) else files


def _open_engine(asked: Mapping[str, object], sources: Sources, *, answers: int) -> DuckDBEngine | None:
    """Open the data and send its tables, or the error that says why it failed."""
    database, memory, threads = asked["database"], asked["memory_limit"], asked["threads"]
    try:
        load_libraries("duckdb", "dpsql.engines.duckdb.worker.received")  # only now: importing starts threads
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
    """Answer one question; what fails ends the process, without a word, and the front starts another."""
    from dpsql.engines.duckdb.worker.received import sent

    if asked["do"] == "accepts":
        protocol.send(answers, protocol.message(kind="accepts", value=engine.accepts_pattern(str(asked["pattern"]))))
        return
    if asked["do"] == "unique":
        found = engine.unique(str(asked["name"]), str(asked["column"]))
        protocol.send(answers, protocol.message(kind="unique", value=found))
        return
    parameters = protocol.decoded(asked["parameters"])
    statement = Statement(str(asked["sql"]), tuple(parameters) if isinstance(parameters, list) else ())
    protocol.send(answers, sent(open_exact(engine.execute(statement))))
