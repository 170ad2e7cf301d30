"""SQL templates: statements with named slots, written where they are needed, so that a reader sees the query.

    compose(
        '''
        SELECT {keys}, system.main.count() AS dpsql_count
        FROM ({pairs})
        WHERE {condition}
        GROUP BY {keys}
        ''',
        keys=["dpsql_key_1", "dpsql_key_2"], pairs=pairs, condition="",
    )

is SELECT dpsql_key_1, dpsql_key_2, system.main.count() AS dpsql_count FROM (...) GROUP BY dpsql_key_1, dpsql_key_2.

What fills a slot is SQL already: a name that dpsql made, a quoted name, a number, or an expression of a `Writer`, which
binds every value of the analyst as a parameter. It is never the text of an analyst. Functions are written by their
qualified names, so that no macro can stand in for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

__all__ = ["compose", "sort_nulls_last"]

_SLOT = re.compile(r"\{(\w+)\}")


def compose(template: str, **slots: str | int | Iterable[str]) -> str:
    """Return a template as one line, its slots filled; the parts of a list are separated by commas.

    A line of the template is left out if one of its slots is empty, as that of WHERE is without a condition.
    """
    filled = dict[str, str]()
    for name, slot in slots.items():
        filled[name] = slot if isinstance(slot, str) else f"{slot:d}" if isinstance(slot, int) else ", ".join(slot)
    text, is_open = "", True
    for line, names in _split_lines(template):
        if all(map(filled.__getitem__, names)):
            text += ("" if is_open or line[0] == ")" else " ") + line.format_map(filled)
            is_open = line[-1] == "("
    return text


@cache
def _split_lines(template: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the lines of a template, each with the names of its slots."""
    lines = list(filter(None, map(str.strip, template.splitlines())))
    return tuple(zip(lines, map(tuple, map(_SLOT.findall, lines)), strict=True))


def sort_nulls_last(names: Iterable[str]) -> str:
    """Return the terms that sort by the names in order, NULL last."""
    return ", ".join([f"{name} ASC NULLS LAST" for name in names])
