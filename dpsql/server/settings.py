"""The TLS context and the file of users that [server] of the policy configures."""

from __future__ import annotations

import ssl
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.policy import Policy, ServerSettings
from dpsql.policy.settings import is_loopback, split_address

__all__ = [
    "ServerSettings",
    "create_tls_context",
    "find_users_file",
    "is_loopback",
    "load_certificate",
    "split_address",
]


def create_tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Create the context for TLS 1.2 or newer, or return None without a certificate."""
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Load the certificate of the settings for new connections; raise `PolicyError` if that fails."""
    if settings.certificate is None or settings.key is None:
        return
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_refuse_passphrase)
    except (OSError, ValueError):  # the bases of ssl.SSLError
        reason = "The certificate or its key cannot be read, or they do not belong together."
        hint = "Use PEM files that the server can read, and a key without a passphrase."
        raise PolicyError("policy-tls", reason, hint=hint, place="server.certificate") from None


def find_users_file(policy: Policy) -> Path:
    """Return the path of the file of users; raise `PolicyError` if the policy has none."""
    if policy.server.users is None:
        hint = 'Write users = "users.toml" under [server].'
        raise PolicyError("policy-missing-key", "The policy has no file of users.", hint=hint, place="server.users")
    return policy.server.users


def _refuse_passphrase() -> str:
    """Fail instead of reading a passphrase from the terminal."""
    raise ValueError
