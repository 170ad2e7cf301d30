"""The page in a real browser: what is typed, clicked, seen and heard, in light, dark and on a phone.

Every page is watched: a word on the console, such as of a policy that a script broke, fails the test.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.web_kit import COUNTS, NAMES, PASSWORD, World, opened, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here")
PHONE, DESK = {"width": 375, "height": 720}, {"width": 1200, "height": 850}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def place(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(data, folder, dirs_exist_ok=True)
    with opened(folder) as world, served(world) as address:
        yield world, address


@contextmanager
def visiting(chromium: Any, address: str, name: str, **options: Any) -> Iterator[Any]:
    """Log in, and yield a page on which nothing may go wrong unseen."""
    context = chromium.new_context(viewport=options.pop("viewport", DESK), **options)
    page, told = context.new_page(), []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("requestfailed", lambda request: "ABORTED" in request.failure or told.append(request.url))  # by leaving
    page.on("request", lambda request: request.url.startswith(address) or told.append(request.url))
    page.set_default_timeout(20_000)
    page.goto(f"{address}/login")
    page.locator("#name:focus").wait_for()
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: not url.endswith("/login"))
    yield page
    assert told == []
    context.close()


def shown(page: Any, part: str) -> str:
    """Return the text of a part of the page, once there is any."""
    page.wait_for_function("part => document.querySelector(part)?.innerText.trim()", arg=part)
    return str(page.inner_text(part))


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def test_a_question_is_priced_while_it_is_typed_and_asked_with_the_keyboard_alone(
    chromium: Any, place: tuple[World, str]
) -> None:
    world, address = place
    before = world.charges()
    with visiting(chromium, address, "alice") as page:
        page.focus("#question")
        page.keyboard.insert_text(COUNTS)
        assert " % more of the budget. " in shown(page, "#preview")
        assert world.charges() == before
        page.keyboard.press("Control+Enter")
        assert "of the budget; about " in shown(page, "#answer .card")
        assert page.locator("#answer svg rect").count() >= 3
        assert page.inner_text("#preview") == ""
        page.wait_for_selector("#budget >> text=/, 9[0-9.]+ % is left/")
        assert world.charges() == before + 1
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("text=stored answer, nothing was charged")
        assert world.charges() == before + 1
        assert page.get_attribute("#answer", "aria-live") == "polite"


def test_words_are_completed_by_the_keyboard(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "alice") as page:
        page.focus("#question")
        page.keyboard.type("SELECT arti")
        page.wait_for_selector("#offers li")
        assert page.is_visible("#offers")
        page.keyboard.press("ArrowDown")
        assert page.get_attribute("#question", "aria-activedescendant") == "offer-0"
        page.keyboard.press("Enter")
        assert page.input_value("#question") == "SELECT article "
        page.keyboard.type("FROM re")
        page.wait_for_selector("#offers li")
        page.keyboard.press("Tab")
        assert page.input_value("#question") == "SELECT article FROM reads "
        page.keyboard.type("co")
        page.wait_for_selector("#offers li")
        page.keyboard.press("Escape")
        assert page.is_hidden("#offers")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "run"
        page.click("button[data-word='<img src=x>']")
        assert page.input_value("#question") == 'SELECT article FROM reads co"<img src=x>"'


def test_a_refusal_stands_below_the_question_with_its_place(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "alice") as page:
        page.fill("#question", "SELECT nowhere FROM reads TOP 3 PRIVATE")
        page.click("#run")
        told = shown(page, "#answer .refused")
        assert "Refusal: unknown-column" in told
        assert "Hint:" in told
        assert page.inner_text("#answer mark") == "nowhere"
        assert page.input_value("#question") == "SELECT nowhere FROM reads TOP 3 PRIVATE"


def test_an_exhausted_budget_is_told_before_it_is_asked(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "poor") as page:
        page.fill("#question", NAMES.replace("TOP 3", "TOP 1"))
        page.click("#run")
        # an item, of an epsilon that is rounded down
        assert re.search(r"answered 1 of 1; used (49\.99|50) % of the budget", shown(page, "#answer .card"))
        page.fill("#question", NAMES)
        page.click("text=What would it cost?")
        assert "Does not fit." in shown(page, "#preview")
        page.click("#run")
        assert "budget-exceeded" in shown(page, "#answer .refused")


def test_an_answer_of_the_history_is_shown_again_by_one_click(chromium: Any, place: tuple[World, str]) -> None:
    world, address = place
    with visiting(chromium, address, "both") as page:
        page.fill("#question", NAMES)
        page.click("#run")
        shown(page, "#answer .card")
        before = world.charges()
        page.click("text=History")
        page.click("text=Show again")
        assert "nothing was charged" in shown(page, "#answer .card")
        assert world.charges() == before
        page.click("text=Edit")
        assert page.input_value("#question") == NAMES


def test_a_curator_finds_everything_and_confirms_a_grant(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "clara") as page:
        assert "Spending" in page.title()
        page.click("text=Policy")
        assert "every user_id" in page.inner_text("main")
        page.click("nav >> text=Refusals")
        assert "At" in page.inner_text("main")
        page.click("text=Ledger")
        page.click("text=Verify")
        assert "hold together" in shown(page, "[role=status]")
        page.fill("#epsilon", "5")
        page.fill("#delta", "1.25e-6")
        page.fill("#note", "agreed")
        page.click("text=See what it would do")
        assert "Raise the total for good?" in page.inner_text("main")
        page.click("text=Leave it as it is")
        assert "(4, 1e-06)" in page.inner_text("main")


def test_every_page_fits_a_phone_and_can_be_read(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "both", viewport=PHONE) as page:
        page.fill("#question", COUNTS)
        page.click("#run")
        shown(page, "#answer .card")
        for path in (None, "/history", "/tables", "/curator/spending", "/curator/policy", "/curator/ledger"):
            if path:
                page.goto(place[1] + path)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour is on its way to another
                assert fits(page), (path, scheme)
                assert page.evaluate(CONTRAST) >= 4.5, (path, scheme)


def test_the_first_thing_that_is_reached_skips_to_the_content(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "alice") as page:
        page.goto(place[1] + "/tables")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(place[1] + "/")
        fields = "[...document.querySelectorAll('input:not([type=hidden]), textarea')]"
        assert page.evaluate(f"{fields}.length") == 1
        assert page.evaluate(f"{fields}.every(one => one.labels.length)")


def test_a_visit_that_has_ended_leads_back_to_the_login(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "alice") as page:
        page.click("text=Log out")
        page.wait_for_url("**/login")
        page.goto(place[1] + "/history")
        assert page.url.endswith("/login")


# The least contrast of any text with what is behind it, by the formula of WCAG 2.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (css) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (part) => {
    for (let at = part; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const parts = [...document.querySelectorAll("body *")].filter((part) =>
    part.checkVisibility() && [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  return Math.min(...parts.map((part) => {
    const [one, other] = [light(parse(getComputedStyle(part).color)), light(behind(part))].sort((a, b) => b - a);
    return (one + 0.05) / (other + 0.05);
  }));
}"""


