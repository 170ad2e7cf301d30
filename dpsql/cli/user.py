"""`dpsql user`: users of a server and their tokens. Passwords are typed or piped in, never given as arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dpsql.errors import UsageError

__all__ = ["app"]

_PATH = click.Path(path_type=Path)
_NAME = click.argument("name", help="User name; the policy uses it as the name of the analyst.")
_FILE = click.option("--users", type=_PATH, help="File of users.")
_POLICY = click.option(
    "--policy", type=_PATH, help="Policy whose [server] names the file of users; by default policy.toml here."
)
_RELOAD = "Send SIGHUP to a running server to apply the change."
_PIPED = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group(name="user", no_args_is_help=True)
def app() -> None:
    """Manage the users who may log in to a server, and their tokens."""


@app.command()
@_NAME
@_FILE
@_POLICY
@click.option("--curator", is_flag=True, help="Let the user see the spending of all analysts.")
@click.option("--acts-as", help="Analysts for whom a service account may run queries, separated by commas.")
@_PIPED
def add(
    name: str, *, users: Path | None, policy: Path | None, curator: bool, acts_as: str | None, password_stdin: bool
) -> None:
    """Add a user; create the file if it does not exist."""
    from dpsql.server.users import User, add_user

    others = tuple(other.strip() for other in (acts_as or "").split(",") if other.strip())
    file = _find_users_file(users, policy)
    add_user(file, User(name, curator, others), password=_read_password(piped=password_stdin))
    click.echo(f"{name} may log in: {file}")
    click.echo(_RELOAD, err=True)


@app.command()
@_NAME
@_FILE
@_POLICY
@_PIPED
def passwd(name: str, *, users: Path | None, policy: Path | None, password_stdin: bool) -> None:
    """Replace a user's password."""
    from dpsql.server.users import change_password

    change_password(_find_users_file(users, policy), name, password=_read_password(piped=password_stdin))
    click.echo(f"{name} has a new password.")
    click.echo(_RELOAD, err=True)


@app.command()
@_NAME
@_FILE
@_POLICY
def remove(name: str, *, users: Path | None, policy: Path | None) -> None:
    """Remove a user. The user's charges stay in the ledger."""
    from dpsql.server.users import remove_user

    remove_user(_find_users_file(users, policy), name)
    click.echo(f"{name} may no longer log in.")
    click.echo(_RELOAD, err=True)


@app.command()
@_NAME
@click.argument("label", help="Name for the token, such as that of the program that uses it.")
@_FILE
@_POLICY
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "query", "curate"]),
    default=["read"],
    help="What the token may do: read what is free, run charged queries, act as a curator; repeat for more.",
)
@click.option("--days", type=click.IntRange(1, 3660), default=90, help="Number of days until the token expires.")
def token(name: str, *, label: str, users: Path | None, policy: Path | None, scopes: Sequence[str], days: int) -> None:
    """Create a token with which a program uses the JSON API or MCP as a user.

    The token is printed once and cannot be read again.
    """
    from datetime import UTC, datetime, timedelta

    from dpsql.server.users import StoredToken, add_token

    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    click.echo(add_token(_find_users_file(users, policy), StoredToken(name, label, frozenset(scopes), until)))
    click.echo(_RELOAD, err=True)


@app.command()
@_NAME
@click.argument("label", help="Name of the token.")
@_FILE
@_POLICY
def revoke(name: str, *, label: str, users: Path | None, policy: Path | None) -> None:
    """Revoke a token of a user."""
    from dpsql.server.users import remove_token

    remove_token(_find_users_file(users, policy), name, label=label)
    click.echo(f"{label} of {name} is revoked.")
    click.echo(_RELOAD, err=True)


@app.command(name="list")
@_FILE
@_POLICY
def listing(*, users: Path | None, policy: Path | None) -> None:
    """List the users and their tokens."""
    from dpsql.server.users import list_tokens, list_users

    file = _find_users_file(users, policy)
    tokens = list_tokens(file)
    for user in list_users(file):
        marks = ["curator"] if user.is_curator else []
        marks += [f"acts as {', '.join(user.acts_as)}"] if user.acts_as else []
        click.echo("  ".join([user.name, *marks]))
        for each in tokens:
            if each.user == user.name:
                until = "" if each.expires is None else f", until {each.expires:%Y-%m-%d}"
                click.echo(f"  token {each.label}: {', '.join(sorted(each.scopes))}{until}")


def _find_users_file(users: Path | None, policy: Path | None) -> Path:
    if users is not None and policy is not None:
        hint = "Give one of --users FILE and --policy FILE."
        raise UsageError("users-missing", "Two files of users are named.", hint=hint)
    if users is not None:
        return users
    from dpsql.policy import load_policy
    from dpsql.server.serve import find_users_file

    return find_users_file(load_policy(policy))


def _read_password(*, piped: bool) -> str:
    """Read a password: twice from the terminal without echo, or the first line of standard input."""
    if piped:
        return sys.stdin.buffer.readline().decode(errors="replace").rstrip("\r\n")
    if not sys.stdin.isatty():
        hint = "Type it on a terminal, or pipe it in with --password-stdin."
        raise UsageError("password", "There is no terminal to type a password on.", hint=hint)
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt="Once more")
    return typed
