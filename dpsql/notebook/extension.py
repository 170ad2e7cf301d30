"""IPython extension: `%load_ext dpsql` registers the magic, and `%unload_ext dpsql` removes it."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import no_var_expand

from dpsql.notebook.completion import Matcher, make_matcher
from dpsql.notebook.magic import Notebook

__all__ = ["load", "unload"]

_NAME = "dpsql"
_LOADED: WeakKeyDictionary[InteractiveShell, tuple[Notebook, Matcher]] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Register `%dpsql` and `%%dpsql` with their completion; do nothing if they are registered already."""
    if shell in _LOADED:
        return
    notebook = Notebook(shell)

    def dpsql(line: str, cell: str | None = None) -> object:
        """Run a private query; %dpsql help lists the commands."""
        return notebook.run(line, cell)

    # without this, IPython pastes values of variables into the line; dpsql binds them as parameters
    bare: Callable[..., object] = no_var_expand(dpsql)
    shell.register_magic_function(bare, magic_kind="line_cell", magic_name=_NAME)  # type: ignore[call-arg, arg-type]
    matcher = make_matcher(lambda: notebook.session.catalog if notebook.is_connected else None)
    shell.Completer.custom_matchers.append(matcher)
    _LOADED[shell] = notebook, matcher


def unload(shell: InteractiveShell) -> None:
    """Remove the magic, and close the session that it opened."""
    if shell not in _LOADED:
        return
    notebook, matcher = _LOADED.pop(shell)
    shell.Completer.custom_matchers.remove(matcher)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_NAME, None)
    notebook.close()
