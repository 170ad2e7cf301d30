"""`dpsql data`: what an operator says of the data; the ledger records it."""

from __future__ import annotations

from typing import Annotated

import typer

from dpsql.cli.ledger import Ledger

__all__ = ["app"]

app = typer.Typer(
    name="data",
    help="Say that the data has a new version.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _data() -> None:
    """Keep `bump` a command of its own, while it is the only one."""


@app.command()
def bump(
    ledger: Ledger,
    *,
    note: Annotated[str, typer.Option(help="Why; it is recorded.", show_default=False)],
) -> None:
    """Count the data version up: what was answered before is asked anew, and charged. What was spent stays spent."""
    from dpsql.connect import bump as bumped

    typer.echo(f"The data version is {bumped(ledger, note=note)}.")
