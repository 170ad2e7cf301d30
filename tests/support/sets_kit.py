"""Laws of all that is seen of an answer, through SQL on tiny tables: keys in order, what was chosen, cost, counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
from support.groups_kit import CREATE, LABELS, Unit, counted, drawn, rows_of, session_over
from support.laws import cks, discrete_gaussian_law, goodness
from support.session_kit import filled, session_on

import dpsql
from dpsql.mechanisms import SharedTotal
from dpsql.plan import Plan, Release
from dpsql.session import Session

__all__ = ["Seen", "articles", "by_count", "counted_over", "goodness_of", "seen", "spent", "worst_excess"]

LEVELS = (0.1, 0.5, 1.0, 2.0)
WINDOW = 15  # of noisy counts that are told apart; the noise of epsilon = 1 has sigma 2
NARROW, MANY = 9, 3  # the same where there are more than so many of them
Seen = tuple[tuple[object, ...], int | None, object, bool]  # labels in order, what was chosen, rho and the end
KeysLaw = Callable[[Plan, tuple[tuple[object, ...], tuple[int, ...]]], Mapping[Seen, float]]


def articles(counts: Mapping[str | None, int]) -> list[str]:
    """Return statements that give every article so many readers."""
    return [
        f"INSERT INTO reads SELECT i, {'NULL' if label is None else repr(label)} FROM range({count}) t(i)"
        for label, count in counts.items()
    ]


def by_count(rows: list[tuple[object, ...]]) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """Return the labels by (count descending, label), NULL last, and their counts."""
    order = sorted(rows, key=lambda row: (-int(str(row[1])), row[0] is None, str(row[0])))
    return tuple(row[0] for row in order), tuple(int(str(row[1])) for row in order)


def counted_over(
    plan: Plan, tables: Iterable[tuple[Unit, ...]]
) -> Iterator[tuple[tuple[Unit, ...], list[tuple[object, ...]]]]:
    """Yield tables of units, and the rows that the engine returns to the mechanism of each; one database holds all."""
    connection = filled(CREATE)
    session = session_on(connection)
    for units in tables:
        for statement in ["DELETE FROM reads", *rows_of(units)]:
            connection.execute(statement)
        yield units, counted(session, plan)


def seen(release: Release) -> Seen:
    """Return what is seen of a release but for its counts."""
    labels = tuple(release.table.column("article").to_pylist())
    return labels, release.chosen, release.loss.rho.value, release.stopped_at_bottom


def goodness_of(session: Session, sql: str, keys_law: KeysLaw, *, runs: int = 400) -> float:
    """Return the p-value of so many releases of `sql`, which selects no counts, against their law."""
    plan = session.explain(sql)
    found: Counter[Hashable] = Counter(map(seen, drawn(session, plan, runs)))
    return goodness(found, keys_law(plan, by_count(counted(session, plan))))  # type: ignore[arg-type]


def _joint(
    plan: Plan, keys: Mapping[Seen, float], counts: Mapping[object, int], *, total: int
) -> dict[Seen, npt.NDArray[np.float64]]:
    """Return the law of keys, noisy counts and the total that they may share; their order is post-processing of it."""
    laws = {}
    for event, mass in keys.items():
        law, labels, centres = np.array(mass), event[0], list[tuple[int, Fraction]]()
        if plan.counts is not None and labels:
            shared = SharedTotal(plan.epsilon, len(labels), plan.counts.max_groups_contributed)
            if plan.counting.has_total and shared.pays:
                centres = [(total, shared.total_variance)]
                centres += [(2 * counts[label] - total, shared.own_variance) for label in labels]
            else:
                centres = [(counts[label], plan.counts.variance) for label in labels]
        for centre, variance in centres:
            noise = discrete_gaussian_law(variance)
            window = range(-NARROW, NARROW + 1) if len(centres) > MANY else range(-WINDOW, WINDOW + 1)
            law = np.multiply.outer(law, [noise.get(n - centre, 0.0) for n in window])
        laws[event] = law
    return laws


def worst_excess(sql: str, keys_law: KeysLaw, **bounds: int) -> float:
    """Return the worst factor by which any two tables exceed the claim: at most two units, and one of them less."""
    everybody = [unit for size in (1, 2, 3) for unit in combinations(LABELS, size)]
    plan, worst, connection = session_over(**bounds).explain(sql), 0.0, filled(CREATE)
    laws: dict[object, dict[Seen, npt.NDArray[np.float64]]] = {}
    found = {}
    for units in (units for size in (0, 1, 2) for units in product(everybody, repeat=size)):
        for statement in ["DELETE FROM reads", *rows_of(units)]:
            connection.execute(statement)
        rows = connection.execute(plan.counting.sql, list(plan.counting.parameters)).fetchall()
        found[units] = tuple(rows)
        if found[units] not in laws:
            labels, counts = ranked = by_count(rows)
            total = int(str(rows[0][-1])) if rows and plan.counting.has_total else 0
            exact = dict(zip(labels, counts, strict=True))
            laws[found[units]] = _joint(plan, keys_law(plan, ranked), exact, total=total)
    rho, delta = plan.worst_case.rho.value, float(plan.worst_case.delta)
    for more, less in {(found[units], found[units[:-1]]) for units in found if units}:
        for p, q in ((laws[more], laws[less]), (laws[less], laws[more])):
            for level in LEVELS:
                parts = (np.maximum(0.0, law - math.exp(level) * q.get(event, 0.0)).sum() for event, law in p.items())
                worst = max(worst, math.fsum(map(float, parts)) / (delta + cks(rho, level)))
    return worst


def spent(session: Session, answer: dpsql.Answer) -> bool:
    """Say whether the first answer of a session cost what its receipt, the ledger and the history say."""
    loss, balance = answer.receipt.loss, session.budget
    charged = session.history.column("rho_charged").to_pylist()
    return (balance.rho.spent, balance.delta.spent, balance.rho.reserved, charged) == (
        loss.rho.value,
        loss.delta.value,
        0,
        [float(loss.rho)],
    )
