"""Users who may log in, the file that `dpsql user` writes, and what follows a login: visits and tokens.

A user is the analyst of the same name, with the budget that the policy sets. A service account, such as that of a BI
tool, may also act as the analysts in its `acts_as`. A verifier is that of SCRAM-SHA-256 (RFC 5802 and 7677), and alone
does not allow a login. PostgreSQL's clients prove that they know the password without sending it; the page receives it
and computes its verifier again. The file has one writer at a time, and a change is atomic for its readers.

Visits and tokens are random texts that only the server can map to users. A visit, and a token of POST /api/v1/token,
ends after some time without a request, after a working day, at logout, and with the server. A token of
`dpsql user token` is in the file of users, as a digest, until it expires or is revoked. Only the event loop uses visits
and tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import stat
import stringprep
import time
import tomllib
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from dpsql.errors import PolicyError, Refusal, UsageError
from dpsql.policy import Policy
from dpsql.policy.settings import check_asking

ITERATIONS = 16_384  # a few milliseconds; drivers in interpreted languages compute it at every connection
SALT_BYTES = 16
_MIN_ITERATIONS = 4096  # of RFC 7677
_MAX_ITERATIONS = 10_000_000
_KEY_BYTES = 32
_MAX_COMPUTED = 1024  # characters; longer ones cannot be right and are not computed
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_FORMAT = re.compile(rf"SCRAM-SHA-256\$([0-9]{{4,8}}):({_BASE64})\$({_BASE64}):({_BASE64})")
_FORBIDDEN = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The data with which a server checks a password; its `repr` shows none of it."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def encode(self) -> str:
        """Return the verifier as text, in the format of PostgreSQL's pg_authid."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Parse the text of a verifier, or return None."""
        found = _FORMAT.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
        except ValueError:
            return None
        iterations = int(found[1])
        is_valid = _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS and len(stored) == len(server) == _KEY_BYTES
        return cls(iterations, salt, stored, server) if is_valid else None


def derive_verifier(password: str, salt: bytes, *, iterations: int = ITERATIONS) -> Verifier:
    """Derive the verifier of a password with a salt."""
    normal = saslprep(password)
    if normal is None:  # computed as it is, as libpq does
        normal = password
    # SaltedPassword, ClientKey, StoredKey = H(ClientKey) and ServerKey of RFC 5802, section 3.
    salted = hashlib.pbkdf2_hmac("sha256", normal.encode(errors="replace"), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(iterations, salt, hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256"))


def has_password(verifier: Verifier, password: str) -> bool:
    """Return whether a verifier is that of a password, in constant time."""
    candidate = password if len(password) <= _MAX_COMPUTED else ""
    computed = derive_verifier(candidate, verifier.salt, iterations=verifier.iterations)
    # A password that is too long was computed as "", and is wrong whatever comes out.
    return hmac.compare_digest(computed.stored_key, verifier.stored_key) and candidate == password


def saslprep(password: str) -> str | None:
    """Apply SASLprep (RFC 4013) to a password; None for one that it rejects."""
    # The steps of RFC 4013: mapping (2.1), normalization (2.2), prohibited and unassigned code points (2.3 and 2.5),
    # and text from right to left (2.4).
    mapped = (" " if stringprep.in_table_c12(char) else char for char in password if not stringprep.in_table_b1(char))
    normal = unicodedata.normalize("NFKC", "".join(mapped))
    if not normal or any(forbids(char) for char in normal for forbids in _FORBIDDEN):
        return None
    if any(stringprep.in_table_d1(char) for char in normal):  # from right to left
        ends_right = stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])
        if not ends_right or any(stringprep.in_table_d2(char) for char in normal):
            return None
    return normal


Scope = Literal["read", "query", "curate"]  # what is free; queries that are charged; what curators do
SCOPES: tuple[str, ...] = get_args(Scope)

