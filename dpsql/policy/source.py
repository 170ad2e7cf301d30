"""Addresses of the data and of a ledger in a database; they may hold a password, which is never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from dpsql.errors import PolicyError
from dpsql.policy.toml import Section
from dpsql.policy.validation import fill, wrong_type

IN_MEMORY = ":memory:"  # in place of a path: a ledger, or data, that ends with the process
_DEFAULT_SCHEMA = "dpsql_ledger"
_TOLD = ("host", "port", "dbname", "service")
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_LEDGER_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|postgres[a-z0-9+]*:/")  # a Path has lost one of its slashes
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
        # [::2] are the name and the value, without the sign between them.
        options = [tuple(option.partition("=")[::2]) for option in (found["options"] or "").split("&") if option]
        schemas = [value for key, value in options if key == "schema"] or [_DEFAULT_SCHEMA]
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
    return isinstance(value, DatabaseUrl) or (
        isinstance(value, str | Path) and _LEDGER_URL.match(str(value)) is not None
    )


_URL = re.compile(r"(?!duckdb:)[a-z][a-z0-9+.-]*:[!-~]+|datafusion:|duckdb:.+")
_USER = re.compile(r"[A-Za-z0-9_.~-]*")
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.,]*\]|:[0-9]+(?=[,/?;#]|$)|[^?;#=:])*[?;#=]?")  # up to what may be a password

_NO_ENGINE = re.compile(
    r"(md|motherduck|ducklake):|(?:s3[an]?|gc?s|r2|https?|hdfs|az|abfss?|wasbs?|file|dbfs|viewfs):/+"
)
_COPY = "Write its tables as Parquet, COPY (FROM events) TO 'events.parquet' in DuckDB, and name the files as sources."
_NO_DUCKDB = re.compile(r".*\.(?:parquet|[ct]sv(?:\.gz|\.zst)?)", re.IGNORECASE | re.DOTALL)
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PARTS = re.compile(r"([^?;]*)([?;]?)(.*)", re.DOTALL)  # location, mark and settings
# `passfile=` is followed by a path, and not by a password.
_HIDDEN = r"\w*(?:pass(?!file=)|pwd|token|secret|(?:api|access|account|private|shared)_?key|signature)"
_SECRET_OPTION = re.compile(rf"(?!.*\.jwt_private_key$).*?{_HIDDEN}.*", re.IGNORECASE | re.DOTALL)  # which is a path
_SETTING = re.compile(rf"(?!{_HIDDEN})[a-z_]+=[^#;]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, init=False)
class DataSource:
    """Engine with the tables: its `url`, such as "postgresql://user@host/db", and its `options` by name.

    The text form shows the user and the location of the data, and *** for all else, which may hold a password. The keys
    are those of docs/reference/policy.md#source.

    >>> DataSource("postgresql://audit:secret@db.example/main?sslmode=require")
    DataSource('postgresql://audit:***@db.example/main?***')
    """

    url: str = field(repr=False)
    options: Mapping[str, str]
    materialized: str | None

    def __init__(self, url: str, *, options: Mapping[str, str] | None = None, materialized: str | None = None) -> None:
        if not isinstance(url, str):
            raise wrong_type("text", url, place="source.url")
        if _URL.fullmatch(url) is None:
            hint = "Such as postgresql://user@host/database, sc://host:15002 or spark:local[2]."
            raise PolicyError("policy-url", "The address of the data cannot be read.", hint=hint, place="source.url")
        if url.startswith("duckdb:"):
            _check_database(url.removeprefix("duckdb:"))
        given = {} if options is None else options
        if not isinstance(given, Mapping):
            raise wrong_type("a table of texts", given, place="source.options")
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise wrong_type("text", value, place="source.options")
        fill(self, url=url)
        fill(self, options=MappingProxyType(dict(given)))
        fill(self, materialized=None if materialized is None else self._check_schema(materialized))

    def _check_schema(self, name: str) -> str:
        """Return the name of the schema of materialized tables, which an engine without quotes could write."""
        place = "source.materialized"
        if not isinstance(name, str):
            raise wrong_type("text", name, place=place)
        if self.path is not None:
            hint = 'Write materialized = "materialized" above the tables: a folder, as private as the data.'
            reason = "Tables of DuckDB are materialized in a folder, not in a schema."
            raise PolicyError("policy-prepared", reason, hint=hint, place=place)
        if _SCHEMA.fullmatch(name) is None:
            hint = 'Use letters, digits and _, such as materialized = "dpsql".'
            raise PolicyError("policy-prepared", "This is no name for a schema.", hint=hint, place=place)
        return name

    @property
    def path(self) -> Path | None:
        """Return the path of a DuckDB file, "duckdb:events.duckdb"; None for another engine."""
        return Path(self.url.partition(":")[2]) if self.scheme == "duckdb" else None

    @property
    def scheme(self) -> str:
        """Return the word before the first colon."""
        return self.url.partition(":")[0]

    def __str__(self) -> str:
        if self.path is not None:
            return self.url
        # A password may have an @ in it: the last one ends it.
        before, at, rest = self.url.partition(":")[2].rpartition("@")
        user, colon, _ = before.removeprefix("//").partition(":")
        who = f"//{user if _USER.fullmatch(user) else '***'}{':***' if colon else ''}@" if at else ""
        shown = next(_PLACE.finditer(rest))[0]  # it matches the empty text too
        return f"{self.scheme}:{who}{shown}{'***' if len(shown) < len(rest) else ''}"

    def without_passwords(self) -> str:
        """Return an address without passwords, to be stored; where one may hide, the text form with *** for it.

        >>> DataSource("postgresql://audit:secret@db.example/main?sslmode=require").without_passwords()
        'postgresql://audit@db.example/main?sslmode=require'
        """
        before, at, rest = self.url.partition(":")[2].rpartition("@")
        user = before.removeprefix("//").partition(":")[0]
        location, mark, settings = next(_PARTS.finditer(rest)).groups()  # it matches every text
        if self.path is not None or _USER.fullmatch(user) is None or _PLACE.fullmatch(location) is None:
            return str(self)
        between = ";" if mark == ";" else "&"
        kept = between.join(setting for setting in settings.split(between) if _SETTING.fullmatch(setting))
        return f"{self.scheme}:{f'//{user}@' if at else ''}{location}{mark if kept else ''}{kept}"

    def options_without_secrets(self) -> dict[str, str]:
        """Return the options that may be stored: those whose names say nothing of a password, token or key."""
        return {name: value for name, value in self.options.items() if _SECRET_OPTION.fullmatch(name) is None}

    def __repr__(self) -> str:
        return f"DataSource({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by the arguments: a read-only mapping itself cannot be pickled."""
        return partial(DataSource, options=dict(self.options), materialized=self.materialized), (self.url,)


