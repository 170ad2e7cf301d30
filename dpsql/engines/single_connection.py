"""Common part of engines behind one connection, replaced where it broke or has a statement that does not end."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dpsql.dialects import Dialect
from dpsql.engines.base import Registered, Statement
from dpsql.engines.remote import RemoteEngine

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SingleConnectionEngine"]

_ONE_SELECT = re.compile(r"(?:SELECT|WITH)\b")


class _Closable(Protocol):
    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=_Closable)


class SingleConnectionEngine(RemoteEngine, Generic[Connection]):
    """Engine behind one connection; `connect` opens another with all settings on which the statements rely."""

    def __init__(
        self,
        dialect: Dialect,
        tables: Mapping[str, Registered],
        *,
        connect: Callable[[], Connection],
        time_limit: float | None,
    ) -> None:
        super().__init__(dialect, tables, time_limit=time_limit)
        self._connect = connect
        self._connection: Connection | None = None

    @abstractmethod
    def answer(self, connection: Connection, statement: Statement) -> pa.Table:
        """Run one SELECT over the connection, and return its answer."""

    @abstractmethod
    def answers(self, connection: Connection) -> bool:
        """Return whether the server still answers on a connection."""

    def open_connection(self) -> Connection:
        """Return the connection, a new one where the last one broke."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer."""
        if _ONE_SELECT.match(statement.sql) is None:
            raise ValueError
        connection = self.open_connection()
        try:
            return self.answer(connection, statement)
        except Exception:
            if not self.answers(connection) and self._connection is connection:
                self._connection = None
            raise
        finally:
            if self._connection is not connection:  # broken, or replaced because its statement took too long
                with suppress(Exception):
                    connection.close()

    def lives(self) -> bool:
        """Return whether the server still answers on the connection."""
        connection = self._connection
        if connection is None:
            return False
        answers = self.answers(connection)
        if not answers or self._connection is not connection:  # broken, or replaced because it took too long
            with suppress(Exception):
                connection.close()
        return answers

    def reconnect(self) -> bool:
        """Leave the connection, which broke or has a statement that does not end, and open another."""
        self._connection = None
        self._connection = self._connect()
        return True

    def disconnect(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
