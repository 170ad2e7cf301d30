"""`dpsql user`: who may log in to a server. Passwords are typed or piped in, and stand in no command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dpsql.errors import UsageError

__all__ = ["app"]

_PATH = click.Path(path_type=Path)
_NAME = click.argument("name", help="The user's name, by which the policy knows the analyst.")
_FILE = click.option("--users", type=_PATH, help="The file of users.")
_POLICY = click.option("--policy", type=_PATH, help="The policy whose [server] names the file.")
_PIPED = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group(name="user", no_args_is_help=True)
def app() -> None:
    """Say who may log in to a server."""


@app.command()
@_NAME
@_FILE
@_POLICY
@click.option("--curator", is_flag=True, help="Let them see what everybody spent.")
@click.option("--acts-as", help="Analysts whom a service account may ask for, by commas.")
@_PIPED
def add(
    name: str, *, users: Path | None, policy: Path | None, curator: bool, acts_as: str | None, password_stdin: bool
) -> None:
    """Add a user, and make the file if there is none."""
    from dpsql.server.users import User
    from dpsql.server.users_file import add_user

    others = tuple(other.strip() for other in (acts_as or "").split(",") if other.strip())
    file = _file(users, policy)
    add_user(file, User(name, curator, others), password=_password(piped=password_stdin))
    click.echo(f"{name} may log in: {file}")


@app.command()
@_NAME
@_FILE
@_POLICY
@_PIPED
def passwd(name: str, *, users: Path | None, policy: Path | None, password_stdin: bool) -> None:
    """Replace a user's password."""
    from dpsql.server.users_file import change_password

    change_password(_file(users, policy), name, password=_password(piped=password_stdin))
    click.echo(f"{name} has a new password.")


@app.command()
@_NAME
@_FILE
@_POLICY
def remove(name: str, *, users: Path | None, policy: Path | None) -> None:
    """Remove a user; what they were charged stays in the ledger."""
    from dpsql.server.users_file import remove_user

    remove_user(_file(users, policy), name)
    click.echo(f"{name} may not log in any more. A server that runs learns it by SIGHUP.")


@app.command(name="list")
@_FILE
@_POLICY
def listing(*, users: Path | None, policy: Path | None) -> None:
    """List the users."""
    from dpsql.server.users_file import listed

    for user in listed(_file(users, policy)):
        marks = ["curator"] if user.is_curator else []
        marks += [f"acts as {', '.join(user.acts_as)}"] if user.acts_as else []
        click.echo("  ".join([user.name, *marks]))


def _file(users: Path | None, policy: Path | None) -> Path:
    if (users is None) == (policy is None):
        hint = "Give one of --users FILE and --policy FILE."
        raise UsageError("users-missing", "It is not said which file of users is meant.", hint=hint)
    if users is not None:
        return users
    from dpsql.policy import Policy as Read
    from dpsql.server.settings import users_of

    return users_of(Read.from_toml(policy or ""))


def _password(*, piped: bool) -> str:
    """Return what is typed twice and not shown, or the first line that is piped in."""
    if piped:
        return sys.stdin.buffer.readline().decode(errors="replace").rstrip("\r\n")
    if not sys.stdin.isatty():
        hint = "Type it on a terminal, or pipe it in with --password-stdin."
        raise UsageError("password", "There is no terminal to type a password on.", hint=hint)
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt="Once more")
    return typed
