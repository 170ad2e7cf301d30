"""The filter of system calls, run by an interpreter of its instructions, for both machines and calls of every kind."""

from __future__ import annotations

import itertools
import platform
import re
from pathlib import Path

import pytest

from dpsql.confinement import system_calls

ALLOW, REFUSE, UNKNOWN, PRETEND = 0x7FFF0000, 0x50001, 0x50026, 0x50000
PROCESS = 4711
STARTED = (0x7F12_3456_7008, 0x1234_5678_9010, 0x0000_0001_2008)  # addresses of what a server is started with
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEEDED = {  # read, write, close, mmap, munmap, mprotect, futex, poll, openat, pread64, ftruncate, unlinkat, getrandom
    "x86_64": (0, 1, 3, 9, 11, 10, 202, 7, 257, 17, 77, 263, 318),
    "aarch64": (63, 64, 57, 222, 215, 226, 98, 73, 56, 67, 46, 35, 278),
}
both = pytest.mark.parametrize("machine", MACHINES)


def decided(
    machine: str,
    number: int,
    *arguments: int,
    audited: int | None = None,
    started: tuple[int, int, int] | None = None,
) -> int:
    """Return what the filter of a machine decides on a call of a worker or, if `started` is given, of a server."""
    column, own = MACHINES[machine]
    program = list(system_calls._filter(column, own, process=PROCESS, started=started))
    words = {0: number, 4: own if audited is None else audited}
    for place in range(6):
        given = arguments[place] if place < len(arguments) else 0
        words |= {16 + 8 * place: given & 0xFFFFFFFF, 20 + 8 * place: given >> 32 & 0xFFFFFFFF}
    held, at = 0, 0
    while True:
        operation, if_true, if_false, value = program[at]
        at += 1
        match operation:
            case 0x20:
                held = words[value]
            case 0x15:
                at += if_true if held == value else if_false
            case 0x25:
                at += if_true if held > value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(operation)


def numbers(machine: str) -> dict[str, int]:
    """Return the calls that are refused in any case, by their names."""
    column = MACHINES[machine][0]
    lines = (line.split() for line in system_calls._TABLE.splitlines() if line and not line.startswith("#"))
    return {name: int(words[column]) for name, *words in lines if words[column] != "-"}


@both
def test_what_is_in_the_table_is_refused_and_what_a_worker_needs_is_not(machine: str) -> None:
    refused = numbers(machine)
    assert len(refused) > 100
    assert {decided(machine, number) for number in refused.values()} == {REFUSE}
    assert not set(NEEDED[machine]) & set(refused.values())
    assert {decided(machine, number) for number in NEEDED[machine]} == {ALLOW}


@both
def test_every_number_is_decided_and_later_ones_do_not_exist(machine: str) -> None:
    refused = set(numbers(machine).values())
    for number in range(463):
        if number in refused:
            continue
        assert decided(machine, number) in {ALLOW, REFUSE} or number == 435
    for number in (435, 463, 466, 512, 547, 10_000, 0x40000000, 0x40000000 | 59, 0xFFFFFFFF):
        assert decided(machine, number) == UNKNOWN, number


@both
def test_calls_of_another_architecture_are_refused(machine: str) -> None:
    for audited in (0x40000003, 0x40000028, 0, *(own for name, (_, own) in MACHINES.items() if name != machine)):
        assert {decided(machine, number, audited=audited) for number in range(600)} == {REFUSE}


@both
def test_only_threads_are_cloned(machine: str) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    thread = 0x3D0F00  # what the C library asks for
    assert decided(machine, clone, thread) == ALLOW
    for flags in (0, 17, 0x01200011, 0x4000 | 17, thread & ~0x10000):
        assert decided(machine, clone, flags) == REFUSE
    for namespace in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decided(machine, clone, thread | namespace) == REFUSE


@both
def test_signals_and_limits_are_for_this_process_alone(machine: str) -> None:
    kill, tgkill, prlimit = {"x86_64": (62, 234, 302), "aarch64": (129, 131, 261)}[machine]
    for number in (kill, tgkill):
        assert decided(machine, number, PROCESS, 9) == ALLOW
        for other in (0, 1, PROCESS + 1, -1 & 0xFFFFFFFFFFFFFFFF, -PROCESS & 0xFFFFFFFF):
            assert decided(machine, number, other, 0) == REFUSE
    assert [decided(machine, prlimit, process) for process in (0, PROCESS, 1)] == [ALLOW, ALLOW, REFUSE]


@both
def test_calls_of_many_purposes_serve_harmless_ones(machine: str) -> None:
    ioctl, fcntl, prctl = {"x86_64": (16, 72, 157), "aarch64": (29, 25, 167)}[machine]
    assert decided(machine, ioctl, 3, 0x5401) == decided(machine, ioctl, 3, 0x5451) == ALLOW
    for request in (0x5412, 0x40086602, 0x4004667F, 0x401C5820, 0x40049409):  # TIOCSTI, FS_IOC_SETFLAGS, FICLONE ...
        assert decided(machine, ioctl, 3, request) == REFUSE
    assert {decided(machine, fcntl, 3, command) for command in (1, 2, 3, 4, 6, 1030, 1031)} == {ALLOW}
    assert {decided(machine, fcntl, 3, command) for command in (8, 10, 15, 1024, 1026)} == {REFUSE}  # F_SETOWN ...
    assert decided(machine, prctl, 15) == ALLOW
    assert {decided(machine, prctl, option) for option in (1, 4, 8, 22, 24, 28, 38, 47, 0x59616D61)} == {REFUSE}