_MAX_FILE = 16 << 20  # bytes
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEYS = {"verifier", "curator", "acts_as", "tokens"}
_TOKEN_KEYS = {"label", "digest", "scopes", "expires"}
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class User:
    """A user, named as the analyst; a service account may act as the analysts in `acts_as`.

    `mark` identifies the password; it is empty for a user who was not read from the file.
    """

    name: str
    is_curator: bool = False
    acts_as: tuple[str, ...] = ()
    mark: bytes = field(default=b"", repr=False, compare=False)


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
    users: dict[str, User]
    verifiers: dict[str, Verifier] = field(repr=False)
    tokens: dict[bytes, StoredToken] = field(default_factory=dict, repr=False)


class Users:
    """The users of a file, as last read; threads may share it.

    Raises `UsageError` for a file that is missing, not private, or malformed.
    """

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = read_user_file(path)

    def reload(self) -> None:
        """Read the file again; if that raises, the users stay as they were."""
        self.replace(read_user_file(self._path))

    def replace(self, file: UserFile) -> None:
        """Replace the users by those of a file."""
        self._file = file

    def get(self, name: str) -> User | None:
        """Return a user by name, or None."""
        return self._file.users.get(name)

    def check(self, name: str, password: str) -> User | None:
        """Return the user if the password is right, else None; an unknown name takes as long as a wrong password."""
        # One file for both look-ups, as a reload may replace it between them.
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


def find_users_file(policy: Policy) -> Path:
    """Return the path of the file of users; raise `PolicyError` if the policy has none."""
    if policy.server.users is None:
        hint = 'Write users = "users.toml" under [server].'
        raise PolicyError("policy-missing-key", "The policy has no file of users.", hint=hint, place="server.users")
    return policy.server.users


def read_user_file(path: Path) -> UserFile:
    """Read a file of users, which only its owner may read; raise `UsageError`, which shows nothing of its content."""
    try:
        with path.open("rb") as file:
            # The mode of the open file: the one at the path may be another by now.
            status = os.fstat(file.fileno())
            if os.name == "posix" and stat.S_IMODE(status.st_mode) & _GROUP_AND_OTHERS:
                hint = f"Make it private to its owner: chmod 600 {shlex.quote(str(path))}"
                raise UsageError("users-not-private", "Others can read the file of users.", hint=hint, place=str(path))
            data = tomllib.loads(file.read(_MAX_FILE).decode())
    except FileNotFoundError:
        hint = f"Create it with the first user: dpsql user add NAME --users {shlex.quote(str(path))}"
        raise UsageError(
            "users-missing", "There is no file of users at this path.", hint=hint, place=str(path)
        ) from None
    except (OSError, ValueError, RecursionError):
        raise _malformed(path) from None
    found: dict[str, User] = {}
    verifiers: dict[str, Verifier] = {}
    tokens: dict[bytes, StoredToken] = {}
    try:
        mask, users = data.pop("mask"), data.pop("users", {})
        _require(not data and isinstance(mask, str) and isinstance(users, dict))
        for name, entry in users.items():
            _require(isinstance(entry, dict))
            found[name], verifiers[name] = _parse_user(name, entry)
            tokens.update(_parse_tokens(name, entry.get("tokens", [])))
        return UserFile(base64.b64decode(mask, validate=True), found, verifiers, tokens)
    except (KeyError, TypeError, ValueError):
        raise _malformed(path) from None


def _require(condition: bool) -> None:  # noqa: FBT001 - of a part of the file
    if not condition:
        raise ValueError


def _parse_user(name: str, entry: Mapping[str, object]) -> tuple[User, Verifier]:
    """Return a user with the verifier; raise `ValueError` for what is malformed."""
    check_asking(name)
    text, is_curator, acts_as = entry.get("verifier"), entry.get("curator", False), entry.get("acts_as", [])
    verifier = Verifier.parse(text) if isinstance(text, str) else None
    if entry.keys() - _KEYS or verifier is None or not isinstance(is_curator, bool) or not isinstance(acts_as, list):
        raise ValueError
    for other in acts_as:
        _require(isinstance(other, str))
        check_asking(other)
    return User(name, is_curator, tuple(acts_as), verifier.stored_key), verifier


