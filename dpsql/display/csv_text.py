"""Tables as CSV without what a terminal obeys and, on request, without what a spreadsheet computes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.display.element import replace_controls
from dpsql.engines.arrow_types import spell_beyond_calendar

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_csv"]

# Beginnings of a formula, also in the wide signs of East Asian keyboards, and after signs that some locales split at.
_FORMULA = re.compile("(?:\\A|(?<=[;\t\n]))(?=[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")


def write_csv(table: pa.Table, *, quote_formulas: bool = False) -> str:
    """Return a table as CSV with a header: text in double quotes, NULL as an empty field.

    Control characters are replaced, as `replace_controls` says. With `quote_formulas` an apostrophe is put before each
    text, and each name of a column, that a spreadsheet would compute.
    """
    import pyarrow as pa
    from pyarrow import csv

    table = spell_beyond_calendar(table)
    sink = pa.BufferOutputStream()
    csv.write_csv(_quote_formulas(table) if quote_formulas else table, sink)
    return replace_controls(bytes(sink.getvalue()).decode())


def _quote_formulas(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            values = [None if value is None else _FORMULA.sub("'", value) for value in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(values, field.type))
    return table.rename_columns([_FORMULA.sub("'", name) for name in table.column_names])
