"""Statements of chart builders, sent unchanged, are read as what their charts show, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chart_kit import CREATE, DEFAULT_K, PUBLIC, ROWS, TABLES, Chart, read_charts
from support.session_kit import fresh_ledger, rebuilt, session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

FIXTURES = Path(__file__).parent / "fixtures"
PLAIN, AROUND = (read_charts(FIXTURES / name) for name in ("charts.sql", "charts_around.sql"))
SUPERSET = read_charts(FIXTURES / "superset.sql")  # as Superset sent them
SLOW = [pytest.param(chart, marks=pytest.mark.properties) for chart in SUPERSET]
CHARTS = [*PLAIN, *AROUND, *SLOW]  # the second compute around a private query


@pytest.fixture(scope="module")
def opened() -> Session:
    policy = dpsql.Policy(dpsql.Budget(60, "1e-6"), TABLES, implicit=True, limits=dpsql.Limits(default_k=DEFAULT_K))
    return session_on(shared(CREATE, ROWS, PUBLIC), policy)


@pytest.fixture
def session(opened: Session) -> Session:
    return rebuilt(opened, ledger=fresh_ledger(opened))


@pytest.mark.parametrize("chart", CHARTS, ids=[chart.name for chart in (*PLAIN, *AROUND, *SUPERSET)])
def test_a_chart_is_read_as_the_file_says(chart: Chart, session: Session) -> None:
    if chart.refused:
        with pytest.raises(Error) as refused:
            session.sql(chart.sql)
        assert refused.value.code == chart.refused
        assert refused.value.hint
        assert session.budget.refunded.spent == 0
        return
    schema = session.describe(chart.sql)
    answer = session.sql(chart.sql)
    assert answer.receipt.read_as == chart.reading
    assert answer.columns == schema.names
    assert len(answer) == chart.rows if chart.rows is not None else len(answer) <= DEFAULT_K
    assert session.sql(chart.sql).receipt.replayed


def test_the_file_has_every_kind_of_chart() -> None:
    for charts in (PLAIN, SUPERSET):
        names = " ".join(chart.name for chart in charts)
        for kind in ("big number", "line", "bar", "table", "pie", "filter", "samples", "PostgreSQL"):
            assert kind in names
    assert len({chart.sql for chart in SUPERSET}) == len(SUPERSET) >= 120
    assert {"PRIVATE", "ALL PRIVATE", "TOP 3 PRIVATE", "TOP 5 PRIVATE", ""} == {chart.reading for chart in PLAIN}
    texts = " ".join(chart.sql for chart in AROUND)
    for what in ("* 1.5", "::float", "ROW_NUMBER()", "OVER ()", "FLOOR("):
        assert what in texts
