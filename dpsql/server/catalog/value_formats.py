"""Formats of the small catalog's values in PostgreSQL's protocol, in text and in binary."""

from __future__ import annotations

from dpsql.server.catalog.query_result import CatalogError, Parameter

__all__ = ["decode_parameter", "encode_value"]

_BOOLEAN = 16
_BYTES = {16: 1, 20: 8, 21: 2, 23: 4, 26: 4}  # of the types that are whole numbers in binary
_UNSIGNED = frozenset([16, 26])


def decode_parameter(parameter: Parameter, type_oid: int) -> object:
    """Decode a parameter; raise `CatalogError` for a value that does not fit its type."""
    if parameter.value is None:
        return None
    try:
        if parameter.is_binary and type_oid in _BYTES:
            return int.from_bytes(parameter.value, signed=type_oid not in _UNSIGNED)
        text = parameter.value.decode()
        return int(text) if type_oid in _BYTES and type_oid != _BOOLEAN else text
    except ValueError:
        raise CatalogError("22P02", "A parameter does not fit its type.") from None


def encode_value(value: object, type_oid: int, *, code: int) -> bytes | None:
    """Encode a value of the catalog as text (0) or binary (1)."""
    if value is None:
        return None
    if code and type_oid in _BYTES and isinstance(value, int):
        return value.to_bytes(_BYTES[type_oid], signed=type_oid not in _UNSIGNED)
    if type_oid == _BOOLEAN:
        return b"t" if value else b"f"
    return str(value).encode()
