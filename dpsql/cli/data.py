"""`dpsql data`: the data version, which the ledger records."""

from __future__ import annotations

import click

from dpsql.cli.ledger import ledger_argument

__all__ = ["app"]


@click.group(name="data", no_args_is_help=True)
def app() -> None:
    """Record that the data has changed."""


@app.command()
@ledger_argument
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
def bump(ledger: str | None, *, note: str) -> None:
    """Increment the data version.

    Stored answers are no longer reused, so repeated queries are charged again. The budget used so far stays used.
    """
    from dpsql.curator import bump as bump_version
    from dpsql.curator import find_ledger

    click.echo(f"The data version is {bump_version(ledger or find_ledger(None), note=note)}.")
