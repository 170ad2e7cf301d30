"""Address of a ledger in a database; it may hold a password, which is never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.errors import PolicyError

__all__ = ["IN_MEMORY", "DatabaseUrl", "is_url"]

IN_MEMORY = ":memory:"  # in place of a path: a ledger, or data, that ends with the process
_SCHEMA = "dpsql_ledger"
_TOLD = ("host", "port", "dbname", "service")
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|postgres[a-z0-9+]*:/")  # a Path has lost one of its slashes
# Narrower than libpq reads: what is odd is refused unseen, so that no part of a password is taken for a host.
_HOST = r"(?:\[[0-9A-Fa-f:.]*\]|[^:@/?#,\[\]]*)(?::\d*)?"
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@/?#]*)?)"
    r"(?:\?(?P<options>[^@?#]*))?"
)


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A PostgreSQL database and the schema in it that holds a ledger; as text it shows no password.

    >>> DatabaseUrl.of("postgresql://audit:secret@db.example/main?schema=sales&sslmode=verify-full")
    DatabaseUrl('postgresql://audit@db.example/main?schema=sales')
    """

    target: str = field(repr=False)
    schema: str
    told: str

    @classmethod
    def of(cls, url: str | Path | DatabaseUrl) -> DatabaseUrl:
        """Return the address that a text spells; raise `policy-url`, which shows nothing of it, if it spells none."""
        if isinstance(url, DatabaseUrl):
            return url
        text = str(url)
        found = _ADDRESS.fullmatch(text)
        if found is None or not text.isprintable():
            hint = "Such as postgresql://user@host/database?schema=name; write other letters percent-encoded."
            raise PolicyError("policy-url", "The address of the ledger cannot be read.", hint=hint, place="ledger")
        options = [tuple(option.partition("=")[::2]) for option in (found["options"] or "").split("&") if option]
        schemas = [value for key, value in options if key == "schema"] or [_SCHEMA]
        if len(schemas) > 1 or not _NAME.fullmatch(schemas[0]):
            hint = "Use lower-case ASCII letters, digits and _, beginning with neither a digit nor pg_."
            raise PolicyError("policy-url", "The schema of the ledger has a strange name.", hint=hint, place="ledger")
        others = "&".join("=".join(option) for option in options if option[0] != "schema")
        told = "&".join("=".join(option) for option in options if option[0] in {*_TOLD, "schema"})
        user = f"{found['user']}@" if found["user"] else ""
        return cls(
            target=text.partition("?")[0] + ("?" + others if others else ""),
            schema=schemas[0],
            told=f"postgresql://{user}{found['place']}" + ("?" + told if told else ""),
        )

    def __str__(self) -> str:
        return self.told

    def __repr__(self) -> str:
        return f"DatabaseUrl({self.told!r})"


def is_url(value: object) -> bool:
    """Say whether a value is the address of a database of any kind, and not a path."""
    return isinstance(value, DatabaseUrl) or (isinstance(value, str | Path) and _URL.match(str(value)) is not None)
