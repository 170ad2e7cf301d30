"""The benchmarks of dpsql, and the tables and plots of what they found.

    python -m benchmarks run [SUITE...] [--quick] [--out FOLDER] [what the suites take]
    python -m benchmarks report [FOLDER]

`run` measures every suite, or those that are named, prints its tables and keeps the figures in FOLDER, a file for each
suite; by default that is benchmarks-out, which git ignores. `--quick` shows in seconds that a suite works, and its
figures mean nothing. `run SUITE --help` says what a suite measures and takes. `report` prints the tables of a folder
again, all in one, and writes them there as report.md, with a plot of each that has one. Every file of a suite can also
be run itself: python benchmarks/recall.py is python -m benchmarks run recall.

What is compared runs in turns in one process (`program/times.py`), and is told as a ratio to what it is compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from program.machine import line
from program.plots import plotted
from program.results import Result, read, recorded
from program.row import tables_of
from program.suites import OUT, SUITES, given_to, purpose_of, suite
from program.tables import markdown

__all__ = ["alone", "main"]


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case ["run", *rest]:
            run(rest)
        case ["report"]:
            report(OUT)
        case ["report", folder] if not folder.startswith("-"):
            report(Path(folder))
        case _:
            listed = "\n".join(f"    {name:14} {purpose_of(name)}" for name in SUITES)
            sys.exit(f"{__doc__}\nSuites:\n\n{listed}")


def alone(file: str) -> None:
    """Run the suite of a file that was started itself."""
    main(["run", Path(file).stem, *sys.argv[1:]])


def run(arguments: Sequence[str]) -> None:
    """Measure the suites that are named before the first option, or all."""
    first = next((at for at, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    names, options = arguments[:first] or SUITES, arguments[first:]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        sys.exit(f"There is no suite {unknown[0]}; there are {', '.join(SUITES)}.")
    asked = {name: given_to(name, options) for name in names}  # all of it is read before anything is measured
    for name, given in asked.items():
        result = Result.begun(name, purpose_of(name), vars(given))
        print(f"# {name}: {result.purpose}\n\n{line(result.machine)}", flush=True)
        for table in tables_of(recorded(result, suite(name).run(given), folder=given.out)):
            print(f"\n{markdown(table)}", flush=True)
        print()


def report(folder: Path) -> None:
    """Print the tables of all suites in a folder, and write them beside the results, with plots."""
    found = {path.stem: path for path in folder.glob("*.jsonl")}
    results = [read(found[name]) for name in sorted(found, key=_place)]
    if not results:
        sys.exit(f"There are no results in {folder}; python -m benchmarks run makes some.")
    text = "\n\n".join(_section(result, folder) for result in results) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    print(text, end="")


def _section(result: Result, folder: Path) -> str:
    """Return what a result says as Markdown, and write its plots."""
    quick = " These are figures of --quick, which mean nothing." if result.arguments.get("quick") else ""
    cut = "" if result.ended else " The run did not come to its end."
    parts = [f"## {result.suite}: {result.purpose}", f"{result.began}: {line(result.machine)}.{quick}{cut}"]
    for number, table in enumerate(tables_of(result.rows), 1):
        parts.append(markdown(table))
        plot = folder / f"{result.suite}-{number}.svg"
        if plotted(table, plot):
            parts.append(f"![{table[0].table}]({plot.name})")
    return "\n\n".join(parts)


def _place(name: str) -> tuple[int, str]:
    return SUITES.index(name) if name in SUITES else len(SUITES), name
