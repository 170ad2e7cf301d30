"""`dpsql ledger`: verify the record, export it, copy it, and raise what it grants."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

__all__ = ["app", "of_ledger"]

of_ledger = click.argument("ledger", help="The ledger's file, or its postgresql:// address.")


@click.group(name="ledger", no_args_is_help=True)
def app() -> None:
    """Verify the ledger, export it, copy it, raise its total."""


@app.command()
@of_ledger
def verify(ledger: str) -> None:
    """Compute the chain of all events again and hold balances, answers and the mark against it; changes nothing."""
    from dpsql.curator import verify_ledger

    found = verify_ledger(ledger)
    click.echo(f"{found.events:,} events hold together. Head of the chain: {found.head}")


@app.command()
@of_ledger
def export(ledger: str) -> None:
    """Write every event, oldest first, as one line of JSON each."""
    from dpsql.curator import read_history

    for event in read_history(ledger):
        click.echo(json.dumps({**asdict(event), "body": json.loads(event.body)}))


@app.command()
@click.argument("to", type=click.Path(path_type=Path), help="The file to write, which does not exist yet.")
@click.option("--ledger", help="The ledger's file; without it, that of the policy.")
@click.option("--policy", type=click.Path(path_type=Path), default=Path("policy.toml"), help="The curator's policy.")
def backup(to: Path, *, ledger: str | None, policy: Path) -> None:
    """Copy the ledger into a new file that only you can read, also while it is in use, and verify the copy."""
    from dpsql.curator import back_up, find_ledger

    source = find_ledger(policy) if ledger is None else ledger
    found = back_up(source, to)
    click.echo(f"{to} has {found.events:,} events, which hold together. Head of the chain: {found.head}")


@app.command()
@of_ledger
@click.option("--epsilon", required=True, help="The new total epsilon.")
@click.option("--delta", required=True, help="The new total delta.")
@click.option("--note", required=True, help="Why; it is recorded.")
@click.option("--period", help="Grant it anew in each, such as 30d.")
@click.option("--periods", type=int, help="The most periods; without it they have no end.")
def grant(ledger: str, *, epsilon: str, delta: str, note: str, period: str | None, periods: int | None) -> None:
    """Raise the total of the ledger, for good; the policy must then say the same. What was spent stays spent."""
    from dpsql.accounting import ApproximateDP, words_of
    from dpsql.curator import grant as granted
    from dpsql.policy import Budget

    budget = Budget(epsilon, delta, period=period, periods=periods)
    before, now = granted(ledger, budget, note=note)
    when = "" if now is None else f" {words_of(now)}"
    click.echo(f"The total was {before} and is {ApproximateDP(budget.epsilon, budget.delta)}{when}.")
