"""Names that no row has: after a broad list, a filter that no row passes has an empty answer in 95 of 100 cases."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from scipy.stats import binom
from support.session_kit import filled, session_on, shared

import dpsql
from dpsql import plan as planning
from dpsql.accounting import ZCDP
from dpsql.plan.identity import stored_release
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import Auto, QueryKind
from dpsql.report.answer_json import encode_receipt
from dpsql.session import Session

NAMES, ABSENT = 60, "WHERE user_id < 0"
READS = (
    "CREATE TABLE reads AS SELECT u AS user_id, 'a' || lpad(i::VARCHAR, 2, '0') AS article, 1.0 AS price "
    f"FROM range(900) AS t(u), range({NAMES}) AS s(i) WHERE u % (i + 1) = 0"
)
FIRST = 12  # articles of 69 units or more: with a few rows in a segment
PEELED, WEIGHTED = "", ", mechanism = weighted_gaussian, delta = 1e-9"
HISTOGRAM = ", mechanism = gaussian_histogram, max_groups_contributed = 5, delta = 1e-9"
RELEASED, JOINT = ", domain = released", ", domain = released, mechanism = joint"


def know(session: Session, names: int = NAMES) -> None:
    """Make names known by an answer over a declared domain."""
    listed = ", ".join(f"'a{number:02}'" for number in range(names))
    query = f"SELECT article FROM reads GROUP BY article TOP {names} PRIVATE"
    session.sql(f"{query} WITH (epsilon = 0.01, domain = [{listed}])")


def ask(
    options: str = "",
    *,
    k: int = 10,
    where: str = ABSENT,
    counts: bool = False,
    epsilon: str = "0.2",
    fresh: bool = True,
) -> str:
    also = f"{', fresh = true' if fresh else ''}{options}"
    values = ", COUNT(DISTINCT user_id) AS n" if counts else ""
    return f"SELECT article{values} FROM reads {where} GROUP BY ALL TOP {k} PRIVATE WITH (epsilon = {epsilon}{also})"


def opened(certificate: str = "zcdp", **table: object) -> Session:
    budget = dpsql.Budget(100, "0.01", certificate=certificate, items=400 if certificate == "zcdp" else 40)
    own = dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id", **table)})  # type: ignore[arg-type]
    return session_on(shared(READS), own)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with opened() as session:
        know(session)
        yield session


MECHANISMS = {"AUTO": PEELED, "weighted": WEIGHTED, "histogram": HISTOGRAM, "released": RELEASED}
MECHANISMS |= {  # every mechanism of a known domain draws names against an evidence line
    each.name: f"{RELEASED}, mechanism = {each.name}"
    for each in list_records(QueryKind.KNOWN)
    if each.auto is Auto.NEVER
}


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_of_names_without_rows_hardly_ever_one_is_returned(session: Session, mechanism: str, counts: bool) -> None:
    query = ask(MECHANISMS[mechanism], counts=counts)
    answers = [session.sql(query) for _ in range(30)]
    assert {answer.receipt.known for answer in answers} == {NAMES}
    line = "as in dpsql/plan/mechanisms/candidates.py"
    todo = f"A plan of known names that are `request.evident` needs an evidence line, {line}."
    assert all(answer.receipt.evident for answer in answers), todo
    assert sum(len(answer) > 0 for answer in answers) < 9  # of 1.5; 9 or more in 1 of 10,000 runs
    empty = next(answer for answer in answers if not len(answer))
    assert empty.receipt.stopped_at_bottom
    assert str(empty.receipt).startswith("answered 0 of 10; used")
    assert "known = all" in str(empty)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_known_all_returns_k_names_rows_or_not(session: Session, mechanism: str, counts: bool) -> None:
    answer = session.sql(ask(f"{MECHANISMS[mechanism]}, known = all", counts=counts))
    assert len(answer) == 10
    assert not answer.receipt.evident
    assert "all of them known before" in str(answer.receipt)
    assert "rows or not" in dict(answer.receipt.details())["known names"]


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_names_that_rows_have_are_found(session: Session, mechanism: str, counts: bool) -> None:
    """With hundreds of units each nothing but their number decides."""
    query = ask(MECHANISMS[mechanism], k=3, where="", counts=counts, epsilon="1", fresh=False)
    answer = session.sql(query)
    assert [row[0] for row in answer.fetchall()] == ["a00", "a01", "a02"]
    assert "answered 3 of 3; all of them known before" in str(answer.receipt)
    assert answer.receipt.known_before == 3
    again = session.sql(query)
    assert again.receipt.replayed
    assert (again.receipt.known_before, again.receipt.evident) == (3, True)


def test_the_receipt_of_several_queries_adds_up_what_was_known_before(session: Session) -> None:
    one, two = ask(k=2, where="", epsilon="1"), ask(k=3, where="", epsilon="1")
    receipt = session.sql(f"SELECT a.article FROM ({one}) AS a, ({two}) AS b").receipt
    assert (receipt.known, receipt.known_before, receipt.evident) == (2 * NAMES, 5, True)
    assert "answered 2 of 2 and 3 of 3; all of them known before" in str(receipt)


def test_a_list_goes_on_behind_the_gate(session: Session) -> None:
    """Behind the gate all k come back, and the receipt says what that means."""
    seen = set[str]()
    for _ in range(40):
        answer = session.sql(ask(where="WHERE user_id < 200", epsilon="0.1"))
        answered, legs = len(answer), answer.receipt.legs
        words = legs.partition("; gate ")[2].split()
        seen.add(words[0] if words else "none")
        if words and words[0].startswith("open"):
            assert answered == 10
            assert answer.receipt.items_charged == 10
            assert "some name has rows" in legs
        if words and words[0].startswith("closed"):
            above = int(legs.partition(": ")[2].partition(";")[0])
            assert answered == above
            assert answer.receipt.stopped_at_bottom
            paid = Fraction(above + 1) + Fraction(9 - above, 10)
            item = answer.receipt.epsilon.value**2 / 8  # type: ignore[union-attr]
            assert answer.receipt.loss == ZCDP(dpsql.Rho(paid * item), dpsql.Delta(0))
    assert seen == {"open,", "closed:"}


def test_what_was_charged_is_what_the_ledger_says_and_at_most_what_was_reserved(session: Session) -> None:
    for options, counts, k in product(MECHANISMS.values(), [False, True], [1, 2, 10]):
        before, plan = session.budget.remaining, session.explain(ask(options, counts=counts, k=k))
        answer = session.sql(ask(options, counts=counts, k=k, where="WHERE user_id < 300"))
        spent = before.refundable - session.budget.remaining.refundable
        assert spent == plan.price(answer.receipt.loss).refundable
        assert spent <= plan.price(plan.worst_case).refundable
        assert answer.receipt.items_charged <= plan.worst_items


def test_counts_below_their_line_are_left_out_and_paid_for(session: Session) -> None:
    """No negative count is shown, and the charge is that of all counts that were drawn."""
    left_out = 0
    for _ in range(40):
        answer = session.sql(ask(where="WHERE user_id < 150", counts=True, epsilon="0.15"))
        counts = [n for _, n in answer.fetchall()]
        assert min(counts, default=99) > 20  # 2.5 sigma of 13 and more
        legs = answer.receipt.legs
        if "left out" in legs:
            left_out += 1
            dropped = int(legs.rpartition(": ")[2])
            assert answer.receipt.stopped_at_bottom
            assert answer.receipt.items_charged >= 2 * len(answer) + dropped
    assert left_out > 5


@pytest.mark.parametrize("certificate", ["pure", "theorem2", "optimal"])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_other_certificates_have_the_line_without_a_gate(certificate: str, counts: bool) -> None:
    """A Gaussian gate has no loss there: the list ends at BOTTOM, and whole items are charged."""
    with opened(certificate) as own:
        listed = ", ".join(f"'a{number:02}'" for number in range(30))
        own.sql(f"SELECT article FROM reads GROUP BY article TOP 30 PRIVATE WITH (domain = [{listed}])")
        query = (
            ask(RELEASED, counts=counts, k=5, fresh=False).replace("epsilon = 0.2, ", "").replace("epsilon = 0.2", "")
        )
        plan = own.explain(query)
        assert "gate" not in dict(plan.facts())["evidence"]
        answer = own.sql(query)
        assert not len(answer) or len(answer) < 5
        found = re.search(r"above the evidence line: (\d+)", dict(answer.receipt.details()).get("legs", ""))
        names = int(found[1]) if found else len(answer)  # in one of twenty answers there are some, whose counts are low
        assert answer.receipt.items_charged == names * (1 + counts) + 1
        assert "gate" not in answer.receipt.legs


def test_explain_says_where_the_line_is(session: Session) -> None:
    facts = dict(session.explain(ask()).facts())
    assert facts["domain"].startswith("60 names that earlier answers released")
    assert facts["evidence"] == (
        "BOTTOM stands at 38.9 units; if it comes first, a gate asks for one name of a noisy count of 22 units, and if "
        "it opens others follow; if no row has any of them, none is returned in 95 of 100 answers"
    )
    assert facts["items at most"] == (
        "10 (charged: one for each key and count returned, for BOTTOM, and what the gate and the names behind it use)"
    )
    assert "BOTTOM stands at" in dict(session.explain(ask(k=1)).facts())["evidence"]
    assert "gate" not in dict(session.explain(ask(k=1)).facts())["evidence"]
    for options in (WEIGHTED, HISTOGRAM):
        told = dict(session.explain(ask(options)).facts())["known names"]
        assert told.startswith("60 that earlier answers released need a noisy ")
        assert told.endswith(
            "less than the threshold; if no row has any of them, none is returned in 95 of 100 answers"
        )


def test_an_empty_answer_says_what_known_names_need_and_its_hint_works(session: Session) -> None:
    while len(answer := session.sql(ask())):
        pass
    told = str(answer)
    assert "60 articles are known from earlier answers. At this price they need about 22 users." in told
    assert "To see more: raise epsilon, or write known = all" in told
    assert len(session.sql(ask(", known = all"))) == 10


def test_the_wasted_charge_of_a_condition_on_the_unit_follows_the_line(session: Session) -> None:
    query = ask(where="WHERE user_id = 3", fresh=False)
    assert "nothing about so few is returned" in " ".join(session.explain(query).warnings)
    every = ask(", known = all", where="WHERE user_id = 3", fresh=False)
    assert "noise on known names" in " ".join(session.explain(every).warnings)


def test_all_private_and_totals_count_what_they_counted(session: Session) -> None:
    query = f"SELECT article, COUNT(DISTINCT user_id) AS n FROM reads {ABSENT} GROUP BY article ALL PRIVATE"
    answer = session.sql(f"{query} WITH (epsilon = 1, domain = released)")
    assert len(answer) == NAMES
    assert not answer.receipt.evident


def test_joint_asks_a_gate_first(session: Session) -> None:
    """It costs a tenth of the items, and the draw behind it what is left; together no more than k items."""
    plan = session.explain(ask(JOINT, k=5))
    gate, selection = plan.mechanism_plan.gate, plan.selection  # type: ignore[attr-defined]
    item = Fraction("0.2") ** 2 / 8
    assert gate.rho.value == item / 2
    assert 0 <= 5 * item - gate.rho.value - selection.epsilon.value**2 / 8 < Fraction(1, 10**10)  # type: ignore[attr-defined]
    assert dict(plan.facts())["evidence"].startswith("a gate asks for one name of a noisy count of 24 units")
    shut = next(answer for answer in (session.sql(ask(JOINT, k=5)) for _ in range(20)) if not len(answer))
    assert (shut.receipt.items_charged, shut.receipt.loss) == (1, ZCDP(gate.rho, dpsql.Delta(0)))
    assert "At this price they need about 24 users" in shut.explanation
    found = session.sql(ask(JOINT, k=5, where=""))
    assert len(found) == found.receipt.items_charged == 5
    assert found.receipt.legs == "gate open, so that some name has rows"


def test_min_units_and_per_use_no_known_names() -> None:
    with opened(min_units=20) as own:
        own.sql(ask(k=3, where="", epsilon="1", fresh=False))
        assert own.explain(ask(k=3)).query.names is None
        assert not own.sql(ask(k=3)).receipt.evident


def test_a_broad_list_and_then_a_filter_in_plain_words() -> None:
    """The case that started this: names of an earlier list, and a date that no row has reached."""
    own = dpsql.Policy(dpsql.Budget(100, "0.01"), {"plays": dpsql.PrivateTable("user_id")})
    rows = (
        "CREATE TABLE plays AS SELECT u AS user_id, 'artist ' || (u % 3) AS artist, DATE '2026-01-01' AS listened_at "
        "FROM range(900) AS t(u)"
    )
    with session_on(filled(rows), own) as session:
        broad = session.sql("SELECT artist FROM plays GROUP BY artist TOP 3 PRIVATE WITH (epsilon = 1)")
        assert len(broad) == 3
        later = (
            "SELECT artist, COUNT(DISTINCT user_id) AS n FROM plays WHERE listened_at > DATE '2030-01-02' "
            "GROUP BY artist TOP 3 PRIVATE WITH (epsilon = 0.05, delta = 1e-8, fresh = true{})"
        )
        assert sum(len(session.sql(later.format(""))) > 0 for _ in range(20)) < 8
        assert len(session.sql(later.format(", known = all"))) == 3


class _Earlier:
    """The plans of today, whose releases are stored as an earlier version did."""

    def __init__(self, pack: Callable[..., planning.PackedRelease]) -> None:
        self.pack_release = pack

    def __getattr__(self, name: str) -> object:
        return getattr(planning, name)


def test_an_answer_of_names_without_a_line_is_found_again_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 0.11 stored it: the same question, whose terms say nothing of a line, nor how many names were known."""

    def earlier(plan: planning.Plan, release: planning.Release, **given: Any) -> planning.PackedRelease:
        packed = planning.pack_release(plan, release, **given)
        _, _, content = packed.answer.partition(b"\n")
        facts, _, table = content.partition(b"\n")
        known = json.loads(facts)
        assert (known.pop("known_before"), known["terms"].pop("evident")) == (10, False)
        content = json.dumps(known).encode("ascii") + b"\n" + table
        return replace(packed, answer=stored_release._head(content, stored_release._MARK) + content)

    with opened() as own:
        know(own)
        query = ask(WEIGHTED, fresh=False)
        monkeypatch.setattr("dpsql.plan.mechanisms.record.MechanismRequest.evident", False)
        monkeypatch.setattr("dpsql.session.planning", _Earlier(earlier))
        first = own.sql(query)
        monkeypatch.undo()
        assert (len(first), first.receipt.evident) == (10, False)
        again = own.sql(query)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert not again.receipt.evident
        assert again.receipt.known_before is None
        assert "known before" not in str(again.receipt)
        assert own.explain(query).spec.rows.evident


