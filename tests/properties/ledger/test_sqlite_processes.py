"""Processes that share a ledger: they race, wait in its queue, fork and are killed, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ASK, BUDGET, ITEM, TOTAL, code_of, opened, raw
from support.ledger_programs import FORKED, NURSERY, RACE, start

from dpsql.accounting import BudgetState
from dpsql.ledger import SQLiteLedger, sum_entries, verify
from dpsql.ledger import sqlite_files as files
from dpsql.ledger.sqlite_files import Sidecars

KILLS = int(os.environ.get("DPSQL_KILLS", "60"))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def test_a_reservation_whose_process_was_killed_stays_held(path: Path) -> None:
    with start("ledger = opened(); held = ledger.reserve(ASK); say('held'); sys.stdin.read()", path) as process:
        assert process.stdout.readline() == "held\n"
        process.kill()
    for _ in range(2):
        with opened(path) as ledger:
            assert ledger.state() == BudgetState(Fraction(0), Fraction("1e-12"), Fraction(1))
            assert ledger.entries()[0].settlement is None


def test_sixteen_processes_racing_for_the_last_items_get_exactly_those(path: Path) -> None:
    with start(RACE, path) as process:
        words = process.communicate(timeout=100)[0].split()
    assert (words.count("granted"), words.count("refused"), words.count("0")) == (50, 16 * 5 - 50, 16)
    with opened(path) as ledger:
        state = ledger.state()
        assert len(ledger.entries()) == 50
        assert state.spent + state.reserved == BUDGET.refundable
        assert state.permanent == Fraction("1e-12") * 50
        last = list(ledger.events())[-1]
    mark = Sidecars(path).read_mark()
    assert (mark.seq, mark.chain) == (last.seq, last.chain)


def test_what_was_acknowledged_before_a_kill_is_in_the_file(path: Path) -> None:
    acknowledged: dict[str, set[int]] = {"held": set(), "settled": set()}
    moments = random.Random(0)
    with start(NURSERY, path, rho=10**6) as nursery:
        for kill in range(KILLS):
            nursery.stdin.write("another\n")
            nursery.stdin.flush()
            born = nursery.stdout.readline().split()
            heard = [nursery.stdout.readline() for _ in range(moments.randrange(8) if kill % 2 else 0)]
            time.sleep(moments.uniform(0, 0.005 if kill % 2 else 0.03))  # the others also while they open it
            os.kill(int(born[1]), signal.SIGKILL)
            for line in heard + list(iter(nursery.stdout.readline, "gone\n")):
                word, number = line.split()
                acknowledged[word].add(int(number))
            if path.exists() and path.stat().st_size and acknowledged["held"]:
                verify(path)
        nursery.stdin.close()
    assert len(acknowledged["settled"]) > KILLS // 2
    with closing(SQLiteLedger.open(path)) as ledger:
        events = list(ledger.events())
        held = {event.seq for event in events if event.kind == "reserved"}
        entries, state = ledger.entries(), ledger.state()
        assert acknowledged["held"] <= held
        assert len(held - acknowledged["held"]) <= KILLS  # of each that was killed, one may be unheard
        settled = {seq for seq, entry in zip(sorted(held), entries, strict=True) if entry.settlement}
        assert acknowledged["settled"] <= settled
        assert state == sum_entries(entries)
        assert state.reserved == ITEM.refundable * (len(held) - len(settled))
        assert ledger.stored("key", None) == b"answer %d" % max(settled)
    assert verify(path).events == len(events)
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_forked_child_does_not_write_through_its_parents_connection(path: Path) -> None:
    with start(FORKED, path) as process:
        assert process.communicate(timeout=30)[0].split() == ["ledger-forked", "1"]


# the queue


def test_who_waits_too_long_for_a_turn_is_told_so_and_is_not_charged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(ASK)
        with Sidecars(path).turn(), monkeypatch.context() as patience:
            patience.setattr(files, "WAIT", 0.05)
            assert code_of(lambda: ledger.reserve(ASK)) == "ledger-busy"
            assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-busy"
            assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-busy"
            assert ledger.state().reserved == Fraction(1)
        held.settle(Fraction(1), "those who gave up take no turn for good")
        ledger.reserve(ASK)
        assert ledger.state() == BudgetState(Fraction(1), Fraction("2e-9"), Fraction(1))


def test_writers_take_turns(path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []
    path.touch()

    def enter(number: int) -> None:
        for _ in range(20):
            with Sidecars(path).turn():
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.remove(number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(enter, range(8)))
    assert most == [1] * 160


HOLDER = """
from pathlib import Path
from dpsql.ledger import sqlite_files as files
from dpsql.ledger.sqlite_files import Sidecars
turn = Sidecars(Path(sys.argv[1])).turn()
turn.__enter__()
{act}
say('held')
sys.stdin.read()
"""
CHILD = """
if os.fork() == 0:
    say('child')
    os.read(gate, 1)
    os._exit(0)
"""


def test_a_killed_process_loses_its_turn(path: Path) -> None:
    with opened(path) as ledger:
        with start(HOLDER.format(act=""), path) as process:
            assert process.stdout.readline() == "held\n"
            process.kill()
        ledger.reserve(ASK)


def test_a_child_forked_during_a_turn_does_not_keep_it_when_its_parent_is_killed(path: Path) -> None:
    def turn_is_free() -> None:
        with Sidecars(path).turn():
            pass

    path.touch()
    gate, opener = os.pipe()
    os.set_inheritable(gate, True)
    program = HOLDER.format(act=f"gate = {gate}{CHILD}")
    process = start(program, path, descriptors=(gate,))
    try:
        assert {process.stdout.readline(), process.stdout.readline()} == {"held\n", "child\n"}
        process.kill()
        process.wait()
        with pytest.MonkeyPatch.context() as patience:
            patience.setattr(files, "WAIT", 5)
            turn_is_free()
    finally:
        os.close(opener)  # lets the child go
        os.close(gate)
        process.stdin.close()
        process.stdout.close()


def test_a_queue_that_someone_deleted_is_made_again_and_costs_nothing(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        one.reserve(ASK)
        Path(f"{path}.lock").unlink()
        other.reserve(ASK)
        one.reserve(ASK)
        assert one.state() == other.state()
        assert one.state().reserved == Fraction(3)
    assert verify(path).events == 4


def test_a_symbolic_link_is_no_second_queue_and_no_second_mark(path: Path) -> None:
    link = path.with_name("link")
    with opened(path) as ledger:
        link.symlink_to(path)
        with opened(link) as other:
            other.reserve(ASK)
        assert ledger.state().reserved == Fraction(1)
    assert not list(path.parent.glob("link.*"))
    assert Sidecars(link).read_mark() == Sidecars(path).read_mark()


def test_threads_that_make_a_ledger_together_make_one(tmp_path: Path) -> None:
    def make(path: Path, start: threading.Barrier) -> int:
        start.wait()
        with opened(path) as ledger:
            ledger.reserve(ASK)
            return len(ledger.entries())

    with ThreadPoolExecutor(8) as threads:
        for attempt in range(10):
            start_ = threading.Barrier(8)
            counts = [threads.submit(make, tmp_path / f"{attempt}", start_) for _ in range(8)]
            assert max(count.result(timeout=30) for count in counts) == 8
            assert verify(tmp_path / f"{attempt}").events == 9
