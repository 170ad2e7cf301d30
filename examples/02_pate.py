"""PATE for many labels: teachers on shards of private data label public examples for a student; three methods compared.

    python examples/02_pate.py data.parquet --teachers 400 --examples 100

The file has a row for each instance: `labels`, a list of text, and either `features`, a list of numbers, or
`active_features`, a list of the positions that are 1. Needs scikit-learn: pip install 'dpsql[pate]'.

Each instance is in the shard of one teacher. Whoever exchanges an instance exchanges the votes of that teacher, which
is what a labelling hides; so its (epsilon, delta) is that of every private instance. Every line printed is a session of
its own with a ledger of its own: to show them all beside each other is an experiment on data that is not private.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score

import dpsql
from dpsql import Delta, Epsilon
from dpsql.pate import Labelling, Majority, Method, Stable, label

DELTA = Fraction(1, 100_000)
SCORE = 0.3  # above which a model gives a label: most are rare, so below a half
SHOWN = "{:<22} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>11}"


@dataclass(frozen=True)
class Data:
    """Features and labels, split into private instances, public examples and a test."""

    features: np.ndarray
    truth: np.ndarray
    names: tuple[str, ...]
    private: np.ndarray
    public: np.ndarray
    test: np.ndarray


def load(path: Path, examples: int) -> Data:
    """Read a Parquet file; a fifth of it is for the test, `examples` are public, all others are private."""
    table = pq.read_table(path)
    labels = table.column("labels").to_pylist()
    names = tuple(sorted({name for each in labels for name in each}))
    truth = np.array([[name in each for name in names] for each in map(set, labels)])
    order = np.random.default_rng(0).permutation(len(labels))  # of public numbers alone
    test, public, private = np.split(order, [len(order) // 5, len(order) // 5 + examples])
    return Data(features_of(table), truth, names, private, public, test)


def features_of(table: pa.Table) -> np.ndarray:
    """Return the features as a matrix."""
    if "features" in table.column_names:
        return np.array(table.column("features").to_pylist(), dtype=np.float32)
    active = table.column("active_features").to_pylist()
    matrix = np.zeros((len(active), 1 + max(max(each, default=0) for each in active)), dtype=np.float32)
    for row, positions in enumerate(active):
        matrix[row, positions] = 1
    return matrix


def trained(data: Data, rows: np.ndarray, labels: np.ndarray) -> Ridge:
    """Return a model of the labels of these rows; it gives those that come out above SCORE."""
    return Ridge(alpha=10.0).fit(data.features[rows], labels.astype(np.float32))


def votes_of(data: Data, teachers: int) -> np.ndarray:
    """Train each teacher on a shard of the private instances; return their votes on the public examples."""
    return np.array(
        [
            trained(data, shard, data.truth[shard]).predict(data.features[data.public]) > SCORE
            for shard in np.array_split(data.private, teachers)
        ]
    )


def store(votes: np.ndarray, names: Sequence[str], database: Path) -> None:
    """Write the table of votes."""
    teacher, example, name = np.nonzero(votes)
    rows = pa.table({"teacher": teacher, "example": example, "label": [names[at] for at in name]})
    with duckdb.connect(str(database)) as connection:
        connection.register("rows", rows)
        connection.execute("CREATE TABLE votes AS SELECT * FROM rows")


def methods(data: Data, rho: Fraction, delta: Fraction, *, arguments: argparse.Namespace) -> list[Method]:
    """Return the methods at the same rho an example."""
    epsilon = Epsilon(Fraction(math.isqrt(int(4 * rho * 10**12)), 10**6))  # rho is epsilon**2 / 4, rounded down
    number, tau = arguments.teachers, min(arguments.tau, len(data.names))
    return [
        Stable(epsilon, Delta(delta), min(arguments.k_bar, len(data.names))),
        Majority(epsilon, data.names, number),
        Majority(epsilon, data.names, number, max_labels=tau),
    ]


def matrix_of(labelling: Labelling, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return which examples have an answer, and their labels."""
    answered = [at for at, labels in enumerate(labelling.labels) if labels is not None]
    labels = [[name in (labelling.labels[at] or ()) for name in names] for at in answered]
    return np.array(answered, dtype=int), np.array(labels, dtype=bool).reshape(-1, len(names))


def show(what: tuple[str, str, str], data: Data, answered: np.ndarray, labels: np.ndarray) -> None:
    """Train the student on what was answered, and print a line."""
    line = [f"{len(answered) / len(data.public):.2f}", "-", "-", "-", "-"]
    if len(answered):
        student = trained(data, data.public[answered], labels).predict(data.features[data.test]) > SCORE
        truth = data.truth[data.test]
        line[1] = f"{labels.sum(axis=1).mean():.2f}"
        line[2] = f"{f1_score(data.truth[data.public[answered]], labels, average='micro', zero_division=0):.3f}"
        line[3] = f"{f1_score(truth, student, average='micro', zero_division=0):.3f}"
        line[4] = f"{np.mean(truth == student):.3f}"
    print(SHOWN.format(*what, *line))


def compare(data: Data, votes: np.ndarray, *, arguments: argparse.Namespace, folder: Path) -> None:
    """Label by every method at every epsilon, and print what the student learns from it."""
    database = folder / "votes.duckdb"
    store(votes, data.names, database)
    everybody, half = np.arange(len(data.public)), votes.sum(axis=0) * 2 > len(votes)
    print(SHOWN.format("method", "epsilon", "delta", "answered", "labels", "F1 labels", "F1 student", "1 - Hamming"))
    show(("true labels", "-", "-"), data, everybody, data.truth[data.public])
    show(("teachers, not private", "inf", "-"), data, everybody, half)
    for total in arguments.epsilon:
        for at in range(3):
            policy = dpsql.Policy(
                dpsql.Budget(epsilon=total, delta=DELTA),
                {"votes": dpsql.PrivateTable(privacy_unit="teacher")},
                ledger=folder / f"{total}-{at}.sqlite",
                limits=dpsql.Limits(max_epsilon=100),
            )
            with dpsql.connect(database, policy=policy) as session:
                left, number = session.budget.remaining, len(data.public)
                method = methods(data, left.rho.value / number, left.delta.value / number, arguments=arguments)[at]
                labelling = label(session, "votes", examples=range(number), method=method)
            show((method.name, f"{total:g}", f"{float(DELTA):g}"), data, *matrix_of(labelling, data.names))
    print(f"the last receipt: {labelling.receipt}")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--teachers", type=int, default=400)
    parser.add_argument("--examples", type=int, default=100, help="how many public examples are labelled")
    parser.add_argument("--k-bar", type=int, default=6, help="the most labels of an example, for stable")
    parser.add_argument("--tau", type=int, default=3, help="the labels of a teacher that count in full, for pate-tau")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0, 4.0, 8.0, 16.0])
    arguments = parser.parse_args()
    data = load(arguments.path, arguments.examples)
    print(f"{arguments.teachers} teachers of {len(data.private) // arguments.teachers} private instances each")
    print(f"{len(data.public)} public examples, {len(data.names)} labels, {len(data.test)} instances to test")
    with tempfile.TemporaryDirectory() as folder:
        compare(data, votes_of(data, arguments.teachers), arguments=arguments, folder=Path(folder))


if __name__ == "__main__":
    main()
