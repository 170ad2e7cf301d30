"""Decoder for tables from a worker, which may be compromised.

Arrow can check every offset. It would still expand a compressed body or a run to any size; our workers send neither,
so both are refused.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["read_table", "sent"]

_DICTIONARY, _RECORDS = 2, 3  # the kinds of a message that have a body (Arrow's Message.fbs)
_HEADER_TYPE, _HEADER = 1, 2  # fields of a Message
_BATCH = 1  # of a DictionaryBatch: its RecordBatch
_COMPRESSION = 3  # of a RecordBatch
_MOST_ROWS = 1 << 27


def sent(table: pa.Table) -> memoryview:
    """Return a table as a stream of Arrow, uncompressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def read_table(stream: bytes | bytearray) -> pa.Table:
    """Return the table in a stream; raise some `Exception` where it is not one that `sent` writes."""
    whole = pa.py_buffer(stream)
    for message in pa.ipc.MessageReader.open_stream(whole):
        if _compressed(bytes(message.metadata)):
            raise ValueError
    table = pa.ipc.open_stream(whole).read_all()
    if table.num_rows > _MOST_ROWS or not all(map(_is_plain, table.schema.types)):
        raise ValueError
    table.validate(full=True)
    return table


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether the values of a type take room in proportion to the bytes that were sent."""
    types = pa.types
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    odd = types.is_run_end_encoded(kind) or types.is_union(kind)
    return not (odd or isinstance(kind, pa.BaseExtensionType) or kind.num_fields)


def _compressed(metadata: bytes) -> bool:
    """Return whether a message's body is compressed, by its metadata, a flat buffer."""
    root = _offset(metadata, 0)
    where = _field(metadata, root, number=_HEADER_TYPE)
    kind = metadata[where] if where else 0
    if kind not in {_DICTIONARY, _RECORDS}:
        return False
    batch = _target(metadata, root, number=_HEADER)
    if kind == _DICTIONARY:
        batch = _target(metadata, batch, number=_BATCH)
    return _field(metadata, batch, number=_COMPRESSION) != 0


def _offset(metadata: bytes, place: int) -> int:
    """Return the place to which the unsigned offset at `place` leads."""
    return place + int.from_bytes(metadata[place : place + 4], "little")


def _field(metadata: bytes, table: int, *, number: int) -> int:
    """Return the position of a field of a table, 0 if it is absent."""
    fields = table - int.from_bytes(metadata[table : table + 4], "little", signed=True)
    slot = 4 + 2 * number
    if slot >= int.from_bytes(metadata[fields : fields + 2], "little"):
        return 0
    offset = int.from_bytes(metadata[fields + slot : fields + slot + 2], "little")
    return table + offset if offset else 0


def _target(metadata: bytes, table: int, *, number: int) -> int:
    """Return the table to which a field leads; raise `ValueError` where there is none."""
    where = _field(metadata, table, number=number)
    if not where:
        raise ValueError
    return _offset(metadata, where)
