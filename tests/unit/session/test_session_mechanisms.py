"""What holds of every mechanism that ranks groups, through SQL: empty tables, refused options, stored answers."""

from __future__ import annotations

import pytest
from support.groups_kit import COUNTS, NAMES, drawn, session_over
from support.sets_kit import articles

import dpsql
from dpsql.plan import compute_release_key

TWO = "max_groups_contributed = 2"
EVERY = {
    "limited_domain": "mechanism = limited_domain",
    "a chosen k_bar": "k_bar = AUTO",
    "two_looks": "mechanism = two_looks",
    "weighted_gaussian": "mechanism = weighted_gaussian, gate = false",
    "domain_discovery": "mechanism = domain_discovery, gate = false",
    "gaussian_histogram": f"mechanism = gaussian_histogram, gate = false, {TWO}",
    "laplace_limited_domain": f"mechanism = laplace_limited_domain, {TWO}",
    "stable": "mechanism = stable",
    "top_stable": "mechanism = top_stable",
}


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_nobody_is_seen_in_an_empty_table(options: str) -> None:
    session = session_over()
    for sql in (NAMES, COUNTS):
        assert {len(each.table) for each in drawn(session, session.explain(sql.format(more=f", {options}")), 100)} == {
            0
        }


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_the_same_question_is_answered_from_the_ledger_and_no_other(options: str) -> None:
    session, sql = session_over(*articles({"b": 290, "a": 295, "c": 2}), budget="0.99"), f", {options}"
    first = session.sql(COUNTS.format(more=sql))
    shown = session.sql(
        COUNTS.format(more=sql).replace("SELECT article", "SELECT article AS x") + " ORDER BY n LIMIT 1"
    )
    assert shown.receipt.replayed
    assert shown.fetchall() == sorted(first.fetchall(), key=lambda row: row[1])[:1]  # ties as they were drawn
    again = session.sql(COUNTS.format(more=sql).replace("TOP 2", "TOP ?"), [2])
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert (again.receipt.k_bar, again.receipt.chosen) == (first.receipt.k_bar, first.receipt.chosen)
    assert not session.sql(COUNTS.format(more=f"{sql}, fresh = true")).receipt.replayed
    texts = [NAMES.format(more=sql), COUNTS.format(more=sql)]
    texts += [texts[0].replace(*change) for change in (("= 1", "= 0.5"), ("0.1", "0.2"), ("TOP 2", "TOP 3"))]
    if TWO not in options:
        texts += [text.format(more=f"{sql}, {TWO}") for text in (NAMES, COUNTS)]
    assert len({compute_release_key(session.explain(text)) for text in texts}) == len(texts)


def test_each_mechanism_is_a_question_of_its_own() -> None:
    session = session_over()
    texts = [sql.format(more=f", {options}") for options in EVERY.values() for sql in (NAMES, COUNTS)]
    alone = NAMES.replace("TOP 2", "TOP 1")
    texts += [alone.format(more=f", k_bar = {k_bar}") for k_bar in ("1", "8192", "20", "AUTO")]
    assert len({compute_release_key(session.explain(text)) for text in texts}) == len(texts)
    for other in (", k_bar = auto", ", k_bar = AUTO, mechanism = auto"):
        assert session.explain(NAMES.format(more=other)).key == session.explain(NAMES.format(more=", k_bar = AUTO")).key


FEW_UNITS = {"min_units": 5}
REFUSED = [
    *(
        (f"mechanism = {name}", FEW_UNITS, "min-units", "mechanism")
        for name in ("weighted_gaussian", "domain_discovery")
    ),
    *((EVERY[name], FEW_UNITS, "min-units", "mechanism") for name in ("gaussian_histogram", "laplace_limited_domain")),
    *((EVERY[name], FEW_UNITS, "min-units", "mechanism") for name in ("stable", "top_stable")),
    *((f"{EVERY[name]}, domain = ['a', 'b']", {}, "option", "mechanism") for name in EVERY if "chosen" not in name),
    ("k_bar = AUTO, domain = ['a', 'b']", {}, "option", "k_bar"),
    *((f"mechanism = {name}", {}, "bound", "mechanism") for name in ("gaussian_histogram", "laplace_limited_domain")),
    *(
        (f"mechanism = {name}, {TWO[:-1]}65537", {}, "option-range", "mechanism")
        for name in ("weighted_gaussian", "domain_discovery", "gaussian_histogram")
    ),
    *(
        (f"mechanism = {name}, {TWO[:-1]}5", {"max_groups_contributed": 4}, "option-range", "max_groups")
        for name in ("weighted_gaussian", "domain_discovery", "gaussian_histogram")
    ),
    *(
        (f"{EVERY[name]}, k_bar = 5", {}, "option", "k_bar")
        for name in ("weighted_gaussian", "domain_discovery", "gaussian_histogram")
    ),
    *(
        (f"{EVERY[name]}, k_bar = AUTO", {}, "option", "k_bar")
        for name in ("gaussian_histogram", "laplace_limited_domain", "stable", "top_stable")
    ),
    *(
        (f"{EVERY[name]}, k_bar = 1", {}, "option-range", "k_bar")
        for name in ("laplace_limited_domain", "stable", "top_stable")
    ),
    ("k_bar = 'AUTO'", {}, "option-range", "k_bar"),
    *((f"mechanism = {name}, prefer = 2", {}, "option", "prefer") for name in ("stable", "top_stable")),
    *(
        (f"{name}penalty = 2", {}, "option", "penalty")
        for name in ("", "mechanism = stable, ", "mechanism = top_stable, ")
    ),
]


@pytest.mark.parametrize(("options", "bounds", "code", "place"), REFUSED)
def test_an_option_of_no_meaning_is_refused_where_it_is_written(
    options: str, bounds: dict[str, int], code: str, place: str
) -> None:
    session, text = session_over(**bounds), NAMES.format(more=f", {options}")
    text = text.replace("delta = 0.1, ", "") if "domain = " in options else text
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Refusal) as caught:
            ask(text)
        assert caught.value.code == code
        assert isinstance(caught.value.place, dpsql.Place)
        assert caught.value.place.fragment.startswith(place)
        assert caught.value.hint
    assert session.budget.rho.spent == 0
