"""Magic of one shell: holds a session, binds parameters by name, and shows errors as boxes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from dpsql.connect import connect
from dpsql.display import Facts
from dpsql.errors import Error, UsageError
from dpsql.notebook.parser import HELP, extract_statement, parse_command, parse_connect, parse_variable
from dpsql.notebook.progress import show_progress
from dpsql.notebook.rendering import Help, Listing, Problem
from dpsql.user_warnings import WastedChargeWarning

if TYPE_CHECKING:
    from dpsql.session import Session

__all__ = ["Notebook"]


class Notebook:
    """Session of one shell, and the commands of `%dpsql` and `%%dpsql`."""

    __slots__ = ("_is_own", "_session", "_shell")

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._is_own = False

    def run(self, line: str, cell: str | None) -> object:
        """Run a command or a statement, and return the value to show.

        An error fails the cell, so that an unattended run of the notebook stops. In a kernel the error is shown as a
        box, and one line replaces the traceback.
        """
        statement = extract_statement(line) if cell is None else cell
        try:
            return self._run_line(line) if cell is None else self._run_cell(line, cell)
        except Error as error:
            if self._has_kernel:
                display(Problem(error, statement))  # type: ignore[no-untyped-call]
                error.boxed = True
            raise

    @property
    def session(self) -> Session:
        """The open session; raises `UsageError` if there is none."""
        if self._session is None:
            hint = "%dpsql connect events.duckdb --policy policy.toml"
            raise UsageError("not-connected", "No session is open in this notebook.", hint=hint)
        return self._session

    @property
    def is_connected(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def close(self) -> None:
        """Drop the session, and close it if `connect` opened it."""
        session, self._session = self._session, None
        if session is not None and self._is_own:
            session.close()

    @property
    def _has_kernel(self) -> bool:
        return getattr(self._shell, "kernel", None) is not None

    def _run_cell(self, line: str, cell: str) -> object:
        name = parse_variable(line)
        answer = self._run_statement(cell)
        if name is not None:
            self._shell.user_ns[name] = answer
        return answer

    def _run_line(self, line: str) -> object:
        command = parse_command(line)
        if command is None:
            return self._run_statement(line) if line.strip() else _help()
        name, rest = command
        match name:
            case "connect":
                return self._connect(rest)
            case "use":
                return self._use(rest)
            case "explain":
                return self.session.explain(rest, self._bind_parameters(rest))
            case "budget":
                return self.session.budget
            case "tables":
                return self.session.sql("SHOW TABLES")
            case "history":
                return Listing("Queries, newest last", self.session.history)
            case "close":
                self.close()
                return None
        return _help()

    def _connect(self, rest: str) -> object:
        arguments = parse_connect(rest)
        session = connect(
            arguments.database,
            policy=arguments.policy,
            ledger=arguments.ledger,
            analyst=arguments.analyst,
            isolation=arguments.isolation,
            implicit=arguments.implicit,
        )
        self.close()
        self._session, self._is_own = session, True
        return session.budget

    def _use(self, rest: str) -> object:
        from dpsql.session import Session

        found = self._shell.user_ns.get(rest.rstrip(";").strip())
        if not isinstance(found, Session):
            hint = "Write session = dpsql.connect(...), then %dpsql use session"
            raise UsageError("magic", "No variable of this name holds a session.", hint=hint)
        if found is not self._session:
            self.close()
            self._session, self._is_own = found, False
        return found.budget

    def _run_statement(self, text: str) -> object:
        session, parameters = self.session, self._bind_parameters(text)
        with show_progress(lambda: session.progress, is_shown=self._has_kernel), warnings.catch_warnings():
            warnings.simplefilter("ignore", WastedChargeWarning)  # the notes of the answer say it
            return session.sql(text, parameters)

    def _bind_parameters(self, text: str) -> dict[str, object]:
        """Return the values of the variables that the statement names as parameters."""
        from dpsql.sql.lexer import scan

        names = {value.content[1:] for value in scan(text).values if value.kind == "parameter" and value.content != "?"}
        return {name: self._read_variable(name) for name in names if name in self._shell.user_ns}

    def _read_variable(self, name: str) -> object:
        """Return the value of a variable, with a number of numpy or pandas converted to Python's own."""
        value: object = self._shell.user_ns[name]
        item = getattr(value, "item", None)
        if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", None) == 0:
            return item()
        return value


def _help() -> Help:
    return Help(Facts("%dpsql: private top-k analytics", HELP))
