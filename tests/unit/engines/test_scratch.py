"""Scratch folders go with their owners, also with those that are killed, and never with anybody else's."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.child_kit import Child
from support.scratch_kit import made_and_left

from dpsql.engines import scratch
from dpsql.engines.duckdb.catalog import describe_schema
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.engines.scratch import ScratchFolder, sweep

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
HOLDING = """
import sys, tempfile, time
from dpsql.engines.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "below").mkdir()
(folder.path / "below" / "spilled").write_text("MARKED")
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def killed(place: Path) -> Path:
    """Return a folder whose owner was killed."""
    command = [sys.executable, "-c", HOLDING]
    with Child(command, env={**os.environ, "TMPDIR": str(place)}, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert (folder / "below" / "spilled").exists()
        sweep()
        assert (folder / "below" / "spilled").exists()
        owner.kill()
    assert folder.exists()
    return folder


def test_a_folder_is_private_and_goes_when_it_is_closed_or_forgotten(place: Path) -> None:
    with ScratchFolder() as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert folder.path.parent == place
        folder.close()
        folder.close()
    folder = ScratchFolder()
    (folder.path / "spilled").write_text("x")
    del folder
    assert list(place.iterdir()) == []


def test_the_folder_of_an_owner_that_was_killed_is_swept_by_the_next(place: Path) -> None:
    dead = killed(place)
    with ScratchFolder() as folder:
        assert list(place.iterdir()) == [folder.path]
    assert not dead.exists()


def test_every_opening_sweeps(place: Path, database: Path) -> None:
    for opening in (
        lambda: DuckDBEngine.open(database, {"reads": None}).close(),
        lambda: WorkerEngine.open(database, {"reads": None}, threads=1).close(),
        lambda: describe_schema(database),
    ):
        dead = killed(place)
        opening()
        assert not dead.exists()
        assert list(place.iterdir()) == []


def test_the_folder_of_an_owner_that_lives_stays_whoever_sweeps(place: Path) -> None:
    with ScratchFolder() as folder:
        sweep()
        subprocess.run(
            [sys.executable, "-c", "from dpsql.engines.scratch import sweep; sweep()"],
            env={**os.environ, "TMPDIR": str(place)},
            check=True,
        )
        assert folder.path.exists()


def test_what_only_looks_like_one_stays(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "kept").mkdir(parents=True)
    (place / "dpsql-scratch-abcdefgh").symlink_to(elsewhere, target_is_directory=True)
    (place / "dpsql-scratch-ijklmnop").write_text("a file")
    for name in ("dpsql-scratch-", "dpsql-scratch-abcdefg", "dpsql-scratch-abcdefghi", "dpsql-abcdefgh", "other"):
        (place / name).mkdir()
    before = sorted(place.iterdir())
    sweep()
    assert sorted(place.iterdir()) == before
    assert (elsewhere / "kept").exists()


def test_links_in_a_folder_are_removed_and_not_followed(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("x")
    dead = place / "dpsql-scratch-abcdefgh"
    dead.mkdir()
    (dead / "link").symlink_to(elsewhere, target_is_directory=True)
    sweep()
    assert not dead.exists()
    assert (elsewhere / "kept").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has folders of others")
def test_another_users_folder_stays(place: Path) -> None:
    other = place / "dpsql-scratch-abcdefgh"
    other.mkdir()
    os.chown(other, 12345, 12345)
    sweep()
    assert other.exists()


def test_where_there_are_no_locks_nothing_is_swept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError(95, "no locks")

    monkeypatch.setattr(scratch.fcntl, "flock", missing)
    other = place / "dpsql-scratch-abcdefgh"
    other.mkdir()
    with ScratchFolder() as folder:
        assert folder.path.exists()
    assert list(place.iterdir()) == [other]


def test_a_folder_that_is_swept_while_it_is_made_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def swept_at_once(prefix: str) -> str:
        made.append(mkdtemp(prefix=prefix))
        if len(made) <= 3:
            sweep()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept_at_once)
    with ScratchFolder() as folder:
        assert list(place.iterdir()) == [folder.path]
    assert len(made) == 4


def test_a_folder_that_is_swept_while_its_lock_is_waited_for_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, looks = scratch.fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not looks:
            looks.append(descriptor)
            shutil.rmtree(next(place.iterdir()))
        flock(descriptor, operation)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    with ScratchFolder() as folder:
        assert list(place.iterdir()) == [folder.path]


def test_makers_and_sweepers_do_not_disturb_each_other(place: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=made_and_left, args=(str(place), 60)) for _ in range(3)]
    for worker in workers:
        worker.start()
    threads = [threading.Thread(target=made_and_left, args=(str(place), 60)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for each in (*threads, *workers):
        each.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert list(place.iterdir()) == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_the_folder_alone(place: Path) -> None:
    with ScratchFolder() as folder:
        child = os.fork()
        if child == 0:
            folder.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert folder.path.exists()
        subprocess.run(
            [sys.executable, "-c", "from dpsql.engines.scratch import sweep; sweep()"],
            env={**os.environ, "TMPDIR": str(place)},
            check=True,
        )
        assert folder.path.exists()


def test_an_instance_with_nothing_in_it_spills_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.engines.duckdb.instance import connect_bare

    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with closing(connect_bare("100MB")) as bare, pytest.raises(duckdb.Error):
        bare.execute("SELECT count(*) FROM (SELECT DISTINCT i, i::VARCHAR || 'x' FROM range(9000000) AS t(i))")
    assert sorted(tmp_path.iterdir()) == before
