"""Progress bar of a running query on the terminal, and the message after an interrupt.

The query stays in the main thread, so that an interrupt reaches it. Another thread draws the bar on stderr, if that is
a terminal, and wipes it at the end. If the session reports no progress, the bar shows the elapsed seconds alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dpsql.session import Session

__all__ = ["EXIT_CODE", "INTERRUPTED", "show_progress", "show_progress_of_command"]

INTERRUPTED = "Interrupted. A query that had begun to read is charged in full unless its answer is stored"
EXIT_CODE = 130  # 128 + SIGINT, the convention for programs that Ctrl-C ends
_FIRST = 1.0  # seconds without a bar: most queries end within them
_EACH = 0.2  # seconds between two updates


@contextmanager
def show_progress(session: Session) -> Iterator[None]:
    """Show the progress of `session` during the block and wipe it at the end; show nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    done = Event()
    thread = Thread(target=_draw_bar, args=(session, done), name="dpsql-progress")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def show_progress_of_command(session: Session) -> Iterator[None]:
    """Show the progress of a command's only statement; on an interrupt, exit with a message."""
    try:
        with show_progress(session):
            yield
    except KeyboardInterrupt:
        click.echo(f"dpsql: {INTERRUPTED}; dpsql budget shows what is left.", err=True)
        raise click.exceptions.Exit(EXIT_CODE) from None


def _draw_bar(session: Session, done: Event) -> None:
    if done.wait(_FIRST):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(),
        TextColumn("{task.fields[percent]}"),
        TimeElapsedColumn(),
        TextColumn("Ctrl-C: charged in full"),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=1 / _EACH,
    ) as bar:
        bar.console.show_cursor(True)  # a killed process cannot restore it
        task, share = bar.add_task("", total=None, percent=""), 0.0
        bar.tasks[task].start_time = bar.get_time() - _FIRST
        while main_thread().is_alive():
            share = max(share, session.progress or 0.0)
            if share:
                bar.update(task, total=1.0, completed=share, percent=f"{share:4.0%}")
            if done.wait(_EACH):
                return