def test_accounts_that_share_answers_share_none_of_another_line(session: Session) -> None:
    for options in (PEELED, WEIGHTED, HISTOGRAM):
        laws = {session.explain(ask(f"{options}{also}")).law for also in ("", ", known = true", ", known = all")}
        assert len(laws) == 2


def test_the_json_of_a_receipt_says_it(session: Session) -> None:
    told = encode_receipt(session.sql(ask(k=3, where="", epsilon="1")).receipt)
    assert (told["known"], told["evident"], told["known_before"]) == (NAMES, True, 3)


STRICT = ", evidence = strict"


@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_strict_evidence_ends_the_list_at_bottom(session: Session) -> None:
    """One name of 32 units often opens the gate (22) for names without rows; strict evidence has none behind it.

    A name without rows comes before BOTTOM in at most 0.05 of the answers: in more than 12 of 40 with less than 1e-6.
    """
    one = "WHERE article = 'a00' AND user_id < 32"
    assert max(len(session.sql(ask(where=one))) for _ in range(60)) == 10
    plan = session.explain(ask(STRICT, where=one))
    assert "gate" not in " ".join(map(" ".join, plan.facts()))
    others = 0
    for _ in range(40):
        answer = session.sql(ask(STRICT, where=one))
        others += any(article != "a00" for (article,) in answer.fetchall())
        assert answer.receipt.items_charged == len(answer) + 1
        assert answer.receipt.stopped_at_bottom
        assert "gate" not in answer.receipt.legs
    assert others <= 12


