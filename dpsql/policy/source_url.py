"""Address of the Parquet files of a table, which the engine reads itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.errors import PolicyError

__all__ = ["SourceUrl", "is_source_url"]

_URL = re.compile(r"(?!duckdb:)[A-Za-z][A-Za-z0-9+.-]+://|(?:file|dbfs|hdfs):/")
_READ = re.compile(r"[a-z][a-z0-9+.-]*:/[!-~]+")
_SECRET = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@|https?://[^/]*@|[^?]*[?#].*=")  # a user alone may be a token
_LOCAL_ENDINGS = (".csv", ".delta", ".iceberg")


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """Address such as "s3://bucket/events/*.parquet", without credentials; which ones are read depends on the engine.

    >>> str(SourceUrl("hdfs://namenode/events"))
    'hdfs://namenode/events'
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what may hold a credential, and what is no address of Parquet files; nothing of it is shown."""
        if _SECRET.match(self.text):
            reason = "The address of a source has a user, a password, or settings after ? or #."
            hint = "Leave them out: docs/how-to/object-stores.md says where credentials belong."
            raise PolicyError("policy-source", reason, hint=hint, place="source")
        if _READ.fullmatch(self.text) is None:
            hint = "Write an address such as s3://bucket/events/*.parquet, in ASCII and without blanks."
            raise PolicyError("policy-source", "The address of a source cannot be read.", hint=hint, place="source")
        if self.text.lower().endswith(_LOCAL_ENDINGS):
            reason = "Only Parquet files are read at an address."
            hint = "Write the table as Parquet, or copy it to this machine and name it by its path."
            raise PolicyError("policy-source", reason, hint=hint, place="source")

    def __str__(self) -> str:
        return self.text


def is_source_url(value: object) -> bool:
    """Say whether the source of a table is an address, and not a path.

    >>> is_source_url("s3://bucket/events.parquet"), is_source_url("events.parquet")
    (True, False)
    """
    return isinstance(value, SourceUrl) or (isinstance(value, str) and _URL.match(value) is not None)
