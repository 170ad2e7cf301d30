"""Defaults from the environment: DPSQL_POLICY, DPSQL_DB and DPSQL_ANALYST, and policy.toml in the current folder."""

from __future__ import annotations

import os
from pathlib import Path

from dpsql.errors import PolicyError

__all__ = ["default_analyst", "default_database", "default_policy"]


def default_policy() -> Path:
    """Return $DPSQL_POLICY, or policy.toml where it exists; raise `PolicyError` if there is neither."""
    named = os.environ.get("DPSQL_POLICY")
    if named:
        return Path(named)
    here = Path("policy.toml")
    if here.is_file():
        return here
    hint = (
        "Name a policy file (policy=... in Python, --policy on the command line), set DPSQL_POLICY, or run dpsql init."
    )
    raise PolicyError("policy-missing", "No policy is given, and there is no policy.toml here.", hint=hint)


def default_database() -> str | None:
    """Return $DPSQL_DB, or None."""
    return os.environ.get("DPSQL_DB") or None


def default_analyst() -> str | None:
    """Return $DPSQL_ANALYST, or None."""
    return os.environ.get("DPSQL_ANALYST") or None
