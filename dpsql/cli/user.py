"""`dpsql user`: who may log in to a server. Passwords are typed or piped in, and stand in no command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpsql.errors import UsageError

__all__ = ["app"]

Name = Annotated[
    str, typer.Argument(help="The user's name, by which the policy knows the analyst.", show_default=False)
]
File = Annotated[Path | None, typer.Option("--users", help="The file of users.", show_default=False)]
Policy = Annotated[
    Path | None, typer.Option("--policy", help="The policy whose [server] names the file.", show_default=False)
]
Piped = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]

app = typer.Typer(
    name="user",
    help="Say who may log in to a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def add(
    name: Name,
    *,
    users: File = None,
    policy: Policy = None,
    curator: Annotated[bool, typer.Option("--curator", help="Let them see what everybody spent.")] = False,
    acts_as: Annotated[
        str, typer.Option("--acts-as", help="Analysts whom a service account may ask for, by commas.")
    ] = "",
    password_stdin: Piped = False,
) -> None:
    """Add a user, and make the file if there is none."""
    from dpsql.server.users import User
    from dpsql.server.users_file import add_user

    others = tuple(other.strip() for other in acts_as.split(",") if other.strip())
    file = _file(users, policy)
    add_user(file, User(name, curator, others), password=_password(piped=password_stdin))
    typer.echo(f"{name} may log in: {file}")


@app.command()
def passwd(name: Name, *, users: File = None, policy: Policy = None, password_stdin: Piped = False) -> None:
    """Replace a user's password."""
    from dpsql.server.users_file import change_password

    change_password(_file(users, policy), name, password=_password(piped=password_stdin))
    typer.echo(f"{name} has a new password.")


@app.command()
def remove(name: Name, *, users: File = None, policy: Policy = None) -> None:
    """Remove a user; what they were charged stays in the ledger."""
    from dpsql.server.users_file import remove_user

    remove_user(_file(users, policy), name)
    typer.echo(f"{name} may not log in any more. A server that runs learns it by SIGHUP.")


@app.command(name="list")
def listing(*, users: File = None, policy: Policy = None) -> None:
    """List the users."""
    from dpsql.server.users_file import listed

    for user in listed(_file(users, policy)):
        marks = ["curator"] if user.is_curator else []
        marks += [f"acts as {', '.join(user.acts_as)}"] if user.acts_as else []
        typer.echo("  ".join([user.name, *marks]))


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
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt="Once more")
    return typed
