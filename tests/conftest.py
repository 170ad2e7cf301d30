"""Every run draws the same examples, so that a checkout passes or fails; DPSQL_FUZZ=1 draws new ones each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("fuzz", print_blob=True)
settings.load_profile("fuzz" if os.environ.get("DPSQL_FUZZ") else "same")


def pytest_sessionfinish() -> None:
    """Remove the scratch folders of processes that tests have killed."""
    from dpsql.engines.scratch import sweep

    sweep()
