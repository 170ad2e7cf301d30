"""Main program of an evaluator's worker: compute on the rows it is sent, without access to data or ledger.

`dpsql.engines.duckdb.worker.evaluator` starts it with an empty environment and two pipes, and it ends when they close.
Each statement with tables runs in a new instance of DuckDB that has these tables and opens no other file.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from dpsql.confinement import measures as confine
from dpsql.engines.base import Statement
from dpsql.engines.duckdb.worker import protocol
from dpsql.engines.duckdb.worker.setup import end_with_front, find_own_files, set_alarm, take_pipes

__all__ = ["main"]


def main() -> None:
    """Confine this process, then compute one statement after the other until the front has ended."""
    questions, answers = take_pipes()
    has_left_network = confine.leave_network()
    request = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
    memory, memory_limit = request["memory"], str(request["memory_limit"])
    if not isinstance(memory, int):
        raise TypeError
    confine.limit_process(memory, threads=1, spilled=0)
    taken = confine.confine(find_own_files(), writable=None, threads=1, has_left_network=has_left_network)
    threading.Thread(target=end_with_front, args=(questions, None), name="dpsql-front", daemon=True).start()
    from dpsql.engines.duckdb.evaluator import SuccessiveInstances
    from dpsql.engines.duckdb.worker import received  # only now: importing starts threads

    instances = SuccessiveInstances(memory_limit)
    protocol.send(answers, protocol.message(kind="ready", confinement=taken))
    while True:
        request = protocol.heard(protocol.receive(questions, protocol.MOST_JSON))
        paths = _paths(request)
        tables = {path: received.read_table(protocol.receive(questions, protocol.MOST_TABLE)) for path in paths}
        parameters = protocol.decoded(request["parameters"])
        statement = Statement(str(request["sql"]), tuple(parameters) if isinstance(parameters, list) else ())
        set_alarm(request["limit"])
        protocol.send(answers, received.sent(instances.compute(tables, statement)))
        set_alarm(None)
        instances.open_next()  # while the front waits for nothing


def _paths(request: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return where the statement finds the tables that are sent after it, in their order."""
    found = request["tables"]
    if not isinstance(found, list):
        raise TypeError
    return [(str(home), str(schema), str(name)) for home, schema, name in found]
