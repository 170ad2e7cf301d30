"""Statements of a text, and the commands among them that the connection itself carries out.

Transactions, settings, cursors, prepared statements and COPY are recognised by their words alone. Everything else is a
query, which the session or the catalog reads. Strings, quoted names and comments are skipped as `dpsql.sql.lexer` skips
them. A text that is split wrongly here is refused by the language, which reads each statement whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from dpsql.server.wire.commands import (
    Begin,
    CancelBackend,
    CloseCursor,
    Command,
    Commit,
    CopyOut,
    CreateView,
    Deallocate,
    Declare,
    Discard,
    DropView,
    Execute,
    Explain,
    Fetch,
    Listen,
    Prepare,
    ReleaseSavepoint,
    Reset,
    Rollback,
    Savepoint,
    Set,
    SetConfig,
    Show,
    TableLock,
    Unlisten,
    Unlock,
)
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.words import CommandReader, Word, parse_arguments, parse_types, read_words

_WRITES = frozenset(
    "INSERT UPDATE DELETE MERGE ALTER TRUNCATE COMMENT GRANT REVOKE VACUUM ANALYZE ANALYSE REINDEX CLUSTER "
    "REFRESH IMPORT REASSIGN SECURITY CHECKPOINT".split()
)
_UNSUPPORTED = frozenset("NOTIFY CALL DO LOAD ATTACH DETACH USE PRAGMA INSTALL".split())
_SESSION_SHOWS = frozenset(["BUDGET", "FUNCTIONS", "TABLES"])  # which are queries of the session
_UNLOCK = "PG_ADVISORY_UNLOCK_ALL"
_CANCEL = "PG_CANCEL_BACKEND"
_NUMBER = re.compile(r"[0-9]{1,10}")
_MAX_STATEMENTS = 1_000  # of one text
_MAX_WORDS = 20_000  # words read of a command, more than a query may have
_FIRST_WORDS = {"SELECT": 16, "EXPLAIN": 64}  # of those that are mostly a query
_LOCKING = re.compile(r"\bFOR\s+(?:READ\s+ONLY|(?:NO\s+KEY\s+)?UPDATE|(?:KEY\s+)?SHARE)\b", re.IGNORECASE)
_QUERIES = frozenset(["SELECT", "WITH", "VALUES", "TABLE", "FROM", "("])
_EXPLAIN_OPTIONS = frozenset(
    "ANALYZE ANALYSE VERBOSE COSTS SETTINGS GENERIC_PLAN BUFFERS SERIALIZE WAL TIMING SUMMARY MEMORY FORMAT".split()
)


@dataclass(frozen=True, slots=True)
class StatementText:
    """One statement of a text, and the number of characters before it."""

    text: str
    before: int

    def slice(self, start: int, stop: int | None = None) -> StatementText:
        """Return the query inside this statement, from one character to another."""
        return StatementText(self.text[start:stop], self.before + start)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement and its command, which is None for a query."""

    source: StatementText
    command: Command | None

    @property
    def is_empty(self) -> bool:
        """Whether the statement has no text."""
        return not self.source.text


def split_statements(text: str) -> list[StatementText]:
    """Split a text at its semicolons; statements without a word are left out."""
    statements, start, is_filled = list[StatementText](), 0, False
    for word in read_words(text):
        if word.written == ";":
            if is_filled:
                statements.append(StatementText(text[start : word.start], start))
            start, is_filled = word.start + 1, False
        else:
            is_filled = True
    if is_filled:
        statements.append(StatementText(text[start:], start))
    return statements


def parse_statements(text: str) -> list[ParsedStatement]:
    """Parse the statements of a text; raise `WireError` for too many, and for an unsupported one."""
    statements = split_statements(text)
    if len(statements) > _MAX_STATEMENTS:
        hint = f"Send at most {_MAX_STATEMENTS} statements at once."
        raise WireError("54000", "There are too many statements in one text.", hint=hint)
    return [parse_statement(each) for each in statements]


def parse_statement(source: StatementText) -> ParsedStatement:
    """Parse a statement into its command, or into a query; raise `WireError` for an unsupported statement."""
    command = parse_command(source.text)
    return ParsedStatement(_strip_locking(source) if command is None else source, command)


