"""Magics %dpsql and %%dpsql: commands, the session that a notebook holds, completion, registration in IPython."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import no_var_expand
from IPython.display import display

from dpsql.connect import connect
from dpsql.display import Facts
from dpsql.errors import Error, UsageError
from dpsql.notebook.rendering import Help, Listing, Problem, show_progress
from dpsql.sql.ir.catalog import Catalog
from dpsql.user_warnings import WastedChargeWarning

if TYPE_CHECKING:
    from dpsql.session import Session

HELP = (
    (
        "%dpsql connect DB --policy FILE",
        "open a session; also --analyst, --ledger, --isolation, --implicit; DB is optional",
    ),
    ("%dpsql use NAME", "use the session in a variable, opened by dpsql.connect"),
    ("%dpsql SELECT ...", "run a query; :name is replaced by the value of a variable"),
    ("%%dpsql [NAME]", "run the statement in the cell, and store the answer in a variable"),
    ("%dpsql budget", "show the budget granted, used and left"),
    ("%dpsql tables", "list the tables; DESCRIBE table lists the columns of one"),
    ("%dpsql history", "show the queries and the charge for each"),
    ("%dpsql explain SELECT ...", "show the plan of a query and its maximum cost; free"),
    ("%dpsql close", "close the session"),
)
COMMANDS = ("budget", "close", "connect", "explain", "help", "history", "tables", "use")
_CONNECT_OPTIONS = ("policy", "analyst", "ledger", "isolation")
_FLAGS = frozenset(["--implicit"])  # options of connect without a value
_WITHOUT_ARGUMENT = frozenset(["budget", "close", "help", "history", "tables"])
_REQUIRED = {"explain": "a statement", "use": "the name of a variable"}
_HINT = "%dpsql help lists the commands."
_HELP_WORDS = frozenset(["--help", "-h", "?"])


@dataclass(frozen=True, slots=True)
class ConnectArguments:
    """Arguments of the command `connect`, for `dpsql.connect`."""

    database: Path | None
    policy: Path
    ledger: str | None
    analyst: str | None
    isolation: str | None
    implicit: bool | None


def parse_command(line: str) -> tuple[str, str] | None:
    """Return the command of a line and its argument; None for a statement."""
    first, _, rest = line.strip().partition(" ")
    name, rest = first.lower().removesuffix(";"), rest.strip()
    if name in _HELP_WORDS:
        return "help", ""
    if name not in COMMANDS:
        if name.isidentifier() and not rest:  # no statement is one word
            hint = "%dpsql help lists the commands. A statement has more words, such as SHOW TABLES."
            raise UsageError("magic", "There is no such command.", hint=hint)
        return None
    if name in _REQUIRED and not rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} needs {_REQUIRED[name]} after it.", hint=_HINT)
    if name in _WITHOUT_ARGUMENT and rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} takes nothing after it.", hint=_HINT)
    return name, rest


def extract_statement(line: str) -> str:
    """Return the text in which the place of an error is counted: the argument of `explain`, or the whole line."""
    first, _, rest = line.strip().partition(" ")
    return rest.strip() if first.lower() == "explain" else line


def parse_connect(rest: str) -> ConnectArguments:
    """Parse the arguments of `connect`: a database, and options as `--name value` or `--name=value`."""
    places: list[str] = []
    options: dict[str, str] = {}
    words = iter(_split_words(rest))
    for word in words:
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif word in _FLAGS:
            options[name] = "on"
        elif name not in _CONNECT_OPTIONS or name in options:
            raise _connect_error(f"connect has no option --{name}, or it is given twice.")
        else:
            options[name] = value if has_value else next(words, "")
            if not options[name]:
                raise _connect_error(f"--{name} needs a value.")
    if len(places) > 1 or "policy" not in options:
        raise _connect_error("connect needs --policy, and takes at most one database.")
    return ConnectArguments(
        Path(places[0]).expanduser() if places else None,
        Path(options["policy"]).expanduser(),
        options.get("ledger"),
        options.get("analyst"),
        options.get("isolation"),
        True if "implicit" in options else None,
    )


def parse_variable(line: str) -> str | None:
    """Return the name of the variable for the answer of a cell; None if the line is empty."""
    name = line.strip()
    if not name:
        return None
    if not name.isidentifier() or iskeyword(name) or name in COMMANDS:
        hint = "Write %%dpsql answer, and the statement on the next line. A command is a line of its own: %dpsql budget"
        raise UsageError("magic", "%%dpsql takes the name of a variable, or nothing.", hint=hint)
    return name


def _split_words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:
        pass
    raise _connect_error("A quote is not closed.")


def _connect_error(reason: str) -> UsageError:
    hint = "%dpsql connect events.duckdb --policy policy.toml [--analyst NAME] [--ledger FILE] [--isolation process]"
    hint += " [--implicit]"
    return UsageError("magic", reason, hint=hint)


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
