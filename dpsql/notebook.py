"""`%load_ext dpsql`: queries and budgets in IPython and Jupyter by the magics %dpsql and %%dpsql.

Here are the commands, the session that a notebook holds, completion, what is shown beside answers, and registration.
Nothing is decided here.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import no_var_expand
from IPython.display import display, publish_display_data

from dpsql.connect import connect
from dpsql.display import Facts, Message, Sheet, SheetColumn, box_html, facts_html, replace_unprintable, sheet_html
from dpsql.errors import Error, UsageError, WastedChargeWarning
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.scope import propose_name

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.session import Session

__all__ = ["Notebook", "load", "unload"]

HELP = (
    (
        "%dpsql connect DB --policy FILE",
        "open a session; also --analyst, --ledger, --isolation, --implicit, --consent; DB is optional",
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
_FLAGS = frozenset(["--consent", "--implicit"])  # options of connect without a value
_WITHOUT_ARGUMENT = frozenset(["budget", "close", "help", "history", "tables"])
_REQUIRED = {"explain": "a statement", "use": "the name of a variable"}
_HINT = "%dpsql help lists the commands."
_HELP_WORDS = frozenset(["--help", "-h", "?"])


def parse_command(line: str) -> tuple[str, str] | None:
    """Return the command of a line and its argument; None for a statement."""
    first, _, rest = line.strip().partition(" ")
    name, rest = first.lower().removesuffix(";"), rest.strip()
    if name in _HELP_WORDS:
        return "help", ""
    if name not in COMMANDS:
        if name.isidentifier() and not rest:  # no statement is one word
            hint = propose_name(name, COMMANDS).replace("mean ", "mean %dpsql ")
            hint += "%dpsql help lists the commands. A statement has more words, such as SHOW TABLES."
            raise UsageError("magic", "There is no such command.", hint=hint)
        return None
    if name in _REQUIRED and not rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} needs {_REQUIRED[name]} after it.", hint=_HINT)
    if name in _WITHOUT_ARGUMENT and rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} takes nothing after it.", hint=_HINT)
    return name, rest


def parse_connect(rest: str) -> dict[str, str]:
    """Parse the arguments of `connect`: a database, and options as `--name value` or `--name=value`."""
    hint = "%dpsql connect events.duckdb [--policy policy.toml] [--analyst NAME] [--ledger FILE] [--isolation process]"
    hint += " [--implicit] [--consent]"
    try:
        words, reason = iter(shlex.split(rest)), ""
    except ValueError:
        words, reason = iter(()), "A quote is not closed."
    places: list[str] = []
    options: dict[str, str] = {}
    for word in words:
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif word in _FLAGS:
            options[name] = "on"
        elif name not in _CONNECT_OPTIONS or name in options:
            reason = f"connect has no option --{name}, or it is given twice."
            break
        else:
            options[name] = value if has_value else next(words, "")
            if not options[name]:
                reason = f"--{name} needs a value."
                break
    if not reason and len(places) > 1:
        reason = "connect takes at most one database."
    if reason:
        raise UsageError("magic", reason, hint=hint)
    return {**options, **({"database": places[0]} if places else {})}


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
        statement = cell
        if statement is None:  # the place of an error is counted in the argument of `explain`, or in the whole line
            first, _, rest = line.strip().partition(" ")
            statement = rest.strip() if first.lower() == "explain" else line
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
        name = line.strip()
        if name and (not name.isidentifier() or iskeyword(name) or name in COMMANDS):
            hint = "Write %%dpsql answer, and the statement on the next line. A command is a line of its own: "
            hint += "%dpsql budget"
            raise UsageError("magic", "%%dpsql takes the name of a variable, or nothing.", hint=hint)
        answer = self._run_statement(cell)
        if name:
            self._shell.user_ns[name] = answer
        return answer

    def _run_line(self, line: str) -> object:
        command = parse_command(line)
        if command is None:
            return self._run_statement(line) if line.strip() else _HELP
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
        return _HELP

    def _connect(self, rest: str) -> object:
        options = parse_connect(rest)
        session = connect(
            Path(options["database"]).expanduser() if "database" in options else None,
            policy=Path(options["policy"]).expanduser() if "policy" in options else None,
            ledger=options.get("ledger"),
            analyst=options.get("analyst"),
            isolation=options.get("isolation"),
            implicit=True if "implicit" in options else None,
            consent=True if "consent" in options else None,
        )
        # After the new session is open: where that fails, the former one stays.
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

        bound = dict[str, object]()
        for token in scan(text).values:
            name = token.content[1:]
            if token.kind == "parameter" and token.content != "?" and name in self._shell.user_ns:
                value = self._shell.user_ns[name]
                item = getattr(value, "item", None)
                # a number of numpy or pandas becomes Python's own
                is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
                bound[name] = item() if is_scalar and callable(item) else value
        return bound


Matcher = Callable[[CompletionContext], SimpleMatcherResult]
_WORDS = "SELECT COUNT DISTINCT FROM WHERE GROUP BY HAVING ORDER TOP PRIVATE PER WITH JOIN LIMIT ADAPTIVE".split()
_LAST = re.compile(r"\w*$")


def make_matcher(find_catalog: Callable[[], Catalog | None]) -> Matcher:
    """Return a matcher for IPython's completer, over the catalog that `find_catalog` returns at each call.

    It completes only inside the magic, and there suppresses other matchers. All that it offers is public.
    """

    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        # in a statement: on a line of %dpsql, or below the first line of %%dpsql
        is_in_magic = re.match(r"\s*(\w+\s*=\s*)?%dpsql\s", context.line_with_cursor) is not None
        if context.full_text.lstrip().startswith("%%dpsql"):
            is_in_magic = context.cursor_line > 0
        if not is_in_magic:
            return {"completions": []}
        match = _LAST.search(context.text_until_cursor)
        fragment = match[0] if match is not None else ""
        catalog = find_catalog()
        words = list(COMMANDS) if re.fullmatch(r"\s*%dpsql\s+\w*", context.text_until_cursor) else []
        for table in () if catalog is None else catalog.list_tables():
            words += [table.name, *(name for name, _ in table.columns)]
        known = dict.fromkeys([*words, *_WORDS])
        found = [SimpleCompletion(word) for word in known if word.lower().startswith(fragment.lower())]
        return {"completions": found, "matched_fragment": fragment, "suppress": True, "ordered": True}

    # IPython's decorator would set these, but it hides the type
    for name, value in {"matcher_api_version": 2, "matcher_identifier": "dpsql", "matcher_priority": 1}.items():
        setattr(matcher, name, value)
    return matcher


_LATEST = 20


@dataclass(frozen=True, slots=True)
class Listing:
    """Table of the ledger under a caption. The latest 20 rows are shown; `table` holds all."""

    caption: str
    table: pa.Table

    def _repr_html_(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST))
        columns = [
            SheetColumn(field.name, is_number=field.name.endswith(("charged", "reserved"))) for field in latest.schema
        ]
        rows = [[_format_cell(cell) for cell in row.values()] for row in latest.to_pylist()]
        left_out = self.table.num_rows - len(rows)
        notes = [f"{left_out} earlier rows are not shown."] if left_out else []
        return sheet_html(Sheet(self.caption, columns, rows, len(rows), longest=400, notes=notes))

    def __repr__(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST)).to_pylist()
        lines = (
            " | ".join(replace_unprintable(" ".join(_format_cell(cell).split())) for cell in row.values())
            for row in latest
        )
        return "\n".join([self.caption, " | ".join(self.table.column_names), *lines])


@dataclass(frozen=True, slots=True)
class Help:
    """List of the commands of the magic."""

    facts: Facts

    def _repr_html_(self) -> str:
        return facts_html(self.facts)

    def __repr__(self) -> str:
        return "\n".join([self.facts.caption, *(f"  {name:34} {value}" for name, value in self.facts.pairs)])


class Problem:
    """Error with the statement that caused it."""

    __slots__ = ("_message", "_text")

    def __init__(self, error: Error, statement: str) -> None:
        self._message = Message(error, statement)
        self._text = "\n".join(error._render_traceback_())

    def _repr_html_(self) -> str:
        return box_html(self._message)

    def __repr__(self) -> str:
        return self._text


def _format_cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    strftime = getattr(cell, "strftime", None)
    return str(strftime("%Y-%m-%d %H:%M:%S")) if callable(strftime) else " ".join(str(cell).split())


_FIRST = 1.0  # seconds without a display: most queries end within them
_EACH = 1.0  # seconds between two updates

Progress = Callable[[], float | None]


@contextmanager
def show_progress(progress: Progress, *, is_shown: bool) -> Iterator[None]:
    """Show elapsed seconds and `progress` during the block if `is_shown`, and wipe them at its end."""
    if not is_shown:
        yield
        return
    done = Event()
    # a display belongs to the running cell, which the kernel stores in the context
    thread = Thread(target=copy_context().run, args=(_update_display, progress, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _update_display(progress: Progress, done: Event) -> None:
    publish: Callable[..., None] = publish_display_data
    place, seconds, is_shown = {"display_id": f"dpsql-{id(done)}"}, _FIRST, False
    while not done.wait(_EACH if is_shown else _FIRST):
        publish({"text/plain": _format_progress(seconds, progress())}, transient=place, update=is_shown)
        seconds, is_shown = seconds + _EACH, True
    if is_shown:
        publish({"text/plain": ""}, transient=place, update=True)


def _format_progress(seconds: float, share: float | None) -> str:
    percent = "" if share is None else f", {share:.0%} done"
    return f"running for {seconds:g} s{percent}; an interrupted private query is charged in full"


_HELP = Help(Facts("%dpsql: private top-k analytics", HELP))
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
    shell.register_magic_function(bare, magic_kind="line_cell", magic_name="dpsql")  # type: ignore[call-arg, arg-type]
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
        shell.magics_manager.magics[kind].pop("dpsql", None)
    notebook.close()
