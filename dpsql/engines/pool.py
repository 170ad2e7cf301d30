"""Several engines over the same tables, so that statements of several analysts run at the same time.

Each member has a connection, a cursor or a process of its own: a statement that fails, is stopped or does not end
affects no other. A member that can run nothing any more is replaced before the next statement.

Engines for statements over public tables alone, apart from the one that reads private rows.

Such a statement is free and may be sent at will, so it must not delay a private one: it has engines, memory and threads
of its own, ends at a time limit, and is stopped when its client is gone. No private row is read here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines.base import (
    LOOK,
    Unchanging,
    engine_closed,
    find_data_version,
    find_descriptions,
    read_confinement,
    statement_stopped,
    take_turn,
)
from dpsql.engines.sources import file_versions
from dpsql.errors import EngineError, Error, UsageError

if TYPE_CHECKING:
    from dpsql.dialects import Dialect
    from dpsql.engines.base import Engine, Exact, Statement, Stop
    from dpsql.engines.sources import Column


class PublicEngines:
    """At most so many engines over the public tables, each opened when it is first needed; threads may share them.

    `open_engine` opens one. `loaded` are files that are read when an engine opens and never again: an engine that is
    opened after one of them has changed would answer of other rows than the first, so that is refused.
    """

    def __init__(
        self, open_engine: Callable[[], Engine], *, seconds: float, most: int = 2, loaded: tuple[Path, ...] = ()
    ) -> None:
        self._open, self._seconds, self._most, self._loaded = open_engine, seconds, most, loaded
        self._versions = file_versions(loaded)
        self._changed = threading.Condition()
        self._free: list[Engine] = []
        self._count = 0  # of engines that are open or being opened
        self._closed = False

    @property
    def seconds(self) -> float:
        """The time limit of a statement."""
        return self._seconds

    @property
    def most(self) -> int:
        """The number of statements that run at a time."""
        return self._most

    def open_first(self) -> None:
        """Open the first engine now; raises what opening it raises."""
        self._give_back(self._take(None), usable=True)

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT over public tables.

        Raises `EngineError`: `public-time-limit`, `statement-stopped`, or what the engine says; nothing is charged.
        """
        engine = self._take(stop)
        # `usable` stays False for an interrupt: the engine may be in the middle of the statement, and is closed.
        usable, began = False, time.monotonic()
        failure: Error | None = None
        try:
            exact = engine.execute(statement, stop=within(self._seconds, stop))
            usable = True
        except EngineError as error:
            usable, failure = True, error
        except UsageError as error:  # the engine is closed, or busy with a statement that did not end
            failure = error
        finally:
            self._give_back(engine, usable=usable)
        if failure is None:
            return exact
        if stop is not None and stop():
            raise statement_stopped()
        if time.monotonic() - began >= self._seconds:
            raise time_limit_reached(self._seconds)
        raise failure

    def close(self) -> None:
        """Close the engines, those that run a statement once it has ended; closing twice is closing once."""
        with self._changed:
            self._closed = True
            free, self._free = self._free, []
            self._changed.notify_all()
        for engine in free:
            engine.close()

    def _take(self, stop: Stop | None) -> Engine:
        """Return an engine that is free, or a new one; wait where all are busy, or where no further one opens."""
        engine = self._wait(stop, most=self._most)
        if engine is not None:
            return engine
        try:
            self._check_files()
            return self._open()
        except EngineError as error:
            self._forget()
            if error.code == "source-changed":
                raise
            failure = error
        except BaseException:
            self._forget()
            raise
        # No further engine opens, as where a server has no connection left: one of those that are open is waited for,
        # if any is.
        engine = self._wait(stop, most=1)
        if engine is None:
            self._forget()
            raise failure
        return engine

    def _wait(self, stop: Stop | None, *, most: int) -> Engine | None:
        """Return a free engine, once there is one; None, counted as one, where fewer than `most` are open."""
        with self._changed:
            while not self._free and self._count >= most and not self._closed:
                if stop is not None and stop():
                    raise statement_stopped()
                self._changed.wait(LOOK)
            if self._closed:
                raise UsageError("closed", "This session is closed.", hint="Open another with dpsql.connect.")
            if self._free:
                return self._free.pop()
            self._count += 1
            return None

    def _check_files(self) -> None:
        if file_versions(self._loaded) != self._versions:
            reason = "A file of a public table has changed since the session was opened."
            raise EngineError("source-changed", reason, hint="Open a new session.")

    def _give_back(self, engine: Engine, *, usable: bool) -> None:
        with self._changed:
            if usable and not self._closed:
                self._free.append(engine)
                self._changed.notify()
                return
        self._forget()
        engine.close()

    def _forget(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()


def within(seconds: float, stop: Stop | None) -> Stop:
    """Return a stop signal that is also given when so many seconds have passed from now."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline or (stop is not None and stop())


def time_limit_reached(seconds: float) -> EngineError:
    """Return the error of a public statement that took too long."""
    return EngineError(
        "public-time-limit",
        f"A statement over public tables may take {seconds:g} seconds, and this one took longer; nothing was charged.",
        hint="Read fewer rows, or ask the curator to raise public_time_limit in [engine] of the policy.",
    )


class EnginePool:
    """Engine that runs up to `size` SELECTs at a time, each in a member of its own; threads may share it.

    `first` describes the tables, whose `names` are those of the policy. `open_member` opens another engine over the
    same tables when one is needed. `open_patterns` opens one that has no data and compiles regular expressions, so that
    these never depend on what the members are doing; without it `first` does.
    """

    def __init__(
        self,
        first: Engine,
        open_member: Callable[[], Engine],
        *,
        size: int,
        names: tuple[str, ...],
        open_patterns: Callable[[], Engine] | None = None,
    ) -> None:
        self._first, self._open, self._size, self._names = first, open_member, size, names
        self._open_patterns = open_patterns
        self._patterns: Engine | None = None
        self._idle = threading.Lock()
        self._changed = threading.Condition()
        self._free = [first]
        self._count = 1  # of members that are open or being opened
        self._own: list[Engine | None] = []  # the member of each place, once `open_all` has given every place its own
        self._closed = False
        # with several members, their files must be the same, so no other version may be opened from now on
        found = {name: find_data_version(first, name) for name in names} if size > 1 else {}
        self._versions = {name: version for name, version in found.items() if version is not None}
        # The member of the turn that a thread holds, by which its statements find it.
        self._turn = threading.local()

    @property
    def dialect(self) -> Dialect:
        """The SQL in which its statements are written."""
        return self._first.dialect

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened the engines."""
        return self._first.sealed

    @property
    def isolation(self) -> str:
        """The kind of isolation of the data."""
        return self._first.isolation

    @property
    def confinement(self) -> tuple[str, ...]:
        """The measures that confine the processes of the data."""
        return read_confinement(self._first)

    @property
    def descriptions(self) -> Mapping[str, str]:
        """Descriptions of what is materialized in the database, as the first engine found it."""
        return find_descriptions(self._first)

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the identifier of a table."""
        return self._first.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of a table, as they were when the pool opened."""
        return self._first.columns(name)

    def data_version(self, name: str) -> str | None:
        """Return the version of the files of a table, which is that of all members; None where rows may change."""
        return find_data_version(self._first, name)

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column."""
        with self._hold(None) as member:
            return member.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression; waits for no statement."""
        with self._idle:
            if self._patterns is None and self._open_patterns is not None:
                self._patterns = self._open_patterns()
        return (
            self._first.accepts_pattern(pattern) if self._patterns is None else self._patterns.accepts_pattern(pattern)
        )

    def open_all(self) -> None:
        """Open all members now, one for each place, and from then on as soon as one is lost; raise what that raises.

        No statement then waits for the member of another place: `engine-closed` is raised where its own cannot be
        opened.
        """
        members = [self._first]
        while len(members) < self._size:
            with self._changed:
                self._count += 1
            try:
                members.append(self._open_member())
            except BaseException:
                self._forget()
                raise
            self._give_back(members[-1], usable=True)
        self._own = [*members]

    @contextmanager
    def turn(self, stop: Stop | None = None, *, place: int | None = None) -> Iterator[None]:
        """Keep a member for the body, in which this thread's statements run in it; wait while all are busy.

        It is the one of this place, where each has its own; a turn within a turn has the same. Raises `engine-closed`
        if none can run, and `statement-stopped` if `stop` returns True during the wait.
        """
        former: Engine | None = getattr(self._turn, "member", None)
        with self._hold(stop, place) as member:
            self._turn.member = member
            try:
                yield
            finally:
                self._turn.member = former

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT, in the member of the caller's turn or in one that is free."""
        with self._hold(stop) as member:
            return member.execute(statement) if stop is None else member.execute(statement, stop=stop)

    def close(self) -> None:
        """Close all members, once no statement is running; closing twice is closing once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            # Those that run a statement come back, and then all can be closed.
            while len(self._free) < self._count:
                self._changed.wait()
            members, self._free, self._count = self._free, [], 0
        with ExitStack() as closing:
            closing.callback(self._first.close)  # last: others may use what it holds
            if self._patterns is not None:
                closing.callback(self._patterns.close)
            for member in members:
                closing.callback(member.close)

    @contextmanager
    def _hold(self, stop: Stop | None, place: int | None = None) -> Iterator[Engine]:
        """Hold the member of the caller's turn during the body, or one that is free."""
        member: Engine | None = getattr(self._turn, "member", None)
        if member is not None:
            yield member
            return
        with self._use(stop, place) as taken:
            yield taken

    @contextmanager
    def _use(self, stop: Stop | None, place: int | None) -> Iterator[Engine]:
        """Hold a member that is ready during the body; one on which it failed is made ready again, or discarded."""
        member, turn = self._enter(stop, place)
        is_usable = False
        try:
            with turn:
                yield member
            is_usable = True
        finally:
            try:
                # After a failure the member is tried again: a worker that died has been replaced, a connection that
                # broke opened again.
                is_usable = is_usable or _is_ready(member)
            finally:
                self._give_back(member, usable=is_usable)
            if not is_usable and self._own and place is not None:
                with suppress(UsageError), self._use(None, place):  # opened again before the failure is told
                    pass

    def _enter(self, stop: Stop | None, place: int | None) -> tuple[Engine, ExitStack]:
        """Return a member and its turn; replace members that can run nothing."""
        while True:
            # Members that can run nothing are dropped one after the other; one that was opened just now and is no
            # better is the last.
            member, is_last_resort = self._take(stop, place)
            turn = ExitStack()
            try:
                turn.enter_context(take_turn(member, stop))
            except UsageError:
                self._give_back(member, usable=False)
                if is_last_resort:
                    raise
            except BaseException:
                self._give_back(member, usable=True)
                raise
            else:
                return member, turn

    def _take(self, stop: Stop | None, place: int | None) -> tuple[Engine, bool]:
        """Return a member that is free, or a new one; say whether there is no other to try."""
        member = self._wait(stop, place, may_open=True)
        if member is not None:
            return member, False
        opened: Engine | None = None
        try:
            with suppress(Exception):  # its words are not for analysts
                opened = self._open_member()
        finally:
            if opened is None:
                self._forget()
        if opened is not None:
            self._assign(opened, place)
            return opened, True
        if self._own:
            raise engine_closed()
        member = self._wait(stop, place, may_open=False)
        return (self._first, True) if member is None else (member, False)

    def _wait(self, stop: Stop | None, place: int | None, *, may_open: bool) -> Engine | None:
        """Return a free member, once there is one; None, counted as a member, where one may be opened or none is."""
        with self._changed:
            while not self._closed and not (free := self._find_free(place)) and not self._lacks(place, may_open):
                self._changed.wait(None if stop is None else LOOK)
                if stop is not None and stop():
                    raise statement_stopped()
            if self._closed:
                raise engine_closed()
            if free:
                member = free[-1]
                self._free.remove(member)
                return member
            self._count += 1
            return None

    def _find_free(self, place: int | None) -> list[Engine]:
        """Return the free members that a statement of this place may have."""
        if not self._own or place is None:
            return self._free
        return [member for member in self._free if member is self._own[place % self._size]]

    def _lacks(self, place: int | None, may_open: bool) -> bool:  # noqa: FBT001 - that of `_wait`
        """Return whether another member may be opened for this place, or there is none at all."""
        if self._own and place is not None:
            return self._own[place % self._size] is None
        return self._count < (self._size if may_open else 1)

    def _assign(self, member: Engine, place: int | None) -> None:
        """Let a new member be that of the place for which it was opened."""
        with self._changed:
            if None in self._own:
                self._own[self._own.index(None) if place is None else place % self._size] = member

    def _open_member(self) -> Engine:
        """Return another engine; raise `engine_closed` where its tables or files are not those of the first."""
        member = self._open()
        same = all(member.relation(name) == self._first.relation(name) for name in self._names)
        if same and isinstance(self._first, Unchanging):
            same = all(member.columns(name) == self._first.columns(name) for name in self._names)
        if same and all(find_data_version(member, name) == version for name, version in self._versions.items()):
            return member
        member.close()
        raise engine_closed()

    def _give_back(self, member: Engine, *, usable: bool) -> None:
        if not usable:
            with self._changed:
                self._own = [None if own is member else own for own in self._own]
            self._forget()
            # The first member describes the tables as long as the pool is open.
            if member is not self._first:
                member.close()
            return
        with self._changed:
            self._free.append(member)
            self._changed.notify_all()

    def _forget(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()


def _is_ready(member: Engine) -> bool:
    """Return whether a member can run statements, after it has replaced what broke."""
    with suppress(UsageError), take_turn(member):
        return True
    return False
