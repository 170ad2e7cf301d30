"""TO_CHAR around private queries prints what a real PostgreSQL prints."""

from __future__ import annotations

import duckdb
import pytest
from support.postgres_kit import server

from dpsql.sql.analysis.outer_tree import PATTERNS, translate_format

MOMENTS = ["2026-03-05 07:08:09.012345", "2024-12-30 00:00:00", "1999-01-01 12:34:56.999999", "2000-02-29 23:59:59.5"]


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_a_pattern_prints_what_postgresql_prints(pattern: str) -> None:
    form = f'{pattern} "of" % {pattern}'
    written = translate_format(form)
    with server().session() as session:
        for moment in MOMENTS:
            (expected,) = session.execute("SELECT to_char(%s::TIMESTAMP, %s)", [moment, form]).fetchone()
            found = duckdb.execute("SELECT strftime($1::TIMESTAMP, $2)", [moment, written]).fetchall()
            assert found == [(expected,)]
