"""An environment with `dpsql`, and terminals with bash into which a test pastes.

Its `dpsql` hands its words, folder, variables and streams to a process that has imported everything (`command_kit`),
and ends as the command ends there. To start Python for each of a hundred commands would take a minute and a half.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import termios
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pexpect.fdpexpect import fdspawn
from support import command_kit

LONGEST = 60  # seconds
COMMAND = """\
#!{python} -IS
import json, os, sys
streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in range(3)]
order = {{"words": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ)}}
order.update(streams=streams, brief=True)
with open({orders!r}, "w") as orders:
    orders.write(json.dumps(order) + "\\n")
with open({codes!r}) as codes:
    sys.exit(int(codes.readline()))
"""


class Terminal:
    """The other end of a terminal that bash runs in."""

    def __init__(self, leader: int) -> None:
        self._screen = fdspawn(leader, encoding="utf-8", timeout=LONGEST)
        self._screen.delaybeforesend = None
        self._screen.sendline("PS1= PS2=; trap 'echo \"[failed: $?]\"' ERR; echo '[end]'")
        self._screen.expect_exact("[end]\r\n")

    def paste(self, text: str, *, failing: bool = False) -> str:
        """Paste lines, and return what they print. Only where `failing` may one of them fail."""
        self._screen.sendline(f"{text.rstrip()}\necho '[end]'")
        self._screen.expect_exact("[end]\r\n")
        printed = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", self._screen.before)
        assert "Traceback" not in printed, printed
        assert failing or "[failed: " not in printed, printed
        return re.sub(r"^\[failed: \d+\]\n", "", printed, flags=re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which `dpsql` is installed."""

    folder: Path

    @contextmanager
    def open_terminal(self, folder: Path, *, is_active: bool) -> Iterator[Terminal]:
        """Open a terminal in a folder, with `dpsql` on the path only if the environment is active."""
        path = [each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "dpsql").exists()]
        path = [str(self.folder / "bin"), *path] if is_active else path
        leader, follower = pty.openpty()
        modes = termios.tcgetattr(follower)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(follower, termios.TCSANOW, modes)
        termios.tcsetwinsize(follower, (50, 130))
        bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env={**os.environ, "PATH": os.pathsep.join(path), "TERM": "dumb", "VIRTUAL_ENV_DISABLE_PROMPT": "1"},
            start_new_session=True,
        )
        os.close(follower)
        try:
            yield Terminal(leader)
        finally:
            bash.kill()
            bash.wait()
            os.close(leader)


@contextmanager
def make_environment(folder: Path) -> Iterator[Environment]:
    """Make a virtual environment, and run the commands of its `dpsql` until the end."""
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    command = environment / "bin" / "dpsql"
    with ExitStack() as opened:
        if command_kit.FORKED and Path("/proc/self/fd").exists():
            orders, codes = (str(folder / name) for name in ("orders", "codes"))
            ends = []
            for name in (orders, codes):
                os.mkfifo(name)
                ends.append(os.open(name, os.O_RDWR))
                opened.callback(os.close, ends[-1])
            process = command_kit.start_nursery(*ends)
            opened.callback(process.wait)
            opened.callback(process.kill)
            command.write_text(COMMAND.format(python=sys.executable, orders=orders, codes=codes))
            command.chmod(0o755)
        else:
            shutil.copy(Path(sys.executable).with_name("dpsql"), command)
        yield Environment(environment)
