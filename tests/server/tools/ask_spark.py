"""Spark: its reader of JDBC, with pgjdbc."""

from __future__ import annotations

from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from steps import given, say, step

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", given["jar"])
    .config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", str(Path(given["scratch"]) / "warehouse"))
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def read(**options: str) -> DataFrame:
    reader = spark.read.format("jdbc").option("driver", "org.postgresql.Driver")
    address = f"jdbc:postgresql://{given['host']}:{given['port']}/{given['database']}"
    reader = reader.option("url", address).option("user", given["user"]).option("password", given["password"])
    return reader.options(**options).load()


def rows(found: DataFrame) -> list[list[object]]:
    return [list(row) for row in found.collect()]


def introspect() -> dict[str, list[str]]:
    tables = read(dbtable="information_schema.tables").select("table_name")
    return {"tables": [name for (name,) in rows(tables)], "columns": read(dbtable="reads").columns}


say("version", {"value": pyspark.__version__})
step("connect", lambda: read(query="SELECT 1 AS one").count())
step("introspect", introspect)
step("ask", lambda: rows(read(query=given["question"])))
step("again", lambda: rows(read(query=given["question"])))
step("as a table", lambda: rows(read(dbtable=f"({given['question']}) AS answer")))
step("public", lambda: rows(read(dbtable="countries").select("country", "continent").orderBy("country")))
step("public, filtered", lambda: rows(read(dbtable="countries").where("continent = 'Europe'").select("country")))
step("public, limited", lambda: rows(read(dbtable="countries").select("country").limit(1)))
step("public, counted", lambda: read(dbtable="countries").count())
step("public, grouped", lambda: rows(read(dbtable="countries").groupBy("continent").count()))
step("refused", lambda: rows(read(dbtable="reads").select("user_id")))
step("after", lambda: rows(read(query=given["question"])))
spark.stop()
