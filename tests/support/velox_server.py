"""Expressions of Presto's SQL, evaluated by Velox over columns of Arrow.

It runs in an environment of its own (`pip install pyvelox pyarrow`). Each line of its input is a job: the file of the
columns, the file for the answer, and the expressions. For each job it prints a line: an error, or nothing.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyvelox.legacy as velox

_MAX_LENGTH = 400  # characters of an error

velox.register_presto_signatures()
for line in sys.stdin:
    job = json.loads(line)
    with pa.ipc.open_file(job["columns"]) as columns:
        table = columns.read_all()
    vectors = [velox.import_from_arrow(column.combine_chunks()) for column in table.columns]
    problem, found = "", []
    try:
        for expression in job["expressions"]:
            parsed = velox.Expression.from_string(expression)
            values = velox.export_to_arrow(parsed.evaluate(table.column_names, vectors))
            is_constant = isinstance(values.type, pa.RunEndEncodedType)
            found.append(pc.run_end_decode(values) if is_constant else values)
    except Exception as error:  # noqa: BLE001 - Velox raises plain exceptions
        problem = " ".join(str(error).split())[:_MAX_LENGTH]
    else:
        answer = pa.table(found, names=[f"c{at}" for at in range(len(found))])
        with pa.ipc.new_file(job["answer"], answer.schema) as file:
            file.write_table(answer)
    sys.stdout.write(problem + "\n")
    sys.stdout.flush()
