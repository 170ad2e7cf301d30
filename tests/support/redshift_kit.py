"""Redshift on PostgreSQL, where COLLATE is a word and not a function: the engine writes the one as the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from dpsql.engines import Statement
from dpsql.engines.warehouses import RedshiftEngine

__all__ = ["RedshiftOnPostgres", "write_for_postgres"]


class RedshiftOnPostgres(RedshiftEngine):
    """Engine of Redshift whose COLLATE(text, 'case_sensitive') is (text COLLATE "C")."""

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:
        return super().answer(cursor, replace(statement, sql=write_for_postgres(statement.sql)))


def write_for_postgres(sql: str) -> str:
    """Return a statement with each call of COLLATE as PostgreSQL has it; no call is without its constant.

    >>> write_for_postgres("SELECT COLLATE(RTRIM(COLLATE(a, 'case_sensitive')), 'case_sensitive')")
    'SELECT (RTRIM((a COLLATE "C")) COLLATE "C")'
    """
    calls, ends = sql.count("COLLATE("), sql.count(", 'case_sensitive')")
    assert calls == ends
    return sql.replace("COLLATE(", "(").replace(", 'case_sensitive')", ' COLLATE "C")')
