"""Methods of labelling: the statement of each, the loss of one example, and the draw of its labels.

All cost rho = epsilon**2 / 4 per example, two items, so that they can be compared at one epsilon. The loss holds for
sets of teachers of which one is exchanged for another, and for those of which one has a teacher more (`maths.md` 7.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpsql.accounting import ZCDP
from dpsql.engines import Statement
from dpsql.errors import UsageError
from dpsql.mechanisms import VOTE_STEPS, Histogram, Noise, NoisyVotes, StableTopK, vote_weight
from dpsql.pate.votes import Value, VotesTable, check_values, leading_votes, weighted_votes
from dpsql.quantities import Delta, Epsilon

__all__ = ["EXCHANGED", "Argmax", "Majority", "Method", "Stable", "Votes"]

EXCHANGED = 2  # by which a gap moves when a teacher is exchanged: one label has a vote less, another one more
Votes = Sequence[tuple[Value, int]]


class Method(Protocol):
    """Method that labels the examples of a batch."""

    @property
    def name(self) -> str:
        """Name on receipts."""
        ...

    @property
    def epsilon(self) -> Epsilon:
        """The epsilon of an item; an example costs two."""
        ...

    @property
    def loss(self) -> ZCDP:
        """Loss of one example, with or without an answer."""
        ...

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example; one more may be read."""
        ...

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes, as JSON."""
        ...

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes; raise UsageError for labels that the table cannot hold."""
        ...

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...] | None:
        """Return the labels of an example in an order that no vote decides; None where nothing is said."""
        ...


@dataclass(frozen=True, slots=True)
class Stable:
    """The labels before a wide gap in the votes, as many as there are; or nothing, if the gap does not hold.

    No list of labels is needed. At most `k_bar` labels come back, and `regulariser` favours some numbers of them, as
    `distance_regulariser` does. `delta` is that of one example.
    """

    epsilon: Epsilon
    delta: Delta
    k_bar: int
    regulariser: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "stable"

    @property
    def mechanism(self) -> StableTopK:
        """Return the mechanism: Algorithm 2 of Zhu and Wang 2022, with the constants of an exchanged unit."""
        return StableTopK(self.epsilon, self.delta, self.k_bar, self.regulariser, EXCHANGED)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example, with or without an answer."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return self.k_bar

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return self.name, str(self.epsilon.value), str(self.delta.value), self.k_bar, list(self.regulariser)

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the leading labels."""
        return leading_votes(table, examples, rows=self.k_bar + 1)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...] | None:
        """Return the stable labels, sorted, or None."""
        histogram = Histogram.of_leaders(tuple(count for _, count in votes), self.k_bar)
        stable = self.mechanism.select(histogram, noise).positions
        return None if stable is None else _sorted(votes[at][0] for at in stable)


@dataclass(frozen=True, slots=True)
class Majority:
    """PATE for many labels: all that more than half of the teachers give, by noisy votes; always an answer.

    `labels` is the public list, and `teachers` their public number. With `max_labels`, PATE-tau: the votes of a teacher
    for more labels of one example count less, and the noise is that of so many.
    """

    epsilon: Epsilon
    labels: tuple[Value, ...]
    teachers: int
    max_labels: int | None = None

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use
        if type(self.teachers) is not int or self.teachers < 1:
            raise UsageError("teachers-range", "There must be at least 1 teacher.", hint="Give their public number.")

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "pate" if self.max_labels is None else "pate-tau"

    @property
    def mechanism(self) -> NoisyVotes:
        """Return the noise on the votes."""
        return _noisy(self.epsilon, self.labels, max_labels=self.max_labels)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return len(self.labels)

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return "majority", str(self.epsilon.value), list(self.labels), self.teachers, self.mechanism.max_labels

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes for the listed labels."""
        return _weighted_statement(table, examples, labels=self.labels, max_labels=self.mechanism.max_labels)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the labels of the majority, in the order of the list; it may be none."""
        noisy = self.mechanism.release(_in_order(votes, self.labels), noise)
        half = VOTE_STEPS * self.teachers
        return tuple(label for label, count in zip(self.labels, noisy, strict=True) if 2 * count > half)


@dataclass(frozen=True, slots=True)
class Argmax:
    """PATE for one label: that of the most noisy votes, always one of the public list.

    A teacher has one vote; where there are more for one example they count less.
    """

    epsilon: Epsilon
    labels: tuple[Value, ...]

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "pate-argmax"

    @property
    def mechanism(self) -> NoisyVotes:
        """Return the noise on the votes."""
        return _noisy(self.epsilon, self.labels, max_labels=1)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return len(self.labels)

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return self.name, str(self.epsilon.value), list(self.labels)

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes for the listed labels."""
        return _weighted_statement(table, examples, labels=self.labels, max_labels=1)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the label of the most noisy votes; of equal ones the first of the list."""
        noisy = self.mechanism.release(_in_order(votes, self.labels), noise)
        return (self.labels[noisy.index(max(noisy))],)


def _noisy(epsilon: Epsilon, labels: Sequence[Value], *, max_labels: int | None) -> NoisyVotes:
    return NoisyVotes(epsilon, len(labels), len(labels) if max_labels is None else max_labels)


def _weighted_statement(
    table: VotesTable, examples: Sequence[Value], *, labels: Sequence[Value], max_labels: int
) -> Statement:
    known = check_values(labels, table.label.type, what="labels")
    weights = [vote_weight(number, max_labels) for number in range(1, len(known) + 1)]
    return weighted_votes(table, examples, labels=known, weights=weights)


def _in_order(votes: Votes, labels: Sequence[Value]) -> list[int]:
    """Return the votes of all listed labels, 0 where there are none."""
    found = dict(votes)
    return [found.get(label, 0) for label in labels]


def _sorted(labels: Iterable[Value]) -> tuple[Value, ...]:
    """Return labels, all of one type, in an order of their own."""
    return tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))
