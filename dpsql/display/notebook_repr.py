"""How a value shows itself in a notebook."""

from __future__ import annotations

from abc import abstractmethod

__all__ = ["NotebookRepr"]


class NotebookRepr:
    """A value that a notebook shows as its HTML and, where that cannot be shown, as its words, not its fields."""

    __slots__ = ()

    @abstractmethod
    def _repr_html_(self) -> str:
        """Return it as HTML."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return both, as IPython asks for them."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}
