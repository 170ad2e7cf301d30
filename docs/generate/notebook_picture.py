"""Take docs/images/notebook.png: a notebook with the query of the tutorial's first page, and its chart.

python docs/generate/notebook_picture.py            takes it in docs/images
python docs/generate/notebook_picture.py x.png      takes it elsewhere

Needs dpsql[notebook,plot], nbclient, playwright and Chromium. The notebook runs the blocks of the page.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

_DOCS = Path(__file__).resolve().parents[1]
_PAGE = _DOCS / "tutorial" / "five-minutes.md"
_STYLE = """
body { font: 15px system-ui, sans-serif; margin: 20px; width: 820px }
pre { background: #f5f5f5; border: 1px solid #ddd; padding: 10px; font: 14px monospace; margin: 0 0 12px }
.cell { display: grid; grid-template-columns: 70px 1fr }
.prompt { color: #303f9f; font: 14px monospace; padding-top: 10px }
"""


def run(folder: Path) -> str:
    """Run the blocks of the page in a notebook, and return the last cell and its outputs as HTML."""
    text = _PAGE.read_text(encoding="utf-8")
    (policy,) = re.findall(r'^```toml title="([^"]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    (folder / policy[0]).write_text(policy[1], encoding="utf-8")
    cells = [block.strip() for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    found = (output.get("data", {}).get("image/png") for output in notebook.cells[-1].outputs)
    charts = (f'<img src="data:image/png;base64,{chart}">' for chart in found if chart)
    shown = [f"<pre>{html.escape(notebook.cells[-1].source)}</pre>", *charts]
    body = "".join(f"<div>{part}</div>" for part in shown)
    prompt = f"[{notebook.cells[-1].execution_count}]:"
    return f'<style>{_STYLE}</style><div class="cell"><div class="prompt">{prompt}</div><div>{body}</div></div>'


def main() -> None:
    """Run the notebook and photograph it."""
    from playwright.sync_api import sync_playwright

    place = Path(sys.argv[1]) if sys.argv[1:] else _DOCS / "images" / "notebook.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 870, "height": 400})
        page.set_content(run(Path(folder)))
        page.screenshot(path=str(place), full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
