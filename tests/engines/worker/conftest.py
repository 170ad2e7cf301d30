"""Fixture of the example's data set."""

from support.example_kit import _example_files, example

__all__ = ["_example_files", "example"]