def _parse_tokens(name: str, listed: object) -> Iterator[tuple[bytes, StoredToken]]:
    """Yield the tokens of a user with their digests; raise `ValueError` for what is malformed."""
    if not isinstance(listed, list):
        raise TypeError
    for each in listed:
        _require(isinstance(each, dict) and not each.keys() - _TOKEN_KEYS)
        label, text, scopes, expires = (each.get(key) for key in ("label", "digest", "scopes", "expires"))
        if not isinstance(label, str) or not isinstance(text, str) or not isinstance(scopes, list):
            raise TypeError
        digest = bytes.fromhex(text)
        is_dated = expires is None or (isinstance(expires, datetime) and expires.tzinfo is not None)
        _require(len(digest) == _DIGEST_BYTES and all(scope in SCOPES for scope in scopes) and is_dated)
        until = expires.astimezone(UTC) if isinstance(expires, datetime) else None
        yield digest, StoredToken(name, label, frozenset(scopes), until)


def _malformed(path: Path) -> UsageError:
    hint = "Only dpsql user may write it. Restore a backup, or delete it and add the users again: dpsql user add NAME"
    return UsageError("users-unreadable", "The file of users cannot be read.", hint=hint, place=str(path))


def _invent_verifier(mask: bytes, name: str) -> Verifier:
    salt, stored, server = (
        hmac.digest(mask, f"{part}:{name}".encode(errors="replace"), "sha256") for part in ("salt", "stored", "server")
    )
    return Verifier(ITERATIONS, salt[:SALT_BYTES], stored, server)


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
    with _edit(path) as file:
        if user.name in file.users:
            hint = "Change the password with dpsql user passwd, or remove the user first."
            raise UsageError("user-exists", "A user of this name exists already.", hint=hint)
        file.users[user.name], file.verifiers[user.name] = user, verifier


def change_password(path: Path, name: str, *, password: str) -> None:
    """Replace the password of a user. Raises `UsageError` for an unknown name."""
    verifier = _create_verifier(password)
    with _edit(path, name) as file:
        file.verifiers[name] = verifier


def remove_user(path: Path, name: str) -> None:
    """Remove a user. Raises `UsageError` for an unknown name."""
    with _edit(path, name) as file:
        del file.users[name], file.verifiers[name]
        for digest in [digest for digest, token in file.tokens.items() if token.user == name]:
            del file.tokens[digest]


def add_token(path: Path, token: StoredToken) -> str:
    """Add a token to a user, and return its text, which is stored nowhere.

    Raises `UsageError` for an unknown user, and for a label that is in use or does not print.
    """
    if not token.label or len(token.label) > _MAX_LABEL or not token.label.isprintable():
        hint = "Name the program that uses it, such as assistant."
        raise UsageError("token-label", f"A label has 1 to {_MAX_LABEL} printable characters.", hint=hint)
    text = _PREFIX + draw_text(_TOKEN_BYTES)
    with _edit(path, token.user) as file:
        if any((other.user, other.label) == (token.user, token.label) for other in file.tokens.values()):
            hint = f"Choose another label, or revoke it first: dpsql user revoke {token.user} {_quote(token.label)}"
            raise UsageError("token-label", "This user has a token with this label.", hint=hint)
        file.tokens[digest_token(text)] = token
    return text


def remove_token(path: Path, name: str, *, label: str) -> None:
    """Remove the token of a user with this label. Raises `UsageError` if there is none."""
    with _edit(path, name) as file:
        digests = [digest for digest, token in file.tokens.items() if (token.user, token.label) == (name, label)]
        if not digests:
            raise UsageError(
                "token-label", "This user has no token with this label.", hint=f"List the tokens: {_list_command(path)}"
            )
        for digest in digests:
            del file.tokens[digest]


