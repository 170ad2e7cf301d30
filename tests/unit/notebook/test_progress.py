from __future__ import annotations

from dpsql.notebook.progress import _words


def test_how_far_it_is_stands_beside_the_seconds_where_it_is_told() -> None:
    assert _words(2, None).startswith("asking for 2 s; a private query")
    assert _words(2, 0.3456).startswith("asking for 2 s, 35% done; a private query")
