"""Prompt of prompt_toolkit, with completion, colours and history; Enter runs a statement once it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import SqlLexer

from dpsql.cli.shell import StatementReader
from dpsql.completion import find_completions, is_complete
from dpsql.sql.ir.catalog import Catalog

__all__ = ["prompt_reader"]

_PROMPT, _MORE = "dpsql> ", "   ... "


@dataclass(frozen=True, slots=True, eq=False)
class _CatalogCompleter(Completer):
    """Completion from the catalog and from the words of the language."""

    catalog: Catalog
    commands: dict[str, tuple[str, ...]]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        prefix, names = find_completions(document.text_before_cursor, self.catalog, commands=self.commands)
        for name in names:
            yield Completion(name, start_position=-len(prefix))


def prompt_reader(
    catalog: Catalog,
    commands: dict[str, tuple[str, ...]],
    *,
    history: Path | None,
    keys: Input | None = None,
    screen: Output | None = None,
) -> StatementReader:
    """Return a reader of a terminal; tests pass their own input as `keys` and output as `screen`."""
    prompt: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=_CatalogCompleter(catalog, commands),
        complete_while_typing=False,
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation=_MORE,
        lexer=PygmentsLexer(SqlLexer),
        input=keys,
        output=screen,
    )

    def read(status: str) -> str:
        return prompt.prompt(_PROMPT, bottom_toolbar=status or None)

    return read
