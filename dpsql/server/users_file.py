"""How the file of users is written: one writer at a time, and whoever reads it sees the old file or the new one."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dpsql.errors import UsageError
from dpsql.policy.analysts import check_asking
from dpsql.server.passwords import SALT_BYTES, Verifier, is_preparable, verifier_of
from dpsql.server.random_bytes import random_bytes
from dpsql.server.users import User, UserFile, read_book

__all__ = ["add_user", "change_password", "listed", "remove_user"]

_MASK_BYTES = 32
_SHORTEST, _LONGEST = 8, 1000
_HEAD = "# Written by `dpsql user`: names, and what passwords are held against. No password can be read from it.\n"


def add_user(path: Path, user: User, *, password: str) -> None:
    """Add a user, and make the file if there is none. Raises `UsageError` for a name that is there already."""
    check_asking(user.name)
    for other in user.acts_as:
        check_asking(other)
    verifier = _verifier(password)

    def adding(book: UserFile) -> UserFile:
        if user.name in book.users:
            hint = "Change the password with dpsql user passwd, or remove the user first."
            raise UsageError("user-exists", "There is a user of this name already.", hint=hint)
        users, verifiers = {**book.users, user.name: user}, {**book.verifiers, user.name: verifier}
        return replace(book, users=users, verifiers=verifiers)

    _change(path, adding)


def change_password(path: Path, name: str, *, password: str) -> None:
    """Replace the password of a user. Raises `UsageError` for one who is not there."""
    verifier = _verifier(password)
    _change(path, lambda book: replace(_having(book, name), verifiers={**book.verifiers, name: verifier}))


def remove_user(path: Path, name: str) -> None:
    """Remove a user. Raises `UsageError` for one who is not there."""

    def removing(book: UserFile) -> UserFile:
        _having(book, name)
        users = {other: user for other, user in book.users.items() if other != name}
        return replace(book, users=users, verifiers={other: book.verifiers[other] for other in users})

    _change(path, removing)


def listed(path: Path) -> tuple[User, ...]:
    """Return the users of a file, by name."""
    return tuple(sorted(read_book(path).users.values(), key=lambda user: user.name))


def _having(book: UserFile, name: str) -> UserFile:
    if name not in book.users:
        raise UsageError("user-unknown", "There is no user of this name.", hint="dpsql user list shows who is there.")
    return book


def _verifier(password: str) -> Verifier:
    if not _SHORTEST <= len(password) <= _LONGEST or not is_preparable(password):
        reason = f"A password has {_SHORTEST} to {_LONGEST} characters, all of which print."
        raise UsageError("password", reason, hint="Take several words, or let a password manager make one.")
    return verifier_of(password, random_bytes(SALT_BYTES))


def _change(path: Path, change: Callable[[UserFile], UserFile]) -> None:
    try:
        with _locked(path):
            book = read_book(path) if path.exists() else UserFile(random_bytes(_MASK_BYTES), {}, {})
            _replace(path, _HEAD + "".join(_lines(change(book))))
    except OSError:
        hint = "Give a path in a directory that exists and may be written."
        raise UsageError(
            "users-unwritable", "The file of users cannot be written.", hint=hint, place=str(path)
        ) from None


def _lines(book: UserFile) -> Iterator[str]:
    yield f'mask = "{base64.b64encode(book.mask).decode()}"\n'
    for name, user in sorted(book.users.items()):
        yield f'\n[users.{_quoted(name)}]\nverifier = "{book.verifiers[name].spelled()}"\n'
        if user.is_curator:
            yield "curator = true\n"
        if user.acts_as:
            yield f"acts_as = [{', '.join(map(_quoted, user.acts_as))}]\n"


def _quoted(name: str) -> str:
    """Spell a printable name as TOML does, which in quotes is as JSON does."""
    return json.dumps(name, ensure_ascii=False)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for every other writer; the lock lies beside the file, which is itself replaced."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(ImportError):  # Windows has no such lock
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write a file beside it, private from its first moment, and put it in its place once it is on the disk."""
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