def parse_query(source: StatementText, *, reason: str, hint: str) -> ParsedStatement:
    """Parse a statement that must be a query; raise `WireError` for any other, and for an unsupported one."""
    parsed = parse_statement(source)
    if parsed.command is not None:
        raise WireError("42601", reason, hint=hint, position=source.before + 1)
    return parsed


def _strip_locking(source: StatementText) -> StatementText:
    """Return a query without FOR READ ONLY at its end; raise `WireError` for FOR UPDATE and the like."""
    words = list(islice(read_words(source.text), _MAX_WORDS + 1)) if _LOCKING.search(source.text) else []
    if not words or len(words) > _MAX_WORDS:
        return source
    start = next((at for at in range(len(words) - 1, -1, -1) if words[at].upper == "FOR"), len(words))
    clause = [word.upper for word in words[start : start + 4]]
    if clause == ["FOR", "READ", "ONLY"]:
        return source.slice(0, words[start].start)
    if (
        clause[1:2] in (["UPDATE"], ["SHARE"])
        or clause[1:3] == ["KEY", "SHARE"]
        or clause[1:] == ["NO", "KEY", "UPDATE"]
    ):
        reason = "Rows cannot be locked: every transaction is read-only."
        hint = "Leave FOR UPDATE or FOR SHARE out."
        raise WireError("25006", reason, hint=hint, position=source.before + words[start].start + 1)
    return source


def parse_command(text: str) -> Command | None:
    """Return the connection's own command in a statement, or None for a query; raise `WireError` if unsupported."""
    first = next(read_words(text), None)
    verb = first.upper if first is not None else ""
    if verb in _WRITES:
        raise _read_only()
    if verb in _UNSUPPORTED:
        raise WireError("0A000", f"{verb} is not supported.", hint="Leave the statement out, or send a SELECT.")
    if verb not in _COMMANDS:
        return None
    reader = CommandReader(list(islice(read_words(text), _FIRST_WORDS.get(verb, _MAX_WORDS))))
    return _COMMANDS[verb](reader)


def _parse_select(reader: CommandReader) -> Command | None:
    """Return the command of a SELECT that only calls a function with an effect on connections; None for every other."""
    if reader.accept("PG_CATALOG") and not reader.accept("."):
        return None
    name = reader.accept(_UNLOCK, _CANCEL, "SET_CONFIG")
    if not name or not reader.accept("("):
        return None
    words = reader.read_rest()
    match name:
        case "SET_CONFIG":
            return _parse_set_config(words)
        case "PG_CANCEL_BACKEND":
            return _parse_cancel(words)
    return Unlock() if [word.written for word in words] == [")"] else None


def _parse_cancel(words: Sequence[Word]) -> CancelBackend | None:
    """Return the command of the argument of pg_cancel_backend, which is a number or the parameter $1."""
    written = [word.written for word in words]
    if written[1:] != [")"] or not (written[0] == "$1" or _NUMBER.fullmatch(written[0])):
        return None
    return CancelBackend(None if written[0] == "$1" else int(written[0]))


def _parse_set_config(words: Sequence[Word]) -> SetConfig | None:
    """Return the command of the arguments of set_config, which are literals."""
    if [word.kind for word in words] != ["string", "sign", "string", "sign", "word", "sign"]:
        return None
    setting, value, local = words[0].value, words[2].value, words[4].upper
    if "".join(word.written for word in words[1:6:2]) != ",,)" or local not in {"TRUE", "FALSE"}:
        return None
    return SetConfig(setting.lower(), value, local == "TRUE")


def _parse_transaction(reader: CommandReader) -> Command:
    """Parse the commands that begin and end transactions and savepoints."""
    match reader.verb:
        case "BEGIN" | "START":
            if reader.verb == "START":
                reader.expect("TRANSACTION")
            reader.read_rest()  # in any mode it is read-only and reads one version of the data
            return Begin("START TRANSACTION" if reader.verb == "START" else "BEGIN")
        case "SAVEPOINT" | "RELEASE":
            if reader.verb == "RELEASE":
                reader.accept("SAVEPOINT")
            name = reader.read_name()
            reader.expect_end()
            return ReleaseSavepoint(name) if reader.verb == "RELEASE" else Savepoint(name)
        case "ROLLBACK" | "ABORT":
            reader.accept("WORK", "TRANSACTION")
            if not reader.accept("TO"):
                return Rollback(_parse_chain(reader))
            reader.accept("SAVEPOINT")
            name = reader.read_name()
            reader.expect_end()
            return Rollback(savepoint=name)
    if reader.peek() == "PREPARED":
        raise WireError("0A000", "Prepared transactions are not supported.", hint="End the transaction with COMMIT.")
    return Commit(_parse_chain(reader))


