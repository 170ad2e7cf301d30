"""Fixture of the ledger's tests that those of PostgreSQL share."""

from support.ledger_fixtures import read_from

__all__ = ["read_from"]
