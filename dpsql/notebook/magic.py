"""The magic of one shell: it holds a session, binds parameters by name, and shows errors as boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from dpsql.connect import connect
from dpsql.display import Facts
from dpsql.errors import Error, UsageError
from dpsql.notebook.progress import ticking
from dpsql.notebook.shown import Help, Listing, Problem
from dpsql.notebook.words import HELP, command_of, connecting, statement_of, variable_of

if TYPE_CHECKING:
    from dpsql.session import Session

__all__ = ["Notebook"]


class Notebook:
    """One shell's session, and the acts of `%dpsql` and `%%dpsql`."""

    __slots__ = ("_own", "_session", "_shell")

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._own = False

    def run(self, line: str, cell: str | None) -> object:
        """Do what a line says, or ask what a cell says, and return what is to be shown.

        An error fails the cell, so that whoever runs the notebook without looking sees it too; in a kernel the box
        comes first, and one line stands in place of the traceback.
        """
        statement = statement_of(line) if cell is None else cell
        try:
            return self._line(line) if cell is None else self._cell(line, cell)
        except Error as error:
            if self._has_kernel:
                display(Problem(error, statement))  # type: ignore[no-untyped-call]
                error.boxed = True
            raise

    @property
    def session(self) -> Session:
        """The session that is open; raise UsageError where there is none."""
        if self._session is None:
            hint = "%dpsql connect events.duckdb --policy policy.toml"
            raise UsageError("not-connected", "No session is open in this notebook.", hint=hint)
        return self._session

    @property
    def is_connected(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def close(self) -> None:
        """Let go of the session, and close it if it was opened here."""
        session, self._session = self._session, None
        if session is not None and self._own:
            session.close()

    @property
    def _has_kernel(self) -> bool:
        return getattr(self._shell, "kernel", None) is not None

    def _cell(self, line: str, cell: str) -> object:
        name = variable_of(line)
        answer = self._ask(cell)
        if name is not None:
            self._shell.user_ns[name] = answer
        return answer

    def _line(self, line: str) -> object:
        command = command_of(line)
        if command is None:
            return self._ask(line) if line.strip() else _help()
        name, rest = command
        match name:
            case "connect":
                return self._connect(rest)
            case "use":
                return self._use(rest)
            case "explain":
                return self._explain(rest)
            case "budget":
                return self.session.budget
            case "tables":
                return self.session.sql("SHOW TABLES")
            case "history":
                return Listing("What was asked, newest last", self.session.history)
            case "close":
                self.close()
                return None
        return _help()

    def _connect(self, rest: str) -> object:
        given = connecting(rest)
        opened = connect(
            given.database,
            policy=given.policy,
            ledger=given.ledger,
            analyst=given.analyst,
            isolation=given.isolation,
        )
        self.close()
        self._session, self._own = opened, True
        return opened.budget

    def _use(self, rest: str) -> object:
        from dpsql.session import Session

        found = self._shell.user_ns.get(rest.rstrip(";").strip())
        if not isinstance(found, Session):
            hint = "session = dpsql.connect(...), and then %dpsql use session."
            raise UsageError("magic", "There is no session in a variable of this name.", hint=hint)
        if found is not self._session:
            self.close()
            self._session, self._own = found, False
        return found.budget

    def _explain(self, rest: str) -> object:
        return self.session.explain(rest, self._parameters(rest))

    def _ask(self, text: str) -> object:
        session, parameters = self.session, self._parameters(text)
        with ticking(lambda: session.progress, wanted=self._has_kernel):
            return session.sql(text, parameters)

    def _parameters(self, text: str) -> dict[str, object]:
        """Return the values of the variables that the statement names as parameters, to be bound and never pasted."""
        from dpsql.sql.lexer import scan

        names = {value.content[1:] for value in scan(text).values if value.kind == "parameter" and value.content != "?"}
        return {name: self._value(name) for name in names if name in self._shell.user_ns}

    def _value(self, name: str) -> object:
        """Return a variable's value; numbers of numpy and pandas as Python's own."""
        value: object = self._shell.user_ns[name]
        item = getattr(value, "item", None)
        if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", None) == 0:
            return item()
        return value


def _help() -> Help:
    return Help(Facts("%dpsql: private top-k analytics", HELP))
