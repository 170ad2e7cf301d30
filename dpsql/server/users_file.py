"""Changes of the file of users: by one writer at a time, and atomic for its readers."""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC
from pathlib import Path

from dpsql.errors import UsageError
from dpsql.policy.limits import check_asking
from dpsql.server.passwords import SALT_BYTES, Verifier, can_saslprep, derive_verifier
from dpsql.server.random_bytes import draw_bytes, draw_text
from dpsql.server.users import StoredToken, User, UserFile, read_user_file
from dpsql.server.visits import digest_token

__all__ = ["add_token", "add_user", "change_password", "list_tokens", "list_users", "remove_token", "remove_user"]

_MASK_BYTES = 32
_TOKEN_BYTES = 32
_PREFIX = "dpsql_"  # by which programs that look for secrets recognise a token
_MAX_LABEL = 60
_MIN_PASSWORD, _MAX_PASSWORD = 8, 1000
_HEAD = "# Written by `dpsql user`: names, and verifiers of passwords. No password can be read from it.\n"


def add_user(path: Path, user: User, *, password: str) -> None:
    """Add a user, and create the file if there is none. Raises `UsageError` for a name that exists already."""
    check_asking(user.name)
    for other in user.acts_as:
        check_asking(other)
    verifier = _create_verifier(password)

    def add(book: UserFile) -> UserFile:
        if user.name in book.users:
            hint = "Change the password with dpsql user passwd, or remove the user first."
            raise UsageError("user-exists", "A user of this name exists already.", hint=hint)
        users, verifiers = {**book.users, user.name: user}, {**book.verifiers, user.name: verifier}
        return replace(book, users=users, verifiers=verifiers)

    _change(path, add)


def change_password(path: Path, name: str, *, password: str) -> None:
    """Replace the password of a user. Raises `UsageError` for an unknown name."""
    verifier = _create_verifier(password)

    def change(book: UserFile) -> UserFile:
        _check_exists(book, name, file=path)
        return replace(book, verifiers={**book.verifiers, name: verifier})

    _change(path, change)


def remove_user(path: Path, name: str) -> None:
    """Remove a user. Raises `UsageError` for an unknown name."""

    def remove(book: UserFile) -> UserFile:
        _check_exists(book, name, file=path)
        users = {other: user for other, user in book.users.items() if other != name}
        tokens = {digest: token for digest, token in book.tokens.items() if token.user != name}
        return replace(book, users=users, verifiers={other: book.verifiers[other] for other in users}, tokens=tokens)

    _change(path, remove)


def add_token(path: Path, token: StoredToken) -> str:
    """Add a token to a user, and return its text, which is stored nowhere.

    Raises `UsageError` for an unknown user, and for a label that is in use or does not print.
    """
    if not token.label or len(token.label) > _MAX_LABEL or not token.label.isprintable():
        hint = "Name the program that uses it, such as assistant."
        raise UsageError("token-label", f"A label has 1 to {_MAX_LABEL} printable characters.", hint=hint)
    text = _PREFIX + draw_text(_TOKEN_BYTES)

    def add(book: UserFile) -> UserFile:
        _check_exists(book, token.user, file=path)
        if any((other.user, other.label) == (token.user, token.label) for other in book.tokens.values()):
            hint = f"Choose another label, or revoke it first: dpsql user revoke {token.user} {_quote(token.label)}"
            raise UsageError("token-label", "This user has a token with this label.", hint=hint)
        return replace(book, tokens={**book.tokens, digest_token(text): token})

    _change(path, add)
    return text


def remove_token(path: Path, name: str, *, label: str) -> None:
    """Remove the token of a user with this label. Raises `UsageError` if there is none."""

    def remove(book: UserFile) -> UserFile:
        _check_exists(book, name, file=path)
        others = {key: token for key, token in book.tokens.items() if (token.user, token.label) != (name, label)}
        if len(others) == len(book.tokens):
            hint = f"List the tokens: {_list_command(path)}"
            raise UsageError("token-label", "This user has no token with this label.", hint=hint)
        return replace(book, tokens=others)

    _change(path, remove)


def list_users(path: Path) -> tuple[User, ...]:
    """Return the users of a file, sorted by name."""
    return tuple(sorted(read_user_file(path).users.values(), key=lambda user: user.name))


def list_tokens(path: Path) -> tuple[StoredToken, ...]:
    """Return the tokens of a file, without their texts, sorted by user and label."""
    return tuple(sorted(read_user_file(path).tokens.values(), key=lambda token: (token.user, token.label)))


def _check_exists(book: UserFile, name: str, *, file: Path) -> None:
    if name not in book.users:
        hint = f"List the users: {_list_command(file)}"
        raise UsageError("user-unknown", "There is no user of this name.", hint=hint)


def _list_command(path: Path) -> str:
    """Return the command that lists the users of a file, which may be none of a policy in the current folder."""
    return f"dpsql user list --users {shlex.quote(str(path))}"


def _create_verifier(password: str) -> Verifier:
    if not _MIN_PASSWORD <= len(password) <= _MAX_PASSWORD or not can_saslprep(password):
        reason = f"A password must have {_MIN_PASSWORD} to {_MAX_PASSWORD} printable characters."
        raise UsageError("password", reason, hint="Use several words, or a password manager.")
    return derive_verifier(password, draw_bytes(SALT_BYTES))


def _change(path: Path, change: Callable[[UserFile], UserFile]) -> None:
    """Replace a file of users by what `change` makes of it, or of an empty one."""
    try:
        with _lock(path):
            book = read_user_file(path) if path.exists() else UserFile(draw_bytes(_MASK_BYTES), {}, {})
            _replace(path, _HEAD + "".join(_format_lines(change(book))))
    except OSError:
        hint = "Use a path in an existing, writable directory."
        raise UsageError(
            "users-unwritable", "The file of users cannot be written.", hint=hint, place=str(path)
        ) from None


def _format_lines(book: UserFile) -> Iterator[str]:
    yield f'mask = "{base64.b64encode(book.mask).decode()}"\n'
    for name, user in sorted(book.users.items()):
        yield f'\n[users.{_quote(name)}]\nverifier = "{book.verifiers[name].encode()}"\n'
        if user.is_curator:
            yield "curator = true\n"
        if user.acts_as:
            yield f"acts_as = [{', '.join(map(_quote, user.acts_as))}]\n"
        for digest, token in book.tokens.items():
            if token.user == name:
                yield from _format_token(name, token, digest=digest)


def _format_token(name: str, token: StoredToken, *, digest: bytes) -> Iterator[str]:
    yield f'\n[[users.{_quote(name)}.tokens]]\nlabel = {_quote(token.label)}\ndigest = "{digest.hex()}"\n'
    yield f"scopes = [{', '.join(map(_quote, sorted(token.scopes)))}]\n"
    if token.expires is not None:
        yield f"expires = {token.expires.astimezone(UTC).isoformat(timespec='seconds')}\n"


def _quote(name: str) -> str:
    """Quote a printable name for TOML, as JSON does."""
    return json.dumps(name, ensure_ascii=False)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait for other writers; the lock is a file beside this one, which is itself replaced."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(ImportError):  # Windows has no such lock
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write a private file beside the old one, flush it to the disk, and rename it over the old one."""
    target = path.resolve()
    new = target.with_name(f"{target.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
