"""Confinement of processes by themselves: of workers, which open data, and of the PostgreSQL of the catalog."""

from collections.abc import Collection

MEASURES = ("capabilities", "files", "network", "processes", "system calls")  # all there are, as receipts name them


def select_measures(words: object) -> tuple[str, ...]:
    """Return the measures that a worker's message names: of the closed list, each once, in its order."""
    return tuple(name for name in MEASURES if name in words) if isinstance(words, list) else ()


def list_missing(measures: Collection[str]) -> str:
    """Return the names of the measures that are not among these, with commas."""
    return ", ".join(name for name in MEASURES if name not in measures)
