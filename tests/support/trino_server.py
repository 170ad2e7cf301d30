"""The protocol of Trino as its client speaks it, in this process: statements are recorded, answers are given."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeTrino"]

Answer = tuple[list[tuple[str, str]], list[list[Any]]]  # names and types of the columns, and the rows


@dataclass
class FakeTrino:
    """A coordinator; `run` takes a statement, and may raise, or wait until `stopped` is set."""

    run: Callable[[str], Answer]
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # statements with their headers
    cancelled: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    slow: bool = False

    def start(self) -> ThreadingHTTPServer:
        """Serve in a thread, and return the server."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def _handler(trino: FakeTrino) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            sql = self.rfile.read(int(self.headers["Content-Length"])).decode()
            trino.asked.append((sql, dict(self.headers)))
            if trino.slow and "SELECT 1" not in sql:
                self._send({"nextUri": self._at("/v1/statement/queued/1"), "stats": {"state": "RUNNING"}})
            else:
                self._answer(sql)

        def do_GET(self) -> None:
            trino.stopped.wait(5)
            self._send({"error": {"errorName": "USER_CANCELED", "errorType": "USER_ERROR"}})

        def do_DELETE(self) -> None:
            trino.cancelled.append(self.path)
            trino.stopped.set()
            self.send_response(204)
            self.end_headers()

        def _at(self, path: str) -> str:
            return f"http://127.0.0.1:{self.server.server_address[1]}{path}"

        def _answer(self, sql: str) -> None:
            try:
                columns, rows = trino.run(sql)
            except Exception as error:  # noqa: BLE001 - whatever a statement does, the client is told
                self._send({"error": {"message": str(error), "errorName": "FAILED", "errorType": "USER_ERROR"}})
                return
            shown = [{"name": name, "type": type_, "typeSignature": _signature(type_)} for name, type_ in columns]
            self._send({"columns": shown, "data": rows})

        def _send(self, body: dict[str, Any]) -> None:
            text = json.dumps({"id": "1", "infoUri": self._at("/"), "stats": {"state": "FINISHED"}, **body}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler


def _signature(type_: str) -> dict[str, Any]:
    raw = type_.partition("(")[0]
    numbers = [int(each) for each in re.findall(r"\d+", type_)] or ([2**31 - 1] if raw == "varchar" else [])
    return {"rawType": raw, "arguments": [{"kind": "LONG", "value": number} for number in numbers]}
