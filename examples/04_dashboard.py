"""A dashboard that refreshes for free: three panels, asked again every hour, are paid for once a week.

What was answered is stored in the ledger with its charge. Whoever asks the same again, after a restart too, is shown
that answer, until the curator says that the data has a new version.
"""

import tempfile
from pathlib import Path

import duckdb

import dpsql
from dpsql.curator import bump

PANELS = {
    "products": "SELECT product, COUNT(DISTINCT customer) AS customers FROM orders GROUP BY product TOP 5 PRIVATE",
    "cities": "SELECT city, COUNT(DISTINCT customer) AS customers FROM orders GROUP BY city TOP 3 PRIVATE",
    "top product of each city": (
        "SELECT city, product FROM orders GROUP BY ALL "
        "TOP 1 PRIVATE PER city WITH (partitions = ['Lyon', 'Oslo', 'Porto'])"
    ),
}
ORDERS = """
CREATE OR REPLACE TABLE orders AS
SELECT c AS customer, ['Lyon', 'Oslo', 'Porto'][1 + c % 3] AS city,
       ['bread', 'tea', 'rice', 'salt', 'oil', 'figs'][1 + least(c % 7, c % 11, 5)] AS product
FROM range(30000 * $week) AS customers(c)
"""


def fill(database: Path, week: int) -> None:
    """Write the orders of the weeks so far."""
    with duckdb.connect(str(database)) as connection:
        connection.execute(ORDERS, {"week": week})


def refresh(when: str, database: Path, policy: dpsql.Policy) -> None:
    """Open a session, as a restarted dashboard does, and show what each panel leads with and took of the budget."""
    with dpsql.connect(database, policy=policy) as session:
        before = session.budget.refunded.remaining
        print(when)
        for title, sql in PANELS.items():
            answer = session.sql(sql)
            items = answer.receipt.items_charged
            paid = "stored, free" if answer.receipt.replayed else f"charged {items} item{'s' if items > 1 else ''}"
            leads = ", ".join(str(row[1] if "PER" in sql else row[0]) for row in answer.fetchall()[:3])
            print(f"  {title:25} {leads:25} {paid}")
        spent = before - session.budget.refunded.remaining
        print(f"  spent {100 * float(spent / session.budget.refunded.granted):.1f} % of the budget\n")


with tempfile.TemporaryDirectory() as folder:
    shop, ledger = Path(folder) / "shop.duckdb", Path(folder) / "ledger.sqlite"
    weekly = dpsql.Policy(
        dpsql.Budget(epsilon=1.0, delta="1e-6", items=100, queries=20),
        {"orders": dpsql.PrivateTable(privacy_unit="customer")},
        ledger=ledger,
    )
    fill(shop, week=1)
    refresh("Monday, 9:00: the dashboard is opened for the first time", shop, weekly)
    refresh("Monday, 10:00: it refreshes", shop, weekly)
    refresh("Tuesday, 9:00: the server was started again", shop, weekly)

    fill(shop, week=2)
    print(f"The curator loads the next week and says so: the data is version {bump(ledger, note='week 2')} now.\n")
    refresh("Monday, 9:00: the first time on the new data", shop, weekly)
    refresh("Monday, 10:00: it refreshes", shop, weekly)
