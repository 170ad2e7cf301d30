"""EXP3 of Zhu and Wang 2022: labels of many classes by PATE, PATE-tau and StableTopK, and what each costs.

    python -m benchmarks run exp3 [--data DIR] [--trials 3] [--teachers 400] [--examples 600]

Teachers are linear models, each trained on its own shard. They vote on public examples; a student learns from what is
released. Told are the student's F1 on a test and the share of examples with an answer, by the total epsilon of all
examples at delta 1e-6, of which 1e-9 for each example may be its test's; then the least epsilon at which a method comes
within 0.03 of the majority of the teachers without noise. All of it twice: for one teacher exchanged, which protects an
instance of the training data, and for one teacher more, which the paper's constants of StableTopK are for.

StableTopK comes with Gumbel noise (Algorithm 2), and with the Gaussian noise of EXP3 in the paper's ratio, 50 to 60,
charged by Corollary 9 or by the rho of all noisy gaps. The paper has CelebA, 40 labels and 800 networks, which cannot
be had here; figures on other data are not the paper's. The chest X-ray findings have no features to train teachers on,
so they take no part.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import accuracy
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from accuracy import NOISE
from data_sets import present
from program.main import alone
from program.row import Row

from dpsql.accounting import ApproximateDP, Curve, CurveSum, RenyiCurve, rho_of_total
from dpsql.mechanisms import VOTE_STEPS, GaussianStableTopK, Histogram, StableTopK, vote_weight
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.quantities import Delta, Epsilon

QUICK = {"trials": 1, "teachers": 30, "examples": 20, "epsilons": [8.0]}
DATA = ("mlc_yeast", "mlc_tmc2007_500")
TOTAL_DELTA, EACH_DELTA = Fraction(1, 10**6), Fraction(1, 10**9)
RATIO = Fraction(50, 60)  # of the deviations of the two noises, as in the paper
RELATIONS = {"one teacher exchanged": 2, "one teacher more": 1}  # and by how much a gap moves
SCORE, RIDGE, CLOSE = 0.3, 10.0, 0.03
RARE = 1.5  # above which made-up scores are labels
K_BAR, TAU = 6, 3
OF_PAPER = GaussianStableTopK(Fraction(50**2), Fraction(60**2), Delta(EACH_DELTA), k_bar=40)
NOTE = (
    "The order of the paper's Table 2. It differs as Corollary 9 adds ln(m) for each example, and as a test at 1e-9 "
    "holds only from a gap of 12 deviations on, of fewer teachers than the paper's 800."
)
NOTE_OF_CONSTANTS = (
    "The paper's deviations and delta, one teacher more. Corollary 9 alone cannot have given the paper's figures for "
    "600 examples: their ln(m) adds up to 2213 / (alpha - 1)."
)
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Drawn = tuple[Bools, Bools]  # which examples have an answer, and the labels of all


@dataclass(frozen=True, slots=True)
class Task:
    """Votes on public examples, and what a student learns from and is tested on."""

    name: str
    votes: Bools  # of each teacher, on each example, for each label
    public: Floats
    test: Floats
    truth: Bools
    gap: int = 2  # by which a gap moves between neighbours

    @property
    def labels(self) -> int:
        """Return the number of labels."""
        return int(self.votes.shape[2])

    def learn(self, drawn: Drawn) -> float:
        """Return the F1 on the test of a student who learns from the examples with an answer."""
        answered, labels = drawn
        if not answered.any():
            return 0.0
        found = _fit(self.public[answered], labels[answered], self.test) > SCORE
        both, either = int((found & self.truth).sum()), int(found.sum()) + int(self.truth.sum())
        return 2.0 * both / max(1, either)


def _fit(features: Floats, labels: Bools, of: Floats) -> Floats:
    """Return the scores of a ridge regression, in the form for few rows."""
    mean, offset = features.mean(axis=0), labels.mean(axis=0)
    centred = features - mean
    dual = np.linalg.solve(centred @ centred.T + RIDGE * np.eye(len(centred)), labels - offset)
    return np.asarray((of - mean) @ (centred.T @ dual) + offset)


def task_of(name: str, features: Floats, truth: Bools, *, teachers: int, examples: int) -> Task:
    """Return a task: a fifth is the test, at most an eighth is public, the rest is private."""
    order = np.random.default_rng(0).permutation(len(features))  # of public numbers alone
    test, public, private = np.split(order, [len(order) // 5, len(order) // 5 + min(examples, len(order) // 8)])
    number = min(teachers, len(private) // 16)
    shards = np.array_split(private, number)
    votes = np.array([_fit(features[shard], truth[shard], features[public]) > SCORE for shard in shards])
    return Task(name, votes, features[public], features[test], truth[test])


def load(path: Path) -> tuple[Floats, Bools]:
    """Return features and labels of a data set."""
    table = pq.read_table(path)
    labels = table["labels"].to_pylist()
    names = sorted({name for each in labels for name in each})
    truth = np.array([[name in each for name in names] for each in map(set, labels)])
    if "features" in table.column_names:
        return np.array(table["features"].to_pylist(), dtype=np.float64), truth
    active = table["active_features"].to_pylist()
    features = np.zeros((len(active), 1 + max(max(each, default=0) for each in active)))
    for row, positions in enumerate(active):
        features[row, positions] = 1.0
    return features, truth


def made_up() -> tuple[Floats, Bools]:
    """Return 800 instances of 8 labels that depend on 10 features."""
    draw = np.random.default_rng(1)
    features = draw.normal(size=(800, 10))
    return features, features @ draw.normal(size=(10, 8)) > RARE


def without_noise(task: Task) -> Drawn:
    """Return the labels that more than half of the teachers give."""
    labels = 2 * task.votes.sum(axis=0) > len(task.votes)
    return np.ones(len(labels), dtype=bool), labels


def majority(task: Task, rho: Fraction, *, most: int) -> Drawn:
    """Return the labels of the majority by noisy votes, of `most` labels of a teacher in full."""
    given = task.votes.sum(axis=2, keepdims=True)
    weights = np.array([0, *(vote_weight(number, most) for number in range(1, task.labels + 1))], dtype=np.int64)
    votes = (task.votes * weights[given]).sum(axis=0)
    variance = VOTE_STEPS**2 * min(task.gap * most, task.labels) / (2 * rho)
    draws = discrete_gaussian(variance, NOISE, count=votes.size)
    noisy = votes + np.array(draws, dtype=np.int64).reshape(votes.shape)
    return np.ones(len(votes), dtype=bool), 2 * noisy > VOTE_STEPS * len(task.votes)


def stable(task: Task, mechanism: StableTopK | GaussianStableTopK) -> Drawn:
    """Return the stable labels of each example whose gap holds."""
    votes = task.votes.sum(axis=0)
    answered, labels = np.zeros(len(votes), dtype=bool), np.zeros(votes.shape, dtype=bool)
    for example, counts in enumerate(votes):
        order = np.argsort(-counts, kind="stable")
        leaders = tuple(int(count) for count in counts[order] if count)
        found = mechanism.select(Histogram.of_leaders(leaders[: K_BAR + 1], K_BAR), NOISE).positions
        if found is not None:
            answered[example] = True
            labels[example, order[list(found)]] = True
    return answered, labels


def _gaussian(task: Task, test_variance: Fraction) -> GaussianStableTopK:
    return GaussianStableTopK(RATIO**2 * test_variance, test_variance, Delta(EACH_DELTA), K_BAR, sensitivity=task.gap)


def by_corollary_9(task: Task, epsilon: float) -> Drawn:
    """Answer by Gaussian noise whose curve, added up over the examples, converts to epsilon."""
    number = len(task.public)
    low, high = 1, 10**8  # variances
    while high - low > low // 64:
        middle = (low + high) // 2 if high < 4 * low else math.isqrt(low * high)
        total = CurveSum((_gaussian(task, Fraction(middle)).curve,), times=number)
        low, high = (low, middle) if total.epsilon(conversion(number)) <= epsilon else (middle, high)
    return stable(task, _gaussian(task, Fraction(high)))


def conversion(number: int) -> Delta:
    """Return the part of delta that pays for the conversion where each example has a test."""
    return Delta(TOTAL_DELTA - number * EACH_DELTA)


def share(task: Task, epsilon: float, *, tested: bool) -> Fraction:
    """Return the rho of one example."""
    number = len(task.public)
    delta = conversion(number) if tested else Delta(TOTAL_DELTA)
    return rho_of_total(ApproximateDP(Epsilon(Fraction(epsilon)), delta)).value / number


def by_gumbel(task: Task, epsilon: float) -> Drawn:
    """Answer by Algorithm 2, whose rho is epsilon**2 / 4 an example."""
    own = Fraction(math.isqrt(int(4 * share(task, epsilon, tested=True) * 10**18)), 10**9)
    mechanism = StableTopK(Epsilon(own), Delta(EACH_DELTA), K_BAR, sensitivity=task.gap)
    return stable(task, mechanism)


def by_gaps(task: Task, epsilon: float) -> Drawn:
    """Answer by Gaussian noise charged by the rho of all noisy gaps and of the test."""
    of_one = _gaussian(task, Fraction(1)).loss.rho.value
    return stable(task, _gaussian(task, of_one / share(task, epsilon, tested=True)))


Method = Callable[[Task, float], Drawn]
METHODS: Mapping[str, Method] = {
    "PATE": lambda task, epsilon: majority(task, share(task, epsilon, tested=False), most=task.labels),
    "PATE-tau": lambda task, epsilon: majority(task, share(task, epsilon, tested=False), most=TAU),
    "StableTopK": by_gumbel,
    "StableTopK, Gaussian, rho of all gaps": by_gaps,
    "StableTopK, Gaussian, Corollary 9": by_corollary_9,
}


def cells(task: Task, method: Method, *, epsilons: list[float], trials: int) -> tuple[list[float], list[float]]:
    """Return the mean F1 of a student and the mean share of examples with an answer, for each epsilon."""
    scores, answered = [], []
    for epsilon in epsilons:
        drawn = [method(task, epsilon) for _ in range(trials)]
        scores.append(sum(map(task.learn, drawn)) / trials)
        answered.append(sum(float(each[0].mean()) for each in drawn) / trials)
    return scores, answered


def measure(task: Task, title: str, *, epsilons: list[float], trials: int) -> Iterator[Row]:
    """Yield what a student learns, how many examples have an answer, and the least epsilon that is enough."""
    limit, columns = task.learn(without_noise(task)), [f"epsilon {epsilon:g}" for epsilon in epsilons]
    found = {name: cells(task, method, epsilons=epsilons, trials=trials) for name, method in METHODS.items()}
    for name, (scores, _) in found.items():
        yield Row(f"{title}: F1 of the student", name, dict(zip(columns, scores, strict=True)))
    yield Row(f"{title}: F1 of the student", "teachers, not private", dict.fromkeys(columns, limit))
    for name, (_, answered) in found.items():
        yield Row(f"{title}: share of examples with an answer", name, dict(zip(columns, answered, strict=True)))
    least = {
        name: min((at for at, score in zip(epsilons, scores, strict=True) if score >= limit - CLOSE), default=math.inf)
        for name, (scores, _) in found.items()
    }
    yield from compared(f"{title}: least epsilon within {CLOSE} of the teachers", least)


def compared(table: str, least: Mapping[str, float]) -> Iterator[Row]:
    """Yield the least epsilons, and whether their order is the paper's."""
    for name, epsilon in least.items():
        yield Row(table, name, {"epsilon": "none" if math.isinf(epsilon) else epsilon})
    held = least["StableTopK, Gaussian, Corollary 9"] < least["PATE-tau"] <= least["PATE"]
    order = "paper: StableTopK with Corollary 9, then PATE-tau, then PATE"
    yield Row(table, order, {"epsilon": "yes" if held else "no"}, note=NOTE)