def list_users(path: Path) -> tuple[User, ...]:
    """Return the users of a file, sorted by name."""
    return tuple(sorted(read_user_file(path).users.values(), key=lambda user: user.name))


def list_tokens(path: Path) -> tuple[StoredToken, ...]:
    """Return the tokens of a file, without their texts, sorted by user and label."""
    return tuple(sorted(read_user_file(path).tokens.values(), key=lambda token: (token.user, token.label)))


def _list_command(path: Path) -> str:
    """Return the command that lists the users of a file, which may be none of a policy in the current folder."""
    return f"dpsql user list --users {shlex.quote(str(path))}"


def _create_verifier(password: str) -> Verifier:
    if not _MIN_PASSWORD <= len(password) <= _MAX_PASSWORD or saslprep(password) is None:
        reason = f"A password must have {_MIN_PASSWORD} to {_MAX_PASSWORD} printable characters."
        raise UsageError("password", reason, hint="Use several words, or a password manager.")
    return derive_verifier(password, draw_bytes(SALT_BYTES))


@contextmanager
def _edit(path: Path, name: str | None = None) -> Iterator[UserFile]:
    """Yield a file of users, or an empty one, and write it as the body leaves it; `name` must be one of its users."""
    try:
        with _lock(path):
            file = read_user_file(path) if path.exists() else UserFile(draw_bytes(_MASK_BYTES), {}, {})
            if name is not None and name not in file.users:
                hint = f"List the users: {_list_command(path)}"
                raise UsageError("user-unknown", "There is no user of this name.", hint=hint)
            yield file
            _replace(path, _HEAD + "".join(_format_lines(file)))
    except OSError:
        hint = "Use a path in an existing, writable directory."
        raise UsageError(
            "users-unwritable", "The file of users cannot be written.", hint=hint, place=str(path)
        ) from None


def _format_lines(file: UserFile) -> Iterator[str]:
    yield f'mask = "{base64.b64encode(file.mask).decode()}"\n'
    for name, user in sorted(file.users.items()):
        yield f'\n[users.{_quote(name)}]\nverifier = "{file.verifiers[name].encode()}"\n'
        if user.is_curator:
            yield "curator = true\n"
        if user.acts_as:
            yield f"acts_as = [{', '.join(map(_quote, user.acts_as))}]\n"
        for digest, token in file.tokens.items():
            if token.user != name:
                continue
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
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
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
    # Left over from a writer that was killed. The mode 0600 is that of a file that is created, so it must not exist.
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(target)
    # A rename is durable only once its folder is flushed.
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest_token(token: str) -> bytes:
    """Return the digest of a token, from which the token cannot be computed."""
    # Tokens are looked up by digest, so how long a comparison takes says nothing about a token. They are random, unlike
    # passwords, and need no salt and no slow hash.
    return hashlib.sha256(token.encode(errors="replace")).digest()


def draw_bytes(count: int) -> bytes:
    """Return `count` random bytes of the operating system, for salts and nonces; the server draws no others."""
    return secrets.token_bytes(count)


def draw_text(count: int) -> str:
    """Return `count` random bytes as letters, digits, - and _, for a cookie or a header."""
    return secrets.token_urlsafe(count)


IDLE = 30 * 60.0  # seconds
LONGEST = 12 * 3600.0


_MOST_OF_ONE = 20  # visits of one user; the oldest ends


@dataclass(slots=True)
class Visit:
    """A login that has not ended, when it began and when it was last used; `mark` identifies the password given."""

    name: str
    mark: bytes
    scopes: frozenset[str]
    began: float
    asked: float


