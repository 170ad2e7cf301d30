"""`dpsql demo`: three private queries on bundled data, and the cost of each."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from dpsql.cli.show import open_console
from dpsql.connect import connect
from dpsql.policy import Budget, Policy, PrivateTable

if TYPE_CHECKING:
    from rich.console import Console

    from dpsql.answer import Answer
    from dpsql.session import Session

__all__ = ["QUESTIONS", "demo_policy", "run"]

QUESTIONS = (
    (
        "Which areas of the site do most visitors see?",
        "SELECT area, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY area TOP 10 PRIVATE",
    ),
    (
        "And the fifty most visited, names only? For a large k, dpsql chooses a mechanism with one flat price.",
        "SELECT area FROM visits GROUP BY area TOP 50 PRIVATE",
    ),
    (
        "And among the 5,000 visitors of the test split, by the first mechanism? You pay only for the areas you get.",
        "SELECT area FROM visits WHERE split = 'test' GROUP BY area TOP 20 PRIVATE WITH (mechanism = limited_domain)",
    ),
)
_SHOWN = 10


def demo_policy(source: str) -> Policy:
    """Return the policy of the demo: one private table, with (1, 1e-6) in total for every visitor."""
    return Policy(Budget(1.0, "1e-6", items=100, queries=5), {"visits": PrivateTable("user_id", source=source)})


def run() -> None:
    """Run the queries and show answers, receipts and the budget left."""
    screen = open_console()
    screen.print(
        "MSWeb: what 37,711 anonymous visitors saw of a web site in one week. UCI Machine Learning Repository,"
    )
    screen.print("Breese, Heckerman and Kadie 1998, DOI 10.24432/C5VS3Q, CC BY 4.0.\n")
    with (
        as_file(files("dpsql.cli") / "data" / "msweb.parquet") as source,
        connect(policy=demo_policy(str(source)), ledger=":memory:") as session,
    ):
        screen.print(f"Every visitor is protected: {session.budget.granted} over all queries of this demo.\n")
        answers = [
            _ask(screen, session, question=f"{number}. {question}", sql=sql)
            for number, (question, sql) in enumerate(QUESTIONS, start=1)
        ]
    screen.print("To cite the first answer:", style="bold")
    screen.print(answers[0].statement(), markup=False)


def _ask(screen: Console, session: Session, *, question: str, sql: str) -> Answer:
    screen.print(question, style="bold", markup=False)
    screen.print(sql, style="cyan", markup=False)
    answer = session.sql(sql)
    if len(answer) > _SHOWN:
        screen.print(", ".join(str(area) for (area,) in answer), markup=False)
        screen.print("\n".join(answer.notes()), style="dim", markup=False)
    else:
        screen.print(answer)
    screen.print()
    return answer
