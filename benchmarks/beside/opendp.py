"""OpenDP's data frames over Polars: no top k in a frame, so all items above a threshold get noise and are sorted.

It reads no database, so it has the same rows as Parquet. To sort and cut before the release ends with "A step in your
query is not recognized at this time". `truncate_num_groups`, which would bound the items of a user, ends with "multiple
fields with name 'item' found": rows are bounded instead, one of each item, and then so many.
"""

PACKAGES = ("opendp", "polars")

# what a user writes
import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")


def load(folder):
    return pl.scan_parquet(f"{folder}/events.parquet")


def top(events, k, bound):
    context = dp.Context.compositor(
        data=events,
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user_id")),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-6),
        split_evenly_over=1,
        margins=[],
    )
    bounded = context.query().truncate_per_group(1, by=["item"]).truncate_per_group(bound)
    counts = bounded.group_by("item").agg(pl.len().dp.noise().alias("n")).release().collect()
    return counts.sort("n", descending=True)["item"].head(k).to_list()


# to here
