"""Print the mutants that the tests kill, by name: every known mistake that a check must catch.

    python tests/house/mutants.py [--collect]

Runs the tests marked `mutant`, and prints the case of each that passes. `--collect` prints all cases and runs none.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SHARED = "test_every_known_mistake_is_caught"  # its cases have names of their own


def name_of(nodeid: str) -> str:
    """Return the name of a mutant: its file, the words of its test, and its case."""
    path, _, test = nodeid.partition("::")
    function, _, case = test.removesuffix("]").partition("[")
    law = Path(path).stem.removeprefix("test_").removesuffix("_privacy")
    words = "" if function == SHARED else function.removeprefix("test_").replace("_", " ")
    return f"{law}: {', '.join(filter(None, [words, case]))}".removeprefix("laws: ")


class Killed:
    """Plugin of pytest that collects the names of mutants."""

    def __init__(self) -> None:
        self.collected: list[str] = []
        self.killed: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected = [name_of(item.nodeid) for item in session.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.killed.append(name_of(report.nodeid))


def main() -> int:
    """Print the names of the mutants that are killed, and on standard error those that survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="run no test")
    given = parser.parse_args()
    killed = Killed()
    options = ["-q", "-n", "0", "-m", "mutant", *(["--collect-only"] if given.collect else [])]
    with redirect_stdout(sys.stderr):
        code = pytest.main([str(TESTS), *options], plugins=[killed])
    names = killed.collected if given.collect else killed.killed
    print(*sorted(names), sep="\n")  # noqa: T201 - a script
    survived = sorted({*killed.collected} - {*names})
    print(f"{len(names)} killed; not killed: {survived}", file=sys.stderr)  # noqa: T201
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
