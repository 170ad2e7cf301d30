"""Tab completion after `%dpsql` and in a `%%dpsql` cell: commands, tables, columns and keywords."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from dpsql.notebook.parser import COMMANDS
from dpsql.sql.ir.catalog import Catalog

__all__ = ["Matcher", "make_matcher"]

Matcher = Callable[[CompletionContext], SimpleMatcherResult]
_WORDS = "SELECT COUNT DISTINCT FROM WHERE GROUP BY HAVING ORDER TOP PRIVATE PER WITH JOIN LIMIT ADAPTIVE".split()
_LAST = re.compile(r"\w*$")


def make_matcher(find_catalog: Callable[[], Catalog | None]) -> Matcher:
    """Return a matcher for IPython's completer, over the catalog that `find_catalog` returns at each call.

    It completes only inside the magic, and there suppresses other matchers. All that it offers is public.
    """

    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        if not _is_in_magic(context):
            return {"completions": []}
        match = _LAST.search(context.text_until_cursor)
        fragment = match[0] if match is not None else ""
        words = dict.fromkeys(_list_words(context, find_catalog()))
        found = [SimpleCompletion(word) for word in words if word.lower().startswith(fragment.lower())]
        return {"completions": found, "matched_fragment": fragment, "suppress": True, "ordered": True}

    # IPython's decorator would set these, but it hides the type
    for name, value in {"matcher_api_version": 2, "matcher_identifier": "dpsql", "matcher_priority": 1}.items():
        setattr(matcher, name, value)
    return matcher


def _list_words(context: CompletionContext, catalog: Catalog | None) -> Iterator[str]:
    if re.fullmatch(r"\s*%dpsql\s+\w*", context.text_until_cursor):
        yield from COMMANDS
    for table in () if catalog is None else catalog.tables:
        yield table.name
        yield from (name for name, _ in table.columns)
    yield from _WORDS


def _is_in_magic(context: CompletionContext) -> bool:
    """Say whether the cursor is in a statement: on a line of `%dpsql`, or below the first line of `%%dpsql`."""
    if context.full_text.lstrip().startswith("%%dpsql"):
        return context.cursor_line > 0
    return re.match(r"\s*(\w+\s*=\s*)?%dpsql\s", context.line_with_cursor) is not None
