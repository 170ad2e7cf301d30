"""Messages of Flight SQL as protobuf, and the bound on those that clients send.

The messages are described here as in Arrow's `FlightSql.proto` and `Flight.proto`, those that dpsql reads or writes;
unknown fields are skipped.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from dpsql.errors import UsageError

__all__ = ["MAX_MESSAGE_LENGTH", "decode", "encode", "malformed", "pack", "unpack"]

MAX_MESSAGE_LENGTH = 256 * 1024  # bytes: a statement has at most half of that
_PACKAGE = "arrow.flight.protocol.sql"
_URL = f"type.googleapis.com/{_PACKAGE}."
_MESSAGES = MappingProxyType(  # the fields of each have the numbers 1, 2, ...
    {
        "CommandStatementQuery": "string query, bytes transaction_id",
        "CommandPreparedStatementQuery": "bytes prepared_statement_handle",
        "TicketStatementQuery": "bytes statement_handle",
        "CommandGetSqlInfo": "repeated uint32 info",
        "CommandGetXdbcTypeInfo": "optional int32 data_type",
        "CommandGetCatalogs": "",
        "CommandGetDbSchemas": "optional string catalog, optional string db_schema_filter_pattern",
        "CommandGetTables": "optional string catalog, optional string db_schema_filter_pattern, "
        "optional string table_name_filter_pattern, repeated string table_types, bool include_schema",
        "CommandGetTableTypes": "",
        "CommandGetPrimaryKeys": "",
        "CommandGetExportedKeys": "",
        "CommandGetImportedKeys": "",
        "CommandGetCrossReference": "",
        "ActionCreatePreparedStatementRequest": "string query, bytes transaction_id",
        "ActionCreatePreparedStatementResult": "bytes prepared_statement_handle, bytes dataset_schema, "
        "bytes parameter_schema",
        "ActionClosePreparedStatementRequest": "bytes prepared_statement_handle",
        "ActionBeginTransactionRequest": "",
        "ActionBeginTransactionResult": "bytes transaction_id",
        "ActionEndTransactionRequest": "bytes transaction_id, int32 action",
        "ActionCancelQueryRequest": "bytes info",
        "ActionCancelQueryResult": "int32 result",
        "CancelFlightInfoRequest": "bytes info",
        "CancelFlightInfoResult": "int32 status",
        "CloseSessionResult": "int32 status",
    }
)
_TYPES = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "uint32", "int32", "bool")
}


def encode(kind: str, **fields: bytes | str | int) -> bytes:
    """Return a message of a kind."""
    return _message_classes()[kind](**fields).SerializeToString()


def pack(kind: str, **fields: bytes | str | int) -> bytes:
    """Return a message of Flight SQL inside one that names its kind."""
    return any_pb2.Any(type_url=_URL + kind, value=encode(kind, **fields)).SerializeToString()


def decode(kind: str, content: bytes) -> Any:  # noqa: ANN401 - its attributes are the fields of the kind
    """Return a message of a kind; raise `UsageError` for an unknown kind, for other bytes and for too many."""
    found = _message_classes().get(kind)
    if found is None:
        raise malformed()
    return _parse(found(), content)


def unpack(content: bytes) -> tuple[str, bytes]:
    """Return the kind and the bytes of a message that names its kind; raise `UsageError` for any other."""
    outer = _parse(any_pb2.Any(), content)
    if not outer.type_url.startswith(_URL):
        raise malformed()
    return outer.type_url.removeprefix(_URL), outer.value


def malformed() -> UsageError:
    """Return the error for a client whose message is not one of Flight SQL."""
    hint = "Connect with a client of Arrow Flight SQL, such as adbc-driver-flightsql."
    return UsageError("flight-message", "This is no message of Flight SQL.", hint=hint)


def _parse(message: Message, content: bytes) -> Any:  # noqa: ANN401 - as above
    """Fill a message from bytes."""
    if len(content) > MAX_MESSAGE_LENGTH:
        raise malformed()
    try:
        message.ParseFromString(content)
    except DecodeError:
        pass
    else:
        return message
    raise malformed()


@cache
def _message_classes() -> dict[str, type[Message]]:
    """Return the classes of the messages, from a pool of their own: a client in this process may have others."""
    described = descriptor_pb2.FileDescriptorProto(name="dpsql_flight_sql.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        described.message_type.append(_describe_message(name, fields))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


def _describe_message(name: str, fields: str) -> descriptor_pb2.DescriptorProto:
    described = descriptor_pb2.DescriptorProto(name=name)
    for number, words in enumerate(fields.split(", ") if fields else (), 1):
        *label, type_, field = words.split()
        added = described.field.add(name=field, number=number, type=_TYPES[type_])
        added.label = added.LABEL_REPEATED if label == ["repeated"] else added.LABEL_OPTIONAL
        if label == ["optional"]:  # whether it is in the message can be seen: protobuf makes a oneof of one field
            added.proto3_optional, added.oneof_index = True, len(described.oneof_decl)
            described.oneof_decl.add(name=f"_{field}")
    return described
