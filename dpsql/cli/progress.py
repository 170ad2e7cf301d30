"""How far a query is, on the terminal of the one who waits for it, and how an interrupt of it is told.

The query stays in the main thread, so that an interrupt reaches it; the bar is drawn from another, on stderr, only if
that is a terminal, and wiped at the end. Where the session does not say how far a statement is, the seconds run alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress

    from dpsql.session import Session

__all__ = ["EXIT_CODE", "INTERRUPTED", "waiting", "watched"]

INTERRUPTED = "Interrupted. A query that had begun to read is charged in full"
EXIT_CODE = 130  # 128 and the number of the signal, as of any program that Ctrl-C ends
_FIRST = 1.0  # seconds before anything is shown: most answers are there by then
_EACH = 0.2


@contextmanager
def waiting(session: Session) -> Iterator[None]:
    """Show during the block how far the statement of `session` is, and wipe it at the end; into a pipe, nothing."""
    if not sys.stderr.isatty():
        yield
        return
    done = Event()
    thread = Thread(target=_show, args=(session, done), name="dpsql-progress")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def watched(session: Session) -> Iterator[None]:
    """Show how far the one statement of a command is; an interrupt of it ends the command with a sentence."""
    try:
        with waiting(session):
            yield
    except KeyboardInterrupt:
        click.echo(f"dpsql: {INTERRUPTED}; dpsql budget shows what is left.", err=True)
        raise click.exceptions.Exit(EXIT_CODE) from None


def _show(session: Session, done: Event) -> None:
    if done.wait(_FIRST):
        return
    with _bar() as bar:
        bar.console.show_cursor(True)  # a command that is killed leaves the terminal as it is now
        task, share = bar.add_task("", total=None, told=""), 0.0
        bar.tasks[task].start_time = bar.get_time() - _FIRST
        while main_thread().is_alive():
            share = max(share, session.progress or 0.0)
            if share:
                bar.update(task, total=1.0, completed=share, told=f"{share:4.0%}")
            if done.wait(_EACH):
                return


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
        TextColumn("Ctrl-C: charged in full"),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=1 / _EACH,
    )
