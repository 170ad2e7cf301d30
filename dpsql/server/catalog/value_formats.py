"""The values of the small catalog as PostgreSQL's protocol writes them, in text and in binary."""

from __future__ import annotations

from dpsql.server.catalog.query_result import CatalogError, Parameter

__all__ = ["given_value", "told_value"]

_BOOLEAN = 16
_BYTES = {16: 1, 20: 8, 21: 2, 23: 4, 26: 4}  # of the types that binary writes as whole numbers
_UNSIGNED = frozenset([16, 26])


def given_value(parameter: Parameter, type_oid: int) -> object:
    """Return the value of a parameter; raise `CatalogError` for one that its type cannot have."""
    if parameter.value is None:
        return None
    try:
        if parameter.is_binary and type_oid in _BYTES:
            return int.from_bytes(parameter.value, signed=type_oid not in _UNSIGNED)
        text = parameter.value.decode()
        return int(text) if type_oid in _BYTES and type_oid != _BOOLEAN else text
    except ValueError:
        raise CatalogError("22P02", "A parameter is no value of its type.") from None


def told_value(value: object, type_oid: int, *, code: int) -> bytes | None:
    """Return a value of the catalog as text (0) or binary (1)."""
    if value is None:
        return None
    if code and type_oid in _BYTES and isinstance(value, int):
        return value.to_bytes(_BYTES[type_oid], signed=type_oid not in _UNSIGNED)
    if type_oid == _BOOLEAN:
        return b"t" if value else b"f"
    return str(value).encode()