class Visits:
    """The visits that have not ended."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = draw_bytes(_TOKEN_BYTES)
        self._visits: OrderedDict[bytes, Visit] = OrderedDict()

    def begin(self, name: str, *, mark: bytes = b"", scopes: frozenset[str] = frozenset()) -> str:
        """Return the token of a new visit, which is not stored; `mark` identifies the password that was given."""
        token, now = draw_text(_TOKEN_BYTES), self._clock()
        over = [digest for digest, visit in self._visits.items() if _is_over(visit, now)]
        own = [digest for digest, visit in self._visits.items() if visit.name == name and not _is_over(visit, now)]
        for digest in [*over, *own[: max(0, len(own) - _MOST_OF_ONE + 1)]]:
            del self._visits[digest]
        self._visits[digest_token(token)] = Visit(name, mark, scopes, now, now)
        return token

    def find(self, token: str) -> Visit | None:
        """Return a visit, and let it go on; None if it has ended or never was."""
        visit, now = self._visits.get(digest_token(token)), self._clock()
        if visit is None or _is_over(visit, now):
            return None
        visit.asked = now
        return visit

    def resume(self, token: str, users: Users) -> Access | None:
        """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
        visit = self.find(token)
        if visit is None:
            return None
        user = users.get(visit.name)
        if user is None or users.verifier(visit.name).stored_key != visit.mark:
            self.end(token)
            return None
        return Access(user, visit.scopes)

    def end(self, token: str) -> None:
        """End a visit, if it has not ended."""
        self._visits.pop(digest_token(token), None)

    def proof(self, token: str) -> str:
        """Return what a form must bring along to have come from our own page; another site cannot know it."""
        return hmac.digest(self._key, token.encode(errors="replace"), "sha256").hex()

    def proves(self, token: str, given: str) -> bool:
        """Return whether a form contains the value that `proof` gave the page."""
        return hmac.compare_digest(self.proof(token).encode(), given.encode(errors="replace"))


def _is_over(visit: Visit, now: float) -> bool:
    return now - visit.asked > IDLE or now - visit.began > LONGEST


@dataclass(frozen=True, slots=True)
class Access:
    """A user, and the scopes within which a request of theirs may act."""

    user: User
    scopes: frozenset[str]

    @classmethod
    def with_password(cls, user: User) -> Access:
        """Return the access of a user who gave the password: everything."""
        return cls(user, frozenset(SCOPES))

    def require(self, scope: str) -> None:
        """Raise `Refusal` without this scope; with "read" a query may be sent, which is answered if it is free."""
        if scope not in self.scopes and not (scope == "query" and "read" in self.scopes):
            raise self.refusal(scope)

    def refusal(self, scope: str) -> Refusal:
        """Return the refusal of what needs another scope."""
        reason = f'This token may not do this: it does not have the scope "{scope}".'
        scopes = " ".join(f"--scope {each}" for each in SCOPES if each in self.scopes | {scope})
        hint = f"A curator makes another: dpsql user token {self.user.name} LABEL {scopes}"
        return Refusal("token-scope", reason, hint=hint)


class Tokens:
    """The tokens that are valid now; the cookies of the page are other ones."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._visits = Visits()

    def create(self, user: User, scopes: frozenset[str], *, users: Users) -> str:
        """Return a new token of a user who gave the password."""
        return self._visits.begin(user.name, mark=users.verifier(user.name).stored_key, scopes=scopes)

    def find(self, token: str, users: Users) -> Access | None:
        """Return what a token may do, and as whom; None if it is not valid."""
        access = self._visits.resume(token, users)
        if access is not None:
            return access
        stored = users.find_token(digest_token(token))
        if stored is None or (stored.expires is not None and stored.expires <= self._clock()):
            return None
        user = users.get(stored.user)
        return None if user is None else Access(user, stored.scopes)

    def end(self, token: str, users: Users) -> None:
        """End a token of `create`. Raises `Refusal` for one of the file of users."""
        stored = users.find_token(digest_token(token))
        if stored is not None:
            hint = f"A curator ends it: dpsql user revoke {stored.user} {json.dumps(stored.label, ensure_ascii=False)}"
            raise Refusal("token-stored", "This token is in the file of users.", hint=hint)
        self._visits.end(token)
