"""A command at a real terminal, whose other end a test holds."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """The other end of a terminal that the command runs in, on `events.duckdb` under `policy.toml`."""

    def __init__(self, folder: Path, before: str, words: Sequence[str], **environment: str) -> None:
        self.leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (40, 120))
        code = (
            "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); sys.argv[0] = 'dpsql'\n"
            # as a login shell does: earlier tests of this process may have left signals blocked or ignored
            "signal.pthread_sigmask(signal.SIG_SETMASK, []); signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"{before}\nfrom dpsql.cli import main; main()"
        )
        plain = {**os.environ, "TERM": "xterm", "DPSQL_DB": "events.duckdb", "XDG_STATE_HOME": str(folder / "state")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words, "--policy", "policy.toml"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env={**plain, **environment},
            start_new_session=True,
        )
        os.close(follower)
        self.seen = self.raw = ""

    def types(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def shows(self, wanted: str, seconds: float = 40) -> str:
        """Wait for a text, and return what was shown up to it."""
        ends = time.monotonic() + seconds
        while wanted not in self.seen:
            ready, _, _ = select.select([self.leader], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"{wanted!r} did not come: {self.seen!r}"
            more = os.read(self.leader, 65536).decode(errors="replace")
            self.raw += more
            if "\x1b[6n" in more:  # where is the cursor?
                self.types("\x1b[1;1R")
            self.seen += re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])", "", more)
        before, self.seen = self.seen.split(wanted, 1)
        return before

    def ends(self) -> int:
        ends = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < ends:
            if select.select([self.leader], [], [], 0.1)[0]:
                try:
                    os.read(self.leader, 65536)
                except OSError:
                    break
        return self.process.wait(10)


@contextmanager
def conversation(
    folder: Path, before: str = "pass", words: Sequence[str] = ("shell",), **environment: str
) -> Iterator[Terminal]:
    """Start a command, the shell if none is given, in a session of its own; kill it at the end."""
    terminal = Terminal(folder, before, words, **environment)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.leader)