def test_strict_evidence_returns_a_name_without_rows_in_one_of_twenty_answers(session: Session) -> None:
    """Two-sided: an answer of 60 names without rows has one with probability 0.0476, 600 answers 14 to 46 of them."""
    found = sum(len(session.sql(ask(f"{STRICT}, known = true"))) > 0 for _ in range(600))
    low, high = binom(600, 0.0476).ppf([1e-7, 1 - 1e-7])
    assert low <= found <= high


def test_strict_evidence_is_another_question_and_auto_is_none(session: Session) -> None:
    session.sql(ask(fresh=False, where="WHERE user_id < 300"))
    assert session.sql(ask(", evidence = auto", fresh=False, where="WHERE user_id < 300")).receipt.replayed
    assert not session.sql(ask(STRICT, fresh=False, where="WHERE user_id < 300")).receipt.replayed


def test_weights_and_counts_have_a_line_for_each_name_in_any_case(session: Session) -> None:
    for options in (WEIGHTED, HISTOGRAM):
        assert session.explain(ask(options + STRICT)).mechanism_plan == session.explain(ask(options)).mechanism_plan


def test_a_new_account_has_no_known_names_and_is_not_refused() -> None:
    with opened() as own:
        assert own.explain(ask(STRICT)).worst_items == 10


