"""The PostgreSQL of the catalog is confined: its superuser, and native code in it, reach nothing but its own folder."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support import catalog_escapes
from support.escapes import TRIED

from dpsql.confinement import MEASURES
from dpsql.confinement import measures as confine
from dpsql.engines.scratch import sweep
from dpsql.server.catalog import _connect_when_ready, try_confinement
from dpsql.server.catalog.cluster import Cluster
from dpsql.server.catalog.shadow import Shadow
from dpsql.server.catalog.system_catalog import SystemCatalog

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines processes")
SCRIPT = Path(catalog_escapes.__file__)
FILES = set("read|read bytes|list|copy from|import|environment|copy to|export|overwrite|tablespace".split("|"))
PROGRAMS = {"to program", "from program"}
ALL = FILES | PROGRAMS | {"tcp", "unix socket"}


@pytest.fixture(scope="module")
def tried() -> Iterator[dict[str, dict[str, Any]]]:
    """What a superuser could do in a confined PostgreSQL, in one without measures, and in one of an ordinary user."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    kinds = ["confined", "unconfined", *(["ordinary"] if os.getuid() == 0 else [])]
    folders = {kind: Path(tempfile.mkdtemp(prefix="escapes-")) for kind in kinds}  # that of a test is closed to others
    started = {
        kind: subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), f"--{kind}"], stdout=subprocess.PIPE, env=environment
        )
        for kind, folder in folders.items()
    }
    printed = {kind: process.communicate(timeout=120)[0] for kind, process in started.items()}
    assert all(printed[kind] for kind in ("confined", "unconfined"))
    yield {kind: json.loads(text) for kind, text in printed.items() if text}  # not every root can become another user
    for folder in folders.values():
        shutil.rmtree(folder)


@linux
def test_a_superuser_reaches_no_file_no_program_and_no_network(tried: dict[str, dict[str, Any]]) -> None:
    for kind in tried.keys() - {"unconfined"}:
        found = tried[kind]
        assert ("files" in found["confinement"]) is found["has_landlock"]
        assert ("system calls" in found["confinement"]) is found["has_filter"]
        forbidden = set[str]()
        if found["has_landlock"]:
            forbidden |= FILES | PROGRAMS | {"tcp"}
            assert found["users"] == "SECRET"
        if found["has_filter"]:
            forbidden |= PROGRAMS | {"tcp", "unix socket"}
        assert not forbidden & set(found["done"]), kind
        for privileges, mode, *capabilities in found["processes"]:
            assert (privileges, mode == "2") == ("1", found["has_filter"])
            assert {int(each, 16) for each in capabilities} == {0}
        assert len(found["processes"]) > 3  # backends too


@linux
def test_without_measures_each_act_succeeds_and_false_claims_are_found(
    tried: dict[str, dict[str, Any]],
) -> None:
    found = tried["unconfined"]
    others = {"environment"} if os.getuid() == 0 else set()  # which is of another user
    assert set(found["done"]) >= ALL - others
    assert found["confinement"] == ["capabilities", "processes"]


def superuser(shadow: SystemCatalog) -> psycopg.Connection[tuple[object, ...]]:
    assert isinstance(shadow, Shadow)
    return psycopg.connect(shadow._conninfo, autocommit=True)


@linux
def test_limits_hold_for_every_backend(shadow: SystemCatalog) -> None:
    with superuser(shadow) as connection:
        lines = Path(f"/proc/{connection.info.backend_pid}/limits").read_text().splitlines()
    hard = {line[:25].strip(): line[26:].split()[1] for line in lines[1:]}
    assert hard["Max core file size"] == "0"
    assert int(hard["Max data size"]) == 256 << 20
    assert int(hard["Max file size"]) == 64 << 20
    assert int(hard["Max open files"]) <= 1024


def test_a_file_of_its_folder_is_bounded(shadow: SystemCatalog) -> None:
    assert isinstance(shadow, Shadow)
    place = Path(shadow._conninfo.split("'")[1], "data", "large")
    with superuser(shadow) as connection, pytest.raises(psycopg.Error):
        connection.execute(f"COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO '{place}'")
    assert place.stat().st_size <= 64 << 20
    place.unlink()


def test_a_catalog_says_what_is_missing(shadow: SystemCatalog) -> None:
    measures = try_confinement()
    assert measures is not None
    missing = [name for name in MEASURES if name not in measures]
    note = f"; not confined: {', '.join(missing)} (see dpsql check)" if missing else ""
    assert shadow.summary == f"PostgreSQL {shadow.version}, which dpsql runs{note}"


