"""Shell command `dpsql`: translate arguments into calls of a session, and answers into text."""

from dpsql.cli.app import main

__all__ = ["main"]
