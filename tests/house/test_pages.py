"""Generated pages are what the code says, numbers of pages are those of the library, and the site builds."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.command_kit import run_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
SEARCHED = {  # words that a reader searches for, and pages that the search must find
    "privacy_unit": "reference/policy.html",
    "max_groups_contributed": "reference/sql/top-k-private.html",
    "budget-exceeded": "reference/errors.html",
    "activate": "tutorial/first-answer.html",
}


def test_the_generated_pages_are_what_the_code_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "generate", "--to", tmp_path], check=True, timeout=120)
    written = {page.relative_to(tmp_path): page.read_text() for page in tmp_path.rglob("*.md")}
    marked = [page for page in GENERATED.rglob("*.md") if "<!-- Written by `python docs/generate`" in page.read_text()]
    assert written.keys() == {page.relative_to(GENERATED) for page in marked}
    for name, text in written.items():
        assert (GENERATED / name).read_text() == text, f"{name}: run `python docs/generate`, and read the difference"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", ".mkdocs.yml", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    found = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    assert not [page["location"] for page in found if page["location"].startswith("generate/")]
    for word, page in SEARCHED.items():
        assert any(each["location"].startswith(page) and word in each["text"] for each in found), f"{word} in {page}"


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(DOCS / "generate")
    return import_module("picture")


def test_the_numbers_beside_the_picture_are_those_of_the_library(picture: Any) -> None:
    rows = re.findall(
        r"\| ([\d.]+) \| ([\d.]+) of 100 \| ([\d.]+) in 100 \| ([\d,]+) \|", words("explanation/meaning.md")
    )
    assert [
        (
            f"{total:g}",
            f"{100 * picture.guessed(total, 1e-6):.1f}",
            f"{100 * picture.belief(0.01, total):.1f}",
            f"{float(picture.mechanism(total).threshold_offset):,.0f}",
        )
        for total in picture.TOTALS
    ] == rows


def test_the_probabilities_of_the_picture_are_those_of_the_mechanism(picture: Any) -> None:
    """Draw what the picture computes: a group alone, a little above the threshold."""
    from dpsql.mechanisms import Histogram, OperatingSystemNoise

    answering, noise, users, draws = picture.mechanism(1.0), OperatingSystemNoise(), 545, 4_000
    drawn = sum(len(answering.select(Histogram((users,), 0), noise).positions) for _ in range(draws))
    wanted = picture.returned(users, 1.0)
    assert 0.55 < wanted < 0.7
    assert abs(drawn / draws - wanted) < 0.05  # more than six standard deviations


def test_the_sizes_that_pages_tell_are_those_of_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[budget]\nepsilon = 1.0\ndelta = 1e-6\n[tables.t]\nprivacy_unit = 'u'")
    _, checked, _ = run_command(tmp_path, "check", "--policy", "policy.toml")
    assert re.search(r"TOP 10 with counts +20 +5 +200 +533\.4 +± 92", checked)
    assert "needs about 530 users" in words("explanation/faq.md")
    assert "within 92 of the exact one" in words("explanation/faq.md")


def test_the_page_of_mechanisms_has_the_costs_where_nothing_stands_out() -> None:
    from dpsql.mechanisms.gate import LOOK_SHARE, find_open_probability

    page = (DOCS / "reference/sql/mechanisms.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+)(?: items)? \| ([\d.]+) \| 1 \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for k, two, one in rows:
        keys, spent = int(k), 2 * LOOK_SHARE
        after_two, after_one = (find_open_probability(keys, looks) for looks in (2, 1))
        average = keys * (spent + after_two * (1 - spent)) + (1 - spent) * (1 - after_two)
        gate = keys * (LOOK_SHARE + after_one * (1 - LOOK_SHARE))
        assert f"{float(average):.1f}" == two
        assert f"{float(gate):.1f}" == one


def test_the_receipt_that_a_page_explains_is_one() -> None:
    from fractions import Fraction

    from dpsql import Budget, Policy, PrivateTable, Receipt
    from dpsql.accounting import ZCDP, BudgetVector, Rise
    from dpsql.mechanisms import Selection
    from dpsql.mechanisms.base import LabelPosition
    from dpsql.mechanisms.two_looks import Answerer, TwoLooks
    from dpsql.terms import Terms

    terms = Terms.of_policy(Policy(Budget(1, "1e-6"), {"t": PrivateTable("u")}))
    looks = TwoLooks(terms.epsilon, terms.delta, k=10, k_bar=1000, weighed_groups=100)
    drawn = Selection(tuple(map(LabelPosition, range(7))), stopped_at_bottom=True)
    own = looks.leaders(Answerer.AT_ONCE).loss(drawn)
    loss = looks.loss(Answerer.AT_ONCE, own)
    left = BudgetVector.of(ZCDP(terms.budget.rho - loss.rho, terms.budget.delta - loss.delta))
    receipt = replace(
        Receipt.free(left, sealed=True),
        mechanism=looks.name,
        k=looks.k,
        k_bar=looks.k_bar,
        epsilon=looks.epsilon,
        items_charged=math.ceil(looks.items(Answerer.AT_ONCE, own)),
        legs="by counts about 9 of 10 stand out; limited domain, after the first look: 7",
        loss=loss,
        stopped_at_bottom=True,
        answered=7,
        wanted=10,
        rise=Rise.between(Fraction(0), BudgetVector.of(loss).share_of(terms.budget)),
        more=11,
    )
    page = words("explanation/meaning.md")
    assert f"```text {receipt} ```" in page
    told = dict(receipt.details())
    assert f"charged    {told['charged']} legs       {told['legs']}" in page
    assert f"remaining  {told['remaining']}" in page


def words(name: str) -> str:
    return " ".join((DOCS / name).read_text().split("\n"))
