"""First rows of a stored answer, in law: those that are given follow the law of a new answer, exactly; others do not.

The parameters are those of real plans. Laws are computed from the formulas of `maths.md` on small universes. What is
given is a function of the stored answer, so that the two together have the law of the stored one alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from support.evidence_kit import Terms as Evidence
from support.evidence_kit import evident_law
from support.laws import BOTTOM, Counts, Steps, discrete_gaussian_law, hockey_stick, label_law, named, peeling_law
from support.session_kit import filled, rebuilt, session_on, values_rows

import dpsql
from dpsql.accounting import discrete_gaussian_offset
from dpsql.engines import Exact, Statement
from dpsql.intervals import SharedNoise, ValueNoise
from dpsql.mechanisms import (
    DomainDiscovery,
    EvidentPeeling,
    GaussianHistogram,
    Histogram,
    LimitedDomain,
    NoisyRelease,
    Peeling,
    SharedTotal,
    WeightedGaussian,
)
from dpsql.mechanisms.gaussian_threshold import share_false_alarm
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.plan import Plan
from dpsql.plan.identity import derived_answers
from dpsql.plan.identity.replay_key import list_measured_rows
from dpsql.plan.identity.stored_release import pack_release, unpack
from dpsql.plan.mechanisms.base import CountNoise, NoisyTotal, PrefixLaw
from dpsql.plan.release import Release, ReleaseTerms, present
from dpsql.session import Session

Law = dict[Steps, float]
NAMES = [f"a{at:02}" for at in range(30)]
LISTED = "domain = ['a', 'b', 'c', 'd']"
POLICY = dpsql.Policy(dpsql.Budget(20, "1e-3", items=200, queries=40), {"reads": dpsql.PrivateTable("user_id")})
KNOWN = dict.fromkeys(NAMES, 60)
# heads, ties, gaps, a group alone, no group
UNIVERSES: list[Counts] = [
    {"a": 9, "b": 8, "c": 8, "d": 1},
    {"a": 3, "b": 3, "c": 3, "d": 3},
    {"a": 40, "b": 30, "c": 2, "d": 1},
    {"a": 25},
    {},
]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session that knows thirty names."""
    with session_on(filled(*values_rows(KNOWN)), POLICY) as session:
        session.sql("SELECT article FROM reads GROUP BY article TOP 30 PRIVATE WITH (mechanism = weighted_gaussian)")
        yield session


def plan(session: Session, k: int, options: str, *, counts: bool = False) -> Plan:
    selected = "article, COUNT(DISTINCT user_id) AS n" if counts else "article"
    text = f"SELECT {selected} FROM reads WHERE user_id > 1 GROUP BY article TOP {k} PRIVATE"
    return session.explain(f"{text} WITH ({options})" if options else text)


def cut(law: Law, k: int) -> Law:
    """Return the law of the first k rows, with BOTTOM where it ended them."""
    masses: Law = {}
    for steps, mass in law.items():
        masses[steps[:k]] = masses.get(steps[:k], 0.0) + mass
    return masses


def differ(first: Law, second: Law) -> float:
    """Return the total variation distance."""
    return sum(abs(first.get(event, 0.0) - second.get(event, 0.0)) for event in first.keys() | second.keys()) / 2


def find_law(selection: object, counts: Counts) -> Law:
    """Return the law of the labels that a mechanism releases, with its own parameters."""
    match selection:
        case LimitedDomain():
            return label_law(selection, counts)
        case Peeling():
            labels = sorted("abcd", key=lambda label: (-counts.get(label, 0), label))
            every = [counts.get(label, 0) for label in labels]
            return named(peeling_law(every, None, float(selection.epsilon), selection.k), labels)
        case EvidentPeeling():
            every = [counts.get(label, 0) for label in "abcd"]
            bottom = float(selection.find_bottom(4))
            return named(peeling_law(every, bottom, float(selection.epsilon), selection.k), "abcd")
    raise AssertionError(selection)


def agrees(asked: Plan, stored: Plan, law: PrefixLaw) -> bool:
    return derived_answers._has_law_of(asked, ReleaseTerms.of(stored), law=law)


