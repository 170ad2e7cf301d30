"""Trino's forms on Velox, the engine of Presto in C++, whose functions and casts are those of Trino.

PyVelox evaluates expressions and no statements: this kit serves the comparison of forms, which asks for expressions
over pairs of rows. `DPSQL_VELOX` names the Python of an environment that has the packages pyvelox and pyarrow.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one

from dpsql.dialects.warehouses import TRINO
from dpsql.engines import Column, Engine, Registered, RemoteEngine, Statement
from dpsql.engines.warehouse import list_texts
from dpsql.testing import Kit
from dpsql.testing.tables import fit_table
from dpsql.testing.warehouse_kits import fit_calendar, reach_calendar

__all__ = ["KIT"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}
_DAY = 86_400_000_000
_DAYS = (-106_000, 106_000)  # PyVelox returns a TIMESTAMP as the nanoseconds since 1970, in 64 bits
_PARAMETER = re.compile(r"\?/\*(\d+)\*/")
_SIDES = {"t1": "lefts", "t2": "rights"}


@cache
def _start() -> tuple[subprocess.Popen[str], Path]:
    """Start the server, which ends with this process; return it and a folder for what goes in and out."""
    command = [os.environ["DPSQL_VELOX"], "-P", "-W", "ignore", str(Path(__file__).with_name("velox_server.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder = TemporaryDirectory(prefix="dpsql-velox-")
    atexit.register(folder.cleanup)
    atexit.register(process.wait)
    atexit.register(process.kill)
    return process, Path(folder.name)


class VeloxEngine(RemoteEngine):
    """Engine over tables in memory that answers SELECTs of expressions over all pairs of rows of two of them."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._held = tables
        super().__init__(TRINO, {name: _register(name, table) for name, table in tables.items()})

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column."""
        values = self._held[name].column(column).drop_null()
        return len(values) == pc.count_distinct(values).as_py()

    def fetch(self, statement: Statement) -> pa.Table:
        """Return the values of the expressions of a SELECT, pair by pair."""
        tree = parse_one(_put_values(statement), read="trino")
        ends = {end.this.table: int(str(end.expression.name)) for end in tree.args["where"].find_all(exp.LTE)}
        expressions = [_write(selected.unalias()) for selected in tree.expressions]
        columns = _pair(
            {side: self._held[table].filter(pc.field("id") <= ends[side]) for side, table in _SIDES.items()}
        )
        process, folder = _start()
        job = {"columns": str(folder / "columns"), "answer": str(folder / "answer"), "expressions": expressions}
        with pa.ipc.new_file(job["columns"], columns.schema) as file:
            file.write_table(columns)
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(job), file=process.stdin, flush=True)
        if problem := process.stdout.readline().strip():
            raise ValueError(problem)
        with pa.ipc.open_file(job["answer"]) as file:
            return file.read_all()

    def disconnect(self) -> None:
        """Leave the server to other engines of this process."""


def _register(name: str, table: pa.Table) -> Registered:
    kinds = [_TYPES.get(field.type) or f"DECIMAL({field.type.precision},{field.type.scale})" for field in table.schema]
    return Registered((name,), tuple(map(Column, table.column_names, kinds)))


def _pair(sides: Mapping[str, pa.Table]) -> pa.Table:
    """Return all pairs of rows of two tables, with "side_column" as the names of the columns."""
    left, right = (table.sort_by("id") for table in sides.values())
    places = [[at for at in range(len(left)) for _ in range(len(right))], [*range(len(right))] * len(left)]
    return pa.table(
        {
            f"{side}_{name}": table.column(name).take(pa.array(at, pa.int64()))
            for side, table, at in zip(sides, (left, right), places, strict=True)
            for name in table.column_names
        }
    )


def _put_values(statement: Statement) -> str:
    """Return a statement with the values of its parameters in it, as Trino's client sends them."""
    texts = list_texts(statement.parameters, of_java=True)
    literals = ["NULL" if text is None else "'" + text.replace("'", "''") + "'" for text in texts]
    return _PARAMETER.sub(lambda found: literals[int(found[1]) - 1], statement.sql)


def _write(expression: exp.Expression) -> str:
    """Return an expression as Velox reads it, which has no types for NULL and no words for some functions."""
    tree = exp.Paren(this=expression.copy())
    for node in reversed(list(tree.walk(bfs=False))):  # operands before what they stand in
        _adapt(node)
    return tree.sql("trino")


def _adapt(node: exp.Expression) -> None:
    match node:
        case exp.Column():
            node.replace(exp.column(f"{node.table}_{node.name}"))
        case exp.DataType(this=exp.DataType.Type.TIMESTAMP):
            node.set("expressions", [])
        case exp.Coalesce():
            node.set("expressions", [each for each in node.expressions if not isinstance(each, exp.Null)])
        case exp.Neg(this=operand) if not isinstance(operand, exp.Literal):
            node.replace(exp.func("negate", operand.copy()))
        case exp.Nullif(this=one, expression=other):
            other = exp.cast(other.copy(), "BIGINT") if other.is_int else other.copy()
            node.replace(exp.func("switch", exp.NEQ(this=one.copy(), expression=other), one.copy()))
        case exp.Case():
            branches = [part for each in node.args["ifs"] for part in (each.this, each.args["true"])]
            last = node.args.get("default")
            if isinstance(branches[1], exp.Null):  # THEN NULL, where the condition is never NULL itself
                branches, last = [exp.Not(this=exp.Paren(this=branches[0].copy())), last], None
            parts = [*branches] if last is None else [*branches, last]
            node.replace(exp.func("switch", *(part.copy() for part in parts)))
        case _:
            pass


def _fit(table: pa.Table) -> pa.Table:
    moments = (_DAYS[0] * _DAY, _DAYS[1] * _DAY)
    return fit_table(fit_calendar(table), days=_DAYS, moments=moments, infinite=False)


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    return VeloxEngine(tables)


KIT = Kit("velox", _open, _fit, reach_calendar, every=24)