def faults(page: Any) -> list[str]:
    """Return what axe-core finds against the page, by rule and element: all in light, and colours again in dark."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour is on its way to another
        found += Axe().run(page, options=rules).response["violations"]
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found for node in rule["nodes"]]


def test_axe_finds_no_fault_on_any_page(chromium: Any, place: tuple[World, str]) -> None:
    with visiting(chromium, place[1], "clara") as page:
        for path in ("/curator/spending", "/curator/policy", "/curator/ledger", "/curator/refusals"):
            page.goto(f"{place[1]}{path}")
            assert faults(page) == [], path
    with visiting(chromium, place[1], "alice") as page:
        for path in ("/", "/history", "/tables", "/help"):
            page.goto(f"{place[1]}{path}")
            assert faults(page) == [], path
        page.goto(place[1])
        page.focus("#question")
        page.keyboard.insert_text(COUNTS)
        page.keyboard.press("Control+Enter")
        assert shown(page, "#answer .card")
        for summary in page.locator("#answer summary").all():
            summary.click()
        assert faults(page) == []
        page.focus("#question")
        page.keyboard.insert_text("nonsense ")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#answer .refused")
        assert faults(page) == []


def test_an_answer_has_a_link_files_and_texts_to_copy(chromium: Any, place: tuple[World, str]) -> None:
    world, address = place
    with visiting(chromium, address, "alice", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.focus("#question")
        page.keyboard.insert_text(COUNTS)
        page.keyboard.press("Control+Enter")
        assert shown(page, "#answer .card")
        charges = world.charges()
        page.locator("#answer summary", has_text="Use it elsewhere").click()
        page.click("button[data-copy=as-sql]")
        page.wait_for_selector("text=Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == COUNTS
        page.click("button[data-copy=as-python]")
        assert "psycopg.connect" in page.inner_text("#as-python")
        with page.expect_download() as csv:
            page.click("text=CSV")
        assert Path(csv.value.path()).read_text().startswith('"article","n"\n')
        with page.expect_download() as parquet:
            page.click("text=Parquet")
        assert Path(parquet.value.path()).read_bytes()[:4] == b"PAR1"
        page.click("text=Link to this answer")
        page.wait_for_url("**/answers?*")
        assert "stored answer, nothing was charged" in shown(page, "#answer .card")
        assert world.charges() == charges


def test_the_keyboard_goes_through_the_page_in_the_order_of_reading(chromium: Any, place: tuple[World, str]) -> None:
    """A screen reader reads in the order of the document; the Tab key goes the same way, and reaches every control."""
    with visiting(chromium, place[1], "alice") as page:
        page.focus("#question")
        page.keyboard.insert_text(COUNTS)
        page.keyboard.press("Control+Enter")
        assert shown(page, "#answer .card")
        page.focus(".skip")
        reached = []
        for _ in range(60):
            reached.append(page.evaluate(POSITION))
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body || document.activeElement.matches('.skip')"):
                break
        positions = [position for position, _ in reached]
        assert positions == sorted(positions)
        words = [word for _, word in reached]
        wanted = ["Skip to the content", "Ask", "Log out", "Run", "What would it cost?", "Link to this answer", "CSV"]
        assert [word for word in words if word in wanted] == wanted


POSITION = """() => {
  const controls = [...document.querySelectorAll('a, button, summary, textarea, input, [tabindex]')];
  const at = document.activeElement;
  return [controls.indexOf(at), (at.innerText || at.id || '').trim()];
}"""
