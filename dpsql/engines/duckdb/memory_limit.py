"""Memory limits as DuckDB writes them, such as "4GB", in bytes."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["choose_smaller", "parse_bytes"]

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SHARE = 0.8  # of the machine's memory, which DuckDB takes where it is given no limit


def parse_bytes(memory_limit: str | None) -> int:
    """Return a memory limit in bytes; a share of the machine's for None, and for a text that DuckDB will refuse."""
    with suppress(ValueError, KeyError):
        text = (memory_limit or "").replace(" ", "").upper()
        number = text.rstrip("KMGTIB")
        return int(float(number) * _UNITS[text[len(number) :]])
    return int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def choose_smaller(memory_limit: str | None, other: str) -> str:
    """Return the smaller of two limits, where the first may be None."""
    return memory_limit if memory_limit is not None and parse_bytes(memory_limit) < parse_bytes(other) else other
