"""Child processes that a failing test does not wait for."""

from __future__ import annotations

import subprocess

__all__ = ["Child"]


class Child(subprocess.Popen):  # type: ignore[type-arg]
    """A process that is killed when the body of its `with` raises, so that a test fails instead of hanging."""

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)  # type: ignore[arg-type]
