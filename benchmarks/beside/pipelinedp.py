"""PipelineDP on its local backend: no top k, so all items that it selects get noise and are sorted.

It takes rows as objects of Python, so it has the same rows as CSV, in a list. Half of the budget selects items, half is
for counts that nobody asked for.
"""

PACKAGES = ("pipeline-dp", "python-dp")

# what a user writes
import csv

import pipeline_dp


def load(folder):
    with open(f"{folder}/events.csv") as file:
        return list(csv.DictReader(file))


def top(events, k, bound):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    parameters = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE if bound == 1 else pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=bound,
        max_contributions_per_partition=1,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda event: event["user_id"],
        partition_extractor=lambda event: event["item"],
        value_extractor=lambda event: 0,
    )
    counts = engine.aggregate(events, parameters, extractors)
    accountant.compute_budgets()
    counts = sorted(counts, key=lambda count: count[1].privacy_id_count, reverse=True)
    return [item for item, _ in counts[:k]]


# to here
