"""A filter of system calls (seccomp): which requests to the kernel a process may still make.

It is a list of what is refused, with a closed end. A list of what is allowed would be stricter, but which calls a
process needs is decided by the C library, the allocator, Python, Arrow and DuckDB together, and changes with each of
their releases: a call that such a list had forgotten would end in failures that are hard to explain. So every call up
to the last one that was judged is refused by name or allowed, and all later ones do not exist (ENOSYS), as on an older
kernel, for which libraries have another way. Calls that are needed for one purpose are allowed for it alone: threads,
signals to this process itself, its own limits. A server on a Unix socket, which forks for each connection, may do a
little more; it connects to nothing and starts no program, since the one call that starts it is told from all others.

The filter holds for the architectures whose numbers are below; a call made as for another one is refused.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

_TABLE = """
# other programs
execve 59 221
execveat 322 281
# other processes; of clone only what starts threads is left
fork 57 -
vfork 58 -
# sockets of every kind
socket 41 198
socketpair 53 199
connect 42 203
bind 49 200
listen 50 201
accept 43 202
accept4 288 242
sendto 44 206
sendmsg 46 211
sendmmsg 307 269
recvfrom 45 207
recvmsg 47 212
recvmmsg 299 243
shutdown 48 210
getsockname 51 204
getpeername 52 205
setsockopt 54 208
getsockopt 55 209
# other processes of the same user: their memory, their descriptors, their priority
ptrace 101 117
process_vm_readv 310 270
process_vm_writev 311 271
kcmp 312 272
pidfd_open 434 434
pidfd_getfd 438 438
pidfd_send_signal 424 424
process_madvise 440 440
process_mrelease 448 448
migrate_pages 256 238
move_pages 279 239
rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240
tkill 200 130
setpriority 141 140
ioprio_set 251 30
sched_setparam 142 118
sched_setscheduler 144 119
sched_setattr 314 274
sched_setaffinity 203 122
# what would act in place of the calls that are refused here
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
# modes, owners, times and attributes of files, of which Landlock says nothing
chmod 90 -
fchmod 91 52
fchmodat 268 53
fchmodat2 452 452
chown 92 -
fchown 93 55
lchown 94 -
fchownat 260 54
setxattr 188 5
lsetxattr 189 6
fsetxattr 190 7
removexattr 197 14
lremovexattr 198 15
fremovexattr 199 16
utime 132 -
utimes 235 -
utimensat 280 88
futimesat 261 -
truncate 76 45
mknod 133 -
mknodat 259 33
# file systems, and what happens in them
mount 165 40
umount2 166 39
pivot_root 155 41
chroot 161 51
open_tree 428 428
move_mount 429 429
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
mount_setattr 442 442
swapon 167 224
swapoff 168 225
quotactl 179 60
quotactl_fd 443 443
acct 163 89
name_to_handle_at 303 -
open_by_handle_at 304 -
fanotify_init 300 262
fanotify_mark 301 263
inotify_init 253 -
inotify_init1 294 26
inotify_add_watch 254 27
statmount 457 457
listmount 458 458
# users, groups, capabilities and namespaces
unshare 272 97
setns 308 268
setuid 105 146
setgid 106 144
setreuid 113 145
setregid 114 143
setresuid 117 147
setresgid 119 149
setfsuid 122 151
setfsgid 123 152
setgroups 116 159
capset 126 91
personality 135 92
setpgid 109 154
setsid 112 157
# the kernel itself
bpf 321 280
perf_event_open 298 241
userfaultfd 323 282
seccomp 317 277
add_key 248 217
request_key 249 218
keyctl 250 219
kexec_load 246 104
kexec_file_load 320 294
create_module 174 -
init_module 175 105
finit_module 313 273
delete_module 176 106
query_module 178 -
reboot 169 142
settimeofday 164 170
clock_settime 227 112
clock_adjtime 305 266
adjtimex 159 171
syslog 103 116
sethostname 170 161
setdomainname 171 162
iopl 172 -
ioperm 173 -
modify_ldt 154 -
lookup_dcookie 212 18
vhangup 153 58
uselib 134 -
_sysctl 156 -
nfsservctl 180 42
sysfs 139 -
ustat 136 -
vserver 236 -
security 185 -
afs_syscall 183 -
tuxcall 184 -
getpmsg 181 -
putpmsg 182 -
lsm_set_self_attr 460 460
# memory and messages shared with other processes, and files that no limit counts
shmget 29 194
shmat 30 196
shmctl 31 195
shmdt 67 197
semget 64 190
semop 65 193
semctl 66 191
semtimedop 220 192
msgget 68 186
msgsnd 69 189
msgrcv 70 188
msgctl 71 187
mq_open 240 180
mq_unlink 241 181
mq_timedsend 242 182
mq_timedreceive 243 183
mq_notify 244 184
mq_getsetattr 245 185
memfd_create 319 279
memfd_secret 447 447
"""  # name, number on x86_64, number on aarch64
_LAST = 462  # mseal: the last call that was judged; from 424 on numbers are the same everywhere
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, and the kernel's name
_CLONE, _CLONE3 = (56, 220), 435
_SERVER_CALLS = frozenset(
    "bind listen accept accept4 getsockname sendto recvfrom shutdown setsid fork shmget shmat shmctl shmdt".split()
)
_SERVER_MODES = frozenset(["chmod", "fchmodat"])  # they succeed without effect: umask gives its files their modes
_EXECUTE, _SOCKET = "execve", "socket"
_UNIX, _STREAM = 1, (1, 0x801, 0x80001, 0x80801)  # arguments of socket; the second with and without two flags
_OWN = {  # calls that may concern this process alone: by the first argument, its number or 0 for the caller
    "kill": ((62, 129), False),
    "tgkill": ((234, 131), False),
    "prlimit64": ((302, 261), True),
}
_PURPOSES = {  # calls of many purposes: which argument says the purpose, and those that are left
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),  # terminals; what is unread; descriptors
    "fcntl": ((72, 25), 1, (*range(8), 36, 37, 38, 1030, 1031, 1032, 1034)),  # but signals, leases and notices
    "prctl": ((157, 167), 0, (3, 15, 16, 21, 23, 39, 0x53564D41)),  # names of threads and memory, and what only reads
}
_THREAD, _NAMESPACES = 0x10000, 0x7E020000  # flags of clone
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06  # instructions of the filter
_ALLOW, _REFUSE, _UNKNOWN, _PRETEND = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38, 0x00050000  # EPERM, ENOSYS, none
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # in what the kernel shows the filter
_SECCOMP = (317, 277)
_SET_FILTER, _ALL_THREADS = 1, 1
_SET_SECCOMP, _FILTER = 22, 2  # of prctl, for kernels without the call
_SET_DEATH_SIGNAL = 1  # of prctl
_ADDRESSES = 1 << 46  # from which one is chosen; where a process has fewer, the kernel chooses
Instruction = tuple[int, int, int, int]  # operation, how many to skip if true and if false, value
Addresses = tuple[int, int, int]  # of the arguments of execve: the path, the words and the environment


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls() -> bool:
    """Refuse dangerous system calls to this process for good; return whether the kernel accepted the filter.

    Call this before there are other threads, after everything that needs the refused calls, with no new privileges.
    """
    machine = _find_machine()
    return machine is not None and _install(
        _filter(*_MACHINES[machine], process=os.getpid()), column=_MACHINES[machine][0]
    )


def filter_server(words: Sequence[str], environment: Mapping[str, str]) -> tuple[bool, Callable[[], object]]:
    """Filter the calls of this process as those of a server on a Unix socket, which it is to become.

    Returns whether the kernel accepted the filter, and a function that replaces this process by the server, and returns
    only if that fails; with the filter no other program can be started. `words` are the path of the program and its
    arguments. Call this as `filter_calls`.
    """
    machine = _find_machine()
    if machine is None:
        return False, partial(os.execve, words[0], list(words), environment)
    column = _MACHINES[machine][0]
    addresses = _place(words, environment)
    program = _filter(*_MACHINES[machine], process=os.getpid(), started=addresses)
    start = partial(ctypes.CDLL(None).syscall, _read_table(column)[_EXECUTE], *map(ctypes.c_void_p, addresses))
    return _install(program, column=column), start


def _find_machine() -> str | None:
    """Return the name of this machine if its calls are known."""
    machine = os.uname().machine if sys.platform == "linux" else ""
    is_known = machine in _MACHINES and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_void_p) == 8  # noqa: PLR2004 - bytes
    return machine if is_known else None


def _install(instructions: Iterable[Instruction], *, column: int) -> bool:
    """Hand a filter to the kernel; return whether it was accepted."""
    program = [struct.pack("=HBBI", *instruction) for instruction in instructions]
    filled = _Program(len(program), b"".join(program))
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_SECCOMP[column], _SET_FILTER, _ALL_THREADS, ctypes.byref(filled)) == 0:
        return True
    return bool(library.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(filled), 0, 0) == 0)


def _place(words: Sequence[str], environment: Mapping[str, str]) -> Addresses:
    """Put the arguments of execve where nothing else is, at addresses that are not to be guessed.

    The filter compares addresses, not what is there. The program that is started finds other memory, so it would have
    to guess all three, about 40 bits each.
    """
    texts = [os.fsencode(word) for word in words]
    pairs = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    return _put(texts[0] + b"\0"), _put_list(texts), _put_list(pairs)


def _put_list(texts: Iterable[bytes]) -> int:
    """Put texts into memory, then their addresses, which end with 0; return where these are."""
    held = [_put(text + b"\0") for text in texts]
    return _put(struct.pack(f"={len(held) + 1}Q", *held, 0))


def _put(data: bytes) -> int:
    """Map memory for `data` at an address by chance, for as long as this program runs, and return its place there."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    chance = int.from_bytes(os.urandom(8))
    size = len(data) + mmap.PAGESIZE
    wanted = chance % _ADDRESSES // mmap.PAGESIZE * mmap.PAGESIZE
    found = library.mmap(wanted, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MemoryError
    place = int(found) + (chance >> 48) % (mmap.PAGESIZE // 8) * 8
    ctypes.memmove(place, data, len(data))
    return place


def _filter(column: int, machine: int, *, process: int, started: Addresses | None = None) -> Iterable[Instruction]:
    """Yield the program that the kernel runs at every call: its number is compared with one after the other.

    It is that of a worker or, where an execve is `started` at some addresses, that of a server.
    """
    yield from [(_LOAD, 0, 0, _MACHINE_AT), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _REFUSE)]
    yield from [(_LOAD, 0, 0, _NUMBER_AT), (_GREATER, 0, 1, _LAST), (_RETURN, 0, 0, _UNKNOWN)]  # x32 has bit 30 set
    yield from [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]  # its flags are out of sight; libraries take clone
    table, is_server = _read_table(column), started is not None
    if started is not None:
        yield from _call(table.pop(_EXECUTE), 0, checks=_all_of(started))
        yield from _call(table.pop(_SOCKET), 0, checks=_streams())
        table = {name: number for name, number in table.items() if name not in _SERVER_CALLS}
    for name, number in table.items():
        verdict = _PRETEND if is_server and name in _SERVER_MODES else _REFUSE
        yield from [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, verdict)]
    threads = [] if is_server else [(_ANY_BIT, 0, 2, _THREAD)]
    yield from _call(_CLONE[column], 0, checks=[*threads, (_ANY_BIT, 1, 0, _NAMESPACES), (_RETURN, 0, 0, _ALLOW)])
    for numbers, zero in _OWN.values():
        if zero or not is_server:  # its processes signal each other
            yield from _call(numbers[column], 0, checks=_one_of([process, 0] if zero else [process]))
    for name, (numbers, argument, allowed) in _PURPOSES.items():
        further = [_SET_DEATH_SIGNAL] if is_server and name == "prctl" else []
        yield from _call(numbers[column], argument, checks=_one_of([*allowed, *further]))
    yield (_RETURN, 0, 0, _ALLOW)