EXACT: dict[str, tuple[str, Callable[[object], object]]] = {
    "limited domain at one k_bar": ("mechanism = limited_domain, k_bar = 50", lambda own: own),
    "behind the first look": ("known = false", lambda own: own.leaders(Answerer.AT_ONCE)),  # type: ignore[attr-defined]
    "behind both looks": ("known = false", lambda own: own.leaders(Answerer.LEADERS)),  # type: ignore[attr-defined]
    "peeling": (f"{LISTED}, mechanism = peeling", lambda own: own),
    "names above BOTTOM alone": ("domain = released, evidence = strict", lambda own: own),
}


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("kind", EXACT)
def test_what_is_given_has_the_law_of_a_new_answer(session: Session, kind: str, counts: bool) -> None:
    """Counts beside the longer answer, or those of the same length, make no other law of the names."""
    options, read = EXACT[kind]
    for k, asked in ((4, 3), (3, 1), (4, 2), *([(3, 3)] if counts else [])):
        longer, shorter = plan(session, k, options, counts=counts), plan(session, asked, options)
        assert (longer.selection.k, shorter.selection.k) == (k, asked)  # type: ignore[attr-defined]
        assert agrees(shorter, longer, PrefixLaw.EXACT)
        for units in UNIVERSES:
            laws = [find_law(read(each.selection), units) for each in (longer, shorter)]
            assert math.isclose(math.fsum(laws[0].values()), 1.0)
            assert differ(cut(laws[0], asked), laws[1]) < 1e-12


@pytest.mark.parametrize("kind", [kind for kind in EXACT if "behind" not in kind])  # the looks decide which of two
def test_the_answer_that_was_drawn_says_so(session: Session, kind: str) -> None:
    options, _ = EXACT[kind]
    text = f"SELECT article FROM reads WHERE user_id > 1 GROUP BY article TOP 4 PRIVATE WITH ({options})"
    session.sql(text)
    assert plan(session, 2, options).reused is not None


