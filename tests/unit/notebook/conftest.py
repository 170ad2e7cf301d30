"""Fixtures of notebooks."""

from support.notebook_kit import folder, shell

__all__ = ["folder", "shell"]
