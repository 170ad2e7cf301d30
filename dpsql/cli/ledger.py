"""Commands dpsql ledger and dpsql data: check, back up and export a ledger, and increment the data version."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from dpsql.errors import UsageError

_PATH = click.Path(path_type=Path)
ledger_argument = click.argument(
    "ledger", required=False, help="Ledger file, or its postgresql:// address; by default that of the default policy."
)


@click.group(name="ledger", no_args_is_help=True)
def ledger_app() -> None:
    """Verify, export or copy the ledger, or raise its total."""


@ledger_app.command()
@ledger_argument
def verify(ledger: str | None) -> None:
    """Recompute the hash chain of all events and compare balances, answers and the high-water mark. Changes nothing."""
    from dpsql.curator import find_ledger, verify_ledger

    found = verify_ledger(ledger or find_ledger(None))
    click.echo(f"{found.events:,} events hold together. Head of the chain: {found.head}")


@ledger_app.command()
@ledger_argument
def export(ledger: str | None) -> None:
    """Write every event as one line of JSON, oldest first."""
    from dpsql.curator import find_ledger, read_history

    for event in read_history(ledger or find_ledger(None)):
        click.echo(json.dumps({**asdict(event), "body": json.loads(event.body)}))


@ledger_app.command()
@click.argument("to", type=_PATH, help="File to write; it must not exist yet.")
@click.option("--ledger", help="Ledger file; by default the one in the policy.")
@click.option(
    "--policy", type=click.Path(path_type=Path), help="Policy file; by default $DPSQL_POLICY, or policy.toml."
)
def backup(to: Path, *, ledger: str | None, policy: Path | None) -> None:
    """Copy the ledger into a new file that only you can read, and verify the copy. The ledger may be in use."""
    from dpsql.curator import back_up, find_ledger

    source = find_ledger(policy) if ledger is None else ledger
    found = back_up(source, to)
    click.echo(f"{to} has {found.events:,} events, which hold together. Head of the chain: {found.head}")


@ledger_app.command()
@click.argument("ledger", required=False, help="Ledger file or address; by default that of the policy.")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="Policy file whose [budget] is granted; by default $DPSQL_POLICY, or policy.toml.",
)
@click.option("--epsilon", help="New total epsilon; by default that of the policy.")
@click.option("--delta", help="New total delta; by default that of the policy.")
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
@click.option("--period", help="Length of a period, such as 30d; each period grants the total again.")
@click.option("--periods", type=int, help="Maximum number of periods; unlimited by default.")
def grant(  # noqa: PLR0913 - the options of the command
    ledger: str | None,
    *,
    policy: Path | None,
    epsilon: str | None,
    delta: str | None,
    note: str,
    period: str | None,
    periods: int | None,
) -> None:
    """Raise the total budget of the ledger permanently.

    Edit [budget] in the policy, then run: dpsql ledger grant --policy policy.toml --note "why". The budget used so
    far stays used, and stored answers stay free.
    """
    from dpsql.accounting import ApproximateDP, describe_periods
    from dpsql.curator import grant as raise_total
    from dpsql.curator import grant_policy
    from dpsql.policy import Budget

    if ledger is None:
        if any(value is not None for value in (epsilon, delta, period, periods)):
            hint = "Write the budget into the policy, or name the ledger: dpsql ledger grant LEDGER --epsilon 2 ..."
            raise UsageError("grant-terms", "The policy says what is granted.", hint=hint)
        before, total, now = grant_policy(policy, note=note)
    else:
        if epsilon is None or delta is None or policy is not None:
            hint = "Give --epsilon and --delta, or leave the ledger out and give --policy."
            raise UsageError("grant-terms", "It is not clear what is granted.", hint=hint)
        budget = Budget(epsilon, delta, period=period, periods=periods)
        before, now = raise_total(ledger, budget, note=note)
        total = ApproximateDP(budget.epsilon, budget.delta)
    when = "" if now is None else f" {describe_periods(now)}"
    click.echo(f"The total was {before} and is {total}{when}.")


@click.group(name="data", no_args_is_help=True)
def data_app() -> None:
    """Record that the data has changed."""


@data_app.command()
@ledger_argument
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
def bump(ledger: str | None, *, note: str) -> None:
    """Increment the data version.

    Stored answers are no longer reused, so repeated queries are charged again. The budget used so far stays used.
    """
    from dpsql.curator import bump as bump_version
    from dpsql.curator import find_ledger

    click.echo(f"The data version is {bump_version(ledger or find_ledger(None), note=note)}.")