def is_address(text: str) -> bool:
    """Say whether a text is the URL of an engine and no path."""
    known = "://" in text or text.startswith(("spark:", "datafusion:", "duckdb:", "md:", "motherduck:", "ducklake:"))
    return known and _URL.fullmatch(text) is not None


def names_files(url: str) -> bool:
    """Say whether a URL is the address of files, such as s3://bucket/events.parquet, and of no engine."""
    found = _NO_ENGINE.match(url)
    return found is not None and found[1] is None


def refuse_no_engine(url: str) -> None:
    """Raise `policy-source` for an address of files, and for one of MotherDuck or DuckLake."""
    if names_files(url):
        raise _files_of_a_table()
    found = _NO_ENGINE.match(url)
    if found is None:
        return
    name = "DuckLake" if found[1] == "ducklake" else "MotherDuck"
    raise PolicyError("policy-source", f"{name} is not supported.", hint=_COPY, place="source.url")


def _check_database(place: str) -> None:
    """Refuse what is not the path of a DuckDB file."""
    if _NO_DUCKDB.fullmatch(place):
        raise _files_of_a_table()
    if names_files(place):
        reason = "A DuckDB file is opened on this machine, and not at an address."
        hint = f"Copy it to this machine, or {_COPY[0].lower()}{_COPY[1:]}"
        raise PolicyError("policy-source", reason, hint=hint, place="source.url")
    refuse_no_engine(place)


def _files_of_a_table() -> PolicyError:
    reason = "This is the address of files, and not of a database or an engine."
    hint = "Leave [source] out, and name the Parquet files under their table, as its source."
    return PolicyError("policy-source", reason, hint=hint, place="source.url")


def read_source(root: Section, folder: Path) -> DataSource | None:
    """Return the source in the table [source] of a policy file in `folder`, or None."""
    if "source" not in root.values:
        return None
    section = root.section("source")
    section.only("url", "options", "materialized")
    section.require("url")
    options = section.section("options")
    texts = {name: text for name in options.values if (text := options.text(name)) is not None}
    with root.placing():
        source = DataSource(section.text("url") or "", options=texts, materialized=section.text("materialized"))
    if source.path is None:
        return source
    return DataSource(f"duckdb:{folder / source.path}", options=texts)
