"""`dpsql data`: what an operator says of the data; the ledger records it."""

from __future__ import annotations

import click

from dpsql.cli.ledger import of_ledger

__all__ = ["app"]


@click.group(name="data", no_args_is_help=True)
def app() -> None:
    """Say that the data has a new version."""


@app.command()
@of_ledger
@click.option("--note", required=True, help="Why; it is recorded.")
def bump(ledger: str, *, note: str) -> None:
    """Count the data version up: what was answered before is asked anew, and charged. What was spent stays spent."""
    from dpsql.curator import bump as bumped

    click.echo(f"The data version is {bumped(ledger, note=note)}.")
