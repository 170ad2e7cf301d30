"""What code that has taken over a worker may try, tried inside a real worker and in a control without confinement.

`python escapes.py FOLDER` prints as JSON which acts succeed in each, and which measures the worker reports. Run by root
with `--ordinary` it becomes an ordinary user first.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

TRIED = r"""
import ctypes, fcntl, mmap, os, platform, resource, socket, subprocess, sys, threading, time
library = ctypes.CDLL(None, use_errno=True)
outside, parent = probes["outside"], os.getppid()
arm = platform.machine() == "aarch64"
def call(*words):
    ctypes.set_errno(0)
    found = library.syscall(*map(ctypes.c_long, words))
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return found
def named(function, *words):
    if function(*words) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def unix(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def cloned():  # as fork does it, but by hand, and by another number
    pid = call(220 if arm else 56, 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def cloned_anew():
    words = (ctypes.c_uint64 * 8)(0, 0, 0, 0, 17)
    pid = call(435, ctypes.addressof(words), 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def replaced():  # in the control by a child, which is replaced in its place
    if probes["control"]:
        subprocess.run(["true"], check=True)
    else:
        os.execv("/usr/bin/true", ["true"])
def ring():
    words = (ctypes.c_uint32 * 32)()
    os.close(call(425, 1, ctypes.addressof(words)))
def memory_of(pid):
    target = ctypes.create_string_buffer(8)
    here, there = ((ctypes.c_uint64 * 2)(address, 8) for address in (ctypes.addressof(target), probes["address"]))
    call(270 if arm else 310, pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
def counted():
    words = (ctypes.c_uint64 * 16)(1 | 112 << 32, 1, 0, 0, 0, 1 << 5 | 1 << 6)
    os.close(call(241 if arm else 298, ctypes.addressof(words), 0, -1, -1, 0))
def written():
    with open(outside, "ab"):
        pass
def old_call():  # getpid as programs of 32 bits ask for it
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if found != os.getpid():
        raise OSError
def capable():
    lines = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    if not any(int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")):
        raise OSError
def signalled():
    with open(outside, "rb") as file:
        fcntl.fcntl(file, fcntl.F_SETOWN, parent)
ACTS = {
    "unix socket": lambda: unix(probes["socket"]),
    "abstract socket": lambda: unix("\0" + probes["abstract"]),
    "pair of sockets": lambda: [each.close() for each in socket.socketpair()],
    "tcp": lambda: socket.create_connection(("127.0.0.1", probes["port"]), 1).close(),
    "read": lambda: open(outside, "rb").close(),
    "write": written,
    "chmod": lambda: os.chmod(outside, 0o640),
    "chmod of an open file": lambda: os.fchmod(os.open(probes["data"], os.O_RDONLY), 0o644),
    "chown": lambda: os.chown(outside, os.getuid(), os.getgid()),
    "set an attribute": lambda: os.setxattr(outside, "user.dpsql", b"x"),
    "remove an attribute": lambda: os.removexattr(outside, "user.dpsql"),
    "set times": lambda: os.utime(outside),
    "truncate": lambda: os.truncate(outside, 3),
    "fork": child,
    "clone": cloned,
    "clone3": cloned_anew,
    "exec": replaced,
    "spawn": lambda: os.waitpid(os.posix_spawn("/usr/bin/true", ["true"], {}), 0),
    "io_uring": ring,
    "memory of the front": lambda: memory_of(parent),
    "signal the front": lambda: os.kill(parent, 0),
    "signals by a file": signalled,
    "priority of the front": lambda: os.setpriority(os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent)),
    "limits of the front": lambda: resource.prlimit(parent, resource.RLIMIT_CORE),
    "descriptor of a process": lambda: os.close(os.pidfd_open(parent)),
    "mount": lambda: named(library.mount, b"none", b"/mnt", b"tmpfs", 0, None) or named(library.umount, b"/mnt"),
    "change user": lambda: os.setuid(os.getuid()),
    "another root": lambda: os.chroot("/"),
    "user namespace": lambda: named(library.unshare, 0x10000000),
    "mount namespace": lambda: named(library.unshare, 0x00020000),
    "memory in a file": lambda: os.close(os.memfd_create("x")),
    "shared memory": lambda: named(library.shmget, 0, 4096, 0o1600),
    "message queue": lambda: named(library.mq_open, b"/dpsql", 0o100, 0o600, None) or library.mq_unlink(b"/dpsql"),
    "watch files": lambda: named(library.inotify_init1, 0),
    "personality": lambda: call(92 if arm else 135, 0xFFFFFFFF),
    "keys": lambda: call(219 if arm else 250, 0, -3 & 0xFFFFFFFF, 0),
    "page faults": lambda: os.close(call(282 if arm else 323, 1)),
    "counters": counted,
    "capabilities": capable,
    "call of 32 bits": old_call,
    "trace": lambda: named(library.ptrace, 0, 0, 0, 0),
}
def tried(act):
    try:
        act()
    except Exception:
        return False
    return True
"""
CONTROL = """
import json, sys
probes = json.loads(sys.argv[1])
exec(sys.argv[2])
print(json.dumps([name for name, act in ACTS.items() if tried(act)]), flush=True)
"""
INSIDE = """
threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
protocol.send(answers, protocol.message(done=[name for name, act in ACTS.items() if tried(act)]))
"""
HOSTILE = """
import sys
sys.path[:] = sys.argv[1:]
from dpsql.engines.duckdb import protocol, worker as worker_main
def hostile(engine, asked, *, answers):
    exec({text!r}, dict(probes={probes!r}, answers=answers, protocol=protocol))
worker_main._answer = hostile
worker_main.main()
"""
_NEW_MOUNTS, _BIND, _PRIVATE = 0x20000, 0x1000, 0x44000


def attempted(folder: Path) -> dict[str, object]:
    """Return which acts succeed in the control and in a worker, and what the worker says is in force."""
    import duckdb

    from dpsql.engines import Statement
    from dpsql.engines.duckdb import protocol
    from dpsql.engines.duckdb import worker_engine as worker
    from dpsql.errors import EngineError

    data, outside = folder / "events.duckdb", folder / "ledger.sqlite"
    with closing(duckdb.connect(data)) as connection:
        connection.execute("CREATE TABLE reads AS SELECT range AS user_id FROM range(1000)")
    outside.write_bytes(b"spent")
    abstract = f"dpsql-{os.getpid()}"
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX)) as named,
        closing(socket.socket(socket.AF_UNIX)) as hidden,
    ):
        named.bind(str(folder / "s"))
        hidden.bind("\0" + abstract)
        named.listen()
        hidden.listen()
        mine = ctypes.create_string_buffer(8)
        probes = {
            "address": ctypes.addressof(mine),
            "outside": str(outside),
            "data": str(data),
            "socket": str(folder / "s"),
            "abstract": abstract,
            "port": server.getsockname()[1],
            "control": False,
        }
        worker._BEGIN = HOSTILE.format(text=TRIED + INSIDE, probes=probes)
        heard: list[dict[str, object]] = []
        worker.WorkerEngine._table = lambda _, reply: heard.append(protocol.heard(reply))  # type: ignore[assignment, method-assign, misc, return-value]
        with closing(worker.WorkerEngine.open(data, {"reads": None}, memory_limit="512MB", threads=2)) as engine:
            with suppress(EngineError):
                engine.execute(Statement("SELECT 1"))
            confinement = engine.confinement
        arguments = [sys.executable, "-c", CONTROL, json.dumps({**probes, "control": True}), TRIED]
        control = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return {
        "control": json.loads(control.stdout),
        "worker": heard[0]["done"] if heard else None,
        "confinement": confinement,
        "left": outside.read_bytes().decode(),
    }


def become_ordinary() -> None:
    """Become the user nobody, who finds this Python also where it is in a folder that only root may enter."""
    library = ctypes.CDLL(None, use_errno=True)

    def mount(what: str, place: str, kind: str | None, flags: int, options: str | None = None) -> None:
        words = [None if word is None else os.fsencode(word) for word in (what, place, kind)]
        if library.mount(*words, flags, None if options is None else os.fsencode(options)):
            raise OSError(ctypes.get_errno(), place)

    nobody = pwd.getpwnam("nobody")
    closed = [folder for folder in reversed(Path(sys.base_prefix).parents) if not folder.stat().st_mode & 0o001]
    if closed:
        if library.unshare(_NEW_MOUNTS):
            raise OSError(ctypes.get_errno(), "mounts")
        mount("none", "/", None, _PRIVATE)
        beside = tempfile.mkdtemp(prefix="beside-")
        mount(sys.base_prefix, beside, None, _BIND)
        mount("none", str(closed[0]), "tmpfs", 0, "mode=755")
        Path(sys.base_prefix).mkdir(parents=True)
        mount(beside, sys.base_prefix, None, _BIND)
        library.umount2(os.fsencode(beside), 2)
        Path(beside).rmdir()
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def main() -> None:
    """Try everything in the folder of the command line, and print what was found."""
    folder = Path(sys.argv[1])
    if "--ordinary" in sys.argv:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        os.chdir(folder)
        become_ordinary()
        os.environ.update(HOME=str(folder), TMPDIR=str(folder))
        os.execv(sys.executable, [sys.executable, __file__, str(folder)])
    sys.stdout.write(json.dumps(attempted(folder)))


if __name__ == "__main__":
    main()
