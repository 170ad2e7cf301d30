"""Names in Spark that could mean another table than the user's session has, or than the policy declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.engine_kit_spark import folder

from dpsql.engines import Statement, open_exact
from dpsql.engines.spark import SparkEngine
from dpsql.errors import EngineError

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def lent() -> Iterator[Any]:
    """A user's session, with a table that others may not see whole, and one of a name that dpsql gives to views."""
    folder()  # which starts Spark
    from pyspark.sql import SparkSession

    first: Any = SparkSession._instantiatedSession
    session = first.newSession()
    for name in ("chosen", "dpsql_chosen"):
        session.sql(f"CREATE TABLE {name} USING parquet AS SELECT * FROM VALUES ('in'), ('opted out') AS t(u)")
    yield session
    for name in ("chosen", "dpsql_chosen"):
        session.sql(f"DROP TABLE spark_catalog.default.{name}")


def units(engine: SparkEngine, name: str) -> list[object]:
    relation = ".".join(f"`{part}`" for part in engine.relation(name))
    return sorted(open_exact(engine.execute(Statement(f"SELECT u FROM {relation}"))).column("u").to_pylist())


def test_a_view_that_hides_rows_of_the_table_of_its_name_is_what_is_asked(lent: Any) -> None:
    lent.sql("CREATE TEMP VIEW chosen AS SELECT * FROM spark_catalog.default.chosen WHERE u <> 'opted out'")
    engine = SparkEngine.borrow(lent, {"chosen": None, "default.chosen": None})
    assert units(engine, "chosen") == ["in"]
    assert units(engine, "default.chosen") == ["in", "opted out"]
    engine.close()


def test_views_of_dpsqls_own_stand_for_no_other_table(lent: Any) -> None:
    lent.sql("CREATE TEMP VIEW t AS SELECT 'private' COLLATE UNICODE_CI AS u")
    lent.sql("CREATE TEMP VIEW bytes_t AS SELECT 'public' AS u")
    for names in (["t", "bytes_t"], ["bytes_t", "t"]):
        engine = SparkEngine.borrow(lent, dict.fromkeys(names))
        assert [units(engine, "t"), units(engine, "bytes_t")] == [["private"], ["public"]]
        engine.close()
    with pytest.raises(EngineError, match="no table"):
        SparkEngine.borrow(lent, {"dpsql_chosen": None})
