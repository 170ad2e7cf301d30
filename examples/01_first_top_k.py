"""A first private top-k: make a small table, write a policy, ask, and see what it cost."""

import tempfile
from pathlib import Path

import duckdb

import dpsql

SQL = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = ? GROUP BY article TOP 3 PRIVATE"

with tempfile.TemporaryDirectory() as folder:
    database = Path(folder) / "events.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i AS user_id, 'article ' || (i % 5) AS article, 'DE' AS country "
            "FROM range(20000) t(i) WHERE i % 5 < 3 OR i % 100 = 3"
        )

    policy = dpsql.Policy(
        dpsql.Budget(epsilon=1.0, delta=1e-6, items=50, queries=10),
        {"reads": dpsql.PrivateTable(privacy_unit="user_id")},
        ledger=Path(folder) / "ledger.sqlite",
    )
    with dpsql.connect(database, policy=policy) as session:
        print(session.explain(SQL, ["DE"]))
        answer = session.sql(SQL, ["DE"])
        print(answer)
        print(answer.intervals(0.95).to_pylist())
        print(answer.statement())
        print(session.budget)
