"""As many as stand out: let the data say how many leaders there are, in private.

Seven topics are followed by thousands, sixty by a few dozen each. Who asks for the top 10 guesses the wrong number;
TOP ADAPTIVE chooses k where the counts fall, for the price of two items, however many keys come back.
"""

import duckdb

import dpsql

TOPICS = """
CREATE TABLE follows AS
SELECT reader AS user_id, 'topic ' || topic AS topic
FROM range(9000) AS readers(reader), range(1, 68) AS topics(topic)
WHERE CASE WHEN topic <= 7 THEN reader < 9000 - 500 * topic ELSE hash(reader * 100 + topic) % 9000 < 40 END
"""


def show(title: str, answer: dpsql.Answer) -> None:
    """Print the keys and what they cost."""
    keys = ", ".join(sorted(str(row[0]) for row in answer.fetchall())) or "nothing"
    print(f"{title}\n  {len(answer)} keys: {keys}\n  {answer.receipt}\n")


with duckdb.connect() as database:
    database.execute(TOPICS)
    policy = dpsql.Policy(
        dpsql.Budget(epsilon=2.0, delta="1e-6", items=60, queries=10),
        {"follows": dpsql.PrivateTable(privacy_unit="user_id")},
    )
    with dpsql.connect(database, policy=policy, ledger=":memory:") as session:
        ask = "SELECT topic FROM follows GROUP BY topic"
        adaptive = f"{ask} TOP ADAPTIVE PRIVATE WITH (epsilon = 0.2)"
        print("Before anything is paid:")
        for name, value in session.explain(adaptive).facts():
            if name in {"k", "loss at most", "gap", "threshold"}:
                print(f"  {name}: {value}")
        print()
        show("As many as stand out:", session.sql(adaptive))
        show(
            "Near a k that we would like, where the gaps are much alike:",
            session.sql(f"{ask} TOP ADAPTIVE PRIVATE WITH (epsilon = 0.2, prefer = 5)"),
        )
        show("The fixed top 10, for comparison, pays for what it returns:", session.sql(f"{ask} TOP 10 PRIVATE"))
        print(session.budget)
