"""Fixtures of ledgers in PostgreSQL, and of replays."""

from support.ledger_fixtures import read_from
from support.postgres_ledger_kit import place, rich, role

__all__ = ["place", "read_from", "rich", "role"]
