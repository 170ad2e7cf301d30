"""Note on a list that is cut: SQL promises all groups, and a ranking returns the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["CutList"]


@dataclass(frozen=True, slots=True)
class CutList:
    """What is `found` of the groups that SQL promises, and what to write, and where, for `k` alone, more, or all.

    `more` groups are proposed at most, 0 for none.
    """

    found: str
    k: int
    place: str = ""
    alone: str = ""
    more: int = 0
    where: str = ""
    every: str = ""

    def describe(self, fits: Callable[[int], bool]) -> str:
        """Return the note, which proposes as many groups as fit the budget of the policy."""
        more = next((k for k in range(self.more, self.k, -1) if fits(k)), 0)
        hints = [self.alone, f"TOP {more} PRIVATE{self.where} for more" if more else "", self.every]
        *most, last = [each for each in hints if each] or [""]
        return f"{self.found}; write {self.place}{', '.join(most)}{' or ' * bool(most)}{last}" if last else self.found
