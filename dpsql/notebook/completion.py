"""What the Tab key offers after `%dpsql` and in a `%%dpsql` cell: commands, tables, columns and the clause's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from dpsql.notebook.words import COMMANDS
from dpsql.sql.ir.catalog import Catalog

__all__ = ["Matcher", "matcher_of"]

Matcher = Callable[[CompletionContext], SimpleMatcherResult]
_WORDS = "SELECT COUNT DISTINCT FROM WHERE GROUP BY HAVING ORDER TOP PRIVATE PER WITH JOIN LIMIT ADAPTIVE".split()
_LAST = re.compile(r"\w*$")


def matcher_of(known: Callable[[], Catalog | None]) -> Matcher:
    """Return a matcher for IPython's completer, over the tables that are `known` when it is asked.

    It speaks only where the magic stands, and then alone; all that it offers is public.
    """

    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        if not _is_ours(context):
            return {"completions": []}
        match = _LAST.search(context.text_until_cursor)
        fragment = match[0] if match is not None else ""
        words = dict.fromkeys(_words(context, known()))
        found = [SimpleCompletion(word) for word in words if word.lower().startswith(fragment.lower())]
        return {"completions": found, "matched_fragment": fragment, "suppress": True, "ordered": True}

    # what IPython's decorator would set, which hides the type
    for name, value in {"matcher_api_version": 2, "matcher_identifier": "dpsql", "matcher_priority": 1}.items():
        setattr(matcher, name, value)
    return matcher


def _words(context: CompletionContext, catalog: Catalog | None) -> Iterator[str]:
    if re.fullmatch(r"\s*%dpsql\s+\w*", context.text_until_cursor):
        yield from COMMANDS
    for table in () if catalog is None else catalog.tables:
        yield table.name
        yield from (name for name, _ in table.columns)
    yield from _WORDS


def _is_ours(context: CompletionContext) -> bool:
    """Say whether the cursor is in a statement: on a line of `%dpsql`, or below the first line of `%%dpsql`."""
    if context.full_text.lstrip().startswith("%%dpsql"):
        return context.cursor_line > 0
    return re.match(r"\s*(\w+\s*=\s*)?%dpsql\s", context.line_with_cursor) is not None