@both
def test_a_server_is_started_once_and_starts_no_other_program(machine: str) -> None:
    execve, execveat, vfork = {"x86_64": (59, 322, 58), "aarch64": (221, 281, None)}[machine]
    assert decided(machine, execve, *STARTED, started=STARTED) == ALLOW
    for position in range(3):
        for bit in (1, 1 << 3, 1 << 31, 1 << 32, 1 << 47, 1 << 63):
            other = [value ^ bit * (at == position) for at, value in enumerate(STARTED)]
            assert decided(machine, execve, *other, started=STARTED) == REFUSE
    for number in (execveat, vfork):
        assert number is None or decided(machine, number, *STARTED, started=STARTED) == REFUSE


@both
def test_a_server_has_sockets_of_one_kind_and_connects_to_nothing(machine: str) -> None:
    socket, connect, *others = {
        "x86_64": (41, 42, 53, 46, 47, 307, 299),  # socketpair, sendmsg, recvmsg, sendmmsg, recvmmsg
        "aarch64": (198, 203, 199, 211, 212, 269, 243),
    }[machine]
    for kind in (1, 1 | 0x800, 1 | 0x80000, 1 | 0x80800):
        assert decided(machine, socket, 1, kind, 0, started=STARTED) == ALLOW
        for family in (0, 2, 10, 16, 17, 38, 40):  # IPv4, IPv6, netlink, packets, the kernel's ciphers, machines
            assert decided(machine, socket, family, kind, 0, started=STARTED) == REFUSE
    assert {decided(machine, socket, 1, kind, 0, started=STARTED) for kind in (2, 3, 5, 2 | 0x80000)} == {REFUSE}
    assert {decided(machine, number, started=STARTED) for number in (connect, *others)} == {REFUSE}
    assert {decided(machine, number, 1, 1) for number in (socket, connect)} == {REFUSE}  # a worker


@both
def test_a_server_may_do_what_it_needs_and_no_more_than_that_beside_a_worker(machine: str) -> None:
    column = MACHINES[machine][0]
    kinds = {name: decided(machine, number, started=STARTED) for name, number in numbers(machine).items()}
    needed = "bind listen accept accept4 getsockname sendto recvfrom shutdown setsid fork shmget shmat shmctl shmdt"
    assert {name for name, kind in kinds.items() if kind == ALLOW} == set(needed.split()) & kinds.keys()
    assert {name for name, kind in kinds.items() if kind == PRETEND} == {"chmod", "fchmodat"} & kinds.keys()
    clone, kill, prctl, prlimit = ((56, 62, 157, 302), (220, 129, 167, 261))[column]
    assert decided(machine, clone, 0x01200011, started=STARTED) == ALLOW
    assert decided(machine, clone, 0x10000011, started=STARTED) == REFUSE
    assert decided(machine, kill, PROCESS + 1, 10, started=STARTED) == ALLOW
    assert decided(machine, prctl, 1, 3, started=STARTED) == ALLOW
    assert {decided(machine, prctl, option, started=STARTED) for option in (4, 8, 22, 28, 38, 47)} == {REFUSE}
    assert [decided(machine, prlimit, process, started=STARTED) for process in (0, 1)] == [ALLOW, REFUSE]
    assert {decided(machine, number, started=STARTED) for number in NEEDED[machine]} == {ALLOW}
    assert {decided(machine, number, started=STARTED) for number in (435, 463, 0x40000000 | 59)} == {UNKNOWN}


@both
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip("the headers of the kernel are not installed")
    known = {
        name: int(number)
        for name, number in re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\b", header.read_text(), re.MULTILINE)
    }
    of_many = {name: pair for name, (pair, _) in system_calls._OWN.items()}
    of_many |= {name: pair for name, (pair, *_) in system_calls._PURPOSES.items()}
    of_many |= {"clone": system_calls._CLONE, "seccomp": system_calls._SECCOMP}
    column = MACHINES[machine][0]
    mine = numbers(machine) | {name: pair[column] for name, pair in of_many.items()}
    assert {name: number for name, number in mine.items() if name in known and known[name] != number} == {}
    assert len(mine.keys() & known.keys()) > 100


def test_the_program_fits_into_what_the_kernel_takes() -> None:
    for (column, own), started in itertools.product(MACHINES.values(), (None, STARTED)):
        program = list(system_calls._filter(column, own, process=PROCESS, started=started))
        assert len(program) < 4096
        assert all(skip < 256 for instruction in program for skip in instruction[1:3])


def test_other_machines_get_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("riscv64", "armv7l", "i686", "ppc64le"):
        found = platform.uname()
        monkeypatch.setattr(system_calls.os, "uname", lambda found=found, machine=machine: Named(machine, found))
        assert not system_calls.filter_calls()


class Named:
    """What the system says it is, on another machine."""

    def __init__(self, machine: str, found: platform.uname_result) -> None:
        self.machine = machine
        self.sysname = found.system
