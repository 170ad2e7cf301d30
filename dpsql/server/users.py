"""Who may log in: the file that `dpsql user` writes, of names and verifiers, and what a password is held against.

The login is the analyst: a user asks under their own name, within the limit that the policy has for it. A service
account, such as that of a BI tool, may besides ask for the analysts that it is marked to act as.
"""

from __future__ import annotations

import base64
import hmac
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.errors import UsageError
from dpsql.policy.analysts import check_asking
from dpsql.server.passwords import ITERATIONS, SALT_BYTES, Verifier, has_password

__all__ = ["User", "UserFile", "Users", "read_book"]

_LONGEST_FILE = 16 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEYS = {"verifier", "curator", "acts_as"}


@dataclass(frozen=True, slots=True)
class User:
    """Who has logged in: their name is the analyst's; `acts_as` are the analysts that a service account may ask for."""

    name: str
    is_curator: bool = False
    acts_as: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserFile:
    """What a file of users holds; `mask` is the secret from which the salts of unknown names are made up."""

    mask: bytes = field(repr=False)
    users: Mapping[str, User]
    verifiers: Mapping[str, Verifier] = field(repr=False)


class Users:
    """The users of a file, as it was when it was last read; threads may share it."""

    __slots__ = ("_book", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._book = read_book(path)

    @classmethod
    def load(cls, path: Path | str) -> Users:
        """Read a file of users. Raises `UsageError` for one that is not there, not private, or cannot be read."""
        return cls(Path(path))

    def reload(self) -> None:
        """Read the file again; whatever is wrong with it leaves what was read before. Raises as `load`."""
        self.take(read_book(self._path))

    def take(self, book: UserFile) -> None:
        """Let the users be those of a book from now on."""
        self._book = book

    def get(self, name: str) -> User | None:
        """Return a user by name, or None."""
        return self._book.users.get(name)

    def check(self, name: str, password: str) -> User | None:
        """Return the user whose password this is, or None; an unknown name takes as long as a wrong password."""
        book = self._book
        found = book.verifiers.get(name) or _made_up(book.mask, name)
        return book.users.get(name) if has_password(found, password) else None

    def verifier(self, name: str) -> Verifier:
        """Return what a proof of the password is held against; for an unknown name one that no password fits.

        That is made up from the name, the same each time, so that names cannot be told from it.
        """
        return self._book.verifiers.get(name) or _made_up(self._book.mask, name)

    def __len__(self) -> int:
        return len(self._book.users)

    def __repr__(self) -> str:
        return f"Users({len(self)})"


def read_book(path: Path) -> UserFile:
    """Return what a file of users holds; raise `UsageError`, which shows nothing of it."""
    data = _read(path)
    users: dict[str, User] = {}
    verifiers: dict[str, Verifier] = {}
    mask, listed = data.get("mask"), data.get("users", {})
    if data.keys() - {"mask", "users"} or not isinstance(mask, str) or not isinstance(listed, dict):
        raise _malformed(path)
    for name, given in listed.items():
        users[name], verifiers[name] = _user(path, name, given=given)
    try:
        return UserFile(base64.b64decode(mask, validate=True), users, verifiers)
    except ValueError:
        raise _malformed(path) from None


def _user(path: Path, name: str, *, given: object) -> tuple[User, Verifier]:
    check_asking(name)
    if not isinstance(given, dict) or given.keys() - _KEYS:
        raise _malformed(path)
    spelled, curator, acts_as = given.get("verifier"), given.get("curator", False), given.get("acts_as", [])
    verifier = Verifier.read(spelled) if isinstance(spelled, str) else None
    if verifier is None or not isinstance(curator, bool) or not isinstance(acts_as, list):
        raise _malformed(path)
    for other in acts_as:
        if not isinstance(other, str):
            raise _malformed(path)
        check_asking(other)
    return User(name, curator, tuple(acts_as)), verifier


def _read(path: Path) -> dict[str, object]:
    """Return the TOML of a file that its owner alone can read, checked on the file that is then read."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if os.name == "posix" and stat.S_IMODE(found.st_mode) & _OTHERS:
                hint = f"Make it private to its owner: chmod 600 {path.name}"
                raise UsageError("users-not-private", "Others can read the file of users.", hint=hint, place=str(path))
            return tomllib.loads(file.read(_LONGEST_FILE).decode())
    except FileNotFoundError:
        hint = "Make it with the first user: dpsql user add NAME"
        raise UsageError(
            "users-missing", "There is no file of users at this path.", hint=hint, place=str(path)
        ) from None
    except (OSError, ValueError, RecursionError):
        raise _malformed(path) from None


def _malformed(path: Path) -> UsageError:
    hint = "It is written by dpsql user add, passwd and remove alone; restore it, or begin a new one."
    return UsageError("users-unreadable", "The file of users cannot be read.", hint=hint, place=str(path))


def _made_up(mask: bytes, name: str) -> Verifier:
    salt, stored, server = (
        hmac.digest(mask, f"{part}:{name}".encode(errors="replace"), "sha256") for part in ("salt", "stored", "server")
    )
    return Verifier(ITERATIONS, salt[:SALT_BYTES], stored, server)
