"""Materialized tables in a schema of the database that has the data: the part of an engine that finds them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from dpsql.engines.base import Engine

__all__ = ["SchemaReader", "find_descriptions"]

_NONE: Mapping[str, str] = MappingProxyType({})


@runtime_checkable
class SchemaReader(Protocol):
    """Engine that can also read the materialized tables in a schema of its database."""

    def read_role(self) -> str:
        """Return the name of the role that reads, which the writer gives its rights to; "" where there are no roles."""
        ...

    def open_schema(self, schema: str) -> Mapping[str, str]:
        """Read the descriptions of what is materialized, by the tables of the policy, and return them."""
        ...

    def register(self, schema: str, tables: Mapping[str, str]) -> None:
        """Look up tables of the schema, each by its name there and the name to be known by; leave out missing ones."""
        ...


@runtime_checkable
class _Described(Protocol):
    @property
    def descriptions(self) -> Mapping[str, str]: ...


def find_descriptions(engine: Engine) -> Mapping[str, str]:
    """Return the descriptions of what is materialized that an engine read as it was opened; none of most engines."""
    return engine.descriptions if isinstance(engine, _Described) else _NONE
