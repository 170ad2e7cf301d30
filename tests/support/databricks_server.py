"""The protocol of Databricks SQL as its connector speaks it, in this process: answers are given, in Arrow."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import trustme
from databricks.sql.thrift_api.TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

__all__ = ["FakeDatabricks"]

_DONE = ttypes.TStatus(statusCode=ttypes.TStatusCode.SUCCESS_STATUS)
_KINDS = {
    pa.int64(): ttypes.TTypeId.BIGINT_TYPE,
    pa.string(): ttypes.TTypeId.STRING_TYPE,
    pa.date32(): ttypes.TTypeId.DATE_TYPE,
    pa.timestamp("us"): ttypes.TTypeId.TIMESTAMP_TYPE,
    pa.float64(): ttypes.TTypeId.DOUBLE_TYPE,
    pa.bool_(): ttypes.TTypeId.BOOLEAN_TYPE,
}


@dataclass
class FakeDatabricks:
    """A SQL warehouse; `run` takes a statement with its named values, and may raise, or wait until `stopped`."""

    run: Callable[[str, Mapping[str, str | None]], pa.Table]
    settings: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    slow: bool = False

    def start(self, folder: Path) -> tuple[ThreadingHTTPServer, Path]:
        """Serve in a thread over TLS; return the server and the file of its authority."""
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        authority.cert_pem.write_to_path(folder / "authority.pem")
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(TCLIService.Processor(self)))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server, folder / "authority.pem"

    def OpenSession(self, req: Any) -> Any:  # noqa: N802 - names of the protocol
        self.settings |= req.configuration or {}
        handle = ttypes.THandleIdentifier(guid=uuid4().bytes, secret=uuid4().bytes)
        namespace = ttypes.TNamespace(req.initialNamespace.catalogName, req.initialNamespace.schemaName)
        return ttypes.TOpenSessionResp(
            status=_DONE,
            serverProtocolVersion=ttypes.TProtocolVersion.SPARK_CLI_SERVICE_PROTOCOL_V7,
            sessionHandle=ttypes.TSessionHandle(handle),
            canUseMultipleCatalogs=True,
            initialNamespace=namespace,
        )

    def CloseSession(self, _: Any) -> Any:  # noqa: N802
        return ttypes.TCloseSessionResp(status=_DONE)

    def CloseOperation(self, _: Any) -> Any:  # noqa: N802
        return ttypes.TCloseOperationResp(status=_DONE)

    def CancelOperation(self, _: Any) -> Any:  # noqa: N802
        self.stopped.set()
        return ttypes.TCancelOperationResp(status=_DONE)

    def GetOperationStatus(self, _: Any) -> Any:  # noqa: N802
        self.stopped.wait(0.05)
        states = ttypes.TOperationState
        state = states.CANCELED_STATE if self.stopped.is_set() else states.RUNNING_STATE
        return ttypes.TGetOperationStatusResp(status=_DONE, operationState=state)

    def ExecuteStatement(self, req: Any) -> Any:  # noqa: N802
        values = {each.name: each.value and each.value.stringValue for each in req.parameters or []}
        self.asked.append((req.statement, values))
        handle = ttypes.TOperationHandle(
            ttypes.THandleIdentifier(guid=uuid4().bytes, secret=uuid4().bytes),
            ttypes.TOperationType.EXECUTE_STATEMENT,
            hasResultSet=True,
        )
        if self.slow:
            return ttypes.TExecuteStatementResp(status=_DONE, operationHandle=handle)
        try:
            table = self.run(req.statement, values)
        except Exception as error:  # noqa: BLE001 - whatever a statement does, the client is told
            failed = ttypes.TStatus(statusCode=ttypes.TStatusCode.ERROR_STATUS, errorMessage=str(error))
            return ttypes.TExecuteStatementResp(status=failed)
        return ttypes.TExecuteStatementResp(status=_DONE, operationHandle=handle, directResults=_results(table))


def _results(table: pa.Table) -> Any:
    columns = [
        ttypes.TColumnDesc(
            each.name,
            ttypes.TTypeDesc([ttypes.TTypeEntry(primitiveEntry=ttypes.TPrimitiveTypeEntry(_KINDS[each.type]))]),
            at,
        )
        for at, each in enumerate(table.schema, 1)
    ]
    batches = [
        ttypes.TSparkArrowBatch(bytes(batch.serialize()), batch.num_rows)
        for batch in table.combine_chunks().to_batches()
    ]
    return ttypes.TSparkDirectResults(
        operationStatus=ttypes.TGetOperationStatusResp(
            status=_DONE, operationState=ttypes.TOperationState.FINISHED_STATE
        ),
        resultSetMetadata=ttypes.TGetResultSetMetadataResp(
            status=_DONE,
            schema=ttypes.TTableSchema(columns),
            resultFormat=ttypes.TSparkRowSetType.ARROW_BASED_SET,
            lz4Compressed=False,
            arrowSchema=bytes(table.schema.serialize()),
        ),
        resultSet=ttypes.TFetchResultsResp(
            status=_DONE, hasMoreRows=False, results=ttypes.TRowSet(startRowOffset=0, rows=[], arrowBatches=batches)
        ),
        closeOperation=ttypes.TCloseOperationResp(status=_DONE),
    )


def _handler(processor: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            asked = TMemoryBuffer(self.rfile.read(int(self.headers["Content-Length"])))
            answer = TMemoryBuffer()
            processor.process(TBinaryProtocol(asked), TBinaryProtocol(answer))
            body = answer.getvalue()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-thrift")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
