"""Fixtures of ledgers."""

from support.ledger_fixtures import made, path, read_from, rich
from support.postgres_ledger_kit import place, role

__all__ = ["made", "path", "place", "read_from", "rich", "role"]
