"""Users who may log in, from the file that `dpsql user` writes: their names, and the verifiers of their passwords.

A user is the analyst of the same name, with the budget that the policy sets. A service account, such as that of a BI
tool, may also act as the analysts in its `acts_as`.
"""

from __future__ import annotations

import base64
import hmac
import os
import shlex
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dpsql.errors import UsageError
from dpsql.policy.limits import check_asking
from dpsql.server.passwords import ITERATIONS, SALT_BYTES, Verifier, has_password

__all__ = ["SCOPES", "StoredToken", "User", "UserFile", "Users", "read_user_file"]

SCOPES = ("read", "query", "curate")  # what is free; queries that are charged; what curators do

_MAX_FILE = 16 << 20  # bytes
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEYS = {"verifier", "curator", "acts_as", "tokens"}
_TOKEN_KEYS = {"label", "digest", "scopes", "expires"}
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class User:
    """A user, named as the analyst; a service account may act as the analysts in `acts_as`."""

    name: str
    is_curator: bool = False
    acts_as: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token of a user for the JSON API and MCP: its label and scopes, until it expires; only its digest is stored."""

    user: str
    label: str
    scopes: frozenset[str]
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class UserFile:
    """Content of a file of users; `mask` is the secret from which the salts of unknown names are derived.

    The `tokens` are listed by their digests.
    """

    mask: bytes = field(repr=False)
    users: Mapping[str, User]
    verifiers: Mapping[str, Verifier] = field(repr=False)
    tokens: Mapping[bytes, StoredToken] = field(default_factory=dict, repr=False)


class Users:
    """The users of a file, as last read; threads may share it."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = read_user_file(path)

    @classmethod
    def load(cls, path: Path | str) -> Users:
        """Read a file of users. Raises `UsageError` for one that is missing, not private, or malformed."""
        return cls(Path(path))

    def reload(self) -> None:
        """Read the file again. Raises as `load`, and then the users stay as they were."""
        self.replace(read_user_file(self._path))

    def replace(self, file: UserFile) -> None:
        """Replace the users by those of a file."""
        self._file = file

    def get(self, name: str) -> User | None:
        """Return a user by name, or None."""
        return self._file.users.get(name)

    def check(self, name: str, password: str) -> User | None:
        """Return the user if the password is right, else None; an unknown name takes as long as a wrong password."""
        file = self._file
        verifier = file.verifiers.get(name) or _invent_verifier(file.mask, name)
        return file.users.get(name) if has_password(verifier, password) else None

    def verifier(self, name: str) -> Verifier:
        """Return the verifier of a user, or for an unknown name an invented one that no password fits.

        An invented verifier is always the same for a name, so that it does not reveal which names exist.
        """
        return self._file.verifiers.get(name) or _invent_verifier(self._file.mask, name)

    def find_token(self, digest: bytes) -> StoredToken | None:
        """Return the stored token with this SHA-256 digest, or None; it may have expired."""
        return self._file.tokens.get(digest)

    def __len__(self) -> int:
        return len(self._file.users)

    def __repr__(self) -> str:
        return f"Users({len(self)})"


def read_user_file(path: Path) -> UserFile:
    """Read a file of users; raise `UsageError`, which shows nothing of its content."""
    data = _load_private_toml(path)
    users: dict[str, User] = {}
    verifiers: dict[str, Verifier] = {}
    tokens: dict[bytes, StoredToken] = {}
    mask, entries = data.get("mask"), data.get("users", {})
    if data.keys() - {"mask", "users"} or not isinstance(mask, str) or not isinstance(entries, dict):
        raise _malformed(path)
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            raise _malformed(path)
        users[name], verifiers[name] = _parse_user(path, name, entry=entry)
        tokens.update(_parse_tokens(path, name, entry=entry))
    try:
        return UserFile(base64.b64decode(mask, validate=True), users, verifiers, tokens)
    except ValueError:
        raise _malformed(path) from None


def _parse_user(path: Path, name: str, *, entry: Mapping[str, object]) -> tuple[User, Verifier]:
    check_asking(name)
    if entry.keys() - _KEYS:
        raise _malformed(path)
    text, is_curator, acts_as = entry.get("verifier"), entry.get("curator", False), entry.get("acts_as", [])
    verifier = Verifier.parse(text) if isinstance(text, str) else None
    if verifier is None or not isinstance(is_curator, bool) or not isinstance(acts_as, list):
        raise _malformed(path)
    for other in acts_as:
        if not isinstance(other, str):
            raise _malformed(path)
        check_asking(other)
    return User(name, is_curator, tuple(acts_as)), verifier


def _parse_tokens(path: Path, name: str, *, entry: Mapping[str, object]) -> Iterator[tuple[bytes, StoredToken]]:
    """Yield the tokens of a user with their digests; a file without tokens is one of an earlier version."""
    listed = entry.get("tokens", [])
    if not isinstance(listed, list):
        raise _malformed(path)
    for each in listed:
        if not isinstance(each, dict) or each.keys() - _TOKEN_KEYS:
            raise _malformed(path)
        label, text, scopes, expires = (each.get(key) for key in ("label", "digest", "scopes", "expires"))
        if not isinstance(label, str) or not isinstance(text, str) or not isinstance(scopes, list):
            raise _malformed(path)
        try:
            digest = bytes.fromhex(text)
        except ValueError:
            raise _malformed(path) from None
        is_dated = expires is None or (isinstance(expires, datetime) and expires.tzinfo is not None)
        if len(digest) != _DIGEST_BYTES or not all(scope in SCOPES for scope in scopes) or not is_dated:
            raise _malformed(path)
        until = expires.astimezone(UTC) if isinstance(expires, datetime) else None
        yield digest, StoredToken(name, label, frozenset(scopes), until)


def _load_private_toml(path: Path) -> dict[str, object]:
    """Load a TOML file that only its owner can read, which is checked on the opened file."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and stat.S_IMODE(status.st_mode) & _GROUP_AND_OTHERS:
                hint = f"Make it private to its owner: chmod 600 {shlex.quote(str(path))}"
                raise UsageError("users-not-private", "Others can read the file of users.", hint=hint, place=str(path))
            return tomllib.loads(file.read(_MAX_FILE).decode())
    except FileNotFoundError:
        hint = f"Create it with the first user: dpsql user add NAME --users {shlex.quote(str(path))}"
        raise UsageError(
            "users-missing", "There is no file of users at this path.", hint=hint, place=str(path)
        ) from None
    except (OSError, ValueError, RecursionError):
        raise _malformed(path) from None


def _malformed(path: Path) -> UsageError:
    hint = "Only dpsql user may write it. Restore a backup, or delete it and add the users again: dpsql user add NAME"
    return UsageError("users-unreadable", "The file of users cannot be read.", hint=hint, place=str(path))


def _invent_verifier(mask: bytes, name: str) -> Verifier:
    salt, stored, server = (
        hmac.digest(mask, f"{part}:{name}".encode(errors="replace"), "sha256") for part in ("salt", "stored", "server")
    )
    return Verifier(ITERATIONS, salt[:SALT_BYTES], stored, server)
