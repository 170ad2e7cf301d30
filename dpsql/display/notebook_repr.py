"""Base class of values with an HTML display in notebooks."""

from __future__ import annotations

from abc import abstractmethod

__all__ = ["NotebookRepr"]


class NotebookRepr:
    """Value that a notebook shows as HTML, or as its `str` where HTML is not available."""

    __slots__ = ()

    @abstractmethod
    def _repr_html_(self) -> str:
        """Return the value as HTML."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the value as text and as HTML, for IPython."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}
