"""Check of the location of a ledger: it must be on a disk of this machine.

A network file system may acknowledge what it has not written, and two machines that share a file do not share the
memory in which SQLite keeps its write-ahead log in order. Linux names the kind of every mounted file system; elsewhere,
and for kinds not listed here, only what SQLite itself finds is refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpsql.ledger.sqlite.errors import not_durable

__all__ = ["MOUNTS", "find_file_system", "refuse_network"]

MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2 smb2 smb3 smbfs "
    "fuse.ceph fuse.curlftpfs fuse.davfs fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs fuse.rclone "
    "fuse.s3fs fuse.smbnetfs fuse.sshfs".split()
)
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space or a backslash in a name


def refuse_network(path: Path) -> None:
    """Raise `ledger-not-durable` if `path` is known to lie on another machine."""
    try:
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
        place = os.path.realpath(path)
    except (OSError, ValueError):  # no such table here; a path that is none is refused when it is opened
        return
    if find_file_system(place, mounts) in _NETWORK:
        raise not_durable()


def find_file_system(path: str, mounts: str) -> str:
    """Return the kind of the file system that holds `path`, by a table of mounts; the last of equals hides the others.

    >>> find_file_system("/data/a.ledger", "host:/data /data nfs4 rw 0 0")
    'nfs4'
    """
    kind, longest = "", -1
    for line in mounts.splitlines():
        words = line.split(" ")
        place = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), words[1]) if len(words) > 2 else ""  # noqa: PLR2004
        inside = place and (path == place or path.startswith(place.rstrip("/") + "/"))
        if inside and len(place) >= longest:
            kind, longest = words[2], len(place)
    return kind
