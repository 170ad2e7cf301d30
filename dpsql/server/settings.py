"""What the policy's [server] becomes: a TLS context, and the file of users that must be there."""

from __future__ import annotations

import ssl
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.policy import Policy, ServerSettings
from dpsql.policy.server import is_loopback, split_address

__all__ = ["ServerSettings", "is_loopback", "load_certificate", "split_address", "tls_of", "users_of"]


def tls_of(settings: ServerSettings) -> ssl.SSLContext | None:
    """Return the context of every surface that speaks TLS, of version 1.2 or newer; None without a certificate."""
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Show the certificate of the settings to whoever connects from now on; raise `PolicyError` if it cannot be."""
    if settings.certificate is None or settings.key is None:
        return
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
    except (OSError, ValueError):  # of which ssl.SSLError is one
        reason = "The certificate or its key cannot be read, or they do not belong together."
        hint = "Both are files in PEM, the key without a passphrase, and readable by the server."
        raise PolicyError("policy-tls", reason, hint=hint, place="server.certificate") from None


def users_of(policy: Policy) -> Path:
    """Return the file of users; raise `PolicyError` for a policy that names none."""
    if policy.server.users is None:
        hint = 'Write users = "users.toml" under [server].'
        raise PolicyError("policy-missing-key", "The policy names no file of users.", hint=hint, place="server.users")
    return policy.server.users


def _no_password() -> str:
    """Refuse to ask for a passphrase on a terminal."""
    raise ValueError
