"""The registry: a suite is a module of this folder and its name in SUITES.

It has a docstring, whose first line says what it measures; `options(parser)`, which adds what it takes; QUICK, other
defaults of these for a run that only shows that it works; and `run(given)`, which yields rows.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from program.row import Row

__all__ = ["OUT", "SUITES", "Suite", "given_to", "purpose_of", "suite"]

SUITES = (
    # what privacy costs in time
    "overhead",
    "bounded",
    "dashboard",
    "materialized",
    "fixed",
    "all_keys",
    "counts_total",
    "surfaces",
    "wire",
    "ledger",
    "scaling",
    "cold_start",
    "memory",
    "large",
    "crossing",
    "engines",
    "concurrency",
    "cluster",
    "timing",
    # what it costs in accuracy, and what a budget buys
    "recall",
    "hard_case",
    "released",
    "histograms",
    "bounds",
    "exp1",
    "exp2",
    "exp3",
    "certificates",
    "budget_by",
    "reuse",
    "statistics",
    # both, beside others
    "peers",
)
FILES = {"statistics": "errors_of_statistics"}  # of suites whose names are those of modules of Python
OUT = Path("benchmarks-out")


class Suite(Protocol):
    """What a module must have to be a suite."""

    __doc__: str | None
    QUICK: Mapping[str, object]

    def options(self, parser: ArgumentParser) -> None:
        """Add what this suite takes beyond --quick and --out."""
        ...

    def run(self, given: Namespace) -> Iterator[Row]:
        """Measure, and yield each row when it is there."""
        ...


def suite(name: str) -> Suite:
    """Return the suite of this name."""
    return cast("Suite", import_module(FILES.get(name, name)))


def purpose_of(name: str) -> str:
    """Return the first line of what a suite says of itself."""
    return (suite(name).__doc__ or "").partition("\n")[0]


def given_to(name: str, arguments: Sequence[str]) -> Namespace:
    """Return what the command line says to a suite; what it says outdoes the defaults of --quick."""
    asked = suite(name)
    parser = ArgumentParser(
        f"python -m benchmarks run {name}", description=asked.__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little data and few repeats: whether it runs")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where the results go")
    asked.options(parser)
    if parser.parse_args(arguments).quick:
        parser.set_defaults(**asked.QUICK)
    return parser.parse_args(arguments)
