"""The curator's commands: a starter policy from a schema, and a policy read back in plain words."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from dpsql.errors import UsageError

__all__ = ["run_check", "run_init", "run_materialize"]

_STDOUT = Path("-")


def run_init(database: Path, output: Path, *, force: bool) -> None:
    """Write a starter policy and tell what was decided; raise `UsageError` rather than replace a file unasked."""
    from dpsql.answer import printable
    from dpsql.curator import write_starter

    starter = write_starter(database)
    if output == _STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(starter.text.encode())
        sys.stdout.buffer.flush()
    else:
        _write(starter.text, output, database=database, force=force)
    told = starter.lines()
    if output != _STDOUT:
        check = shlex.join(["dpsql", "check", "--policy", str(output), "--db", str(database)])
        told = [f"Wrote {output}: a starter policy from names, types and keys; no row was read.", "", *told]
        told.append(f"Next: read every line of it, decide what is left, and see what it means: {check}")
    for line in told:
        click.echo(printable(line), err=output == _STDOUT)


def run_check(policy: Path, database: Path | None, *, as_json: bool) -> None:
    """Read a policy back; open no ledger, and of private rows read only the keys of links."""
    from dpsql.curator import check_policy
    from dpsql.plan.report.policy_text import describe_policy

    check = check_policy(policy, database=database)
    if as_json:
        from dataclasses import asdict

        from dpsql.cli.show import write_json

        write_json(asdict(check))
        return
    for line in describe_policy(check):
        click.echo(line)


_DONE = {
    "current": "is materialized already",
    "appended": "is materialized: what was appended has been added",
    "made": "is materialized: everything was made anew",
}


def run_materialize(policy: Path, table: str | None, *, database: Path | None) -> None:
    """Materialize what the policy lists, and tell of each table what was done."""
    from dpsql.answer import printable
    from dpsql.curator import materialize

    for name, done in materialize(policy, table, database=database).items():
        click.echo(printable(f"{name} {_DONE[done]}."))


def _write(text: str, output: Path, *, database: Path, force: bool) -> None:
    place = str(output)
    try:
        if output.exists() and output.samefile(database):
            hint = "Name another file with --output."
            raise UsageError("output-exists", "The output is the database itself.", hint=hint, place=place)
        with output.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Name another file with --output, or replace this one with --force."
        raise UsageError("output-exists", "There is a file at this path already.", hint=hint, place=place) from None
    except OSError:
        hint = "Give a path in a directory that exists and may be written."
        reason = "The policy cannot be written to this path."
        raise UsageError("output-unwritable", reason, hint=hint, place=place) from None
