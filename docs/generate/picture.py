"""Draw docs/images/epsilon.svg: what epsilon means for one person, and for what an analyst gets. Needs dpsql[plot].

python docs/generate/picture.py            draws it where it stands
python docs/generate/picture.py x.png      draws it elsewhere, in the format of the ending
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dpsql import Budget, Epsilon, Policy, PrivateTable
from dpsql.mechanisms import LimitedDomain
from dpsql.terms import Terms

TOTALS = (0.1, 0.5, 1.0, 2.0, 4.0)
K, K_BAR = 10, 200  # what TOP 10 reads unless it says otherwise
_PLACE = Path(__file__).resolve().parents[1] / "images" / "epsilon.svg"
_FEWEST, _MOST = 50, 20_000  # users
_COLOURS = ("#08519c", "#2b8cbe", "#238b45", "#d95f0e", "#b30000")


def belief(prior: float, epsilon: float) -> float:
    """Return the most that anyone may believe, after all answers, of what they believed with `prior` before.

    Both are probabilities that one person is in the data. Odds move by a factor of exp(epsilon) at most; delta is 0.
    """
    odds = np.exp(epsilon) * prior / (1 - prior)
    return float(odds / (1 + odds))


def guessed(epsilon: float, delta: float) -> float:
    """Return how often a guess is right at most, whether a person is in the data, where both are equally likely."""
    return float((np.exp(epsilon) + delta) / (1 + np.exp(epsilon)))


def mechanism(total: float) -> LimitedDomain:
    """Return what answers TOP 10 under a total of (total, 1e-6) that is planned for 100 items and 20 queries."""
    terms = Terms.of_policy(Policy(Budget(str(total), "1e-6"), {"t": PrivateTable("u")}))
    return LimitedDomain(Epsilon(terms.epsilon.value), terms.delta, K, K_BAR)


def returned(users: float, total: float) -> float:
    """Return the probability that a group of so many users is returned, where no other group is there."""
    answering = mechanism(total)
    above = float(answering.epsilon) * (users - float(answering.threshold_offset))
    return float(1 / (1 + np.exp(-above)))


def main() -> None:
    """Draw both halves of the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "dpsql", "font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), facecolor="white", layout="constrained")
    priors, users = np.linspace(0.001, 0.999, 400), np.geomspace(_FEWEST, _MOST, 500)
    for total, colour in zip(TOTALS, _COLOURS, strict=True):
        left.plot(priors, [belief(prior, total) for prior in priors], color=colour, label=f"epsilon {total:g}")
        right.plot(users, [returned(number, total) for number in users], color=colour)
    left.plot([0, 1], [0, 1], color="#555555", linestyle="--", linewidth=1, label="nothing was answered")
    left.set(xlabel="belief before: Ada is in the data", ylabel="belief after all answers, at most")
    left.set_title("What anyone may learn of one person")
    left.set(xlim=(0, 1), ylim=(0, 1))
    left.legend(loc="lower right", frameon=False, title="total for every person", fontsize=10)
    right.set(xscale="log", xlabel="users of an article, alone in its table", ylabel="probability that it is returned")
    right.set_title("What an analyst gets: one of 100 items of that total")
    right.set(xlim=(_FEWEST, _MOST), ylim=(0, 1))
    right.set_xticks([50, 100, 300, 1_000, 3_000, 10_000], ["50", "100", "300", "1,000", "3,000", "10,000"])
    right.minorticks_off()
    for axes in (left, right):
        axes.grid(color="#dddddd", linewidth=0.6)
    place = Path(sys.argv[1]) if sys.argv[1:] else _PLACE
    place.parent.mkdir(exist_ok=True)
    figure.savefig(place, dpi=110, metadata={"Date": None} if place.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