def _parse_chain(reader: CommandReader) -> bool:
    """Return whether the rest of a COMMIT or ROLLBACK is AND CHAIN."""
    reader.accept("WORK", "TRANSACTION")
    if not reader.accept("AND"):
        reader.expect_end()
        return False
    is_negated = reader.accept("NO")
    reader.expect("CHAIN")
    reader.expect_end()
    return not is_negated


def _parse_lock(reader: CommandReader) -> Command:
    """Parse LOCK TABLE in the mode of reading, which pg_dump sends; nothing ever waits for it."""
    reader.accept("TABLE")
    is_next = True
    while is_next:
        reader.accept("ONLY")
        reader.read_relation()
        is_next = bool(reader.accept(","))
    words = [word.upper for word in reader.read_rest() if word.upper != "NOWAIT"]
    if words != ["IN", "ACCESS", "SHARE", "MODE"]:
        reason = "Every transaction is read-only, so only the lock ACCESS SHARE can be taken."
        raise WireError("25006", reason, hint="LOCK TABLE ... IN ACCESS SHARE MODE")
    return TableLock()


def _parse_create(reader: CommandReader) -> Command:
    """Parse CREATE TEMPORARY VIEW; nothing else is created."""
    replaces = bool(reader.accept("OR"))
    if replaces:
        reader.expect("REPLACE")
    is_temporary = reader.accept("TEMP", "TEMPORARY")
    if not reader.accept("VIEW"):
        raise _read_only()
    if not is_temporary:
        hint = "CREATE TEMPORARY VIEW v AS SELECT ..., or write the query as a CTE."
        raise WireError("25006", "Only a temporary view can be created.", hint=hint)
    name = reader.read_name()
    reader.expect("AS")
    return CreateView(name, reader.next_word().start, replaces)


def _parse_drop(reader: CommandReader) -> Command:
    """Parse DROP VIEW."""
    if not reader.accept("VIEW"):
        raise _read_only()
    if_exists = bool(reader.accept("IF"))
    if if_exists:
        reader.expect("EXISTS")
    names = [reader.read_name()]
    while reader.accept(","):
        names.append(reader.read_name())
    reader.accept("CASCADE", "RESTRICT")
    reader.expect_end()
    return DropView(tuple(names), if_exists)


def _read_only() -> WireError:
    return WireError("25006", "The data is read-only, and so is every transaction.", hint="Send a SELECT.")


def _parse_set(reader: CommandReader) -> Command:
    scope = reader.accept("SESSION", "LOCAL")
    if reader.peek() == "CHARACTERISTICS" or reader.accept("TRANSACTION"):
        reader.read_rest()
        return Set("transaction", "")
    if reader.accept("AUTHORIZATION"):
        hint = "Log in as another user, or use SET ROLE as a service account."
        raise WireError("42501", "SET SESSION AUTHORIZATION is not allowed.", hint=hint)
    if reader.accept("CONSTRAINTS"):
        raise WireError("0A000", "SET CONSTRAINTS is not supported.", hint="Leave the statement out.")
    if reader.accept("NAMES"):
        name = "client_encoding"
    else:
        is_time_zone = reader.peek() == "TIME"
        name = _parse_setting_name(reader)
        if not is_time_zone and (name != "role" or reader.peek() in {"=", "TO"}):
            reader.expect("=", "TO")
    words = reader.read_rest()
    if not words:
        raise reader.syntax_error()
    if len(words) == 1 and words[0].upper in {"DEFAULT", "LOCAL"}:
        return Set(name, None, local=scope == "LOCAL")
    value = ""
    for word in words:
        blank = "" if not value or word.written == "," or value[-1:] in "-+ " else " "
        value += blank + word.value + (" " if word.written == "," else "")
    return Set(name, value.strip(), local=scope == "LOCAL")


