from __future__ import annotations

from dpsql.notebook import _format_progress


def test_how_far_it_is_stands_beside_the_seconds_where_it_is_told() -> None:
    assert _format_progress(2, None).startswith("running for 2 s; an interrupted private query")
    assert _format_progress(2, 0.3456).startswith("running for 2 s, 35% done; an interrupted private query")
