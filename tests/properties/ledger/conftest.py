"""Fixtures of ledgers."""

from support.ledger_fixtures import made, path, read_from, rich

__all__ = ["made", "path", "read_from", "rich"]