def _parse_setting_name(reader: CommandReader) -> str:
    """Return the name of a setting, also of those that SQL writes in several words."""
    if reader.accept("TIME"):
        reader.expect("ZONE")
        return "timezone"
    name = reader.read_name()
    while reader.accept("."):
        name += f".{reader.read_name()}"
    return name.lower()


def _parse_reset(reader: CommandReader) -> Command:
    if reader.accept("ALL"):
        name = ""
    elif reader.accept("SESSION"):
        reader.expect("AUTHORIZATION")
        name = "session_authorization"
    else:
        name = _parse_setting_name(reader)
    reader.expect_end()
    return Reset(name)


def _parse_show(reader: CommandReader) -> Command | None:
    if reader.peek() in _SESSION_SHOWS:
        return None
    if reader.accept("SESSION"):
        reader.expect("AUTHORIZATION")
        name = "session_authorization"
    elif reader.accept("TRANSACTION"):
        reader.expect("ISOLATION")
        reader.expect("LEVEL")
        name = "transaction_isolation"
    else:
        name = _parse_setting_name(reader)
    reader.expect_end()
    return Show(name)


def _parse_declare(reader: CommandReader) -> Command:
    name, hold, no_scroll = reader.read_name(), False, False
    while not reader.accept("CURSOR"):
        if reader.peek() == "BINARY":
            hint = "Bind the statement with results in binary format."
            raise WireError("0A000", "Binary cursors are not supported.", hint=hint)
        no_scroll = reader.accept("NO") == "NO"
        reader.expect(*(["SCROLL"] if no_scroll else ["INSENSITIVE", "ASENSITIVE", "SCROLL"]))
    if kind := reader.accept("WITH", "WITHOUT"):
        reader.expect("HOLD")
        hold = kind == "WITH"
    reader.expect("FOR")
    return Declare(name, reader.next_word().start, hold, no_scroll)


def _parse_fetch(reader: CommandReader) -> Command:
    """Parse FETCH or MOVE."""
    count: int | None = 1
    kind: Literal["FORWARD", "BACKWARD", "ABSOLUTE", "RELATIVE"] = "FORWARD"
    match reader.accept("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD"):
        case "PRIOR":
            count = -1
        case "FIRST":
            kind = "ABSOLUTE"
        case "LAST":
            count, kind = -1, "ABSOLUTE"
        case "ABSOLUTE":
            count, kind = reader.read_number(), "ABSOLUTE"
        case "RELATIVE":
            count, kind = reader.read_number(), "RELATIVE"
        case "ALL":
            count = None
        case _ as direction:
            is_backward = direction == "BACKWARD"
            if direction and reader.accept("ALL"):
                count, kind = None, "BACKWARD" if is_backward else "FORWARD"
            elif reader.has_number or is_backward:
                count = (-1 if is_backward else 1) * (reader.read_number() if reader.has_number else 1)
    reader.accept("FROM", "IN")
    name = reader.read_name()
    reader.expect_end()
    return Fetch(name, count, kind, move=reader.verb == "MOVE")


def _parse_prepare(reader: CommandReader) -> Command:
    if reader.peek() == "TRANSACTION":
        raise WireError("0A000", "Prepared transactions are not supported.", hint="End the transaction with COMMIT.")
    name = reader.read_name()
    types = parse_types(reader)
    reader.expect("AS")
    return Prepare(name, reader.next_word().start, types)


def _parse_execute(reader: CommandReader) -> Command:
    name = reader.read_name()
    arguments = parse_arguments(reader)
    reader.expect_end()
    return Execute(name, tuple(argument.text for argument in arguments), tuple(argument.oid for argument in arguments))


