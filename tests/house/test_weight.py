"""A ratchet on the way of one query: what a query does not use may not lengthen it.

The numbers here are changed by hand. A rise of more than 2 % needs a reason in the commit that raises them. A fall of
more than 10 % is written down, so that it is not lost again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from house.figures import SESSION, traced

ROOT = Path(__file__).parents[2]
# files, functions and calls of the package that a query passes through
WAYS = {"simplest": (68, 468, 1427), "replay": (23, 82, 137)}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_of_a_query_grows_no_longer(way: str) -> None:
    now = tuple(traced(ROOT, SESSION, way))
    changes = [number / before for number, before in zip(now, WAYS[way], strict=True)]
    assert max(changes) <= 1.02, f"{now} instead of {WAYS[way]}: what did the query pass through that it does not use?"
    assert min(changes) >= 0.9, f"{now} instead of {WAYS[way]}: write the lower numbers here"
