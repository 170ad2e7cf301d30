"""docs/how-to/flight.md: the client that it shows gets its answer."""

from __future__ import annotations

import re
from pathlib import Path

from .conftest import WORDS, Served

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "flight.md").read_text()


def test_the_client_of_the_page_gets_its_answer(served: Served) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert WORDS in block
    scope: dict[str, object] = {}
    exec(block.replace("grpc://127.0.0.1:8815", served.uri), scope)
    assert len(scope["table"]) == 3  # type: ignore[arg-type]
    assert served.charges() == 1
