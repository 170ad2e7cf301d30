"""`dpsql ledger`: verify the record, export it, and raise what it grants."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

__all__ = ["app"]

Ledger = Annotated[str, typer.Argument(help="The ledger's file, or its postgresql:// address.", show_default=False)]

app = typer.Typer(
    name="ledger",
    help="Verify the ledger, export it, raise its total.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def verify(ledger: Ledger) -> None:
    """Compute the chain of all events again and hold balances, answers and the mark against it; changes nothing."""
    from dpsql.connect import verified

    found = verified(ledger)
    typer.echo(f"{found.events:,} events hold together. Head of the chain: {found.head}")


@app.command()
def export(ledger: Ledger) -> None:
    """Write every event, oldest first, as one line of JSON each."""
    from dpsql.connect import history

    for event in history(ledger):
        typer.echo(json.dumps({**asdict(event), "body": json.loads(event.body)}))


@app.command()
def grant(
    ledger: Ledger,
    *,
    epsilon: Annotated[str, typer.Option(help="The new total epsilon.", show_default=False)],
    delta: Annotated[str, typer.Option(help="The new total delta.", show_default=False)],
    note: Annotated[str, typer.Option(help="Why; it is recorded.", show_default=False)],
    period: Annotated[str | None, typer.Option(help="Grant it anew in each, such as 30d.")] = None,
    periods: Annotated[int | None, typer.Option(help="The most periods; without it they have no end.")] = None,
) -> None:
    """Raise the total of the ledger, for good; the policy must then say the same. What was spent stays spent."""
    from dpsql.accounting import ApproximateDP, words_of
    from dpsql.connect import grant as granted
    from dpsql.policy import Budget

    budget = Budget(epsilon, delta, period=period, periods=periods)
    before, now = granted(ledger, budget, note=note)
    when = "" if now is None else f" {words_of(now)}"
    typer.echo(f"The total was {before} and is {ApproximateDP(budget.epsilon, budget.delta)}{when}.")
