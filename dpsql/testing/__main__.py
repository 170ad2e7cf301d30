"""Command `python -m dpsql.testing`: run the conformance suite over engines and print what differs from DuckDB."""

from __future__ import annotations

import io
import sys
import tomllib
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import click
import duckdb

from dpsql.errors import Error
from dpsql.testing.kit import find_kit
from dpsql.testing.suite import Result, run_checks

_FILE = click.Path(path_type=Path, dir_okay=False)
_HEAD = "# Statements that the engine refuses, as python -m dpsql.testing --write-gaps writes them.\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--engine",
    "engines",
    multiple=True,
    required=True,
    metavar="KIT",
    help="Kit to test: module:ATTRIBUTE, or a name. Repeat it to compare several engines in a table.",
)
@click.option("--url", help="Address of the engine, for kits that take one.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run this check (statements, forms, draws, neighbours), part (keys, texts) or statement. May be repeated.",
)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Compare one statement and expression in N.")
@click.option("--whole", "sample", flag_value=1, type=int, help="Compare everything, also where the kit samples.")
@click.option("--write-gaps", type=_FILE, metavar="FILE", help="Write the statements that the engine refuses.")
@click.option("--gaps", type=_FILE, metavar="FILE", help="Fail if the engine refuses other statements than FILE says.")
def command(
    engines: Sequence[str],
    *,
    url: str | None,
    only: Sequence[str],
    sample: int | None,
    write_gaps: Path | None,
    gaps: Path | None,
) -> int:
    """Compare engines with DuckDB. The exit code is 1 if anything differs, and 0 if not."""
    if (write_gaps or gaps) and (only or len(engines) > 1):
        raise click.UsageError("A file of gaps lists all that one engine refuses: leave --only out, name one engine.")
    kits = [find_kit(name, url) for name in engines]
    results: dict[str, list[Result]] = {}
    for kit in kits:
        click.echo(f"{kit.name}, compared with DuckDB {duckdb.__version__}")
        found = results[kit.name] = []
        for result in run_checks(kit if sample is None else kit.sample(sample), only):
            found.append(result)
            click.echo(f"  {result.check:11} {_part(result):12} {result.summary()}")
            for line in result.describe().splitlines():
                click.echo(f"      {line}")
        click.echo(f"{kit.name}: {_summarize(found)}")
    if len(results) > 1:
        click.echo(f"\n{_table(results)}")
    refused = [name for each in results.values() for name in list_refused(each)]
    changes = [] if gaps is None else compare_gaps(refused, gaps)
    for change in changes:
        click.echo(f"{gaps}: {change}")
    if write_gaps is not None:
        write_gaps.write_text(_HEAD + render_gaps(refused), encoding="utf-8")
        click.echo(f"{write_gaps}: {len(refused)} statements")
    return 1 if changes or any(result.faults for each in results.values() for result in each) else 0


def _part(result: Result) -> str:
    return "" if result.part == result.check else result.part


def list_refused(results: Iterable[Result]) -> list[str]:
    """Return the names of the statements that an engine refuses."""
    return [name for result in results if result.check == "statements" for name in result.refused]


def render_gaps(refused: Iterable[str]) -> str:
    """Return the refused statements as TOML."""
    return "".join(["refused = [\n", *(f'    "{name}",\n' for name in refused), "]\n"])


def compare_gaps(refused: Sequence[str], file: Path) -> list[str]:
    """Return in what the refused statements differ from those in a file, a line each."""
    try:
        known = tomllib.loads(file.read_text(encoding="utf-8"))["refused"]
    except (OSError, ValueError, KeyError):
        raise click.BadParameter(f"{file} cannot be read; write it with --write-gaps.") from None
    return [f"{name} is refused" for name in refused if name not in known] + [
        f"{name} is answered" for name in known if name not in refused
    ]


def _summarize(results: Sequence[Result]) -> str:
    compared = sum(result.compared for result in results)
    different = sum(len(result.faults) for result in results)
    verdict = f"{different:,} differ" if different else "all equal DuckDB's"
    return f"{compared:,} cases compared, {verdict}; {len(list_refused(results)):,} statements refused"


def _table(results: dict[str, list[Result]]) -> str:
    """Return the parts of the suite by engines; their order is that of the suite."""
    order = {(result.check, result.part): None for each in results.values() for result in each}
    cells = {
        (name, result.check, result.part): f"{len(result.faults)} differ"
        if result.faults
        else f"{result.cases - len(result.refused)} of {result.cases}"
        for name, each in results.items()
        for result in each
    }
    rows = [["", *results]] + [
        [" ".join(dict.fromkeys(part)), *(cells.get((name, *part), "") for name in results)] for part in order
    ]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> None:
    """Run the command; write an error of dpsql as one sentence to stderr, with an exit code and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # values of the suite that the terminal lacks
    try:
        sys.exit(command(standalone_mode=False, prog_name="python -m dpsql.testing"))
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except Error as error:
        click.echo(f"dpsql: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