@linux
def test_native_code_in_the_server_forks_and_does_nothing_else(tmp_path: Path) -> None:
    inside, outside, done = tmp_path / "inside", tmp_path / "ledger.sqlite", tmp_path / "inside" / "done"
    inside.mkdir()
    for file in (outside, inside / "data"):
        file.write_bytes(b"spent")
        file.chmod(0o600)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX)) as named,
        closing(socket.socket(socket.AF_UNIX)) as hidden,
        tempfile.TemporaryDirectory() as short,
    ):
        abstract = f"dpsql-server-{os.getpid()}"
        for listener, place in ((named, f"{short}/s"), (hidden, f"\0{abstract}")):
            listener.bind(place)
            listener.listen()
        mine = ctypes.create_string_buffer(8)
        probes = {
            "address": ctypes.addressof(mine),
            "outside": str(outside),
            "data": str(inside / "data"),
            "socket": f"{short}/s",
            "abstract": abstract,
            "port": server.getsockname()[1],
            "control": False,
        }
        code = f"probes = {probes}\n{TRIED}\ndone = [name for name, act in ACTS.items() if tried(act)]\n"
        code += f"print(done, file=open({str(done)!r}, 'w'))"
        python = [sys.executable, "-I", "-S", "-c"]
        words = [*python, confine.COMMAND, str(Path(confine.__file__).parents[1]), str(inside), str(1 << 30)]
        words += ["", sys.prefix, sys.base_prefix, "--", *python, code]
        subprocess.run(words, check=True, timeout=60)
    measures = (inside / confine.REPORT).read_text().split("\n")
    if not {"files", "system calls"} <= set(measures):
        pytest.skip("this kernel has not both Landlock and seccomp")
    # modes do not change; of other processes, kernels whose Landlock has no scopes let it signal those of its user
    assert eval(done.read_text()) in (
        ["chmod", "fork", "clone", "shared memory"],
        ["chmod", "fork", "clone", "signal the front", "shared memory"],
    )
    assert outside.stat().st_mode & 0o777 == 0o600
    assert outside.read_bytes() == b"spent"


NURSERY = """
import os, pathlib, signal, sys, tempfile, time
from dpsql.server.catalog import open_catalog
from dpsql.server.catalog import cluster, shadow
from dpsql.sql.ir.catalog import Catalog
children = {}
for event in sys.argv[1:]:
    place = pathlib.Path(tempfile.mkdtemp())
    place.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        tempfile.tempdir = str(place)
        kept = open_catalog("auto", Catalog(()))
        (place / "opened").touch()
        time.sleep(60)
        os._exit(0)
    children[pid] = (place, event)
while children:
    for pid, (place, event) in list(children.items()):
        if any(place.glob(event)):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del children[pid]
    time.sleep(0.001)
"""
EVENTS = ("*", "*/data/PG_VERSION", "*/confinement", "*/.s.PGSQL.*", "opened")  # of a start, in their order


def processes_of(folder: str) -> set[int]:
    """Return the processes that name a folder, or something in it, among their words."""
    found = set[int]()
    for process in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            if folder.encode() in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def all_end(folder: str) -> bool:
    """Return whether all processes of a folder end by themselves."""
    deadline = time.monotonic() + 30
    while processes_of(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes_of(folder)


@linux
def test_servers_that_are_killed_at_any_time_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    place = tempfile.mkdtemp(prefix="kills-")
    Path(place).chmod(0o755)
    environment = {**os.environ, "TMPDIR": place}
    subprocess.run([sys.executable, "-c", NURSERY, *EVENTS], check=True, timeout=60, env=environment)
    assert all_end(place)
    for folder in Path(place).iterdir():
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        sweep()
        assert [each.name for each in folder.iterdir()] in ([], ["opened"])
    shutil.rmtree(place)


@linux
def test_one_that_is_stopped_before_it_listens_ends() -> None:
    cluster = Cluster()
    cluster.stop()
    assert not cluster.is_starting
    assert not processes_of(str(cluster.folder))
    assert not cluster.folder.exists()


@linux
def test_it_ends_with_the_shell_beside_it() -> None:
    cluster = Cluster()
    try:
        _connect_when_ready(cluster, "template1").finish()
        server = int((cluster.folder / "data" / "postmaster.pid").read_text().split()[0])
        cluster._process.kill()
        deadline = time.monotonic() + 20
        while server in processes_of(str(cluster.folder)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server not in processes_of(str(cluster.folder))
    finally:
        cluster.stop()
    assert not cluster.folder.exists()