def test_at_another_k_bar_the_law_is_another(session: Session) -> None:
    longer, shorter = (plan(session, k, "mechanism = limited_domain") for k in (2, 1))
    assert (longer.k_bar, shorter.k_bar) == (40, 20)
    assert not agrees(shorter, longer, PrefixLaw.EXACT)
    counts = {name: 14 + at // 10 for at, name in enumerate(NAMES)}  # thirty groups of about one size
    laws = [find_law(each.selection, counts) for each in (longer, shorter)]
    assert differ(cut(laws[0], 1), laws[1]) > 0.01


def test_behind_a_gate_of_known_names_the_law_is_another(session: Session) -> None:
    longer, shorter = (plan(session, k, "domain = released") for k in (3, 2))
    for each in (longer, shorter):
        assert isinstance(each.selection, EvidentPeeling)
        assert each.selection.has_gate
    worst = 0.0
    for counts in ((0, 0, 0, 0), (3, 2, 1, 0), (9, 8, 8, 1)):
        laws = [evident_law(counts, Evidence(0.5, k)) for k in (3, 2)]
        shown: list[Law] = [{}, {}]
        for law, into in zip(laws, shown, strict=True):
            for steps, mass in law.items():
                rows = tuple(each for each in steps if isinstance(each, int))[:2]  # as the receipt of a prefix shows it
                into[rows] = into.get(rows, 0.0) + mass
        worst = max(worst, differ(*shown))
    assert worst > 0.02


def test_the_line_for_counts_of_known_names_makes_the_law_another(session: Session) -> None:
    options = "domain = released, evidence = strict"
    longer, shorter = (plan(session, k, options, counts=True) for k in (3, 1))
    release = shorter.counts
    assert release is not None
    assert longer.counts == release
    masses = discrete_gaussian_law(release.variance)

    def returned(own: Plan, counts: Sequence[int]) -> Law:
        """Return the law of the names above the line, of those that were drawn."""
        selection, line = own.selection, discrete_gaussian_offset(release.variance, share_false_alarm(own.k))
        assert isinstance(selection, EvidentPeeling)
        passes = [math.fsum(mass for n, mass in masses.items() if count + n >= line) for count in counts]
        law: Law = {}
        drawn = peeling_law(counts, float(selection.find_bottom(4)), float(selection.epsilon), selection.k)
        for steps, mass in drawn.items():
            rows = [int(at) for at in steps if at != BOTTOM]
            for kept in product((True, False), repeat=len(rows)):
                chance = math.prod(
                    passes[row] if is_kept else 1 - passes[row] for row, is_kept in zip(rows, kept, strict=True)
                )
                shown = tuple(row for row, is_kept in zip(rows, kept, strict=True) if is_kept)
                law[shown] = law.get(shown, 0.0) + mass * chance
        return law

    near = discrete_gaussian_offset(release.variance, share_false_alarm(3))  # as many as the line for three wants
    assert differ(cut(returned(longer, (near, near, near, 0)), 1), returned(shorter, (near, near, near, 0))) > 0.01


def test_a_k_bar_that_is_chosen_in_private_has_other_candidates(session: Session) -> None:
    longer, shorter = (plan(session, k, "mechanism = limited_domain, k_bar = auto") for k in (3, 1))
    first, second = (each.mechanism_plan.choice for each in (longer, shorter))  # type: ignore[attr-defined]
    # Each candidate has a positive chance, and the one that was chosen is on the receipt.
    assert not set(second.candidates) <= set(first.candidates)
    assert not agrees(shorter, longer, PrefixLaw.OTHER)


def chance_of_lead(first: int, second: int, variance: Fraction) -> float:
    """Return about how likely noise puts a value before another."""
    return (1 + math.erf((first - second) / (2 * math.sqrt(variance)))) / 2


def test_discovery_without_a_choice_ranks_by_weights_and_a_shorter_one_by_counts(session: Session) -> None:
    options = "mechanism = domain_discovery, gate = false, known = false"
    longer, shorter = (plan(session, k, options).selection for k in (2, 1))
    assert isinstance(longer, DomainDiscovery)
    assert isinstance(shorter, DomainDiscovery)
    # Two groups are found by both: one has more weight, the other more units, which are in many groups.
    weight = 3 * shorter.discovery.threshold
    by_weights = chance_of_lead(2 * weight, weight, longer.discovery.variance)
    by_counts = peeling_law([90, 60], None, float(shorter.epsilon), 1)[(1,)]  # position 1 has fewer units
    assert by_weights - by_counts > 0.5


def test_which_mechanism_answers_behind_the_looks_depends_on_k(session: Session) -> None:
    """Heads of units that are in many groups: a short answer is that of counts, a long one that of weights."""
    longer, shorter = (plan(session, k, "known = false").selection for k in (60, 1))
    assert isinstance(longer, TwoLooks)
    assert isinstance(shorter, TwoLooks)
    offset = shorter.leaders(Answerer.AT_ONCE).threshold_offset
    counts = (*[3 * math.ceil(offset)] * 1, *[2] * 59)
    chances = []
    for looks in (longer, shorter):
        sure = looks.add_leads(Histogram.of_leaders(counts, looks.k_bar))
        masses = discrete_gaussian_law(looks.first.variance)
        chances.append(
            math.fsum(m for n, m in masses.items() if looks.choose(Fraction(sure + n, looks.first.whole)) is not None)
        )
    # After 60 rows the counts hardly ever answer, alone: what does then ranks by weights, in which heads can be light.
    assert chances[0] < 0.01
    assert chances[1] > 0.5


@pytest.mark.parametrize("bound", ["", ", max_groups_contributed = 2"])
@pytest.mark.parametrize("mechanism", ["weighted_gaussian", "gaussian_histogram", "domain_discovery"])
def test_what_has_a_threshold_is_that_of_a_larger_rho(session: Session, mechanism: str, bound: str) -> None:
    options = f"mechanism = {mechanism}, known = false{bound or ', max_groups_contributed = 9'}"
    longer, shorter = plan(session, 4, options), plan(session, 2, options)
    assert agrees(shorter, longer, PrefixLaw.LARGER)
    first, second = longer.selection, shorter.selection
    if isinstance(first, DomainDiscovery):
        assert isinstance(second, DomainDiscovery)
        assert first.epsilon >= second.epsilon  # of each draw of the second stage
        first, second = first.discovery, second.discovery
    assert isinstance(first, WeightedGaussian | GaussianHistogram)
    assert isinstance(second, WeightedGaussian | GaussianHistogram)
    assert first.rho > second.rho
    assert first.variance < second.variance
    assert first.threshold < second.threshold
    # At the rho of four rows a query for two is the same but for the cut.
    alike = replace(second, rho=first.rho)
    assert (alike.variance, alike.threshold) == (first.variance, first.threshold)


def test_a_cut_of_a_histogram_is_that_at_fewer_rows(session: Session) -> None:
    options = "mechanism = gaussian_histogram, known = false, max_groups_contributed = 2, epsilon = 1"
    longer, shorter = plan(session, 3, options).selection, plan(session, 2, options).selection
    assert isinstance(longer, GaussianHistogram)
    assert isinstance(shorter, GaussianHistogram)

    def law(own: GaussianHistogram, counts: Sequence[int]) -> dict[object, float]:
        noise = discrete_gaussian_law(own.variance, 5.0)
        each = [
            [(None, math.fsum(m for n, m in noise.items() if count + n < own.threshold))]
            + [(count + n, m) for n, m in noise.items() if count + n >= own.threshold]
            for count in counts
        ]
        masses: dict[object, float] = {}
        for values in product(*each):
            passed = [(at, value) for at, (value, _) in enumerate(values) if value is not None]
            shown = NoisyRelease.leading(passed, own.k)
            event = tuple(zip(shown.positions, shown.counts, strict=True))
            masses[event] = masses.get(event, 0.0) + math.prod(mass for _, mass in values)
        return masses

    counts = [shorter.threshold, shorter.threshold - 1, shorter.threshold + 1]
    first, second = law(longer, counts), law(replace(shorter, rho=longer.rho), counts)
    shown: dict[object, float] = {}
    for event, mass in first.items():
        shown[event[:2]] = shown.get(event[:2], 0.0) + mass  # type: ignore[index]
    assert shown.keys() == second.keys()
    assert max(abs(shown[event] - second[event]) for event in shown) < 1e-12


def test_a_prefix_is_a_function_of_the_stored_answer_alone() -> None:
    """Other rows, other salts and other noise give the same first rows: the two have the law of the longer alone."""
    text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP {} PRIVATE WITH ({})"
    options = "mechanism = limited_domain, k_bar = 50, known = false, fresh = true"
    shown = []

    def refuse(statement: Statement, _: object) -> Exact:
        raise AssertionError(statement.sql)

    with (
        session_on(filled(*values_rows({"b": 3_000, "c": 2}))) as others,
        session_on(filled(*values_rows(KNOWN)), POLICY) as own,
    ):
        for _ in range(3):
            whole = own.sql(text.format(6, options)).fetchall()
            for at in range(3):
                rows = rebuilt(others, engine=refuse) if at else rebuilt(own, engine=refuse)
                parts = replace(rows._dependencies, ledger=own._dependencies.ledger, terms=own._dependencies.terms)
                found = Session(parts).sql(text.format(4, options.replace(", fresh = true", "")))
                assert found.receipt.reused
                shown.append(found.fetchall() == whole[:4])
    assert shown == [True] * 9


# --- released numbers of groups

SHARED = SharedTotal(dpsql.Epsilon(2), labels=2)
COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE WITH (known = false)"
ALONE = "SELECT COUNT(DISTINCT user_id) AS n FROM reads{} PRIVATE"
# units of which one is dropped: all units, those of "a", those of "b"
NEIGHBOURS = [((2, 2, 1), (1, 1, 1)), ((2, 2, 1), (1, 1, 0)), ((1, 1, 0), (0, 0, 0)), ((3, 1, 2), (2, 1, 1))]
Drawn = tuple[int, int, int]  # the noisy total, and twice the noisy counts


def find_shared_law(units: tuple[int, int, int]) -> dict[Drawn, float]:
    """Return the law of a noisy total and of twice the counts of two labels that share it."""
    (total, *counts), masses = units, dict[Drawn, float]()
    shared = discrete_gaussian_law(SHARED.total_variance, 4.0)
    own = discrete_gaussian_law(SHARED.own_variance, 4.0)
    for (zero, p), (first, q), (second, r) in product(shared.items(), own.items(), own.items()):
        noisy = total + zero
        doubled = [2 * count - total + noise + noisy for count, noise in zip(counts, (first, second), strict=True)]
        masses[(noisy, *doubled)] = p * q * r  # type: ignore[index]
    return masses


def store(plan: Plan, drawn: Drawn) -> bytes:
    """Return the stored answer with a noisy total and two counts."""
    parts = SharedNoise(SHARED.own_variance, SHARED.total_variance, SHARED.centre)
    terms = replace(
        ReleaseTerms.of(plan),
        counts=CountNoise(SHARED.variance, parts=parts),
        total=NoisyTotal(drawn[0], SHARED.total_variance),
    )
    canonical = pa.table({"key_1": ["a", "b"], "count": pa.array(drawn[1:], pa.int64())})
    table, rows = present(plan, canonical, terms=terms)
    whole = Release(table, canonical, rows, terms, plan.worst_case, items_charged=3, stopped_at_bottom=False)
    return pack_release(plan, whole, day="2026-11-29", has_one_value=bool).answer


def answer_again(asked: Plan, stored: bytes) -> int:
    """Return the number that answers a total, twice that of a group, from a stored answer."""
    found = [derived_answers.take_cells(asked, rows, stored=stored) for rows in list_measured_rows(asked.query)]
    (derived,) = (each for each in found if each is not None)
    (value,) = unpack(derived.plan, derived.stored).canonical.column("count").to_pylist()
    return int(value)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_two_answers_have_the_joint_law_of_the_first_alone(session: Session, at: int) -> None:
    """The second is that number of the first, whatever was drawn; alone it has the noise that it is shown with."""
    where = ("", " WHERE article = 'a'", " WHERE article = 'b'")[at]
    grouped, asked = session.explain(COUNTED), session.explain(ALONE.format(where))
    again = {drawn: answer_again(asked, store(grouped, drawn)) for drawn in find_shared_law((2, 2, 1))}
    assert all(value == drawn[at] for drawn, value in again.items())
    noise = [SHARED.total_variance, SHARED.variance][at > 0]
    for units in {each for pair in NEIGHBOURS for each in pair}:
        law = dict[int, float]()
        for drawn, mass in find_shared_law(units).items():
            law[drawn[at]] = law.get(drawn[at], 0.0) + mass
        if not at:
            new = discrete_gaussian_law(SHARED.total_variance, 4.0)  # the law of a new answer at this rho
            assert max(abs(law.get(units[0] + n, 0.0) - mass) for n, mass in new.items()) < 1e-12
        scale = 2 if at else 1
        mean = math.fsum(value * mass for value, mass in law.items()) / scale
        spread = math.fsum((value / scale - mean) ** 2 * mass for value, mass in law.items())
        assert math.isclose(mean, units[at], abs_tol=1e-9)
        assert 0.98 * noise < spread < noise
    for pair in NEIGHBOURS:  # both directions
        for first, second in (pair, pair[::-1]):
            p, q = find_shared_law(first), find_shared_law(second)
            both = [{(drawn, drawn[at]): mass for drawn, mass in each.items()} for each in (p, q)]
            for epsilon in (0.2, 1.0, 2.5):
                assert hockey_stick(*both, epsilon) == hockey_stick(p, q, epsilon)  # type: ignore[arg-type]


@pytest.mark.mutant
def test_new_noise_that_is_not_charged_is_caught() -> None:
    p, q = map(find_shared_law, NEIGHBOURS[0])
    free = discrete_gaussian_law(SHARED.total_variance, 4.0)
    both = [
        {(drawn, units[0] + n): mass * chance for drawn, mass in law.items() for n, chance in free.items()}
        for law, units in zip((p, q), NEIGHBOURS[0], strict=True)
    ]
    assert hockey_stick(*both, 1.0) > hockey_stick(p, q, 1.0) + 0.05


@pytest.mark.parametrize("variance", [Fraction(4), Fraction(29, 3), Fraction(40)])
@pytest.mark.parametrize("size", [1, 2, 13])
@pytest.mark.parametrize("factor", [0, 1, -2])
def test_the_interval_of_a_sum_holds_the_exact_one(variance: Fraction, size: int, factor: int) -> None:
    """In law: numbers with noise of their own, and halves of those that share a part of it."""
    parts = SharedNoise(variance, 3 * variance, factor) if factor else None
    single = CountNoise(variance if parts is None else (variance + factor**2 * parts.shared) / 4, parts=parts)
    noise = derived_answers._add_noises(single, size=size)
    assert noise is not None
    mass = _add_laws(variance, size)
    if factor:
        mass = np.convolve(mass, _as_array(3 * variance, size * abs(factor)))
    values = (np.arange(len(mass)) - len(mass) // 2) / (2 if factor else 1)
    assert math.isclose(float(np.dot(values**2, mass)), noise.variance, rel_tol=1e-9)
    reach = ValueNoise(noise.variance, parts=noise.parts).reach(0.95)
    assert float(mass[np.abs(values) <= reach].sum()) >= 0.95


@pytest.mark.mutant
def test_narrow_noise_is_not_added_since_its_interval_would_be_too_short() -> None:
    variance = Fraction(1, 3)
    assert derived_answers._add_noises(CountNoise(variance), size=2) is None
    mass = _add_laws(variance, 2)
    reach = ValueNoise(2 * variance).reach(0.95)
    assert float(mass[np.abs(np.arange(len(mass)) - len(mass) // 2) <= reach].sum()) < 0.95


def _add_laws(variance: Fraction, size: int) -> npt.NDArray[np.float64]:
    mass = np.ones(1)
    for _ in range(size):
        mass = np.convolve(mass, _as_array(variance, 1))
    return mass


def _as_array(variance: Fraction, factor: int) -> npt.NDArray[np.float64]:
    """Return the law of a multiple of discrete Gaussian noise, around 0."""
    law = discrete_gaussian_law(variance)
    last = max(law) * factor
    masses = np.zeros(2 * last + 1)
    masses[[n * factor + last for n in law]] = list(law.values())
    return masses


@pytest.mark.mutant
@pytest.mark.parametrize(
    "kind", ["another k_bar", "a smaller epsilon", "a higher threshold", "more delta", "other names"]
)
def test_each_part_of_the_comparison_is_needed(session: Session, kind: str) -> None:
    shorter, longer = (plan(session, k, "mechanism = limited_domain, k_bar = 50") for k in (1, 3))
    terms = ReleaseTerms.of(longer)
    assert derived_answers._has_law_of(shorter, terms, law=PrefixLaw.EXACT)
    changed = {
        "another k_bar": replace(terms, k_bar=51),
        "a smaller epsilon": replace(terms, epsilon=dpsql.Epsilon(terms.epsilon.value / 2)),
        "a higher threshold": replace(terms, threshold_offset=terms.threshold_offset + 1),
        "more delta": replace(terms, delta=dpsql.Delta(terms.delta.value * 2)),
        "other names": replace(terms, known=3),
    }[kind]
    assert not derived_answers._has_law_of(shorter, changed, law=PrefixLaw.EXACT)
    assert not derived_answers._has_law_of(shorter, terms, law=PrefixLaw.OTHER)
    # In law: a smaller epsilon, or another threshold, is another law.
    if kind in {"another k_bar", "a smaller epsilon"}:
        own = longer.selection
        assert isinstance(own, LimitedDomain)
        other = replace(own, k_bar=20, epsilon=changed.epsilon)
        counts = {name: 14 + at // 10 for at, name in enumerate(NAMES)}
        laws = find_law(replace(other, k=1), counts), find_law(shorter.selection, counts)
        assert differ(*laws) > 0.01
