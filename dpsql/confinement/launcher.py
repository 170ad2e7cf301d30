"""Program that confines itself and then becomes a server on a Unix socket, which its processes inherit.

It is run by `COMMAND`, which imports nothing of dpsql but this package, so that it starts in a few hundredths of a
second. Its words are the folder of dpsql, the server's folder, the bytes of memory of a process, the numbers
"user:group" for root to become or "", what the server may read, "--", and the words that start the server. It writes
the names of the measures in force into the file `REPORT` of the server's folder.
"""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from dpsql.confinement.measures import (
    MEASURES,
    bound_processes,
    drop_capabilities,
    end_with_parent,
    forbid_files,
    leave_network,
    leave_shared_memory,
    limit_resources,
)
from dpsql.confinement.system_calls import filter_server

COMMAND = """
import sys, types
dpsql = sys.modules["dpsql"] = types.ModuleType("dpsql")
dpsql.__path__ = [sys.argv[1]]
from dpsql.confinement.launcher import main
main(sys.argv[2:])
"""
REPORT = "confinement"
_PROCESSES = 64  # of a server
_MOST_OPEN = 1024  # files of a process
_MOST_WRITTEN = 64 << 20  # bytes of a file
_LIBRARIES = "/lib /lib32 /lib64 /usr/lib /usr/lib32 /usr/lib64 /usr/local/lib /nix/store /etc/ld.so.cache".split()
_DEVICES = ["/dev/null", "/dev/urandom"]


def main(words: list[str]) -> None:
    """Confine this process and become the server; return only if it cannot be started."""
    for ignored in (signal.SIGINT, signal.SIGQUIT):  # by a shell, of what it starts in the background
        signal.signal(ignored, signal.SIG_DFL)
    parent, end = os.getppid(), words.index("--")
    folder, memory, whom, *readable = words[:end]
    has_left_network = leave_network(with_user_namespace=not whom)
    leave_shared_memory()
    if whom:
        user, group = whom.split(":")
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    limit_resources(
        {
            resource.RLIMIT_DATA: int(memory),
            resource.RLIMIT_NOFILE: _MOST_OPEN,
            resource.RLIMIT_FSIZE: _MOST_WRITTEN,
        }
    )
    is_bounded = bound_processes(_PROCESSES)
    has_files = forbid_files(map(Path, [*readable, *_LIBRARIES, *_DEVICES]), writable=Path(folder))
    has_capabilities = drop_capabilities()
    end_with_parent(signal.SIGQUIT)
    if os.getppid() != parent:
        return
    is_filtered, start = filter_server(words[end + 1 :], os.environ)
    taken = (has_capabilities, has_files, has_left_network or is_filtered, is_bounded, is_filtered)
    names = [name for name, is_taken in zip(MEASURES, taken, strict=True) if is_taken]
    Path(folder, REPORT).write_text("\n".join(names), encoding="utf-8")  # one that is loaded: Python's files are closed
    start()
