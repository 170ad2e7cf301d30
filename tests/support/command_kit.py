"""The shell command in a process of its own, as a user would run it.

What takes a second of each is importing: so a nursery imports everything once, and each command is a fork of it that
has its own folder, variables and streams, and runs as a script does. To take apart the modules that it shares takes
most of what such a command takes, so only the first of each kind ends quite as Python ends; the others leave that out.
A command whose variables Python reads when it starts is started, not forked.

    python tests/support/command_kit.py    a nursery: reads a line of JSON for each command, answers its exit code
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

LONGEST = 120  # seconds
FORKED = version("duckdb") >= "2"  # an older one waits at its end for threads that a fork has not
SHARED = "dpsql.cli dpsql.plan dpsql.session pandas pyarrow.parquet rich.table sqlglot.dialects.duckdb"
CODE = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"


def dpsql_command(
    *arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str
) -> tuple[int, bytes, str]:
    """Run the command as a shell would; return exit code, stdout and stderr."""
    plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "FORCE_COLOR"}}
    if not FORKED or any(name.startswith("PYTHON") for name in environment):
        command = [sys.executable, "-c", CODE, *arguments]
        started = {**plain, **environment}
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=cwd, input=stdin, env=started, timeout=LONGEST
        )
        return done.returncode, done.stdout, done.stderr.decode()
    with tempfile.TemporaryDirectory() as folder:
        streams = [str(Path(folder) / name) for name in ("stdin", "stdout", "stderr")]
        Path(streams[0]).write_bytes(stdin)
        order = {"words": arguments, "cwd": str(cwd or Path.cwd()), "environment": {**plain, **environment}}
        order["brief"] = arguments[:1] in _ENDED
        _ENDED.add(arguments[:1])
        nursery = _nursery()
        nursery.stdin.write(json.dumps({**order, "streams": streams}) + "\n")
        nursery.stdin.flush()
        code = int(nursery.stdout.readline())
        return code, Path(streams[1]).read_bytes(), Path(streams[2]).read_bytes().decode()


def run_command(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run the command in a folder; return exit code, stdout and stderr, in which no traceback is."""
    code, out, err = dpsql_command(*words, cwd=folder)
    assert "Traceback" not in err
    return code, out.decode(), err


def start_nursery(orders: int, codes: int) -> subprocess.Popen[str]:
    """Start a nursery that reads orders from one stream and writes exit codes to the other."""
    paths = os.pathsep.join((str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
    variables = {**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep)}
    return subprocess.Popen([sys.executable, __file__], env=variables, stdin=orders, stdout=codes, text=True)


_ENDED: set[tuple[str, ...]] = set()  # the kinds of commands of which one has ended as Python ends


@functools.cache
def _nursery() -> subprocess.Popen[str]:
    """Return the nursery of this process, started when it is first wanted."""
    started = start_nursery(subprocess.PIPE, subprocess.PIPE)
    atexit.register(started.communicate)  # it ends with its input
    return started


def _share() -> None:
    """Import what is large, and keep it out of the search for garbage with which a command ends.

    DuckDB is not among it: when Python ends, it writes of what is left of its own, which a test should see.
    """
    for name in SHARED.split():
        with contextlib.suppress(ImportError):
            import_module(name)
    assert "duckdb" not in sys.modules
    gc.collect()
    gc.freeze()


def _warm(folder: Path) -> None:
    """Import what commands import by running two, on data of their own."""
    import duckdb

    from dpsql.cli import main

    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, i % 3 AS article FROM range(9) t(i)")
    tables = '[budget]\nepsilon = 1.0\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'
    policy = folder / "policy.toml"
    policy.write_text(f'ledger = "{folder / "ledger.sqlite"}"\n{tables}')
    ask = ["query", "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE"]
    for words in ([*ask, "--db", str(folder / "events.duckdb")], ["check"], ["budget"]):
        sys.argv[1:] = [*words, "--policy", str(policy)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()


def _become(order: dict[str, object]) -> None:
    """Take the folder, the variables and the streams of a command."""
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[arg-type]
    for number, name in enumerate(order["streams"]):  # type: ignore[arg-type]
        opened = os.open(name, os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115
        for number, mode, stream in ((0, "r", sys.stdin), (1, "w", sys.stdout), (2, "w", sys.stderr))
    )
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[1:] = order["words"]  # type: ignore[assignment]


def _end_briefly(run: Callable[[], None]) -> None:
    """Run a command and end as Python does, but for taking its modules apart."""
    try:
        run()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)


def _nurse() -> dict[str, object] | None:
    """Fork for each line that is read, and say how the command ended; return its order in a command."""
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            signal.alarm(LONGEST)
            order: dict[str, object] = json.loads(line)
            _become(order)
            return order
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


if __name__ == "__main__":
    sys.argv[0] = "dpsql"
    _share()
    with tempfile.TemporaryDirectory() as warm:
        _warm(Path(warm))
    if told := _nurse():
        from dpsql.cli import main

        _end_briefly(main) if told["brief"] else main()
