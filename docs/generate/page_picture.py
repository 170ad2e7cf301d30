"""Take docs/images/page.png: the page of a server, in a real browser. Needs dpsql[server], playwright and Chromium.

python docs/generate/page_picture.py            takes it in docs/images
python docs/generate/page_picture.py x.png      takes it elsewhere
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

_DPSQL = Path(sys.executable).with_name("dpsql")
_PLACE = Path(__file__).resolve().parents[1] / "images" / "page.png"
_ADDRESS, _PASSWORD = "127.0.0.1:18080", "correct horse battery"
_POLICY = f"""\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[tables.countries]
public = true
[server]
users = "users.toml"
postgres = "off"
web = "{_ADDRESS}"
"""
_ARTICLES = {
    "Election results": 5200,
    "Weather warning": 4100,
    "Cup final": 3300,
    "Rail strike": 2700,
    "Recipe of the week": 1900,
    "Obituary": 1200,
}
_QUERY = """\
SELECT article, COUNT(DISTINCT user_id) AS readers
FROM reads
WHERE country IN ('DE', 'FR', 'NL')
GROUP BY article
TOP 6 PRIVATE"""


def prepare(folder: Path) -> None:
    """Write data, a policy and a user into a folder."""
    with duckdb.connect(str(folder / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads(user_id BIGINT, article VARCHAR, country VARCHAR, ts TIMESTAMP)")
        for article, readers in _ARTICLES.items():
            rows = "SELECT u, ?, ['DE', 'FR', 'NL'][1 + u % 3], TIMESTAMP '2026-01-01' FROM range(?) t(u)"
            database.execute(f"INSERT INTO reads {rows}", [article, readers])
        database.execute("CREATE TABLE countries AS SELECT unnest(['DE', 'FR', 'NL']) AS country")
    (folder / "policy.toml").write_text(_POLICY)
    add = [_DPSQL, "user", "add", "alice", "--policy", "policy.toml", "--password-stdin"]
    subprocess.run(add, cwd=folder, input=_PASSWORD, text=True, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def photograph(place: Path) -> None:
    """Log in, run the query, and take the picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1160, "height": 850})
        page.goto(f"http://{_ADDRESS}/login")
        page.locator("#name:focus").wait_for()
        for text, key in (("alice", "Tab"), (_PASSWORD, "Enter")):
            page.keyboard.type(text)
            page.keyboard.press(key)
        page.wait_for_url(lambda url: not url.endswith("/login"))
        page.focus("#question")
        page.keyboard.insert_text(_QUERY)
        page.keyboard.press("Control+Enter")
        page.get_by_text("Private answer").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=str(place))
        browser.close()


def main() -> None:
    """Serve the example until the picture is taken."""
    place = Path(sys.argv[1]) if sys.argv[1:] else _PLACE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        command = [_DPSQL, "serve", "--policy", "policy.toml", "--db", "events.duckdb"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            try:
                while server.stdout is not None and "ready" not in server.stdout.readline():
                    pass
                photograph(place)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
