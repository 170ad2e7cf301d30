"""Tumult Analytics on Spark with two threads: no top k, so items are selected, counted with noise, and sorted.

It reads what Spark reads, here Parquet. To select takes a query and a budget of its own, and the counts another: half
of epsilon each. Without PYSPARK_PYTHON its workers end with "No module named 'tmlt'".
"""

PACKAGES = ("tmlt.analytics", "pyspark")

# what a user writes
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    QueryBuilder,
    Session,
)


def load(folder):
    settings = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    return spark.read.parquet(f"{folder}/events.parquet")


def top(events, k, bound):
    session = Session.from_dataframe(ApproxDPBudget(1, 1e-6), "events", events, AddRowsWithID("user_id"))
    pairs = QueryBuilder("events").enforce(MaxGroupsPerID("item", bound)).enforce(MaxRowsPerGroupPerID("item", 1))
    items = session.evaluate(pairs.get_groups(["item"]), ApproxDPBudget(0.5, 1e-6))
    counting = pairs.groupby(KeySet.from_dataframe(items)).count()
    counts = session.evaluate(counting, ApproxDPBudget(0.5, 0))
    return [row["item"] for row in counts.orderBy(counts["count"].desc()).limit(k).collect()]


# to here
