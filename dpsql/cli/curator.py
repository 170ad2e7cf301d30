"""Commands of the curator: write a starter policy, explain a policy, materialize tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from dpsql.errors import Error, UsageError

__all__ = ["run_check", "run_init", "run_materialize"]

_STDOUT = Path("-")


def run_init(data: str, output: Path, *, force: bool, options: Sequence[str] = ()) -> None:
    """Write a starter policy and list its decisions; replace an existing file only with `force`."""
    from dpsql.answer import replace_unprintable
    from dpsql.curator import write_starter

    beside = Path.cwd() if output == _STDOUT else output.parent
    starter = write_starter(data, beside=beside, options=_read_options(options))
    if output == _STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(starter.text.encode())
        sys.stdout.buffer.flush()
    else:
        _write_policy(starter.text, output, database=Path(data), force=force)
    lines = starter.lines()
    if output != _STDOUT:
        lines = [f"Wrote {output}: a starter policy from names, types and keys; {starter.reading}", "", *lines]
        options = [] if starter.names_sources else ["--db", data]
        options += [] if output == Path("policy.toml") else ["--policy", str(output)]
        check = shlex.join(["dpsql", "check", *options])
        lines.append(f"Next: read every line, complete what is open, and run: {check}")
        if starter.first_query is not None:
            lines.append(f"First query: {shlex.join(['dpsql', 'query', *options, starter.first_query])}")
    for line in lines:
        click.echo(replace_unprintable(line), err=output == _STDOUT)


def _read_options(options: Sequence[str]) -> dict[str, str]:
    """Return options of an engine by their names."""
    pairs = [option.partition("=") for option in options]
    if not all(name and sign for name, sign, _ in pairs):
        hint = "Write --option NAME=VALUE, once for each option."
        raise UsageError("source-option", "An option needs a name and a value.", hint=hint, place="--option")
    return {name: value for name, _, value in pairs}


def run_check(policy: Path | None, database: Path | None, *, as_json: bool) -> None:
    """Explain a policy; open no ledger, and read no private rows except the keys of linked tables.

    In JSON a policy that does not hold is one object, too, with the error among its findings; it is raised again.
    """
    from dpsql.curator import check_policy
    from dpsql.report.policy_check import Check, Finding
    from dpsql.report.policy_text import describe_policy

    def check() -> Check:
        return replace(check_policy(policy, database=database), catalog_confinement=_try_catalog(policy))

    if not as_json:
        for line in describe_policy(check()):
            click.echo(line)
        return
    from dataclasses import asdict

    from dpsql.cli.show import write_json

    try:
        found = check()
    except Error as error:
        write_json({"findings": [asdict(Finding.from_error(error))]})
        raise
    write_json({**asdict(found), "warnings": found.warnings})


def _try_catalog(policy: Path | None) -> tuple[str, ...] | None:
    """Return what confines the PostgreSQL of the catalog, or None if the policy has none or it cannot be started."""
    from dpsql.policy import load_policy

    settings = load_policy(policy).server
    if settings.users is None or "postgres" not in settings.listens() or settings.catalog != "auto":
        return None
    from dpsql.server.catalog import try_confinement

    return try_confinement()


_RESULTS = {
    "current": "is already materialized",
    "appended": "is materialized: the appended rows were added",
    "made": "is materialized: all of it was written",
}


def run_materialize(
    policy: Path | None, table: str | None, *, database: Path | None, url: str | None, again: bool
) -> None:
    """Materialize the tables that the policy lists, and write the result for each."""
    from dpsql.answer import replace_unprintable
    from dpsql.curator import materialize

    for name, result in materialize(policy, table, database=database, url=url, again=again).items():
        click.echo(replace_unprintable(f"{name} {_RESULTS[result]}."))


def _write_policy(text: str, output: Path, *, database: Path, force: bool) -> None:
    place = str(output)
    try:
        if output.exists() and output.samefile(database):
            hint = "Name another file with --output."
            raise UsageError("output-exists", "The output is the database itself.", hint=hint, place=place)
        with output.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Name another file with --output, or replace this one with --force."
        raise UsageError("output-exists", "A file exists at this path.", hint=hint, place=place) from None
    except OSError:
        hint = "Give a path in an existing, writable directory."
        reason = "The policy cannot be written to this path."
        raise UsageError("output-unwritable", reason, hint=hint, place=place) from None
