"""The example of the documentation, line by line, on a DuckDB file, a Parquet file and a durable ledger."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsql

READERS = (
    "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = ? "
    "GROUP BY article TOP 10 PRIVATE WITH (epsilon = 0.05)"
)
EXACT = {f"article {number}": 1500 + 100 * number for number in range(12)}


@pytest.fixture
def session(example: Path) -> dpsql.Session:
    return dpsql.connect(example / "events.duckdb", policy=example / "policy.toml")


def test_the_answer_in_every_form(session: dpsql.Session) -> None:
    with session:
        answer = session.sql(READERS, ["DE"])
        table = answer.arrow()
        assert table.schema == pa.schema([("article", pa.string()), ("readers", pa.int64())])
        rows = answer.fetchall()
        assert rows == list(zip(*table.to_pydict().values(), strict=True))
        assert len(answer) == len(rows) == 10
        assert all(abs(count - EXACT[str(article)]) < 400 for article, count in rows)  # 10 sigma
        assert isinstance(answer.df(), pd.DataFrame)
        assert list(answer.df().itertuples(index=False, name=None)) == rows
        assert isinstance(answer.pl(), pl.DataFrame)
        assert answer.pl().rows() == rows


def test_intervals_receipt_and_statement(session: dpsql.Session) -> None:
    with session:
        answer = session.sql(READERS.replace("WITH (", "WITH (mechanism = limited_domain, "), ["DE"])
        intervals = answer.intervals(0.95)
        assert intervals.column_names == ["article", "low", "high"]
        assert intervals.column("article") == answer.arrow().column("article")
        receipt = answer.receipt
        assert (receipt.mechanism, receipt.k, receipt.k_bar) == ("limited_domain", 10, 200)
        assert receipt.epsilon == dpsql.Epsilon("0.05")
        assert receipt.delta == dpsql.Delta(Fraction(1, 2) * Fraction(1, 10**6) / 20)
        assert receipt.items_charged == 20
        assert receipt.loss.rho == dpsql.Rho(20 * Fraction("0.05") ** 2 / 8)
        assert receipt.loss.delta == receipt.delta
        assert (receipt.stopped_at_bottom, receipt.sealed, receipt.replayed) == (False, True, False)
        assert float(receipt.threshold_offset) == pytest.approx(1 + math.log(200 / 2.5e-8) / 0.05, abs=1e-4)
        balance = session.budget
        assert receipt.remaining.rho.value == balance.rho.remaining == balance.rho.granted - receipt.loss.rho.value
        sentence = answer.statement()
        for part in ("user_id of reads", "adding or removing all rows of one user_id", "(1, 1e-06)", "0.00625"):
            assert part in sentence
        assert dpsql_version() in sentence
        assert sentence.endswith(".")
        assert "\n" not in sentence


def dpsql_version() -> str:
    from importlib.metadata import version

    return version("dpsql")


def test_the_budget(session: dpsql.Session) -> None:
    with session:
        before = session.budget
        assert (str(before.granted.epsilon), str(before.granted.delta)) == ("1", "1e-06")
        assert before.items >= 100
        answer = session.sql(READERS, ["DE"])
        after = session.budget
        assert after.rho.spent == answer.receipt.loss.rho.value <= 20 * Fraction("0.05") ** 2 / 8
        assert after.rho.reserved == 0
        for account in (after.rho, after.delta):
            assert account.granted == account.spent + account.reserved + account.remaining
        assert f"about {after.items} more items at epsilon {after.epsilon}" in after.details()
        share, *shown = session.sql("SHOW BUDGET").arrow().to_pylist()
        assert (share["measure"], share["granted"], share["reserved"]) == ("percent of the budget", 100, 0)
        assert share["spent"] == float(after.percent_used) == 100 - share["remaining"]
        assert share["spent"] == float(before.percent_used + answer.receipt.percent_used)
        # what else there is comes after the amounts, which tools find where they always were
        assert [row["measure"] for row in shown] == [
            "rho",
            "delta",
            f"items of epsilon {after.epsilon}",
            "lists of names (TOP 10)",
            "lists of names with counts (TOP 10)",
            "totals",
            "series of 12 months",
            "stored answers (free)",
        ]
        assert [row["remaining"] for row in shown[3:-1]] == [tile.remaining for tile in after.tiles]
        assert list(shown[-1].values()) == ["stored answers (free)", 1, 0, 0, 1]
        assert (before.answers, after.answers) == (0, 1)
        assert "\nfree: 1 stored answer of this data version\n" in str(after)
        assert "free: " not in str(before)
        assert shown[0]["spent"] == pytest.approx(float(after.rho.spent), rel=1e-6)  # as it is shown
        assert int(shown[2]["remaining"]) == after.items


def test_a_parquet_source_and_a_public_table(session: dpsql.Session) -> None:
    with session:
        pages = session.sql("SELECT page FROM visits GROUP BY page TOP 2 PRIVATE")
        assert len(pages) == 2
        joined = session.sql(
            "SELECT continent, COUNT(DISTINCT user_id) AS n FROM reads JOIN countries USING (country) "
            "GROUP BY continent TOP 1 PRIVATE"
        )
        assert joined.fetchall()[0][0] == "Europe"


def test_a_column_that_the_policy_does_not_list_does_not_exist(session: dpsql.Session) -> None:
    with session, pytest.raises(dpsql.Refusal) as caught:
        session.sql("SELECT secret_column FROM reads GROUP BY secret_column TOP 1 PRIVATE")
    assert caught.value.code == "unknown-column"


def test_closing(session: dpsql.Session) -> None:
    with session as same:
        assert same is session
        assert repr(session).startswith("Session((1, 1e-06)")
    session.close()
    assert repr(session) == "Session(closed)"
    for use in (lambda: session.sql(READERS, ["DE"]), lambda: session.explain(READERS, ["DE"]), lambda: session.budget):
        with pytest.raises(dpsql.UsageError, match="This session is closed"):
            use()


@pytest.mark.parametrize("text", [None, 5, b"SHOW BUDGET", ["SHOW BUDGET"]])
def test_a_statement_is_text(session: dpsql.Session, text: object) -> None:
    with session:
        for ask in (session.sql, session.explain):
            with pytest.raises(dpsql.UsageError) as caught:
                ask(text)  # type: ignore[arg-type]
            assert caught.value.code == "not-text"


@pytest.mark.parametrize("parameters", [["DE"], ("a", "b"), {"x": 1}, "DE", None, 7])
def test_parameters_that_no_statement_asked_for(session: dpsql.Session, parameters: object) -> None:
    with session, pytest.raises(dpsql.UsageError) as caught:
        session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE", parameters)  # type: ignore[arg-type]
    assert caught.value.code == "parameters"
