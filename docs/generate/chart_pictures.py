"""Take pictures of the charts of answers: bars and a line over time, at three sizes, light and dark, to be looked at.

python docs/generate/chart_pictures.py FOLDER

Needs dpsql[plot]. The answers are real ones, of made data; the pictures are no part of the documentation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import matplotlib as mpl

import dpsql

mpl.use("agg")
_SIZES = {"small": (4.0, 2.5), "usual": (7.0, 4.0), "large": (12.0, 7.0)}
_QUERIES = {
    "bars": "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 8 PRIVATE "
    "WITH (max_groups_contributed = 5)",
    "line": "SELECT week, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY week TOP 12 PRIVATE",
}


def answer_all() -> dict[str, dpsql.Answer]:
    """Return an answer for each chart."""
    with duckdb.connect(":memory:") as database:
        database.execute("""
            CREATE TABLE reads AS
            SELECT u AS user_id, 'article ' || (u % 40) % (1 + u % 11) AS article,
                   DATE '2026-01-05' + 7 * CAST((u * u + n) % (6 + u % 7) AS INTEGER) AS week
            FROM range(20000) t(u), range(3) s(n)
        """)
        policy = dpsql.Policy(dpsql.Budget(4, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
        with dpsql.connect(database, policy=policy, ledger=":memory:") as session:
            return {name: session.sql(text) for name, text in _QUERIES.items()}


def main() -> None:
    """Draw every answer in every size and style."""
    from matplotlib import pyplot as plt

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, answer in answer_all().items():
        for style in ("default", "dark_background"):
            for size, inches in _SIZES.items():
                with plt.style.context(style):
                    figure, axes = plt.subplots(figsize=inches, layout="constrained")
                    answer.plot(axes)
                    figure.savefig(folder / f"{name}-{size}-{'dark' if style != 'default' else 'light'}.png", dpi=100)
                    plt.close(figure)


if __name__ == "__main__":
    main()
