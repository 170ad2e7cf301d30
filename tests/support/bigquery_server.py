"""The part of BigQuery's REST API that its client calls for a query; what a statement gives says a function.

It needs nothing but the standard library, since it also runs in the environment of ZetaSQL.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "FakeBigQuery"]

Json = dict[str, Any]
Answer = tuple[list[Json], list[list[str | None]]]  # fields, and rows of values as the API writes them


@dataclass
class FakeBigQuery:
    """A project; `run` takes a statement and the texts of its parameters by name, and may raise."""

    run: Callable[[str, Mapping[str, str | None]], Answer]
    tables: dict[str, list[Json]] = field(default_factory=dict)  # "dataset.table" to the fields
    collations: dict[str, str] = field(default_factory=dict)  # the same, to the default collation
    add: Callable[[Json], None] = lambda _: None
    jobs: dict[str, Json] = field(default_factory=dict)
    asked: list[Json] = field(default_factory=list)  # configurations of the jobs

    def start(self, port: int = 0) -> ThreadingHTTPServer:
        """Serve in a thread, and return the server."""
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def insert(self, body: Json) -> Json:
        """Run a job to its end."""
        self.asked.append(body["configuration"])
        query = body["configuration"]["query"]
        values = {
            each["name"]: each.get("parameterValue", {}).get("value") for each in query.get("queryParameters", [])
        }
        job = {**body, "status": {"state": "DONE"}, "statistics": {"query": {"statementType": "SELECT"}}}
        self.jobs[body["jobReference"]["jobId"]] = job
        try:
            fields, rows = self.run(query["query"], values)
        except Exception as error:  # noqa: BLE001 - whatever a statement does, the client is told
            job["status"] |= {"errorResult": {"reason": "invalidQuery", "message": str(error)[:2000]}}
        else:
            job["answer"] = {
                "schema": {"fields": fields},
                "totalRows": str(len(rows)),
                "rows": [{"f": [{"v": value} for value in row]} for row in rows],
            }
        return job


def _handler(project: FakeBigQuery) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if found := re.search(r"/datasets/([^/]+)/tables/([^/]+)$", path):
                name = ".".join(found.groups())
                fields, collation = project.tables.get(name), project.collations.get(name, "")
                place = dict(zip(("projectId", "datasetId", "tableId"), ("shop", *found.groups()), strict=True))
                table = {"schema": {"fields": fields}, "tableReference": place, "defaultCollation": collation}
                self._send(table if fields else None)
            elif found := re.search(r"/datasets/([^/]+)/tables$", path):
                names = [
                    name.removeprefix(f"{found[1]}.") for name in project.tables if name.startswith(f"{found[1]}.")
                ]
                place = {"projectId": "shop", "datasetId": found[1]}
                self._send({"tables": [{"tableReference": {**place, "tableId": name}} for name in names]})
            elif found := re.search(r"/queries/([^/]+)$", path):
                job = project.jobs[found[1]]
                self._send({"jobComplete": True, "jobReference": job["jobReference"], **job.get("answer", {})})
            elif found := re.search(r"/jobs/([^/]+)$", path):
                self._send(_shown(project.jobs[found[1]]))
            else:
                self._send(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            path = self.path.partition("?")[0]
            answers: dict[str, Callable[[], Json]] = {
                "jobs": lambda: _shown(project.insert(json.loads(body))),
                "token": lambda: {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"},
                "tables": lambda: project.add(json.loads(body)) or {},
            }
            answer = answers.get(path.rpartition("/")[2])
            self._send(None if answer is None else answer())

        def _send(self, answer: Json | None) -> None:
            body = json.dumps(
                answer if answer is not None else {"error": {"code": 404, "message": "Not found"}}
            ).encode()
            self.send_response(200 if answer is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _shown(job: Json) -> Json:
    return {name: value for name, value in job.items() if name != "answer"}