def _read_table(column: int) -> dict[str, int]:
    """Return the names and numbers of the calls of the table."""
    lines = (line.split() for line in _TABLE.splitlines() if line and not line.startswith("#"))
    return {words[0]: int(words[1 + column]) for words in lines if words[1 + column] != "-"}


def _find_argument(position: int, *, half: int = 0) -> int:
    """Return where the filter finds the lower (0) or upper (1) half of an argument."""
    return _ARGUMENTS_AT + 8 * position + 4 * half


def _call(number: int, argument: int, *, checks: list[Instruction]) -> list[Instruction]:
    """Return the part for one call: `checks` of the lower half of an argument, and a refusal where they let through."""
    body = [(_LOAD, 0, 0, _find_argument(argument)), *checks, (_RETURN, 0, 0, _REFUSE)]
    return [(_EQUAL, 0, len(body), number), *body]


def _one_of(values: Iterable[int]) -> list[Instruction]:
    """Return checks that allow the call for these values of the argument."""
    return [step for value in values for step in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]


def _streams() -> list[Instruction]:
    """Return checks that allow a socket if it is a stream of this machine."""
    family = [(_EQUAL, 1, 0, _UNIX), (_RETURN, 0, 0, _REFUSE)]
    return [*family, (_LOAD, 0, 0, _find_argument(1)), *_one_of(_STREAM)]


def _all_of(values: Iterable[int]) -> list[Instruction]:
    """Return checks that allow the call if its first arguments have these values, of 64 bits each."""
    steps = list[Instruction]()
    for position, value in enumerate(values):
        for half in (0, 1):
            word = value >> 32 * half & 0xFFFFFFFF
            steps += [
                (_LOAD, 0, 0, _find_argument(position, half=half)),
                (_EQUAL, 1, 0, word),
                (_RETURN, 0, 0, _REFUSE),
            ]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
