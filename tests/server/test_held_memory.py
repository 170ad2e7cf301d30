"""One analyst makes the server hold no more than a bounded amount of memory, and it is given back.

`python tests/support/held_memory.py` measures all attacks, with more connections.
"""

from __future__ import annotations

from support.held_memory import MOST_GROWTH, MOST_LEFT, attack


def test_one_analyst_makes_the_server_hold_little() -> None:
    growth, left = attack("null cursors", seconds=3, connections=4)
    assert growth < MOST_GROWTH
    assert left < MOST_LEFT
