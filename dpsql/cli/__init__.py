"""The shell command `dpsql`: translates to and from a session, and decides nothing."""

from dpsql.cli.app import main

__all__ = ["main"]