def constants() -> Iterator[Row]:
    """Yield the total epsilon of the paper's parameters, by each way of charging them."""
    number, delta = 600, conversion(600)
    epsilon = 2.0 * math.pi / math.sqrt(6.0 * float(OF_PAPER.choice_variance))  # of Gumbel noise of that deviation
    gumbel = StableTopK(Epsilon(Fraction(epsilon)), Delta(EACH_DELTA), OF_PAPER.k_bar)
    test = RenyiCurve(OF_PAPER.test.loss.rho, 1, OF_PAPER.delta)
    curves: Mapping[str, Curve] = {
        "Gaussian, Corollary 9": OF_PAPER.curve,
        "Gaussian, rho of all gaps": RenyiCurve(OF_PAPER.loss.rho, 1, OF_PAPER.delta),
        "Gumbel of the same deviation": CurveSum((gumbel.choice.curve, test)),
    }
    for name, curve in curves.items():
        values = {"epsilon": CurveSum((curve,), times=number).epsilon(delta)}
        yield Row("600 examples, 40 labels, deviations 50 and 60, delta 1e-6", name, values, note=NOTE_OF_CONSTANTS)


def options(parser: ArgumentParser) -> None:
    """Add trials, teachers, examples and totals."""
    accuracy.options(parser, trials=3)
    parser.add_argument("--teachers", type=int, default=400)
    parser.add_argument("--examples", type=int, default=600)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def run(given: Namespace) -> Iterator[Row]:
    """Charge the paper's parameters, then measure each data set, for both relations of neighbours."""
    yield from constants()
    found = () if given.quick else present(given.data / f"{name}.parquet" for name in DATA)
    sources = [("made up", made_up)] if given.quick else [(path.stem, lambda path=path: load(path)) for path in found]
    for name, read in sources:
        features, truth = read()
        task = task_of(name, features, truth, teachers=given.teachers, examples=given.examples)
        teachers, examples, labels = task.votes.shape
        for relation, gap in RELATIONS.items():
            title = f"{name}, {teachers} teachers, {examples} examples, {labels} labels, {relation}"
            yield from measure(replace(task, gap=gap), title, epsilons=given.epsilons, trials=given.trials)


if __name__ == "__main__":
    alone(__file__)
