"""The filter of system calls, run by an interpreter of its instructions, for both machines and calls of every kind."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from dpsql.confinement import system_calls

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x50001, 0x50026
PROCESS = 4711
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


def decided(machine: str, number: int, *arguments: int, audited: int | None = None) -> int:
    """Return what the filter of a machine decides on a call."""
    column, own = MACHINES[machine]
    program = list(system_calls._filter(column, own, process=PROCESS))
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
    for column, own in MACHINES.values():
        program = list(system_calls._filter(column, own, process=PROCESS))
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
