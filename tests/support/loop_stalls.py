"""Longest time for which one client's bytes keep the event loop of a server from every other client.

    python tests/support/loop_stalls.py [--times 5] [rows texts literals ...]

It is processor time of the loop's thread between two of its turns, so that a busy machine does not change it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

if __name__ == "__main__":  # the tests find it themselves
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.crowds import CROWDS, connect
from support.hostile_bytes import Login
from support.server_kit import PASSWORD, Served, serving

__all__ = ["Beats", "listen", "longest_stall"]

_BETWEEN = 0.0005  # seconds


class Beats:
    """Turns of an event loop; `longest` is the processor time between two of them, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._last, self._is_over = loop, 0.0, False
        self.longest = 0.0

    def start(self) -> None:
        self._last = time.thread_time()
        self._beat()

    def stop(self) -> None:
        self._is_over = True

    def _beat(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        if not self._is_over:
            self._loop.call_later(_BETWEEN, self._beat)


@contextmanager
def listen(served: Served) -> Iterator[Beats]:
    """Measure the turns of a server's event loop during the block."""
    assert served.wire._server is not None
    loop = served.wire._server.get_loop()
    beats = Beats(loop)
    loop.call_soon_threadsafe(beats.start)
    try:
        yield beats
    finally:
        loop.call_soon_threadsafe(beats.stop)


def longest_stall(served: Served, kind: str, times: int) -> float:
    """Send statements of one kind so many times, and return the longest stall of the event loop, in seconds."""
    act, _ = CROWDS[kind]
    with connect(served.port, Login("ana", PASSWORD)) as client, listen(served) as beats, suppress(ConnectionError):
        for number in range(times):
            act(client, Random(f"{kind} {number}"))
        time.sleep(0.1)
    return beats.longest


def main() -> None:
    """Print the longest stall of each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=list(CROWDS))
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), catalog="auto") as served:
        for kind in given.kinds:
            sys.stdout.write(f"{kind}: {1e3 * longest_stall(served, kind, given.times):.1f} ms\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
