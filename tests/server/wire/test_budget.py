"""A budget that runs out, over the wire."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from support.server_kit import TOP, serving


def test_a_budget_that_is_spent_is_told_and_what_was_answered_stays_free(tmp_path: Path) -> None:
    with serving(tmp_path) as served, psycopg.connect(served.conninfo(), autocommit=True) as client:
        first = client.execute(TOP).fetchall()
        text = (
            "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country <> %s GROUP BY article TOP 3 PRIVATE"
        )

        def spend() -> None:
            for at in range(100):
                client.execute(text, [f"{at}"])

        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as caught:
            spend()
        assert "[budget-exceeded]" in str(caught.value)
        assert caught.value.diag.message_hint
        spent = served.charges()
        assert 5 < spent < 100
        assert client.execute(TOP).fetchall() == first
        found = client.execute(f"SELECT * FROM ({text}) x LIMIT 0", ["another"])
        assert [column.name for column in found.description or ()] == ["article", "n"]
        assert served.charges() == spent
        with psycopg.connect(served.conninfo("ben")) as other:
            assert len(other.execute(TOP).fetchall()) == 3
