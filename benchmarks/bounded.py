"""What bounding costs: a unit in at most 1, 5, 20 or 100 groups, beside the plain query and the unbounded one.

    python -m benchmarks run bounded [--groups 1 5 20 100] [what `overhead` takes]

Each number of groups has a form of its own in SQL, chosen from that number alone.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

import overhead
from program.main import alone
from program.row import Row

QUICK = overhead.QUICK
AIMS = {1: 0.8, 5: 2.1, 20: 1.6, 100: 1.3}


def options(parser: ArgumentParser) -> None:
    """Add the bounds to the sizes and the settings."""
    overhead.options(parser)
    parser.add_argument("--groups", type=int, nargs="+", default=list(AIMS))


def run(given: Namespace) -> Iterator[Row]:
    """Time the plain query, the unbounded one and each bound in turns."""
    asked = {"unbounded": "mechanism = limited_domain, k_bar = 1000"}
    for groups in given.groups:
        aim = f" (aim {AIMS[groups]})" if groups in AIMS else ""
        asked[f"at most {groups}{aim}"] = f"mechanism = limited_domain, k_bar = 1000, max_groups_contributed = {groups}"
    yield from overhead.compared(given, asked)


if __name__ == "__main__":
    alone(__file__)
