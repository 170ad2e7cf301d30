"""ZetaSQL, Google's own analyser and reference evaluator of GoogleSQL, behind the API of BigQuery.

It runs in an environment of its own (`pip install zetasql`), and prints the port when it is ready.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import wasmtime

sys.path.insert(0, str(Path(__file__).parent))
from bigquery_server import Answer, FakeBigQuery, Json

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a time stamp without a zone


def _cached() -> None:
    """Let wasmtime keep what it compiles, which takes a minute."""
    plain = wasmtime.Config

    def config() -> wasmtime.Config:
        made = plain()
        made.cache = True
        return made

    wasmtime.Config = config


def _start() -> None:
    from zetasql.api import CatalogBuilder, PreparedQuery, TableBuilder
    from zetasql.types import (
        AnalyzerOptions,
        LanguageOptions,
        TableContent,
        TableData,
        TypeKind,
        Value,
        ZetaSQLBuiltinFunctionOptions,
    )

    language = LanguageOptions.maximum_features()
    options = AnalyzerOptions(language_options=language)
    kinds = {
        "INT64": (TypeKind.TYPE_INT64, "int64_value"),
        "FLOAT64": (TypeKind.TYPE_DOUBLE, "double_value"),
        "BOOL": (TypeKind.TYPE_BOOL, "bool_value"),
        "STRING": (TypeKind.TYPE_STRING, "string_value"),
        "DATE": (TypeKind.TYPE_DATE, "date_value"),
        "DATETIME": (TypeKind.TYPE_DATETIME, "datetime_value"),
        "NUMERIC": (TypeKind.TYPE_NUMERIC, "numeric_value"),
        "BIGNUMERIC": (TypeKind.TYPE_BIGNUMERIC, "bignumeric_value"),
    }
    names = {kind.value if hasattr(kind, "value") else kind: name for name, (kind, _) in kinds.items()}
    tables: dict[str, tuple[Any, Any]] = {}

    def cell(kind: str, text: str | None) -> Any:
        if text is None:
            return Value()
        return Value(**{kinds[kind][1]: _read(kind, text)})

    def add(body: Json) -> None:
        name = body["name"].replace(".", "_")
        builder = TableBuilder(name)
        for each in body["fields"]:
            builder = builder.add_column(each["name"], kinds[each["type"]][0])
        types = [each["type"] for each in body["fields"]]
        rows = [TableData.Row(cell=[cell(*pair) for pair in zip(types, row, strict=True)]) for row in body["rows"]]
        tables[name] = (builder.build(), TableContent(table_data=TableData(row=rows)))
        project.tables[body["name"]] = body["fields"]

    def run(sql: str, values: Mapping[str, str | None]) -> Answer:
        sql = re.sub(r"`[^`]*`\.`([^`]*)`\.`([^`]*)`", r"`\1_\2`", sql)
        used = {name: table for name, table in tables.items() if f"`{name}`" in sql}
        catalog = CatalogBuilder("shop")
        for table, _ in used.values():
            catalog = catalog.add_table(table)
        whole = catalog.with_builtin_functions(ZetaSQLBuiltinFunctionOptions(language_options=language)).build()
        for name, value in values.items():  # the package has no parameters of its own types
            sql = re.sub(rf"@{name}\b", lambda _, value=value: _literal(value), sql)
        prepared = (
            PreparedQuery.builder()
            .set_sql(sql)
            .set_analyzer_options(options)
            .set_catalog(whole)
            .set_table_content({name: content for name, (_, content) in used.items()})
            .prepare()
        )
        with prepared as query:
            answer = query.execute()
        types = [names[int(column.type.type_kind)] for column in query.columns]
        fields = [
            {"name": column.name, "type": kind, "mode": "NULLABLE"}
            for column, kind in zip(query.columns, types, strict=True)
        ]
        data = answer.content.table_data
        rows = [
            [_write(kind, value) for kind, value in zip(types, row.cell, strict=True)]
            for row in (data.row if data else [])
        ]
        return fields, rows

    def _write(kind: str, value: Any) -> str | None:
        found = getattr(value, kinds[kind][1])
        return None if found is None else _show(kind, found)

    project = FakeBigQuery(run, add=add)
    # one service, which takes one call at a time
    import threading

    lock, insert = threading.Lock(), project.insert

    def one(body: Json) -> Json:
        with lock:
            return insert(body)

    project.insert = one  # type: ignore[method-assign]
    run("SELECT 1 AS one", {})
    server = project.start()
    print(server.server_address[1], flush=True)  # noqa: T201 - for the process that started this
    sys.stdin.read()


def _literal(value: str | None) -> str:
    if value is None:
        return "CAST(NULL AS STRING)"
    return "'" + "".join(each if each.isalnum() else f"\\U{ord(each):08x}" for each in value) + "'"


def _read(kind: str, text: str) -> Any:
    if kind == "INT64":
        return int(text)
    if kind == "FLOAT64":
        return float(text)
    if kind == "BOOL":
        return text == "true"
    if kind == "DATE":
        return (datetime.fromisoformat(text) - _EPOCH).days
    if kind in {"NUMERIC", "BIGNUMERIC"}:
        scaled = int(Decimal(text).scaleb(9 if kind == "NUMERIC" else 38))
        return scaled.to_bytes((scaled.bit_length() + 8) // 8, "little", signed=True)
    if kind == "DATETIME":
        from zetasql.types import Value

        moment = datetime.fromisoformat(text)
        seconds = moment.year << 26 | moment.month << 22 | moment.day << 17
        seconds |= moment.hour << 12 | moment.minute << 6 | moment.second
        return Value.Datetime(bit_field_datetime_seconds=seconds, nanos=moment.microsecond * 1000)
    return text


def _show(kind: str, value: Any) -> str:
    if kind == "BOOL":
        return "true" if value else "false"
    if kind == "FLOAT64":
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if kind == "DATE":
        return str((_EPOCH + timedelta(days=value)).date())
    if kind in {"NUMERIC", "BIGNUMERIC"}:
        digits = Decimal(int.from_bytes(value, "little", signed=True))
        return f"{digits.scaleb(-9 if kind == 'NUMERIC' else -38):f}"
    if kind == "DATETIME":
        bits = value.bit_field_datetime_seconds
        parts = bits >> 26, bits >> 22 & 15, bits >> 17 & 31, bits >> 12 & 31, bits >> 6 & 63, bits & 63
        return datetime(*parts, (value.nanos or 0) // 1000).isoformat(timespec="microseconds")  # noqa: DTZ001
    return str(value)


_cached()
_start()