@pytest.mark.parametrize(
    ("written", "place", "mended"),
    [
        (ask(", evidence = loose"), "evidence = loose", ask(STRICT)),
        (ask(", evidence = 'strict'"), "evidence = 'strict'", ask(STRICT)),
        (ask(", evidence = 3"), "evidence = 3", ask()),
        (ask(", evidence = strict, known = all"), "evidence = strict", ask(", known = all")),
        (ask(", evidence = strict, known = false"), "evidence = strict", ask(STRICT + ", known = true")),
        (ask(", evidence = strict, domain = ['a', 'b']"), "evidence = strict", ask(", domain = ['a', 'b']")),
        (ask(f"{JOINT}{STRICT}"), "evidence = strict", ask(f"{RELEASED}, mechanism = peeling{STRICT}")),
        (ask(STRICT).replace("TOP 10", "TOP ADAPTIVE"), "evidence = strict", ask(STRICT)),
        (ask(STRICT + RELEASED).replace("TOP 10", "ALL"), "evidence = strict", ask(STRICT + RELEASED)),
    ],
)
def test_evidence_of_no_meaning_is_refused_and_its_hint_works(
    session: Session, written: str, place: str, mended: str
) -> None:
    with pytest.raises(dpsql.Refusal) as refused:
        session.explain(written)
    assert refused.value.code == "option"
    found = refused.value.place
    assert found is not None
    assert written[found.column - 1 :].startswith(place)
    assert session.explain(mended).worst_items >= 1


def test_strict_evidence_is_refused_where_names_are_not_used() -> None:
    with opened(min_units=2) as own, pytest.raises(dpsql.Refusal, match="at least so many units"):
        own.explain(ask(STRICT))
