"""Without a PostgreSQL, drivers run queries; what reads a system catalog is refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.server_kit import Served, serving

TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
REASON = "This server has no catalog, so it does not answer what reads pg_catalog or information_schema."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("none"), catalog="none") as found:
        yield found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_class",
        "SELECT table_name FROM information_schema.tables",
        "SELECT version()",
        "SELECT current_user",
        "SELECT 'reads'::regclass",
        "SHOW nothing_of_the_kind",
    ],
)
def test_introspection_is_refused_in_a_sentence_whose_hint_works(served: Served, sql: str) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            connection.execute(sql)
        assert caught.value.diag.message_primary == REASON
        assert caught.value.diag.message_hint == "SHOW TABLES lists the tables, and DESCRIBE a table its columns."
        assert ("reads",) in [row[:1] for row in connection.execute("SHOW TABLES").fetchall()]
        assert connection.execute("DESCRIBE reads").fetchone() is not None


def test_psycopg_runs_queries(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        assert {row[0] for row in connection.execute(TOP)} == {"a0", "a1", "a2"}