def _parse_explain(reader: CommandReader) -> Command | None:
    """Parse EXPLAIN with options; EXPLAIN alone is a query of the session."""
    options = dict[str, str]()
    if reader.peek() == "(":
        if reader.peek(1) in _QUERIES:
            return None
        reader.accept("(")
        while not options or reader.accept(","):
            name = reader.read_name().upper()
            options[name] = "" if reader.peek() in {",", ")"} else reader.next_word().value.upper()
        reader.expect(")")
    else:
        while name := reader.accept("ANALYZE", "ANALYSE", "VERBOSE"):
            options[name] = "" if name == "VERBOSE" else "ON"
    if not options:
        return None
    layout = options.get("FORMAT", "TEXT" if reader.last.written == ")" else "")
    if any(options.get(name, "OFF") not in _FALSE for name in ("ANALYZE", "ANALYSE")):
        reason = "EXPLAIN ANALYZE would run the statement, and a private query is charged when it runs."
        raise WireError("0A000", reason, hint="Leave ANALYZE out: EXPLAIN alone is free.")
    if options.keys() - _EXPLAIN_OPTIONS or layout not in {"", "TEXT", "JSON", "XML"}:
        raise WireError("0A000", "This option of EXPLAIN is not supported.", hint="EXPLAIN (FORMAT JSON) SELECT ...")
    return Explain(reader.next_word().start, layout)


def _parse_copy(reader: CommandReader) -> Command:  # noqa: C901, PLR0912 - the grammar of one command
    columns = ""
    if reader.peek() == "(":
        start, stop = reader.read_parenthesised()
    else:
        start, stop = reader.read_relation()
        columns = "*"
        if reader.accept("("):
            columns = "".join(word.written for word in reader.read_until(")"))
    if not reader.accept("TO"):
        raise WireError("25006", "COPY FROM is not supported: the data is read-only.", hint=_COPY_HINT)
    if not reader.accept("STDOUT"):
        raise WireError("42501", "COPY to a file or a program is not supported.", hint=_COPY_HINT)
    reader.accept("WITH")
    options = dict[str, str]()
    if reader.accept("("):
        while not reader.accept(")"):
            name, value = reader.read_name().lower(), ""
            if reader.accept("("):
                value = "\0".join(word.value for word in reader.read_until(")") if word.written != ",")
            elif reader.peek() not in {",", ")"}:
                value = reader.next_word().value
            options[name] = value
            reader.accept(",")
    else:  # the options of PostgreSQL before version 9, without parentheses
        while name := reader.accept("BINARY", "CSV", "HEADER", "DELIMITER", "NULL", "QUOTE", "ESCAPE"):
            if name in {"BINARY", "CSV"}:
                options["format"] = name.lower()
            elif name == "HEADER":
                options["header"] = "true"
            else:
                reader.accept("AS")
                options[name.lower()] = reader.next_word().value
    reader.expect_end()
    return CopyOut(start, stop, columns, options)


def _parse_close(reader: CommandReader) -> Command:
    """Parse the commands that end cursors, prepared statements and notifications."""
    match reader.verb:
        case "LISTEN":
            reader.read_name()
            reader.expect_end()
            return Listen()
        case "UNLISTEN":
            reader.read_rest()
            return Unlisten()
        case "DISCARD":
            kind = reader.accept("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY")
            if not kind:
                raise reader.syntax_error()
            reader.expect_end()
            return Discard(kind)
        case "DEALLOCATE":
            reader.accept("PREPARE")
    name = "" if reader.accept("ALL") else reader.read_name()
    reader.expect_end()
    return Deallocate(name) if reader.verb == "DEALLOCATE" else CloseCursor(name)


_FALSE = frozenset(["FALSE", "OFF", "0"])
_COPY_HINT = "COPY (SELECT ...) TO STDOUT."
_COMMANDS: dict[str, Callable[[CommandReader], Command | None]] = {
    **dict.fromkeys("BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE".split(), _parse_transaction),
    **dict.fromkeys("CLOSE DEALLOCATE DISCARD LISTEN UNLISTEN".split(), _parse_close),
    **dict.fromkeys(["FETCH", "MOVE"], _parse_fetch),
    "SELECT": _parse_select,
    "SET": _parse_set,
    "RESET": _parse_reset,
    "SHOW": _parse_show,
    "DECLARE": _parse_declare,
    "PREPARE": _parse_prepare,
    "EXECUTE": _parse_execute,
    "EXPLAIN": _parse_explain,
    "COPY": _parse_copy,
    "LOCK": _parse_lock,
    "CREATE": _parse_create,
    "DROP": _parse_drop,
}
