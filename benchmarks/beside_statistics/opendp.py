"""Statistics of all rows by OpenDP's data frames over Polars, each answered so many times.

    python -P opendp.py FOLDER ROWS MOST EPSILON REPEATS

Rows of a user are cut to ROWS, and values are between 0 and MOST. The output is one JSON object of lists of answers.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
warnings.simplefilter("ignore")


def main(folder: str, rows: str, most: str, epsilon: str, repeats: str) -> None:
    """Print what each statistic is answered."""
    events = pl.scan_parquet(f"{folder}/events.parquet")
    value, top = pl.col("x").fill_null(0.0).fill_nan(0.0), float(most)
    edges = [0.0, *(top * 1.01 ** (at - 1022) for at in range(1023))]
    asked = {
        "rows": dp.len(),
        "users": pl.col("user_id").dp.n_unique(),
        "items": pl.col("item").dp.n_unique(),
        "sum": value.dp.sum((0.0, top)),
        "mean": value.dp.mean((0.0, top)),
        "median": value.dp.median(edges),
        "p95": value.dp.quantile(0.95, edges),
    }
    answers: dict[str, list[object]] = {"version": [version("opendp")]}
    length = events.select(pl.len()).collect().item()
    for name, expression in asked.items():
        context = dp.Context.compositor(
            data=events,
            privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user_id")),
            privacy_loss=dp.loss_of(epsilon=float(epsilon) * int(repeats)),
            split_evenly_over=int(repeats),
            margins=[dp.polars.Margin(max_length=2 * length, max_groups=1)],
        )
        found = [
            context.query().truncate_per_group(int(rows)).select(expression).release().collect().item()
            for _ in range(int(repeats))
        ]
        answers[name] = [float(each) for each in found]
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
