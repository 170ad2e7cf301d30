"""dpsql over the DuckDB file, a session for each question, opened and closed: no bound has to be said.

Names only, but where "with counts" is said; the counts of the other systems come with the noise that they select by.
"""

PACKAGES = ("dpsql", "duckdb")

# what a user writes
from pathlib import Path

import dpsql


def load(folder):
    return Path(folder) / "events.duckdb"


def top(database, k, bound, counts="", options=""):
    budget = dpsql.Budget(1, "1e-6", items=2 * k if counts else k, queries=1)
    policy = dpsql.Policy(budget, {"events": dpsql.PrivateTable("user_id")})
    with dpsql.connect(database, policy=policy, ledger=":memory:") as session:
        answer = session.sql(f"SELECT item{counts} FROM events GROUP BY item TOP {k} PRIVATE {options}")
        return answer.arrow()["item"].to_pylist()


# to here
